/* body_look: one walk over the bytes, a few members; no tree. */
#include "coordinator/body_look.h"

#include <string.h>
#include "proto/json_pull.h"

enum { TOKEN_CHARS = 4, DEPTH_MAX = 4 };

bool body_id_ok(const char *id, size_t n) {
    if (n < 1 || n > CLIENT_ID_BYTES_MAX) return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

struct input {
    bool there; /* and not null */
    size_t n_chars;
    size_t n_prompts; /* of a list of texts or of lists its items; else 0 */
};

static struct input text_length(struct json_pull *j, int depth);

/* Of an object's texts the first of these that is there counts. */
static size_t object_length(struct json_pull *j, int depth) {
    enum { N = 3 };
    static const char *const members[N] = {"content", "text", "data"};
    struct input got[N] = {0};
    struct json_span name;
    while (json_pull_member(j, &name)) {
        size_t i = 0;
        while (i < N && !json_pull_name_is(j, &name, members[i])) i++;
        if (i < N)
            got[i] = text_length(j, depth + 1);
        else
            json_pull_skip(j);
    }
    for (size_t i = 0; i < N; i++)
        if (got[i].there) return got[i].n_chars;
    return 0;
}

/* *n_items: grows by what it took. */
static size_t item_length(struct json_pull *j, int depth, size_t *n_items) {
    size_t n = json_pull_ints(j);
    if (n > 0) {
        *n_items += n;
        return depth > DEPTH_MAX ? 0 : n * TOKEN_CHARS;
    }
    size_t n_bytes;
    if ((n = json_pull_texts(j, &n_bytes)) > 0) {
        *n_items += n;
        return depth > DEPTH_MAX ? 0 : n_bytes;
    }
    n = json_pull_empties(j);
    *n_items += n > 0 ? n : 1;
    return n > 0 ? 0 : text_length(j, depth).n_chars;
}

/* A text or a list comes. */
static bool is_prompt_next(const struct json_pull *j) {
    size_t at = j->lex.at;
    while (at < j->lex.n && json_is_space(j->lex.p[at])) at++;
    return at < j->lex.n && (j->lex.p[at] == '"' || j->lex.p[at] == '[');
}

static struct input list_length(struct json_pull *j, int depth) {
    struct input in = {.there = true};
    bool prompts = false;
    size_t n_items = 0;
    while (json_pull_item(j)) {
        if (n_items == 0) prompts = is_prompt_next(j);
        in.n_chars += item_length(j, depth + 1, &n_items);
    }
    if (prompts) in.n_prompts = n_items;
    return in;
}

/* Characters of a text, of texts in a list, or of the texts of messages and their parts. */
static struct input text_length(struct json_pull *j, int depth) {
    struct input in = {.there = true};
    struct json_span s;
    if (depth > DEPTH_MAX) {
        in.there = json_pull_skip(j) != JSON_PULL_NULL;
        return in;
    }
    switch (json_pull_value(j, &s)) {
    case JSON_PULL_STRING: in.n_chars = s.n_bytes; break;
    case JSON_PULL_INT: in.n_chars = TOKEN_CHARS; break;
    case JSON_PULL_ARRAY: return list_length(j, depth);
    case JSON_PULL_OBJECT: in.n_chars = object_length(j, depth); break;
    case JSON_PULL_NULL: in.there = false; break;
    default: break;
    }
    return in;
}

/* The members a family's input may stand in; the first one there counts. */
static const char *const *inputs_of(const struct api_path *path) {
    static const char *const chat[] = {"messages", NULL}, *const completions[] = {"prompt", NULL},
                             *const text[] = {"text_input", NULL},
                             *const tokens[] = {"inputs", NULL},
                             *const native[] = {"inputs", "input_id", NULL},
                             *const generate[] = {"inputs", "prompt", NULL};
    switch (path->api) {
    case API_OPENAI_CHAT: return chat;
    case API_OPENAI_COMPLETIONS: return completions;
    case API_TRITON_TEXT: return text;
    case API_TRITON_TOKEN: return tokens;
    case API_NATIVE: return native;
    default: return generate;
    }
}

/* The member that holds the client's own id; NULL: the family has none. */
static const char *id_of(const struct api_path *path) {
    switch (path->api) {
    case API_TRITON_TEXT:
    case API_TRITON_TOKEN: return "id";
    case API_OPENAI_CHAT:
    case API_OPENAI_COMPLETIONS: return "request_id";
    default: return NULL;
    }
}

enum { INPUTS_MAX = 2, NAME_BYTES_MAX = 21 }; /* "max_completion_tokens" */

/* How much an answer is; a member of the body, or of its parameters. */
enum amount { N_CHOICES, N_BEST_OF, N_MAX, N_COMPLETION, N_NEW, AMOUNTS };
static const char *const amount_names[AMOUNTS] = {"n", "best_of", "max_tokens",
                                                  "max_completion_tokens", "max_new_tokens"};
struct amounts {
    uint64_t of[AMOUNTS];
};

struct found {
    bool stream, prompt;
    struct amounts body, params;
    struct input inputs[INPUTS_MAX];
    char id[CLIENT_ID_BYTES_MAX + 1];
};

/* Which of the path's inputs this member is; -1: none. */
static int input_of(const struct json_pull *j, const struct json_span *name,
                    const char *const *inputs) {
    for (int i = 0; inputs[i] != NULL; i++)
        if (json_pull_name_is(j, name, inputs[i])) return i;
    return -1;
}

static void take_id(struct json_pull *j, char *id) {
    struct json_span s;
    enum json_pulled kind = json_pull_value(j, &s);
    if (kind != JSON_PULL_STRING || !json_pull_copy(j, &s, id, CLIENT_ID_BYTES_MAX + 1) ||
        !body_id_ok(id, s.n_bytes))
        id[0] = 0;
    if (kind >= JSON_PULL_ARRAY) json_pull_rest(j);
}

/* An unsigned integer; anything else is 0. */
static uint64_t take_u64(struct json_pull *j) {
    uint64_t v = 0;
    if (json_pull_skip(j) != JSON_PULL_INT) return 0;
    size_t at = j->lex.at; /* behind its last digit */
    while (at > 0 && j->lex.p[at - 1] >= '0' && j->lex.p[at - 1] <= '9') at--;
    if (at > 0 && j->lex.p[at - 1] == '-') return 0;
    for (; at < j->lex.at; at++) v = v * 10 + (uint64_t)(j->lex.p[at] - '0');
    return v;
}

/* False: the member is none of them, and nothing is taken. */
static bool take_amount(struct json_pull *j, const struct json_span *name, struct amounts *a) {
    for (int i = 0; i < AMOUNTS; i++)
        if (json_pull_name_is(j, name, amount_names[i])) {
            a->of[i] = take_u64(j);
            return true;
        }
    return false;
}

static void take_parameters(struct json_pull *j, struct amounts *a) {
    struct json_span s, name;
    *a = (struct amounts){{0}};
    enum json_pulled kind = json_pull_value(j, &s);
    if (kind == JSON_PULL_OBJECT) {
        while (json_pull_member(j, &name))
            if (!take_amount(j, &name, a)) json_pull_skip(j);
    } else if (kind == JSON_PULL_ARRAY) {
        json_pull_rest(j);
    }
}

/* The members of the root object; of one that stands there twice the last counts. */
static void take_members(struct json_pull *j, struct found *f, const struct api_path *path) {
    const char *const *inputs = inputs_of(path), *id = id_of(path);
    struct json_span name;
    while (json_pull_member(j, &name)) {
        if (name.n_bytes == 0 || name.n_bytes > NAME_BYTES_MAX) {
            json_pull_skip(j);
            continue;
        }
        int i = input_of(j, &name, inputs);
        bool prompt = json_pull_name_is(j, &name, "prompt");
        if (i >= 0) {
            f->inputs[i] = text_length(j, 0);
            if (prompt) f->prompt = f->inputs[i].there;
        } else if (prompt) {
            f->prompt = json_pull_skip(j) != JSON_PULL_NULL;
        } else if (json_pull_name_is(j, &name, "stream")) {
            f->stream = json_pull_skip(j) == JSON_PULL_TRUE;
        } else if (id != NULL && json_pull_name_is(j, &name, id)) {
            take_id(j, f->id);
        } else if (json_pull_name_is(j, &name, "parameters")) {
            take_parameters(j, &f->params);
        } else if (!take_amount(j, &name, &f->body)) {
            json_pull_skip(j);
        }
    }
}

static uint64_t largest(const struct found *f, enum amount first, enum amount last) {
    uint64_t most = 0;
    for (int i = first; i <= (int)last; i++) {
        if (f->body.of[i] > most) most = f->body.of[i];
        if (f->params.of[i] > most) most = f->params.of[i];
    }
    return most;
}

static uint64_t between(uint64_t v, uint64_t lo, uint64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

static void count_work(struct body_look *out, const struct found *f, size_t n_prompts) {
    uint64_t choices = between(largest(f, N_CHOICES, N_BEST_OF), 1, SEQUENCES_MAX);
    out->n_prompts = (unsigned)between(n_prompts, 1, PARTS_MAX);
    out->n_sequences = (unsigned)between(choices * out->n_prompts, 1, SEQUENCES_MAX);
    out->new_tokens_max = between(largest(f, N_MAX, N_NEW), 0, PROMPT_TOKENS_MAX);
}

void body_look(struct body_look *out, const struct api_path *path, const char *body, size_t n) {
    struct json_pull j;
    struct json_span s;
    struct found f = {0};
    memset(out, 0, sizeof(*out));
    out->n_chars = n;
    out->n_prompts = out->n_sequences = 1;
    out->stream = api_streams(path, false, false);
    json_pull_start(&j, body, n);
    if (json_pull_value(&j, &s) != JSON_PULL_OBJECT) return;
    take_members(&j, &f, path);
    if (!json_pull_end(&j)) return;
    out->is_object = true;
    out->stream = api_streams(path, f.stream, f.prompt);
    size_t n_prompts = 0;
    for (size_t i = 0; i < INPUTS_MAX && !out->has_input; i++) {
        out->has_input = f.inputs[i].there;
        if (!out->has_input) continue;
        out->n_chars = f.inputs[i].n_chars;
        n_prompts = f.inputs[i].n_prompts;
    }
    count_work(out, &f, n_prompts);
    memcpy(out->client_id, f.id, strlen(f.id) + 1);
    out->client_id_soft = f.id[0] != 0 && strcmp(id_of(path), "request_id") == 0;
}
