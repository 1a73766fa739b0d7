/* ep_guide: the members that ask for guided decoding, as one guide text (common/guide/guide.h), and
 * its compilation once everything that shapes it (calls, thinking) is known. Two members at once
 * are refused: each describes the whole output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/guide/guide.h"

/* What has been found so far. */
struct found {
    struct ep_read *r;
    const char *member;       /* NULL: none yet */
    struct json_value *guide; /* owned */
};

/* Takes v. */
static bool found_guide(struct found *f, const char *member, const char *type, const char *key,
                        struct json_value *v) {
    char text[160];
    ep_at(f->r, member);
    if (f->member != NULL) {
        json_put(v);
        snprintf(text, sizeof(text), "Parameters %s and %s cannot be used together", f->member,
                 member);
        return ep_fail(f->r, 422, text);
    }
    f->member = member;
    f->guide = json_new_obj();
    struct json_value *t = json_new_str(type);
    bool made = json_obj_set(f->guide, "type", t) == 0 && t != NULL;
    if (key != NULL) made = json_obj_set(f->guide, key, v) == 0 && made;
    return made || ep_fail_memory(f->r);
}

static bool wrong(struct found *f, const char *member, const char *what) {
    ep_at(f->r, member);
    return ep_fail_with(f->r, 422, "Parameter {member} must be {what}", "{member}", member,
                        "{what}", what, NULL);
}

/* A schema: an object, or a string that holds one. */
static bool read_schema(struct found *f, const char *member, struct json_value *v) {
    struct json_value *schema = NULL, *as;
    const char *s;
    size_t n;
    if (json_as_obj(v, &as) == JSON_OK)
        return found_guide(f, member, "json_schema", "schema", json_ref(v));
    if (json_as_str(v, &s, &n) == JSON_OK && json_read(&schema, s, n, NULL, NULL) == ERR_OK &&
        json_as_obj(schema, &as) == JSON_OK)
        return found_guide(f, member, "json_schema", "schema", schema);
    json_put(schema);
    return wrong(f, member, "a JSON schema: an object, or a string that holds one");
}

static bool read_regex(struct found *f, const char *member, struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK || n == 0)
        return wrong(f, member, "a string that is not empty");
    return found_guide(f, member, "regex", "value", json_ref(v));
}

static bool read_grammar(struct found *f, const char *member, struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK || n == 0)
        return wrong(f, member, "a string that is not empty");
    return found_guide(f, member, "grammar", "value", json_ref(v));
}

static bool read_choice(struct found *f, const char *member, struct json_value *v) {
    static const char what[] = "an array of at least one string";
    struct json_value *list;
    const char *s;
    size_t n;
    if (json_as_arr(v, &list) != JSON_OK || json_arr_len(list) == 0) return wrong(f, member, what);
    for (size_t i = 0; i < json_arr_len(list); i++)
        if (json_as_str(json_arr_at(list, i), &s, &n) != JSON_OK) return wrong(f, member, what);
    return found_guide(f, member, "choice", "value", json_ref(v));
}

static bool read_any_object(struct found *f, const char *member, struct json_value *v) {
    bool on;
    if (json_as_bool(v, &on) != JSON_OK) return wrong(f, member, "boolean");
    return !on || found_guide(f, member, "json_object", NULL, NULL);
}

static bool refuse_tag(struct found *f, const char *member, struct json_value *v) {
    (void)v;
    ep_at(f->r, member);
    f->r->code = EP_UNSUPPORTED;
    return ep_fail_with(f->r, 422, "Parameter {member} is not supported", "{member}", member, NULL);
}

struct member {
    const char *key, *name; /* name: in messages */
    bool (*read)(struct found *f, const char *member, struct json_value *v);
};

static bool read_members(struct found *f, struct json_value *from, const struct member *m) {
    struct json_value *v;
    for (; m->key != NULL; m++)
        if (json_get(from, m->key, &v) == JSON_OK && !m->read(f, m->name, v)) return false;
    return true;
}

static bool read_structured(struct found *f, const char *member, struct json_value *v) {
    static const struct member inside[] = {
        {"json", "structured_outputs.json", read_schema},
        {"regex", "structured_outputs.regex", read_regex},
        {"choice", "structured_outputs.choice", read_choice},
        {"grammar", "structured_outputs.grammar", read_grammar},
        {"json_object", "structured_outputs.json_object", read_any_object},
        {"structural_tag", "structured_outputs.structural_tag", refuse_tag},
        {NULL, NULL, NULL},
    };
    struct json_value *o;
    if (json_as_obj(v, &o) != JSON_OK) return wrong(f, member, "an object");
    return read_members(f, o, inside);
}

static bool read_format(struct found *f, const char *member, struct json_value *v) {
    struct json_value *inner, *schema;
    const char *type;
    size_t n;
    ep_at(f->r, member);
    if (!ep_check_response_format(f->r, v)) return false;
    if (json_get_str(v, "type", &type, &n) != JSON_OK || strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) return found_guide(f, member, "json_object", NULL, NULL);
    if (json_get_obj(v, "json_schema", &inner) != JSON_OK ||
        json_get_obj(inner, "schema", &schema) != JSON_OK)
        return false; /* both were checked */
    return found_guide(f, member, "json_schema", "schema", json_ref(schema));
}

/* {"type":"json"|"regex","value":..} */
static bool read_tgi(struct found *f, const char *member, struct json_value *v) {
    struct json_value *o, *value;
    const char *type;
    size_t n;
    if (json_as_obj(v, &o) != JSON_OK) return wrong(f, member, "an object");
    if (json_get_str(o, "type", &type, &n) != JSON_OK ||
        (strcmp(type, "json") != 0 && strcmp(type, "regex") != 0))
        return wrong(f, "grammar.type", "'json' or 'regex'");
    if (json_get(o, "value", &value) != JSON_OK) return wrong(f, "grammar.value", "given");
    return strcmp(type, "json") == 0 ? read_schema(f, "grammar.value", value)
                                     : read_regex(f, "grammar.value", value);
}

static bool write_guide(struct found *f) {
    size_t n;
    if (f->guide == NULL) return true;
    const char *s = json_to_text(f->guide, JSON_COMPACT, &n);
    if (s != NULL && n > GUIDE_BYTES_MAX)
        return ep_fail_with(f->r, 422, "Parameter {member} is larger than 1 MB", "{member}",
                            f->member, NULL);
    f->r->req->guide = s != NULL ? ep_dup(s, n) : NULL;
    return f->r->req->guide != NULL || ep_fail_memory(f->r);
}

bool ep_guide_read(struct ep_read *r) {
    static const struct member format[] = {{"response_format", "response_format", read_format},
                                           {NULL, NULL, NULL}};
    static const struct member vllm[] = {
        {"guided_json", "guided_json", read_schema},
        {"guided_regex", "guided_regex", read_regex},
        {"guided_choice", "guided_choice", read_choice},
        {"guided_grammar", "guided_grammar", read_grammar},
        {"structured_outputs", "structured_outputs", read_structured},
        {"structural_tag", "structural_tag", refuse_tag},
        {NULL, NULL, NULL},
    };
    static const struct member tgis[] = {
        {"guided_json", "json_schema", read_schema},
        {"guided_regex", "regex", read_regex},
        {"guided_choice", "choice", read_choice},
        {"guided_grammar", "grammar", read_grammar},
        {"structured_outputs", "format", read_structured},
        {NULL, NULL, NULL},
    };
    static const struct member tgi[] = {{"grammar", "grammar", read_tgi}, {NULL, NULL, NULL}};
    unsigned guides = r->fam->guides;
    struct found f = {.r = r};
    bool good = ((guides & GUIDES_FORMAT) == 0 || read_members(&f, r->params, format)) &&
                ((guides & GUIDES_VLLM) == 0 || read_members(&f, r->params, vllm)) &&
                ((guides & GUIDES_TGIS) == 0 || read_members(&f, r->params, tgis)) &&
                ((guides & GUIDES_TGI) == 0 || read_members(&f, r->params, tgi)) && write_guide(&f);
    r->guide_member = f.member;
    json_put(f.guide);
    return good;
}

/* ---- compiling */

static void drop_guide(void *compiled) {
    struct guide *g = compiled;
    guide_unref(&g);
}

enum err endpoint_guide_compile(const struct endpoint *ep, const char *text,
                                const atomic_bool *cancelled, struct endpoint_guide *out,
                                struct errbuf *eb) {
    struct guide *g;
    *out = (struct endpoint_guide){0};
    if (ep->guides == NULL) return err_set(eb, ERR_INVALID, "the model has no tokenizer");
    enum err e = guide_cache_get(ep->guides, text, strlen(text), cancelled, &g, eb);
    if (e == ERR_TIMEOUT) budget_refused(ep->conf.budget, BUDGET_GUIDE_COMPILE_TIME);
    if (e == ERR_OK) *out = (struct endpoint_guide){.compiled = g, .drop = drop_guide};
    return e;
}

void endpoint_guide_keep(struct infer_req *req, struct endpoint_guide *g) {
    if (req->guide_drop != NULL) req->guide_drop(req->guide_compiled);
    req->guide_compiled = g->compiled;
    req->guide_drop = g->drop;
    *g = (struct endpoint_guide){0};
}

void endpoint_guide_drop(struct endpoint_guide *g) {
    if (g->drop != NULL) g->drop(g->compiled);
    *g = (struct endpoint_guide){0};
}

enum err endpoint_guide_start(const struct endpoint *ep, const struct infer_req *req,
                              struct token_guide *out) {
    struct detok *d = NULL;
    *out = (struct token_guide){0};
    if (req->guide == NULL) return ERR_OK;
    if (req->guide_compiled == NULL) return ERR_INTERNAL;
    /* Behind a prompt without text the decoder takes blanks away that the guide must not count. */
    enum err e = detok_create(&d, ep->tok, req->answer.skip_special);
    if (e == ERR_OK) e = detok_prompt(d, req->ids, req->n_prompt, req->answer.skip_special);
    if (e == ERR_OK) e = guide_start(req->guide_compiled, detok_cut(d), out);
    detok_destroy(&d);
    return e;
}

int guide_step_ms(const struct endpoint *ep) {
    return ep->conf.guide_step_ms > 0 ? ep->conf.guide_step_ms : GUIDE_STEP_MS;
}

int endpoint_engine_failure(const struct endpoint *ep, enum err e, char *text, size_t n) {
    static const char start[] = "Guided decoding gave up in the middle of the text: at this place ";
    if (e != ERR_TOO_LARGE && e != ERR_TIMEOUT) {
        snprintf(text, n, "Failed to get engine response.");
        return 500;
    }
    budget_refused(ep->conf.budget, BUDGET_GUIDE_STEP);
    if (e == ERR_TIMEOUT)
        snprintf(text, n,
                 "%sthe guide needs more than %d ms of processor time for one token "
                 "(limits.guideStepMs)",
                 start, guide_step_ms(ep));
    else
        snprintf(text, n, "%sthe guide would be at more than %d positions at once", start,
                 GUIDE_POSITIONS_MAX);
    return 422;
}

bool ep_guide_compile(struct ep_read *r) {
    for (struct infer_req *req = r->req; req != NULL; req = req->next_part) {
        struct errbuf eb = {.code = ERR_OK};
        struct endpoint_guide g;
        if (req->guide == NULL) continue;
        ep_at(r, r->guide_member != NULL ? r->guide_member : "tools");
        enum err e = endpoint_guide_compile(r->ep, req->guide, r->in->cancelled, &g, &eb);
        if (e == ERR_NO_MEMORY) return ep_fail_memory(r);
        if (e != ERR_OK) return ep_fail_with(r, 422, "{text}", "{text}", eb.text, NULL);
        endpoint_guide_keep(req, &g);
    }
    return true;
}
