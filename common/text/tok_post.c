/* tok_post: see the header. */
#include "common/text/tok_post.h"

#include <string.h>

struct reader {
    const struct tok_vocab *vocab;
    struct tok_post *post;
    bool has_template;
};

/* The ids of one {"SpecialToken": {"id": name}}: special_tokens[name].ids. */
static enum err special_ids(struct tok_at *at, const struct json_value *o,
                            const struct json_value *tokens, const struct tok_vocab *vocab,
                            struct id_list *out) {
    struct json_value *entry, *ids;
    const char *name;
    size_t n;
    enum err e = tok_need_str(at, o, "id", TOK_TOKEN_BYTES_MAX, &name, &n);
    if (e != ERR_OK) return e;
    if (json_get_obj(tokens, name, &entry) != JSON_OK) {
        return tok_fail(at, ERR_BAD_FILE, "special token %.60s is not in special_tokens", name);
    }
    if ((e = tok_need_arr(at, entry, "ids", &ids)) != ERR_OK) return e;
    for (size_t i = 0; i < json_arr_len(ids); i++) {
        int64_t id = -1;
        if (json_as_i64(json_arr_at(ids, i), &id) != JSON_OK || id < 0 || id >= TOK_IDS_MAX ||
            !tok_vocab_has(vocab, (int32_t)id)) {
            return tok_fail(at, ERR_BAD_FILE,
                            "special token %.60s: ids[%zu] must be an id of the vocabulary", name,
                            i);
        }
        if (out->n >= TOK_STEPS_MAX) {
            return tok_fail(at, ERR_BAD_FILE, "at most %d special ids are supported",
                            TOK_STEPS_MAX);
        }
        if ((e = id_list_push(out, (int32_t)id)) != ERR_OK) return e;
    }
    return ERR_OK;
}

/* One item of `single`: before the text (*seen false) or after it. */
static enum err read_item(struct tok_at *at, const struct json_value *item,
                          const struct json_value *tokens, struct reader *r, bool *seen) {
    struct json_value *o;
    const char *which;
    size_t n;
    enum err e;
    if (json_get_obj(item, "SpecialToken", &o) == JSON_OK) {
        return special_ids(at, o, tokens, r->vocab, *seen ? &r->post->after : &r->post->before);
    }
    if (json_get_obj(item, "Sequence", &o) != JSON_OK) {
        return tok_fail(at, ERR_BAD_FILE, "must hold SpecialToken or Sequence");
    }
    if ((e = tok_need_str(at, o, "id", TOK_TOKEN_BYTES_MAX, &which, &n)) != ERR_OK) return e;
    if (strcmp(which, "A") != 0 || *seen) {
        return tok_fail(at, ERR_BAD_FILE, "Sequence A must be there once and no other");
    }
    *seen = true;
    return ERR_OK;
}

/* One item of `pair`; *texts: seen so far. *sound false: A and B are not there once each, in this
 * order.
 */
static enum err read_pair_item(struct tok_at *at, const struct json_value *item,
                               const struct json_value *tokens, struct reader *r, int *texts,
                               bool *sound) {
    struct tok_post *p = r->post;
    struct id_list *const lists[] = {&p->pair_before, &p->pair_between, &p->pair_after};
    struct json_value *o;
    const char *which = "";
    size_t n;
    int64_t type = 0;
    if (json_get_obj(item, "SpecialToken", &o) == JSON_OK) {
        const size_t had = p->pair_between.n;
        enum err e = special_ids(at, o, tokens, r->vocab, lists[*texts]);
        (void)json_get_i64(o, "type_id", &type);
        if (type == 0) p->n_between_first += p->pair_between.n - had;
        return e;
    }
    if (json_get_obj(item, "Sequence", &o) != JSON_OK)
        return tok_fail(at, ERR_BAD_FILE, "must hold SpecialToken or Sequence");
    enum err e = tok_need_str(at, o, "id", TOK_TOKEN_BYTES_MAX, &which, &n);
    if (*texts == 2 || strcmp(which, *texts == 0 ? "A" : "B") != 0)
        *sound = false;
    else
        (*texts)++;
    return e;
}

static enum err read_pair(struct tok_at *at, const struct json_value *o,
                          const struct json_value *tokens, struct reader *r) {
    struct json_value *pair = NULL;
    int texts = 0;
    bool sound = true;
    enum err e = ERR_OK;
    if (json_get_arr(o, "pair", &pair) != JSON_OK) return ERR_OK;
    for (size_t i = 0; i < json_arr_len(pair) && e == ERR_OK; i++) {
        size_t old = tok_enter(at, ".pair[%zu]", i);
        e = read_pair_item(at, json_arr_at(pair, i), tokens, r, &texts, &sound);
        tok_leave(at, old);
    }
    r->post->pairs = sound && texts == 2;
    return e;
}

static enum err read_template(struct tok_at *at, const struct json_value *o, struct reader *r) {
    struct json_value *single, *tokens = NULL;
    bool seen = false;
    enum err e = tok_need_arr(at, o, "single", &single);
    if (e != ERR_OK) return e;
    if (r->has_template) {
        /* the library would apply the second one's `pair` to what the first one made */
        return tok_fail(at, ERR_BAD_FILE, "only one TemplateProcessing is supported");
    }
    r->has_template = true;
    (void)json_get_obj(o, "special_tokens", &tokens);
    for (size_t i = 0; i < json_arr_len(single) && e == ERR_OK; i++) {
        size_t old = tok_enter(at, ".single[%zu]", i);
        e = read_item(at, json_arr_at(single, i), tokens, r, &seen);
        tok_leave(at, old);
    }
    if (e == ERR_OK && !seen) e = tok_fail_at(at, "single", "must hold Sequence A");
    return e == ERR_OK ? read_pair(at, o, tokens, r) : e;
}

enum err tok_post_bert(struct tok_post *p, int32_t cls, int32_t sep, bool twice) {
    enum err e = id_list_push(&p->before, cls);
    if (e == ERR_OK) e = id_list_push(&p->after, sep);
    if (e == ERR_OK) e = id_list_push(&p->pair_before, cls);
    for (int i = 0; i < (twice ? 2 : 1) && e == ERR_OK; i++)
        e = id_list_push(&p->pair_between, sep);
    if (e == ERR_OK) e = id_list_push(&p->pair_after, sep);
    p->n_between_first = 1;
    p->pairs = true;
    return e;
}

/* ["[SEP]", 102] */
static enum err read_named_id(struct tok_at *at, const struct json_value *o, const char *key,
                              const struct tok_vocab *vocab, int32_t *id) {
    struct json_value *pair = NULL;
    int64_t v = -1;
    if (json_get_arr(o, key, &pair) != JSON_OK || json_arr_len(pair) != 2 ||
        json_as_i64(json_arr_at(pair, 1), &v) != JSON_OK || v < 0 || v >= TOK_IDS_MAX ||
        !tok_vocab_has(vocab, (int32_t)v))
        return tok_fail_at(at, key, "must be [token, id of the vocabulary]");
    *id = (int32_t)v;
    return ERR_OK;
}

static enum err read_bert(struct tok_at *at, const struct json_value *o, struct reader *r,
                          bool twice) {
    int32_t cls = 0, sep = 0;
    enum err e = read_named_id(at, o, "cls", r->vocab, &cls);
    if (e == ERR_OK) e = read_named_id(at, o, "sep", r->vocab, &sep);
    if (e == ERR_OK && r->has_template)
        e = tok_fail(at, ERR_BAD_FILE, "only one post-processor that adds tokens is supported");
    r->has_template = true;
    return e == ERR_OK ? tok_post_bert(r->post, cls, sep, twice) : e;
}

static enum err read_step(struct tok_at *at, const struct json_value *o, const char *type,
                          void *arg) {
    struct reader *r = arg;
    if (strcmp(type, "ByteLevel") == 0)
        return ERR_OK; /* moves offsets, which nobody asks for here */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(at, o, r);
    if (strcmp(type, "BertProcessing") == 0) return read_bert(at, o, r, false);
    if (strcmp(type, "RobertaProcessing") == 0) return read_bert(at, o, r, true);
    return tok_fail(at, ERR_BAD_FILE,
                    "post_processor type %s is not supported (TemplateProcessing, BertProcessing, "
                    "RobertaProcessing, ByteLevel, Sequence are)",
                    type);
}

enum err tok_post_read(struct tok_at *at, const struct json_value *o, const struct tok_vocab *vocab,
                       struct tok_post *out) {
    struct reader r = {.vocab = vocab, .post = out};
    *out = (struct tok_post){0};
    return tok_each_step(at, o, "processors", read_step, &r);
}

void tok_post_fini(struct tok_post *p) {
    id_list_free(&p->before);
    id_list_free(&p->after);
    id_list_free(&p->pair_before);
    id_list_free(&p->pair_between);
    id_list_free(&p->pair_after);
}
