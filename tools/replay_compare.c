/* replay_compare: what is sent of a recorded request, and whether its answer is the recorded one.
 */
#include <stdlib.h>
#include <string.h>
#include "proto/hash.h"
#include "proto/json_pull.h"
#include "tools/replay_run.h"

/* ---- the body, with its seed */

/* What an object says of "seed". */
struct seed_said {
    size_t open;  /* behind the brace of the object; 0: there is none */
    bool given;   /* a value that counts */
    size_t at, n; /* one that asks for none: null, or -1 in OpenAI's manner; n 0: there is none */
};

struct seed_place {
    struct seed_said top, params; /* the body, its member "parameters" */
    size_t params_null;           /* where it stands, when it is null; 0: it is not */
    bool has_prompt;
};

static void note_seed(struct json_pull *j, struct seed_said *said) {
    struct json_span s;
    const enum json_pulled v = json_pull_value(j, &s);
    said->n = 0;
    if (v == JSON_PULL_NULL)
        said->n = 4;
    else if (v == JSON_PULL_INT && memcmp(j->lex.p + j->lex.at - 2, "-1", 2) == 0)
        said->n = 2;
    said->at = j->lex.at - said->n;
    said->given = said->n == 0;
    if (v == JSON_PULL_ARRAY || v == JSON_PULL_OBJECT) json_pull_rest(j);
}

static void look_at_params(struct json_pull *j, struct seed_place *at) {
    struct seed_said *said = &at->params;
    struct json_span name;
    const enum json_pulled v = json_pull_value(j, &name);
    if (v == JSON_PULL_ARRAY) json_pull_rest(j);
    if (v == JSON_PULL_NULL) at->params_null = j->lex.at - 4;
    if (v != JSON_PULL_OBJECT) return;
    said->open = j->lex.at;
    while (json_pull_member(j, &name)) {
        if (json_pull_name_is(j, &name, "seed"))
            note_seed(j, said);
        else
            (void)json_pull_skip(j);
    }
}

static bool look(struct seed_place *at, const char *body, size_t n) {
    struct json_pull j;
    struct json_span name;
    json_pull_start(&j, body, n);
    if (json_pull_value(&j, &name) != JSON_PULL_OBJECT) return false;
    at->top.open = j.lex.at;
    while (json_pull_member(&j, &name)) {
        if (json_pull_name_is(&j, &name, "seed")) {
            note_seed(&j, &at->top);
        } else if (json_pull_name_is(&j, &name, "parameters")) {
            look_at_params(&j, at);
        } else {
            at->has_prompt |= json_pull_name_is(&j, &name, "prompt");
            (void)json_pull_skip(&j);
        }
    }
    return json_pull_end(&j);
}

/* The next member comes behind an insertion, or the end of the object. */
static const char *comma(const char *body, size_t n, size_t at) {
    while (at < n && json_is_space((unsigned char)body[at])) at++;
    return at < n && body[at] == '}' ? "" : ",";
}

/* Tensors and texts of options may hold a seed as well, and none may be given twice. */
static bool has_own_seed(const struct run_request *r) {
    static const char infer[] = "/infer", word[] = "seed";
    const size_t n = strlen(r->path), n_infer = sizeof(infer) - 1;
    return strncmp(r->path, "/v2/", 4) == 0 && n > n_infer &&
           strcmp(r->path + n - n_infer, infer) == 0 &&
           memmem(r->body, r->n_json, word, sizeof(word) - 1) != NULL;
}

/* The JSON, with the seed in its place. */
static void put_json(struct buf *out, const struct run_request *r) {
    struct seed_place at = {0};
    const char *b = r->body;
    const size_t n = r->n_json;
    if (!r->has_seed || has_own_seed(r) || !look(&at, b, n)) {
        buf_append(out, b, n);
        return;
    }
    /* The members of OpenAI's and of vLLM's bodies are flat, those of others in "parameters". */
    const bool flat =
        strncmp(r->path, "/v1/", 4) == 0 || (strcmp(r->path, "/generate") == 0 && at.has_prompt);
    const struct seed_said *said = flat ? &at.top : &at.params;
    const size_t open = said->open > 0 ? said->open : at.top.open;
    char text[64];
    snprintf(text, sizeof(text),
             said->open > 0 ? "\"seed\":%llu" : "\"parameters\":{\"seed\":%llu}",
             (unsigned long long)r->seed);
    if (said->given) {
        buf_append(out, b, n);
    } else if (!flat && at.params_null > 0 && said->open == 0) {
        buf_append(out, b, at.params_null);
        buf_printf(out, "{\"seed\":%llu}", (unsigned long long)r->seed);
        buf_append(out, b + at.params_null + 4, n - at.params_null - 4);
    } else if (said->n > 0) {
        buf_append(out, b, said->at);
        buf_printf(out, "%llu", (unsigned long long)r->seed);
        buf_append(out, b + said->at + said->n, n - said->at - said->n);
    } else {
        buf_append(out, b, open);
        buf_puts(out, text);
        buf_puts(out, comma(b, n, open));
        buf_append(out, b + open, n - open);
    }
}

bool run_body(struct buf *out, size_t *n_json, const struct run_request *r) {
    put_json(out, r);
    *n_json = out->len;
    buf_append(out, r->body + r->n_json, r->n - r->n_json);
    return !out->failed;
}

/* ---- who is who in the second run */

static bool is_asked(const struct run_request *r, const char *path, const char *body, size_t n) {
    return !r->taken && r->n == n && strcmp(r->path, path) == 0 && memcmp(r->body, body, n) == 0;
}

static uint64_t hash(const char *path, const char *body, size_t n) {
    return hash64_bytes(hash64_text(HASH64_BEGIN, path), body, n);
}

struct index {
    uint64_t *hashes;      /* [n] of each request */
    size_t *next, *bucket; /* [n], [n_buckets]: number + 1 of a request; 0: none */
    size_t n_buckets;
};

static void index_free(struct index *x) {
    free(x->hashes);
    free(x->next);
    free(x->bucket);
}

static bool index_open(struct index *x, const struct run *run) {
    x->n_buckets = run->n + 1;
    x->hashes = calloc(run->n + 1, sizeof(*x->hashes));
    x->next = calloc(run->n + 1, sizeof(*x->next));
    x->bucket = calloc(x->n_buckets, sizeof(*x->bucket));
    if (x->hashes == NULL || x->next == NULL || x->bucket == NULL) return false;
    for (size_t i = run->n; i-- > 0;) { /* the first to come is found first */
        struct run_request *r = run->requests[i];
        size_t *at = &x->bucket[(x->hashes[i] = hash(r->path, r->body, r->n)) % x->n_buckets];
        r->taken = false;
        x->next[i] = *at;
        *at = i + 1;
    }
    return true;
}

static struct run_request *index_find(const struct index *x, const struct run *run,
                                      const char *path, const char *body, size_t n) {
    const uint64_t h = hash(path, body, n);
    for (size_t i = x->bucket[h % x->n_buckets]; i > 0; i = x->next[i - 1]) {
        struct run_request *r = run->requests[i - 1];
        if (x->hashes[i - 1] == h && is_asked(r, path, body, n)) return r;
    }
    return NULL;
}

/* ---- one answer */

/* Ended before its time, through no fault of what it asked for. */
static bool is_cut(const struct run_request *r) {
    const int s = r->status;
    return s == 0 || s >= 500 || s == 408 || s == 424 || s == 429 || s == 499;
}

/* The next token of a choice from *at on; NULL: none. */
static const struct emitted *next_of(const struct run_request *r, uint16_t choice, size_t *at) {
    while (*at < r->n_tokens && r->tokens[*at].choice != choice) (*at)++;
    return *at < r->n_tokens ? &r->tokens[(*at)++] : NULL;
}

static void say_token(char out[40], const struct emitted *t) {
    if (t == NULL)
        snprintf(out, 40, "none");
    else if (t->finish != 0)
        snprintf(out, 40, "%d with its end (%d)", (int)t->id, (int)t->finish);
    else
        snprintf(out, 40, "%d", (int)t->id);
}

/* part: one of both may be shorter. */
static bool same_choice(const struct run_request *a, const struct run_request *b, uint16_t choice,
                        bool part, char *why, size_t why_bytes) {
    for (size_t i = 0, j = 0, k = 0;; k++) {
        const struct emitted *x = next_of(a, choice, &i), *y = next_of(b, choice, &j);
        if ((x == NULL && y == NULL) || (part && (x == NULL || y == NULL))) return true;
        if (x != NULL && y != NULL && x->id == y->id && x->finish == y->finish) continue;
        char was[40], is[40];
        say_token(was, x);
        say_token(is, y);
        snprintf(why, why_bytes, "token %zu of choice %u: recorded %s, now %s", k, (unsigned)choice,
                 was, is);
        return false;
    }
}

static uint16_t choice_max(const struct run_request *r) {
    uint16_t max = 0;
    for (size_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i].choice > max) max = r->tokens[i].choice;
    return max;
}

static bool same(const struct run_request *a, const struct run_request *b, char *why,
                 size_t why_bytes) {
    const bool part = is_cut(a);
    if (!part && a->status != b->status) {
        snprintf(why, why_bytes, "recorded status %d, now %d", a->status, b->status);
        return false;
    }
    const uint16_t ma = choice_max(a), mb = choice_max(b), last = ma > mb ? ma : mb;
    for (unsigned c = 0; c <= last; c++)
        if (!same_choice(a, b, (uint16_t)c, part, why, why_bytes)) return false;
    return true;
}

/* ---- two runs */

static void note(struct run_verdict *v, const struct run_request *a, const char *why) {
    if (v->first[0] != 0) return;
    snprintf(v->first, sizeof(v->first), "request %llu (%s, at %.6f s): %s",
             (unsigned long long)a->id, a->path, (double)a->us / 1e6, why);
}

static void compare_one(struct run_verdict *v, const struct run_request *a,
                        const struct run_request *b) {
    char why[160] = "";
    if (b == NULL) {
        v->n_missing++;
        note(v, a, "the second run has no such request");
        return;
    }
    if (b->status == 0) {
        v->n_open++;
        note(v, a, "it has no end in the second run");
        return;
    }
    v->n_tokens += b->n_tokens;
    v->n_same_pair += a->p == b->p && a->d == b->d;
    if (!same(a, b, why, sizeof(why))) {
        v->n_differ++;
        note(v, a, why);
    } else if (is_cut(a)) {
        v->n_part++;
    } else {
        v->n_same++;
    }
}

enum err run_compare(struct run_verdict *out, const struct run *a, const struct run *b) {
    struct index x = {0};
    struct buf body = BUF_INIT;
    size_t n_json;
    bool ok = index_open(&x, b);
    memset(out, 0, sizeof(*out));
    out->n = a->n;
    for (size_t i = 0; i < a->n && ok; i++) {
        const struct run_request *r = a->requests[i];
        buf_clear(&body);
        ok = run_body(&body, &n_json, r);
        if (!ok) break;
        struct run_request *twin = index_find(&x, b, r->path, body.data, body.len);
        if (twin == NULL) twin = index_find(&x, b, r->path, r->body, r->n); /* sent by others */
        if (twin != NULL) twin->taken = true;
        compare_one(out, r, twin);
    }
    buf_free(&body);
    index_free(&x);
    return ok ? ERR_OK : ERR_NO_MEMORY;
}
