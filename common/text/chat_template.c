/* chat_template: the door to the Jinja engine: text to a template, template and variables to text.
 */
#include "common/text/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include "common/text/jinja_eval.h"
#include "common/text/jinja_parse.h"
#include "common/text/jinja_text.h"
#include "proto/json.h"

enum { TREE_BYTES_MAX = 128 * 1024 * 1024 }; /* of a parsed template */

/* Line ends as \n; one at the very end is dropped. */
static char *normalize(struct jinja_mem *m, const char *src, size_t *n) {
    char *s = jinja_mem_alloc(m, *n);
    size_t len = 0;
    if (s == NULL) return NULL;
    for (size_t i = 0; i < *n; i++) {
        if (src[i] == '\r' && i + 1 < *n && src[i + 1] == '\n') continue;
        s[len++] = src[i] == '\r' ? '\n' : src[i];
    }
    if (len > 0 && s[len - 1] == '\n') len--;
    *n = len;
    return s;
}

static enum err parse_into(struct chat_template *t, const char *src, size_t n, struct errbuf *eb) {
    struct jinja_run r = {.mem = t->mem, .eb = eb};
    struct jinja_parser *p = calloc(1, sizeof(*p));
    char *s = p == NULL ? NULL : normalize(&r.mem, src, &n);
    enum err e = ERR_NO_MEMORY;
    if (s == NULL) {
        err_set(eb, e, "no memory for the template");
    } else {
        p->r = &r;
        t->src = s;
        t->n_src = n;
        jinja_lex_init(&p->lex, &r, s, n);
        e = jinja_parse(p, &t->body) ? ERR_OK : r.code;
    }
    t->mem = r.mem;
    free(p);
    return e;
}

enum err chat_template_parse(struct chat_template **out, const char *src, size_t n,
                             struct errbuf *eb) {
    *out = NULL;
    if (n > CHAT_TEMPLATE_BYTES_MAX) {
        return err_set(eb, ERR_TOO_LARGE, "chat template of %zu bytes, at most %d are allowed", n,
                       CHAT_TEMPLATE_BYTES_MAX);
    }
    if (!jinja_text_valid(src, n))
        return err_set(eb, ERR_INVALID, "the chat template is not UTF-8");
    struct chat_template *t = calloc(1, sizeof(*t));
    if (t == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the template");
    jinja_mem_init(&t->mem, TREE_BYTES_MAX);
    enum err e = parse_into(t, src, n, eb);
    if (e == ERR_OK) {
        *out = t;
    } else {
        chat_template_free(&t);
    }
    return e;
}

const char *chat_template_source(const struct chat_template *t, size_t *n) {
    *n = t->n_src;
    return t->src;
}

void chat_template_free(struct chat_template **t) {
    if (*t == NULL) return;
    jinja_mem_fini(&(*t)->mem);
    free(*t);
    *t = NULL;
}

/* The model's own tokens stay tokens. */
static bool put_own(struct jinja_run *r, struct json_value *vars, struct jv *out) {
    static const char *const names[] = {"bos_token", "eos_token"};
    bool ok = true;
    r->mark = NULL;
    for (int i = 0; i < 2 && ok; i++) {
        struct json_value *o;
        struct jv key = jv_cstr(names[i]), v;
        if (json_obj_find(vars, names[i], &o))
            ok = jv_from_json(r, o, &v) && jv_dict_set(r, out->dict, &key, v);
    }
    return ok;
}

enum err chat_template_render(const struct chat_template *t, const struct chat_vars *v,
                              size_t out_bytes_max, struct buf *out, struct errbuf *eb) {
    struct jinja_run r = {
        .eb = eb, .now_unix_s = v->now_unix_s, .limit = v->limit, .block_text = jv_str("", 0)};
    struct jinja_scope root;
    struct jinja_sb text;
    struct jv vars, result;
    struct jv_dict no_vars = {0};
    enum jinja_flow flow = FLOW_ON;
    if (v->vars != NULL && !json_is(v->vars, json_type_object)) {
        return err_set(eb, ERR_INVALID, "the variables of a chat template must be an object");
    }
    jinja_mem_init(&r.mem,
                   v->memory_bytes_max > 0 ? v->memory_bytes_max : CHAT_TEMPLATE_MEMORY_BYTES_MAX);
    r.vars = &no_vars;
    r.mark = v->mark;
    r.mark_arg = v->mark_arg;
    bool ok = v->vars == NULL || (jv_from_json(&r, v->vars, &vars) && put_own(&r, v->vars, &vars));
    if (ok) {
        if (v->vars != NULL) r.vars = vars.dict;
        jinja_scope_push(&r, &root);
        jinja_sb_init(&text, &r, out_bytes_max);
        r.out = &text;
        ok = jinja_exec(&r, t->body, &flow) && jinja_sb_take(&text, &result);
    }
    if (ok) {
        buf_append(out, result.s, result.n);
        if (out->failed)
            r.code = err_set(eb, ERR_NO_MEMORY, "no memory for the text of the chat template");
    }
    jinja_mem_fini(&r.mem);
    return r.code;
}
