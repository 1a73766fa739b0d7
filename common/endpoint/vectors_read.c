/* vectors_read: bodies to texts. What a form calls its members is in its row; everything else here
 * is one way for all of them. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/vectors.h"
#include "proto/json_tree.h"
#include "proto/limits.h"

enum { NAMES_MAX = 4 };

/* Where a body has its texts: one list, or two whose members are compared. The first name that is
 * there counts. */
static const struct form {
    const char *left[NAMES_MAX], *right[NAMES_MAX];
    bool left_one;  /* a single string, no list */
    bool documents; /* those on the right are strings or objects with a text */
    bool token_ids; /* a text may be a list of ids */
    bool caikit;    /* in `inputs`, parameters in `parameters`, model_id */
    bool bare;      /* Caikit: `inputs` is the left itself */
    bool each;      /* two lists of one length go pair by pair */
    bool normalize;
    bool ollama;          /* its names of models, its truncate; no text is no error */
    bool documents_shown; /* documents are repeated unless the body says no */
} forms[VECTORS_COUNT] = {
    [VECTORS_EMBEDDINGS] = {.left = {"input"}, .token_ids = true, .normalize = true},
    [VECTORS_POOLING] = {.left = {"input"}, .token_ids = true},
    [VECTORS_SCORE] = {.left = {"text_1", "data_1", "queries"},
                       .right = {"text_2", "data_2", "documents", "items"},
                       .each = true},
    [VECTORS_RERANK] = {.left = {"query"},
                        .right = {"documents", "texts"},
                        .left_one = true,
                        .documents = true,
                        .documents_shown = true},
    [VECTORS_RERANK_SHORT] = {.left = {"query"},
                              .right = {"documents"},
                              .left_one = true,
                              .documents = true},
    [VECTORS_CAIKIT_EMBEDDING] =
        {.left = {"inputs"}, .left_one = true, .caikit = true, .bare = true, .normalize = true},
    [VECTORS_CAIKIT_EMBEDDINGS] = {.left = {"texts"},
                                   .caikit = true,
                                   .bare = true,
                                   .normalize = true},
    [VECTORS_CAIKIT_SIMILARITY] = {.left = {"source_sentence"},
                                   .right = {"sentences"},
                                   .left_one = true,
                                   .caikit = true},
    [VECTORS_CAIKIT_SIMILARITIES] = {.left = {"source_sentences"},
                                     .right = {"sentences"},
                                     .caikit = true},
    [VECTORS_CAIKIT_RERANK] = {.left = {"query"},
                               .right = {"documents"},
                               .left_one = true,
                               .documents = true,
                               .caikit = true,
                               .documents_shown = true},
    [VECTORS_CAIKIT_RERANKS] = {.left = {"queries"},
                                .right = {"documents"},
                                .documents = true,
                                .caikit = true,
                                .documents_shown = true},
    [VECTORS_LLAMACPP] = {.left = {"content", "input"}, .token_ids = true, .normalize = true},
    [VECTORS_OLLAMA_EMBED] = {.left = {"input"}, .ollama = true, .normalize = true},
    [VECTORS_OLLAMA_EMBEDDINGS] = {.left = {"prompt"}, .left_one = true, .ollama = true},
};

struct reading {
    const struct endpoint *ep;
    const struct endpoint_ask *ask;
    const struct vectors_limits *limits;
    const struct form *form;
    struct vectors_req *v;
    struct json_value *in, *params; /* where texts and parameters lie; borrowed of v->body */
    size_t room;                    /* tokens of a text, specials included */
    bool cut;                       /* too long a text loses its end */
    bool content;                   /* `keep` counts no specials (Caikit) */
    bool plain;                     /* texts get no specials */
    size_t keep;                    /* with cut: tokens that stay */
    struct api_answer *err;
};

static bool fail_code(const struct reading *r, int status, const char *param, const char *code,
                      const char *text) {
    ep_answer_error_of(r->ep, r->ask->path->errors, status, text, param, code, r->err);
    return false;
}

static bool fail(const struct reading *r, int status, const char *param, const char *text) {
    return fail_code(r, status, param, NULL, text);
}

/* Caikit tells what is wrong in kind (kserve-runtimes 3.1) from what is not allowed. */
static bool wrong_kind(const struct reading *r, const char *param, const char *kind,
                       const char *text) {
    char caikit[64];
    if (!r->form->caikit) return fail(r, 400, param, text);
    snprintf(caikit, sizeof(caikit), "Input should be a valid %s", kind);
    return fail(r, 422, param, caikit);
}

static bool fail_memory(const struct reading *r) {
    return fail(r, 503, NULL, err_text(ERR_NO_MEMORY));
}

/* ---- parameters */

static bool read_int(const struct reading *r, const char *name, int64_t min, int64_t max,
                     int64_t *out, bool *given) {
    char text[160], value[32] = "";
    enum json_got got = json_get_i64(r->params, name, out);
    *given = got == JSON_OK;
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got == JSON_OK && *out >= min && *out <= max) return true;
    if (got == JSON_OK) snprintf(value, sizeof(value), ", got %lld", (long long)*out);
    snprintf(text, sizeof(text), "%s must be an integer from %lld to %lld%s", name, (long long)min,
             (long long)max, value);
    return got == JSON_OK ? fail(r, 400, name, text) : wrong_kind(r, name, "integer", text);
}

static bool read_bool(const struct reading *r, const char *name, bool *out) {
    char text[96];
    bool v = *out;
    enum json_got got = json_get_bool(r->params, name, &v);
    if (got == JSON_OK) *out = v;
    if (got != JSON_WRONG_TYPE) return true;
    snprintf(text, sizeof(text), "%s must be true or false", name);
    return wrong_kind(r, name, "boolean", text);
}

/* vLLM: so many tokens in all; -1: as many as fit. Caikit: so many beside the specials; below 0: as
 * many as fit; 0 or above what fits: none may be too long. */
static bool read_truncation(struct reading *r) {
    const char *name = r->form->caikit ? "truncate_input_tokens" : "truncate_prompt_tokens";
    const int64_t most = (int64_t)r->room;
    int64_t n = 0;
    bool given = false;
    if (r->form->ollama) {
        r->cut = true;
        r->keep = r->room;
        return read_bool(r, "truncate", &r->cut);
    }
    if (!read_int(r, name, r->form->caikit ? INT32_MIN : -1, r->form->caikit ? INT32_MAX : most, &n,
                  &given))
        return false;
    r->keep = r->room;
    if (r->form->caikit) {
        r->cut = n < 0 || (n > 0 && n <= most);
        r->content = n > 0;
        if (r->cut && n > 0) r->keep = (size_t)n;
        return true;
    }
    if (given && n == 0) return fail(r, 400, name, "truncate_prompt_tokens must not be 0");
    r->cut = given;
    if (r->cut && n > 0) r->keep = (size_t)n;
    return true;
}

static bool read_dimensions(const struct reading *r) {
    const struct matryoshka *m = &r->ep->model->matryoshka;
    const int hidden = r->ep->model->hidden;
    char text[256], sizes[160] = "";
    int64_t n = 0;
    bool given = false;
    if (!read_int(r, "dimensions", r->form->ollama ? 0 : 1, hidden, &n, &given)) return false;
    given = given && n > 0; /* Ollama's 0: all */
    bool known = m->n == 0 || n == hidden;
    for (int i = 0; i < m->n; i++) {
        const size_t at = strlen(sizes);
        known = known || m->sizes[i] == n;
        snprintf(sizes + at, sizeof(sizes) - at, "%s%d", i > 0 ? ", " : "", m->sizes[i]);
    }
    if (given && !known) {
        snprintf(text, sizeof(text), "dimensions must be one of %s, got %lld", sizes, (long long)n);
        return fail(r, 400, "dimensions", text);
    }
    r->v->dimensions = given ? (int)n : 0;
    return true;
}

static bool read_encoding(const struct reading *r) {
    const char *s = "float";
    size_t n = 0;
    enum json_got got = json_get_str(r->params, "encoding_format", &s, &n);
    r->v->base64 = strcmp(s, "base64") == 0;
    if (got == JSON_WRONG_TYPE || (!r->v->base64 && strcmp(s, "float") != 0))
        return fail(r, 400, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
    return true;
}

/* vLLM's: in which bytes base64 has a number, whether texts get the model's specials. The first are
 * little-endian floats of 32 bits here; pairs that are judged always have specials. */
static bool read_form(struct reading *r) {
    const char *dtype = "float32", *order = "little";
    size_t n = 0;
    bool specials = true;
    if (!read_bool(r, "add_special_tokens", &specials)) return false;
    if (!specials && !r->form->token_ids)
        return fail(r, 400, "add_special_tokens",
                    "add_special_tokens must be true: texts are read with the model's own");
    r->plain = !specials;
    if (json_get_str(r->params, "embed_dtype", &dtype, &n) == JSON_WRONG_TYPE ||
        (strcmp(dtype, "float32") != 0 && strcmp(dtype, "auto") != 0))
        return fail(r, 400, "embed_dtype", "embed_dtype must be \"float32\"");
    if (json_get_str(r->params, "endianness", &order, &n) == JSON_WRONG_TYPE ||
        (strcmp(order, "little") != 0 && strcmp(order, "native") != 0))
        return fail(r, 400, "endianness", "endianness must be \"little\" or \"native\"");
    return true;
}

/* llama.cpp's: -1 as the model has it, 2 of length one. */
static bool read_norm(const struct reading *r) {
    int64_t n = 2;
    enum json_got got = json_get_i64(r->params, "embd_normalize", &n);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK || (n != -1 && n != 2))
        return fail(r, 400, "embd_normalize",
                    "embd_normalize must be -1 (as the model has it) or 2 (of length one)");
    r->v->normalize = n == 2;
    return true;
}

static bool read_params(struct reading *r) {
    struct vectors_req *v = r->v;
    bool given;
    v->normalize = r->form->normalize;
    v->show_documents = v->show_texts = v->show_queries = r->form->documents_shown;
    if (r->form->caikit) v->show_queries = v->show_texts = true;
    return read_truncation(r) && read_form(r) && read_norm(r) && read_dimensions(r) &&
           read_encoding(r) && read_bool(r, "normalize", &v->normalize) &&
           read_bool(r, "return_documents", &v->show_documents) &&
           read_bool(r, "return_text", &v->show_texts) &&
           read_bool(r, r->form->left_one ? "return_query" : "return_queries", &v->show_queries) &&
           read_bool(r, "raw_scores", &v->raw_scores) &&
           read_int(r, "top_n", INT32_MIN, INT32_MAX, &v->top_n, &given);
}

/* ---- texts */

static bool too_long(const struct reading *r, size_t n) {
    char text[160];
    if (r->form->ollama) return fail(r, 400, NULL, "the input length exceeds the context length");
    snprintf(text, sizeof(text),
             "This model's maximum context length is %zu tokens. However, a text has %zu tokens.",
             r->room, n);
    return fail_code(r, 400, NULL, "context_length_exceeded", text);
}

static bool add_tokens(const struct reading *r, size_t n) {
    char text[128];
    r->v->n_tokens += n;
    if (r->v->n_tokens <= r->limits->tokens_max) return true;
    snprintf(text, sizeof(text), "all texts together may have at most %llu tokens",
             (unsigned long long)r->limits->tokens_max);
    return fail(r, 400, NULL, text);
}

/* Ids of a string without specials; of too long a one no more than show it. */
static bool encode(const struct reading *r, const char *s, size_t n, struct id_list *out) {
    if (n > r->ep->conf.max_request_bytes)
        return fail(r, 400, NULL, "a text is longer than maxRequestLength allows");
    enum err e = tokenizer_encode(r->ep->tok, s, n, false, PROMPT_TOKENS_MAX, out);
    if (e == ERR_OK) return true;
    return fail(r, e == ERR_NO_MEMORY ? 503 : 400, NULL, "a text cannot be tokenised");
}

/* What stays of n ids beside n_special others; 0 and false: too long. */
static bool fit(const struct reading *r, size_t *n, size_t n_special) {
    const size_t room = r->room > n_special ? r->room - n_special : 0;
    size_t keep = r->content ? r->keep : r->keep > n_special ? r->keep - n_special : 0;
    if (keep > room) keep = room;
    if (!r->cut && *n > room) return too_long(r, *n + n_special);
    if (r->cut && *n > keep) *n = keep;
    return true;
}

static enum err copy_ids(const struct id_list *from, struct id_list *to) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < from->n && e == ERR_OK; i++) e = id_list_push(to, from->ids[i]);
    return e;
}

static bool wrap_one(const struct reading *r, const struct id_list *content,
                     struct vectors_text *out) {
    struct id_list part = *content;
    if (!fit(r, &part.n, r->plain ? 0 : tokenizer_special_count(r->ep->tok, false))) return false;
    if ((r->plain ? copy_ids(&part, &out->ids) : tokenizer_wrap(r->ep->tok, &part, &out->ids)) !=
        ERR_OK)
        return fail_memory(r);
    if (out->ids.n == 0) return fail(r, 400, NULL, "a text must have at least one token");
    return add_tokens(r, out->ids.n);
}

/* Of a pair the second text is cut, never the first. */
static bool wrap_pair(const struct reading *r, const struct id_list *a, const struct id_list *b,
                      struct vectors_text *out) {
    const struct tokenizer *t = r->ep->tok;
    const bool pairs = tokenizer_has_pairs(t);
    const size_t other = a->n + tokenizer_special_count(t, pairs);
    struct id_list part = *b;
    enum err e;
    if (!fit(r, &part.n, other)) return false;
    if (other > r->room) return too_long(r, other);
    if (pairs) {
        e = tokenizer_wrap_pair(t, a, &part, &out->ids, &out->n_first);
    } else {
        struct id_list both = {0};
        e = copy_ids(a, &both);
        if (e == ERR_OK) e = copy_ids(&part, &both);
        if (e == ERR_OK) e = tokenizer_wrap(t, &both, &out->ids);
        id_list_free(&both);
    }
    return e == ERR_OK ? add_tokens(r, out->ids.n) : fail_memory(r);
}

/* A list of ids, taken as it is. */
static bool take_ids(const struct reading *r, const struct json_value *list,
                     struct vectors_text *out) {
    const size_t n = json_arr_len(list);
    char text[128];
    for (size_t i = 0; i < n; i++) {
        int64_t id = -1;
        if (json_as_i64(json_arr_at(list, i), &id) != JSON_OK || id < 0 ||
            id >= r->ep->model->vocab_size) {
            snprintf(text, sizeof(text), "input: a token id must be an integer from 0 to %d",
                     r->ep->model->vocab_size - 1);
            return fail(r, 400, "input", text);
        }
        if (id_list_push(&out->ids, (int32_t)id) != ERR_OK) return fail_memory(r);
    }
    if (n == 0) return fail(r, 400, "input", "input must not be empty");
    if (!fit(r, &out->ids.n, 0)) return false;
    return add_tokens(r, out->ids.n);
}

/* The string of item i of a side; documents may be objects. NULL: it is none. */
static const char *text_of(const struct json_value *item, bool documents, size_t *n) {
    const char *s = NULL;
    if (json_as_str(item, &s, n) == JSON_OK) return s;
    if (!documents || !json_is(item, json_type_object)) return NULL;
    if (json_get_str(item, "text", &s, n) == JSON_OK) return s;
    if (json_get_str(item, "_text", &s, n) == JSON_OK) return s;
    *n = 0;
    return "";
}

/* A side of the form as a list: a single string counts as one of one. */
struct side {
    struct json_value *one, *list; /* one of them, or neither */
    const char *name;
    size_t n;
    bool ids; /* a list of ids: one text */
};

static struct json_value *side_at(const struct side *s, size_t i) {
    return s->one != NULL ? s->one : s->ids ? s->list : json_arr_at(s->list, i);
}

/* Absent, null, an empty list. */
static bool is_nothing(const struct reading *r, const char *name) {
    struct json_value *v, *arr;
    if (json_get(r->in, name, &v) != JSON_OK) return true;
    return json_as_arr(v, &arr) == JSON_OK && json_arr_len(arr) == 0;
}

/* given: it is there, as nothing, or as something else than a text or a list of them. */
static bool bad_side(const struct reading *r, const char *const names[NAMES_MAX], bool one_only,
                     const char *name, const struct json_value *given) {
    const struct form *f = r->form;
    char text[EP_ELSEWHERE_BYTES], must[160];
    const bool kind =
        given != NULL && !json_is(given, one_only ? json_type_string : json_type_array);
    snprintf(must, sizeof(must), "%s must be %s", name,
             one_only ? "a string" : "a string or a list of at least one");
    if (!f->caikit) {
        snprintf(text, sizeof(text), "%s", f->ollama ? "invalid input type" : must);
        if (given == NULL && names == f->left)
            (void)ep_elsewhere(text, r->ask->path, r->v->body, name, must);
        return fail(r, 400, name, text);
    }
    if (kind) return wrong_kind(r, name, one_only ? "string" : "list", must);
    if (f->documents)
        return fail(r, 400, name, "Cannot rerank without a query and at least one document");
    snprintf(must, sizeof(must), "the required argument %s is missing",
             f->bare && one_only ? "text" : name);
    return fail(r, 400, name, must);
}

static bool find_side(const struct reading *r, const char *const names[NAMES_MAX], bool one_only,
                      struct side *out) {
    const struct form *f = r->form;
    struct json_value *v = NULL, *first = NULL, *given;
    int64_t id;
    char text[EP_ELSEWHERE_BYTES];
    *out = (struct side){.name = names[0]};
    const bool bare = f->bare && names == f->left && !json_is(r->in, json_type_object);
    for (int i = 0; i < NAMES_MAX && names[i] != NULL && v == NULL; i++) {
        if (bare)
            v = r->in;
        else if (json_get(r->in, names[i], &v) != JSON_OK)
            v = NULL;
        if (v != NULL) out->name = names[i];
    }
    given = v;
    if (v != NULL && json_is(v, json_type_string)) {
        out->one = v;
        out->n = (f->ollama || f->caikit) && one_only && json_str_len(v) == 0 ? 0 : 1;
        if (f->caikit && !one_only) v = NULL;
    } else if (v != NULL && json_as_arr(v, &out->list) == JSON_OK && !one_only) {
        out->n = json_arr_len(out->list);
        first = out->n > 0 ? json_arr_at(out->list, 0) : NULL;
        out->ids = f->token_ids && first != NULL && json_as_i64(first, &id) == JSON_OK;
        if (out->ids) out->n = 1;
    } else {
        v = NULL;
    }
    if (v != NULL && out->n > 0) return true;
    if (f->ollama && (v != NULL || is_nothing(r, names[0]))) {
        if (given == NULL &&
            ep_elsewhere(text, r->ask->path, r->v->body, names[0], EP_INPUT_MISSING))
            return fail(r, 400, names[0], text);
        return true;
    }
    return bad_side(r, names, one_only, out->name, given);
}

/* n: texts, or pairs of texts. */
static bool within_limit(const struct reading *r, size_t n, const char *what) {
    char text[128];
    if (n <= r->limits->texts_max) return true;
    snprintf(text, sizeof(text), "at most %zu %s can be asked for at once, got %zu",
             r->limits->texts_max, what, n);
    return fail(r, 400, NULL, text);
}

static bool texts_make(const struct reading *r, size_t n) {
    if (!within_limit(r, n, "texts")) return false;
    r->v->texts = calloc(n > 0 ? n : 1, sizeof(*r->v->texts));
    r->v->n_texts = r->v->texts != NULL ? n : 0;
    return r->v->texts != NULL || fail_memory(r);
}

static bool side_ids(const struct reading *r, const struct side *s, size_t i, bool documents,
                     struct id_list *out) {
    size_t n = 0;
    char text[96];
    if (r->ask->cancelled != NULL && atomic_load(r->ask->cancelled))
        return fail(r, 503, NULL, err_text(ERR_CANCELLED)); /* nobody reads this */
    const char *p = text_of(side_at(s, i), documents, &n);
    if (p != NULL) return encode(r, p, n, out);
    snprintf(text, sizeof(text), "%s[%zu] must be a string", s->name, i);
    return wrong_kind(r, s->name, documents ? "dictionary" : "string", text);
}

static bool put_single(const struct reading *r, const struct side *s, size_t i, bool documents,
                       struct vectors_text *out) {
    struct id_list ids = {0};
    struct json_value *list;
    if (s->ids) return take_ids(r, s->list, out);
    if (r->form->token_ids && json_as_arr(side_at(s, i), &list) == JSON_OK)
        return take_ids(r, list, out);
    const bool good = side_ids(r, s, i, documents, &ids) && wrap_one(r, &ids, out);
    id_list_free(&ids);
    return good;
}

/* What of a text's ids can be of use with any other text: the rest is given back. */
static void keep_room(const struct reading *r, struct id_list *ids) {
    if (ids->n <= r->room) return;
    int32_t *less = realloc(ids->ids, r->room * sizeof(*less));
    if (less == NULL) return;
    *ids = (struct id_list){.ids = less, .n = r->room, .cap = r->room};
}

/* Every pair that is judged, as one text each. What stands on the right meets all on the left, and
 * is encoded once. */
static bool put_pairs(const struct reading *r, const struct side *left, const struct side *right) {
    struct vectors_req *v = r->v;
    size_t at = 0;
    struct id_list *rights = calloc(right->n, sizeof(*rights));
    if (rights == NULL) return fail_memory(r);
    bool good = texts_make(r, v->each ? right->n : left->n * right->n);
    for (size_t i = 0; i < left->n && good; i++) {
        struct id_list a = {0};
        good = side_ids(r, left, i, false, &a);
        for (size_t j = v->each ? i : 0; j < (v->each ? i + 1 : right->n) && good; j++) {
            if (v->each || i == 0) good = side_ids(r, right, j, r->form->documents, &rights[j]);
            good = good && wrap_pair(r, &a, &rights[j], &v->texts[at++]);
            keep_room(r, &rights[j]);
        }
        id_list_free(&a);
    }
    for (size_t j = 0; j < right->n; j++) id_list_free(&rights[j]);
    free(rights);
    return good;
}

static bool read_texts(const struct reading *r) {
    const struct form *f = r->form;
    struct vectors_req *v = r->v;
    struct side left, right = {0};
    if (!find_side(r, f->left, f->left_one, &left)) return false;
    if (f->right[0] != NULL && !find_side(r, f->right, false, &right)) return false;
    v->n_left = left.n;
    v->n_right = right.n;
    v->tei = right.n > 0 && strcmp(right.name, "texts") == 0;
    if (v->tei) { /* which repeats nothing unasked */
        v->show_documents = v->show_texts = false;
        (void)json_get_bool(r->params, "return_text", &v->show_texts);
    }
    v->each = f->each && left.n == right.n;
    if (f->each && left.n != right.n && left.n != 1)
        return fail(r, 400, right.name,
                    "there must be one text on the left, or as many as on the right");
    if (right.n > 0 && !within_limit(r, v->each ? right.n : left.n * right.n, "pairs of texts"))
        return false;
    v->score = right.n > 0 && r->ep->model->n_labels > 0;
    if (v->score) return put_pairs(r, &left, &right);
    bool good = texts_make(r, left.n + right.n);
    for (size_t i = 0; i < left.n && good; i++) good = put_single(r, &left, i, false, &v->texts[i]);
    for (size_t i = 0; i < right.n && good; i++)
        good = put_single(r, &right, i, f->documents, &v->texts[left.n + i]);
    return good;
}

/* ---- the body */

#define NO_MODEL_ID "Please provide model_id in payload"

/* A body that is not Caikit's: where it goes, if it has no inputs. */
static bool caikit_foreign(const struct reading *r, int status, const char *param,
                           const char *text) {
    char with[EP_ELSEWHERE_BYTES];
    struct json_value *v;
    if (json_get(r->v->body, "inputs", &v) == JSON_OK ||
        !ep_elsewhere(with, r->ask->path, r->v->body, "inputs", text))
        return fail(r, status, param, text);
    return fail(r, status, param, with);
}

static bool find_model(const struct reading *r) {
    const char *name = NULL, *member = r->form->caikit ? "model_id" : "model";
    char text[MODEL_NAME_BYTES_MAX + 64];
    size_t n = 0;
    enum json_got got = json_get_str(r->v->body, member, &name, &n);
    if (got == JSON_WRONG_TYPE)
        return wrong_kind(r, member, "string", "the model's name must be a string");
    if (got == JSON_OK && n == 0) got = JSON_ABSENT; /* as vLLM has it */
    if (got != JSON_OK && (r->form->ollama || r->ask->path->errors == API_ERRORS_OVMS))
        return fail_code(r, 400, member, EP_MISSING, "model is required");
    if (got != JSON_OK) return !r->form->caikit || caikit_foreign(r, 400, member, NO_MODEL_ID);
    if (ep_names_model(r->ep, name, n) ||
        (r->form->ollama && strlen(name) == n && ep_ollama_same(name, r->ep->conf.model_name))) {
        r->v->model = ep_dup(name, n);
        return r->v->model != NULL || fail_memory(r);
    }
    snprintf(text, sizeof(text),
             r->form->ollama   ? "model '%.*s' not found"
             : r->form->caikit ? "Model '%.*s' not loaded"
                               : "The model `%.*s` does not exist.",
             MODEL_NAME_BYTES_MAX, name);
    return fail_code(r, 404, member, EP_NO_MODEL, text);
}

/* Caikit refuses a member that it does not know, wherever it is. NULL ends known. */
static bool only(const struct reading *r, const struct json_value *o, const char *const *known) {
    json_obj_foreach(o, key, val) {
        const char *const *k = known;
        (void)val;
        while (*k != NULL && strcmp(*k, key) != 0) k++;
        if (*k == NULL) return caikit_foreign(r, 422, key, EP_CAIKIT_EXTRA);
    }
    return true;
}

/* Where texts and parameters are: at the root, or as Caikit has it. */
static bool find_places(struct reading *r) {
    static const char *const members[] = {"inputs", "parameters", "model_id", NULL};
    static const char *const parameters[] = {
        "truncate_input_tokens", "top_n", "return_documents", "return_text", "return_query",
        "return_queries",        NULL};
    const struct form *f = r->form;
    const char *const inputs[] = {f->left[0], f->right[0], NULL};
    r->in = r->params = r->v->body;
    if (!f->caikit) return true;
    if (!only(r, r->v->body, members)) return false;
    if (json_get(r->v->body, "inputs", &r->in) != JSON_OK)
        return fail(r, 400, "inputs", "inputs is missing");
    struct json_value *p = NULL;
    enum json_got got = json_get_obj(r->v->body, "parameters", &p);
    if (got == JSON_WRONG_TYPE) return fail(r, 422, "parameters", "parameters must be an object");
    if (got == JSON_OK && !only(r, p, parameters)) return false;
    r->params = got == JSON_OK ? p : r->v->body; /* which has none of them */
    if (json_is(r->in, json_type_object)) return only(r, r->in, inputs);
    return f->bare || fail(r, 422, "inputs", "inputs must be an object");
}

/* A message of Caikit's as the body that its REST path has: parameters apart, the model of the
 * call's metadata, a text or texts alone as they are. */
static bool as_payload(const struct reading *r) {
    static const char *const parameters[] = {"truncate_input_tokens", "top_n",
                                             "return_documents",      "return_text",
                                             "return_query",          "return_queries"};
    const struct endpoint_meta *meta = &r->ask->meta;
    const uint32_t failures = json_failures();
    struct json_value *body = json_new_obj(), *in = json_new_obj(), *params = json_new_obj(), *one;
    json_obj_foreach(r->v->body, key, val) {
        bool param = false;
        for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++)
            param |= strcmp(parameters[i], key) == 0;
        json_obj_set(param ? params : in, key, json_ref(val));
    }
    if (json_get(in, "text", &one) == JSON_OK || json_get(in, "texts", &one) == JSON_OK) {
        json_ref(one);
        json_put(in);
        in = one;
    }
    json_obj_set(body, "inputs", in);
    json_obj_set(body, "parameters", params);
    if (meta->has_model) json_obj_set(body, "model_id", json_new_str(meta->model));
    json_put(r->v->body);
    r->v->body = body;
    return json_failures() == failures || fail_memory(r);
}

static bool parse(const struct reading *r) {
    const struct ep_body b = {.path = r->ask->path,
                              .meta = &r->ask->meta,
                              .p = r->ask->body,
                              .own = r->ask->body,
                              .n = r->ask->n,
                              .bytes_max = r->ep->conf.max_request_bytes,
                              .limits = json_limits_client(JSON_DEPTH_MAX)};
    char why[ERR_TEXT_BYTES_MAX];
    int status;
    if (!ep_body_parse(&b, &r->v->wire, &r->v->body, &status, why, sizeof(why)))
        return status != 0 ? fail(r, status, NULL, why)
                           : fail_code(r, 422, NULL, EP_INVALID_JSON,
                                       r->form->ollama && r->ask->n == 0
                                           ? "missing request body"
                                           : "The body must be a JSON object");
    return r->ask->path->frames != API_FRAMES_GRPC || as_payload(r);
}

/* Whether the answer shows something of the body again. */
static bool repeats(const struct reading *r) {
    const struct vectors_req *v = r->v;
    return r->form->documents &&
           (v->show_documents || (v->show_texts && (v->tei || r->form->caikit)) ||
            (v->show_queries && r->form->caikit));
}

/* Texts may wait long for the engine: what is of no more use is given back now. */
static void keep_body(const struct reading *r) {
    struct vectors_req *v = r->v;
    if (repeats(r)) {
        v->body_bytes = json_tree_bytes(v->body) + v->wire.len;
        return;
    }
    json_put(v->body);
    v->body = NULL;
    buf_free(&v->wire);
}

bool vectors_read(const struct endpoint *ep, const struct endpoint_ask *ask,
                  const struct vectors_limits *limits, struct vectors_req **out,
                  struct api_answer *err) {
    struct reading r = {.ep = ep, .ask = ask, .limits = limits, .err = err};
    bool good;
    r.form = &forms[ask->path->vectors];
    r.room = (size_t)ep->conf.max_seq_len;
    r.v = *out = calloc(1, sizeof(*r.v));
    if (r.v == NULL) return fail_memory(&r);
    r.v->path = ask->path;
    good = parse(&r) && find_model(&r) && find_places(&r) && read_params(&r) && read_texts(&r);
    if (good)
        keep_body(&r);
    else
        vectors_free(out);
    return good;
}

void vectors_free(struct vectors_req **vp) {
    struct vectors_req *v = *vp;
    if (v == NULL) return;
    for (size_t i = 0; i < v->n_texts; i++) id_list_free(&v->texts[i].ids);
    free(v->texts);
    json_put(v->body);
    buf_free(&v->wire);
    free(v->model);
    free(v);
    *vp = NULL;
}
