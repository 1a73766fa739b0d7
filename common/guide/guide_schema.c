/* guide_schema: JSON Schema as rules (docs/guided.md lists the keywords).
 *
 * A schema is first brought into one of few shapes: a reference, a choice of schemas, a list of
 * values, or types with their keywords; allOf and keywords beside a reference or a choice are
 * merged away (guide_merge). Members of an object come in the order of `properties`. */
#include <stdio.h>
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

/* ---- places and failures */

size_t build_path_push(struct build *b, const char *part) {
    size_t was = b->path_len;
    int n = snprintf(b->path + was, sizeof(b->path) - was, "%s%s", was > 0 ? "." : "", part);
    if (n > 0) b->path_len += (size_t)n;
    if (b->path_len >= sizeof(b->path)) b->path_len = sizeof(b->path) - 1;
    return was;
}

void build_path_pop(struct build *b, size_t was) {
    b->path_len = was;
    b->path[was] = '\0';
}

enum err schema_fail(struct build *b, const char *fmt, const char *what) {
    char text[400];
    snprintf(text, sizeof(text), fmt, what);
    return err_set(b->eb, ERR_INVALID, "%s at '%s'", text, b->path);
}

enum err build_no_memory(struct build *b) {
    return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
}

/* A keyword that counts: absent leaves *out; more than GUIDE_REPEAT_MAX is cut to it for upper
 * bounds, which allows less and never more. */
enum err schema_count(struct build *b, struct json_value *schema, const char *key, int *out) {
    struct json_value *v;
    int64_t n;
    if (json_get(schema, key, &v) == JSON_ABSENT) return ERR_OK;
    if (json_as_i64(v, &n) != JSON_OK || n < 0)
        return schema_fail(b, "Invalid json_schema: '%s' must be an integer of at least 0", key);
    if (n > GUIDE_REPEAT_MAX && strncmp(key, "min", 3) == 0)
        return schema_fail(b, "Invalid json_schema: '%s' must be at most 65536", key);
    *out = n > GUIDE_REPEAT_MAX ? GUIDE_REPEAT_MAX : (int)n;
    return ERR_OK;
}

bool schema_has(struct json_value *schema, const char *key) {
    return json_obj_find(schema, key, NULL);
}

/* ---- keywords */

/* Would change what is valid, and is not built: saying so is better than a wrong answer. */
static const char *const refused[] = {"not",
                                      "if",
                                      "then",
                                      "else",
                                      "patternProperties",
                                      "propertyNames",
                                      "minProperties",
                                      "maxProperties",
                                      "uniqueItems",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "multipleOf",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "dependencies",
                                      "unevaluatedProperties",
                                      "unevaluatedItems",
                                      "additionalItems",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      NULL};

/* A keyword of the list above that says nothing after all. */
static bool is_idle(struct json_value *schema, const char *key, struct json_value *v) {
    int64_t n;
    if (strcmp(key, "uniqueItems") == 0) return json_is(v, json_type_boolean) && !json_bool(v);
    if (strcmp(key, "minProperties") == 0) return json_as_i64(v, &n) == JSON_OK && n == 0;
    if (strcmp(key, "then") == 0 || strcmp(key, "else") == 0) return !schema_has(schema, "if");
    if (strcmp(key, "minContains") == 0 || strcmp(key, "maxContains") == 0)
        return !schema_has(schema, "contains");
    if (strcmp(key, "additionalItems") == 0) return !schema_has(schema, "prefixItems");
    if (strncmp(key, "unevaluated", 11) == 0)
        return json_is(v, json_type_boolean); /* members are always evaluated here */
    if (json_is(v, json_type_object) && json_obj_len(v) == 0)
        return strcmp(key, "patternProperties") == 0 || strncmp(key, "dependent", 9) == 0;
    return false;
}

static enum err check_keywords(struct build *b, struct json_value *schema) {
    for (const char *const *key = refused; *key != NULL; key++) {
        struct json_value *v;
        if (json_obj_find(schema, *key, &v) && !is_idle(schema, *key, v))
            return schema_fail(b, "Invalid json_schema: '%s' is not supported,", *key);
    }
    return ERR_OK;
}

static bool is_note(const char *key) {
    static const char *const constraining[] = {"$ref",
                                               "type",
                                               "enum",
                                               "const",
                                               "anyOf",
                                               "oneOf",
                                               "allOf",
                                               "properties",
                                               "required",
                                               "items",
                                               "prefixItems",
                                               "additionalProperties",
                                               "pattern",
                                               "format",
                                               "minLength",
                                               "maxLength",
                                               "minimum",
                                               "maximum",
                                               "exclusiveMinimum",
                                               "exclusiveMaximum",
                                               "minItems",
                                               "maxItems",
                                               NULL};
    for (const char *const *k = constraining; *k != NULL; k++)
        if (strcmp(key, *k) == 0) return false;
    for (const char *const *k = refused; *k != NULL; k++)
        if (strcmp(key, *k) == 0) return false;
    return true;
}

/* Does the schema constrain by anything but this keyword? */
static bool alone(struct json_value *schema, const char *only) {
    json_obj_foreach(schema, key, v) {
        (void)v;
        if (strcmp(key, only) != 0 && !is_note(key)) return false;
    }
    return true;
}

/* A copy without one keyword. */
static enum err without(struct build *b, struct json_value *schema, const char *drop,
                        struct json_value **out) {
    struct json_value *o = json_new_obj();
    if (!build_own(b, o)) return build_no_memory(b);
    json_obj_foreach(schema, key, v) {
        if (strcmp(key, drop) != 0 && json_obj_set(o, key, json_ref(v)) != 0)
            return build_no_memory(b);
    }
    *out = o;
    return ERR_OK;
}

/* ---- references */

/* One part of a JSON pointer, with ~0 and ~1 and %xx read. */
static bool pointer_part(const char **p, char *out, size_t max) {
    size_t n = 0;
    for (; **p != '\0' && **p != '/'; (*p)++) {
        char c = **p;
        if (c == '~' && ((*p)[1] == '0' || (*p)[1] == '1')) {
            c = (*p)[1] == '0' ? '~' : '/';
            (*p)++;
        } else if (c == '%' && (*p)[1] != '\0' && (*p)[2] != '\0') {
            unsigned v;
            if (sscanf(*p + 1, "%2x", &v) == 1 && v != 0) {
                c = (char)v;
                *p += 2;
            }
        }
        if (n + 1 >= max) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    if (**p == '/') (*p)++;
    return true;
}

static enum err resolve(struct build *b, struct json_value *schema, struct json_value **out) {
    struct json_value *at = b->root, *next;
    const char *s;
    char part[256];
    size_t n;
    if (json_get_str(schema, "$ref", &s, &n) != JSON_OK)
        return schema_fail(b, "Invalid json_schema: '%s' must be a string", "$ref");
    if (strcmp(s, "#") != 0 && strncmp(s, "#/", 2) != 0)
        return schema_fail(b, "Invalid json_schema: $ref '%.100s' must begin with '#/'", s);
    const char *p = s + (s[1] == '/' ? 2 : 1);
    while (*p != '\0') {
        if (!pointer_part(&p, part, sizeof(part))) at = NULL;
        if (json_is(at, json_type_array)) {
            unsigned idx;
            next = sscanf(part, "%u", &idx) == 1 ? json_arr_at(at, idx) : NULL;
            at = next;
        } else if (at == NULL || !json_obj_find(at, part, &at)) {
            at = NULL;
        }
        if (at == NULL) return schema_fail(b, "Invalid json_schema: $ref '%.100s' not found,", s);
    }
    if (!json_is(at, json_type_object))
        return schema_fail(b, "Invalid json_schema: $ref '%.100s' leads to no schema,", s);
    *out = at;
    return ERR_OK;
}

static enum err emit_ref(struct build *b, struct nfa *a, int32_t from, int32_t to,
                         struct json_value *schema) {
    struct json_value *target, *merged, *rest;
    enum err e = resolve(b, schema, &target);
    if (e != ERR_OK) return e;
    if (!alone(schema, "$ref")) {
        if ((e = without(b, schema, "$ref", &rest)) != ERR_OK ||
            (e = schema_merge(b, target, rest, &merged)) != ERR_OK)
            return e;
        return schema_emit(b, a, from, to, merged);
    }
    for (size_t i = 0; i < b->n_refs; i++)
        if (b->refs[i].target == target) {
            nfa_call(a, from, b->refs[i].rule, to);
            return ERR_OK;
        }
    int32_t rule = net_rule(&b->net, "a $ref of the schema");
    if (rule < 0 || !GROW(b->refs, b->n_refs, b->cap_refs)) return build_no_memory(b);
    b->refs[b->n_refs++] = (struct build_ref){target, rule};
    struct nfa own = {0};
    int32_t start = nfa_state(&own), end = nfa_state(&own);
    e = schema_emit(b, &own, start, end, target);
    if (e == ERR_OK) e = net_define_nfa(&b->net, rule, &own, start, end, LOWER_RAW);
    nfa_fini(&own);
    nfa_call(a, from, rule, to);
    return e;
}

/* ---- choices and merges */

static enum err get_list(struct build *b, struct json_value *schema, const char *key,
                         struct json_value **list) {
    if (json_get_arr(schema, key, list) != JSON_OK)
        return schema_fail(b, "Invalid json_schema: '%s' must be an array", key);
    if (json_arr_len(*list) == 0)
        return schema_fail(b, "Invalid json_schema: '%s' must not be empty", key);
    return ERR_OK;
}

static enum err emit_choice(struct build *b, struct nfa *a, int32_t from, int32_t to,
                            struct json_value *schema, const char *key) {
    struct json_value *list, *base = NULL, *branch;
    enum err e = get_list(b, schema, key, &list);
    bool plain = alone(schema, key);
    if (e == ERR_OK && !plain) e = without(b, schema, key, &base);
    size_t was = build_path_push(b, key);
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(list); i++) {
        int32_t in = nfa_state(a), out = nfa_state(a);
        char idx[24];
        snprintf(idx, sizeof(idx), "%zu", i);
        size_t here = build_path_push(b, idx);
        branch = json_arr_at(list, i);
        if (!plain) e = schema_merge(b, base, branch, &branch);
        nfa_eps(a, from, in);
        if (e == ERR_OK) e = schema_emit(b, a, in, out, branch);
        nfa_eps(a, out, to);
        build_path_pop(b, here);
    }
    if (e == ERR_OK) build_path_pop(b, was);
    return e;
}

static enum err emit_all_of(struct build *b, struct nfa *a, int32_t from, int32_t to,
                            struct json_value *schema) {
    struct json_value *list, *merged, *part;
    enum err e = get_list(b, schema, "allOf", &list);
    if (e == ERR_OK) e = without(b, schema, "allOf", &merged);
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(list); i++) {
        part = json_arr_at(list, i);
        /* References are resolved here, so that their members merge too. */
        for (int hops = 0;
             e == ERR_OK && json_is(part, json_type_object) && schema_has(part, "$ref"); hops++) {
            struct json_value *target, *rest;
            if (hops == GUIDE_DEPTH_MAX)
                return schema_fail(b, "Invalid json_schema: '%s' refers to itself", "$ref");
            if ((e = resolve(b, part, &target)) == ERR_OK &&
                (e = without(b, part, "$ref", &rest)) == ERR_OK)
                e = schema_merge(b, target, rest, &part);
        }
        if (e == ERR_OK) e = schema_merge(b, merged, part, &merged);
    }
    if (e != ERR_OK) return e;
    return schema_emit(b, a, from, to, merged);
}

/* ---- values */

static const char *const type_names[] = {"string", "integer", "number", "boolean",
                                         "array",  "object",  "null"};
enum {
    T_STRING = 1,
    T_INTEGER = 2,
    T_NUMBER = 4,
    T_BOOLEAN = 8,
    T_ARRAY = 16,
    T_OBJECT = 32,
    T_NULL = 64
};

static enum err type_bit(struct build *b, struct json_value *v, int *types) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return err_set(b->eb, ERR_INVALID, "Invalid json_schema: 'type' at '%s' must be a string",
                       b->path);
    for (size_t i = 0; i < sizeof(type_names) / sizeof(type_names[0]); i++)
        if (strcmp(s, type_names[i]) == 0) {
            *types |= 1 << i;
            return ERR_OK;
        }
    return err_set(b->eb, ERR_INVALID, "Invalid json_schema: unsupported type '%s' at '%s'", s,
                   b->path);
}

/* *types 0: the schema does not say. */
static enum err read_types(struct build *b, struct json_value *schema, int *types) {
    static const struct {
        const char *key;
        int type;
    } hints[] = {
        {"properties", T_OBJECT},
        {"required", T_OBJECT},
        {"additionalProperties", T_OBJECT},
        {"items", T_ARRAY},
        {"prefixItems", T_ARRAY},
        {"minItems", T_ARRAY},
        {"maxItems", T_ARRAY},
        {"pattern", T_STRING},
        {"minLength", T_STRING},
        {"maxLength", T_STRING},
        {"format", T_STRING},
        {"minimum", T_NUMBER},
        {"maximum", T_NUMBER},
        {"exclusiveMinimum", T_NUMBER},
        {"exclusiveMaximum", T_NUMBER},
    };
    struct json_value *v;
    enum err e = ERR_OK;
    *types = 0;
    if (json_obj_find(schema, "type", &v)) {
        if (!json_is(v, json_type_array)) return type_bit(b, v, types);
        for (size_t i = 0; e == ERR_OK && i < json_arr_len(v); i++)
            e = type_bit(b, json_arr_at(v, i), types);
        if (e == ERR_OK && *types == 0)
            return schema_fail(b, "Invalid json_schema: no value satisfies '%s'", "type");
        return e;
    }
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (schema_has(schema, hints[i].key)) *types |= hints[i].type;
    return ERR_OK;
}

static int type_of(struct json_value *v) {
    switch (json_type_of(v)) {
    case json_type_null: return T_NULL;
    case json_type_boolean: return T_BOOLEAN;
    case json_type_double: return T_NUMBER;
    case json_type_int: return T_INTEGER | T_NUMBER;
    case json_type_object: return T_OBJECT;
    case json_type_array: return T_ARRAY;
    case json_type_string: return T_STRING;
    }
    return 0;
}

static bool bound_holds(struct json_value *schema, const char *key, double v) {
    double limit;
    if (json_get_f64(schema, key, &limit) != JSON_OK) return true;
    if (strcmp(key, "minimum") == 0) return v >= limit;
    if (strcmp(key, "maximum") == 0) return v <= limit;
    return strcmp(key, "exclusiveMinimum") == 0 ? v > limit : v < limit;
}

/* Does the rest of the schema allow this value of enum or const? For objects and arrays only their
 * type is looked at. */
static enum err allows(struct build *b, struct json_value *schema, struct json_value *v,
                       bool *yes) {
    int types;
    struct json_value *t;
    enum err e = ERR_OK;
    *yes = true;
    if (json_obj_find(schema, "type", &t)) {
        e = read_types(b, schema, &types);
        *yes = (types & type_of(v)) != 0;
    }
    if (e != ERR_OK || !*yes) return e;
    if (json_is(v, json_type_string))
        return schema_string_allows(b, schema, json_str(v), json_str_len(v), yes);
    if (json_is(v, json_type_int) || json_is(v, json_type_double)) {
        static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum",
                                             "exclusiveMaximum"};
        for (size_t i = 0; i < 4; i++) *yes = *yes && bound_holds(schema, bounds[i], json_f64(v));
    }
    return ERR_OK;
}

static enum err emit_values(struct build *b, struct nfa *a, int32_t from, int32_t to,
                            struct json_value *schema) {
    struct json_value *list = NULL, *only = NULL;
    bool have_const = json_obj_find(schema, "const", &only), any = false, yes;
    enum err e = ERR_OK;
    if (schema_has(schema, "enum")) e = get_list(b, schema, "enum", &list);
    size_t n = list != NULL ? json_arr_len(list) : 1;
    for (size_t i = 0; e == ERR_OK && i < n; i++) {
        struct json_value *v = list != NULL ? json_arr_at(list, i) : only;
        if (list != NULL && have_const && !json_equal(v, only)) continue;
        if ((e = allows(b, schema, v, &yes)) != ERR_OK) break;
        if (!yes) continue;
        size_t len;
        const char *text = json_to_text(v, JSON_COMPACT, &len);
        if (v == NULL) text = "null", len = 4;
        if (text == NULL) return build_no_memory(b);
        nfa_text(a, from, text, len, to);
        any = true;
    }
    if (e == ERR_OK && !any)
        return schema_fail(b, "Invalid json_schema: no value satisfies '%s'",
                           list != NULL ? "enum" : "const");
    return e;
}

static enum err read_bound(struct build *b, struct json_value *schema, const char *key,
                           bool exclusive, struct decimal *d) {
    struct json_value *v;
    char text[64];
    if (!json_obj_find(schema, key, &v)) return ERR_OK;
    if (!json_is(v, json_type_int) && !json_is(v, json_type_double))
        return schema_fail(b, "Invalid json_schema: '%s' must be a number", key);
    json_literal(text, sizeof(text), v);
    if (!decimal_read(d, text))
        return schema_fail(b, "Invalid json_schema: '%s' has too many digits", key);
    d->exclusive = exclusive;
    return ERR_OK;
}

/* The tighter of an inclusive and an exclusive bound; `exclusive: true` of the old draft too. */
static enum err read_bounds(struct build *b, struct json_value *schema, bool low,
                            struct decimal *d) {
    const char *key = low ? "minimum" : "maximum";
    const char *ex = low ? "exclusiveMinimum" : "exclusiveMaximum";
    struct decimal strict = {0};
    bool flag = false;
    double x, y;
    enum err e;
    if (json_get_bool(schema, ex, &flag) == JSON_OK) return read_bound(b, schema, key, flag, d);
    if ((e = read_bound(b, schema, key, false, d)) != ERR_OK ||
        (e = read_bound(b, schema, ex, true, &strict)) != ERR_OK)
        return e;
    if (!strict.given) return ERR_OK;
    if (d->given && json_get_f64(schema, key, &x) == JSON_OK &&
        json_get_f64(schema, ex, &y) == JSON_OK && (low ? x > y : x < y))
        return ERR_OK;
    *d = strict;
    return ERR_OK;
}

static enum err emit_numeric(struct build *b, struct nfa *a, int32_t from, int32_t to,
                             struct json_value *schema, bool integer) {
    struct decimal lo = {0}, hi = {0};
    struct nfa own = {0};
    struct fa f;
    bool empty = false;
    enum err e;
    if ((e = read_bounds(b, schema, true, &lo)) != ERR_OK ||
        (e = read_bounds(b, schema, false, &hi)) != ERR_OK)
        return e;
    if (!lo.given && !hi.given)
        return json_call(b, a, from, integer ? RULE_INTEGER : RULE_NUMBER, to);
    int32_t start = nfa_state(&own), end = nfa_state(&own);
    number_range_emit(&own, start, end, &lo, &hi, integer);
    e = fa_build(&f, &own, start, end, &b->net.work);
    nfa_fini(&own);
    if (e != ERR_OK) return net_fail(&b->net, e);
    e = fa_is_empty(&f, &empty);
    if (e == ERR_OK && !empty) nfa_add_fa(a, from, &f, to);
    fa_fini(&f);
    if (e == ERR_OK && empty)
        return schema_fail(b, "Invalid json_schema: no %s lies between the bounds",
                           integer ? "integer" : "number");
    return e;
}

/* ---- all together */

static enum err emit_container(struct build *b, struct nfa *a, int32_t from, int32_t to,
                               struct json_value *schema, bool object) {
    struct nfa own = {0};
    int32_t rule = net_rule(&b->net, object ? "an object" : "an array"), start = nfa_state(&own),
            end = nfa_state(&own);
    if (rule < 0) return build_no_memory(b);
    enum err e = object ? schema_object(b, &own, start, end, schema)
                        : schema_array(b, &own, start, end, schema);
    if (e == ERR_OK) e = net_define_nfa(&b->net, rule, &own, start, end, LOWER_RAW);
    nfa_fini(&own);
    nfa_call(a, from, rule, to);
    return e;
}

static enum err emit_type(struct build *b, struct nfa *a, int32_t from, int32_t to,
                          struct json_value *schema, int type) {
    switch (type) {
    case T_STRING: return schema_string(b, a, from, to, schema);
    case T_INTEGER: return emit_numeric(b, a, from, to, schema, true);
    case T_NUMBER: return emit_numeric(b, a, from, to, schema, false);
    case T_BOOLEAN:
        nfa_text(a, from, "true", 4, to);
        nfa_text(a, from, "false", 5, to);
        return ERR_OK;
    case T_ARRAY: return emit_container(b, a, from, to, schema, false);
    case T_OBJECT: return emit_container(b, a, from, to, schema, true);
    case T_NULL: nfa_text(a, from, "null", 4, to); return ERR_OK;
    default: return ERR_OK;
    }
}

static enum err emit_types(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           struct json_value *schema) {
    int types;
    enum err e = read_types(b, schema, &types);
    if (e != ERR_OK) return e;
    if (types == 0) return json_call(b, a, from, RULE_VALUE, to);
    if ((types & T_NUMBER) != 0) types &= ~T_INTEGER;
    for (int bit = 1; bit <= T_NULL && e == ERR_OK; bit <<= 1) {
        if ((types & bit) == 0) continue;
        int32_t in = nfa_state(a), out = nfa_state(a);
        nfa_eps(a, from, in);
        e = emit_type(b, a, in, out, schema, bit);
        nfa_eps(a, out, to);
    }
    return e;
}

static enum err emit_shape(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           struct json_value *schema) {
    enum err e = check_keywords(b, schema);
    if (e != ERR_OK) return e;
    if (schema_has(schema, "allOf")) return emit_all_of(b, a, from, to, schema);
    if (schema_has(schema, "$ref")) return emit_ref(b, a, from, to, schema);
    if (schema_has(schema, "anyOf")) return emit_choice(b, a, from, to, schema, "anyOf");
    if (schema_has(schema, "oneOf")) return emit_choice(b, a, from, to, schema, "oneOf");
    if (schema_has(schema, "enum") || schema_has(schema, "const"))
        return emit_values(b, a, from, to, schema);
    return emit_types(b, a, from, to, schema);
}

enum err schema_emit(struct build *b, struct nfa *a, int32_t from, int32_t to,
                     struct json_value *schema) {
    if (json_is(schema, json_type_boolean)) {
        if (json_bool(schema)) return json_call(b, a, from, RULE_VALUE, to);
        return schema_fail(b, "Invalid json_schema: %s allows nothing", "false");
    }
    if (!json_is(schema, json_type_object))
        return schema_fail(b, "Invalid json_schema: %s must be an object", "a schema");
    if (b->depth >= GUIDE_DEPTH_MAX)
        return schema_fail(b, "Invalid json_schema: schemas are nested too deep%s", "");
    if (a->err != ERR_OK) return net_fail(&b->net, a->err);
    b->depth++;
    enum err e = emit_shape(b, a, from, to, schema);
    b->depth--;
    return e == ERR_OK && a->err != ERR_OK ? net_fail(&b->net, a->err) : e;
}

enum err schema_guide(struct build *b, struct nfa *a, int32_t from, int32_t to,
                      struct json_value *schema) {
    struct json_value *was_root = b->root;
    b->root = schema;
    b->path_len = 0;
    b->path[0] = '\0';
    build_path_push(b, "schema");
    enum err e = schema_emit(b, a, from, to, schema);
    b->root = was_root;
    return e;
}
