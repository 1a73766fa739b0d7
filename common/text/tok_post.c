/* tok_post: see the header. Of a TemplateProcessing only `single` matters here: a prompt is one
 * text. */
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
    return e;
}

static enum err read_step(struct tok_at *at, const struct json_value *o, const char *type,
                          void *arg) {
    struct reader *r = arg;
    if (strcmp(type, "ByteLevel") == 0)
        return ERR_OK; /* moves offsets, which nobody asks for here */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(at, o, r);
    return tok_fail(at, ERR_BAD_FILE,
                    "post_processor type %s is not supported (TemplateProcessing, ByteLevel, "
                    "Sequence are)",
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
}
