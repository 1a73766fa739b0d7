/* guide_object: objects and arrays of a schema. Members come in the order of `properties`, then
 * what is required beside them, then any others; each is written once and reached both from "no
 * member yet" and from "after a member", so nothing doubles with depth. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

/* ---- objects */

/* Keys that are none of the declared ones, without escapes, so that an escape cannot spell one. */
static void emit_other_key(struct nfa *a, int32_t from, int32_t to, struct json_value *declared) {
    int32_t root = nfa_state(a), rest = nfa_state(a), quote = nfa_state(a);
    nfa_range(a, from, '"', '"', root);
    nfa_range(a, quote, '"', '"', to);
    json_plain_chars(a, rest, rest);
    nfa_eps(a, rest, quote);
    /* A trie of the declared keys, layer by layer: each node is the list of keys that reach it. */
    size_t n = (size_t)(declared != NULL ? json_obj_len(declared) : 0), at = 0;
    struct walker {
        const char *s;
        size_t n, at;
        int32_t state;
    } *keys = calloc(n + 1, sizeof(*keys));
    uint32_t *cps = calloc(n + 1, sizeof(*cps));
    if (keys == NULL || cps == NULL) {
        a->err = ERR_NO_MEMORY;
        goto end;
    }
    if (declared != NULL) {
        json_obj_foreach(declared, key, v) {
            (void)v;
            keys[at++] = (struct walker){.s = key, .n = strlen(key), .state = root};
        }
    }
    for (bool more = true, first = true; (more || first) && a->err == ERR_OK; first = false) {
        more = false;
        for (size_t i = 0; i < n || (first && i == 0); i++) {
            int32_t q = n > 0 ? keys[i].state : root;
            bool leader = q >= 0;
            for (size_t k = 0; k < i && leader; k++) leader = keys[k].state != q;
            if (!leader) continue;
            /* All keys at this node: what they go on with is excluded from "anything else". */
            struct cset other = {0};
            bool terminal = false;
            cset_add(&other, 0x20, 0x21);
            cset_add(&other, 0x23, 0x5B);
            cset_add(&other, 0x5D, 0x7E);
            cset_add(&other, 0x80, 0xD7FF);
            cset_add(&other, 0xE000, CP_MAX);
            for (size_t k = i; k < n; k++) {
                if (keys[k].state != q) continue;
                if (keys[k].at == keys[k].n) {
                    terminal = true;
                    continue;
                }
                struct scan s = {
                    .p = (const unsigned char *)keys[k].s, .n = keys[k].n, .at = keys[k].at};
                cps[k] = scan_cp(&s);
                cset_remove(&other, cps[k], cps[k]);
            }
            if (other.failed) a->err = ERR_NO_MEMORY;
            for (size_t k = 0; k < other.n; k++)
                nfa_range(a, q, other.r[k].lo, other.r[k].hi, rest);
            cset_fini(&other);
            if (!terminal) nfa_eps(a, q, quote);
            /* Move them on; those with one character in common stay together. */
            for (size_t k = n; k-- > i;) {
                if (keys[k].state != q) continue;
                struct scan s = {
                    .p = (const unsigned char *)keys[k].s, .n = keys[k].n, .at = keys[k].at};
                if (keys[k].at == keys[k].n) {
                    keys[k].state = -1;
                    continue;
                }
                (void)scan_cp(&s);
                int32_t next = nfa_state(a);
                bool plain = cps[k] >= 0x20 && cps[k] != '"' && cps[k] != '\\' && cps[k] != 0x7F;
                if (plain) nfa_range(a, q, cps[k], cps[k], next);
                keys[k].at = s.at;
                for (size_t m = i; m < k; m++) {
                    struct scan t = {
                        .p = (const unsigned char *)keys[m].s, .n = keys[m].n, .at = keys[m].at};
                    if (keys[m].state != q || keys[m].at == keys[m].n || cps[m] != cps[k]) continue;
                    (void)scan_cp(&t);
                    keys[m].at = t.at;
                    keys[m].state = plain ? next : -1;
                }
                keys[k].state = plain ? next : -1;
                more |= plain;
            }
        }
    }
end:
    free(keys);
    free(cps);
}

static enum err get_object(struct build *b, struct json_value *schema, const char *key,
                           struct json_value **out) {
    *out = NULL;
    if (!schema_has(schema, key) || json_get_obj(schema, key, out) == JSON_OK) return ERR_OK;
    return err_set(b->eb, ERR_INVALID, "Invalid json_schema: '%s' at '%s' must be an object", key,
                   b->path);
}

static bool names(struct json_value *list, const char *key) {
    for (size_t i = 0; list != NULL && i < json_arr_len(list); i++) {
        const char *s = json_str(json_arr_at(list, i));
        if (s != NULL && strcmp(s, key) == 0) return true;
    }
    return false;
}

/* `properties` and what is required beside them. */
static enum err read_members(struct build *b, struct json_value *schema,
                             struct json_value **members, struct json_value **required,
                             struct json_value **extra) {
    struct json_value *props, *v, *o;
    const char *s;
    size_t n;
    *members = *required = *extra = NULL;
    enum err e = get_object(b, schema, "properties", &props);
    if (e != ERR_OK) return e;
    if (schema_has(schema, "required") && json_get_arr(schema, "required", required) != JSON_OK)
        return err_set(b->eb, ERR_INVALID,
                       "Invalid json_schema: 'required' at '%s' must be an array", b->path);
    /* The default of this API for a schema with properties is "no others" (inference-api 8.6). */
    bool given = json_obj_find(schema, "additionalProperties", &v), open;
    if (given && !json_is(v, json_type_boolean) && !json_is(v, json_type_object))
        return schema_fail(b, "Invalid json_schema: '%s' must be a boolean or a schema",
                           "additionalProperties");
    open = given ? !json_is(v, json_type_boolean) || json_bool(v) : props == NULL;
    o = json_new_obj();
    if (!build_own(b, o)) return build_no_memory(b);
    if (open) {
        if (given && json_is(v, json_type_object)) {
            *extra = v;
        } else {
            *extra = json_new_obj();
            if (!build_own(b, *extra)) return build_no_memory(b);
        }
    }
    if (props != NULL) {
        json_obj_foreach(props, key, val) {
            if (json_obj_set(o, key, json_ref(val)) != 0) return build_no_memory(b);
        }
    }
    for (size_t i = 0; *required != NULL && i < json_arr_len(*required); i++) {
        if (json_as_str(json_arr_at(*required, i), &s, &n) != JSON_OK)
            return err_set(b->eb, ERR_INVALID,
                           "Invalid json_schema: elements of 'required' at '%s' must be strings",
                           b->path);
        if (schema_has(o, s)) continue;
        if (given && !open)
            return schema_fail(b, "Invalid json_schema: required '%s' is not in properties,", s);
        struct json_value *any = *extra != NULL ? json_ref(*extra) : json_new_obj();
        if (any == NULL || json_obj_set(o, s, any) != 0) return build_no_memory(b);
    }
    *members = o;
    return ERR_OK;
}

/* States: `none` before any member, `some` after one; a key is reached from both. */
static enum err emit_members(struct build *b, struct nfa *a, struct json_value *schema,
                             int32_t none, int32_t some, int32_t close) {
    struct json_value *members, *required, *extra;
    struct buf text = BUF_INIT;
    enum err e = read_members(b, schema, &members, &required, &extra);
    if (e != ERR_OK) return e;
    size_t was = build_path_push(b, "properties");
    json_obj_foreach(members, key, v) {
        int32_t at_key = nfa_state(a), colon = nfa_state(a), value = nfa_state(a),
                next_none = nfa_state(a), next_some = nfa_state(a);
        if (!json_is(v, json_type_object) && !json_is(v, json_type_boolean)) {
            build_path_pop(b, was);
            e = err_set(b->eb, ERR_INVALID,
                        "Invalid json_schema: property '%s' at '%s must be an object", key,
                        b->path);
            break;
        }
        bool optional = !names(required, key);
        if (optional && json_is(v, json_type_boolean) && !json_bool(v)) continue; /* never there */
        buf_clear(&text);
        buf_json_str(&text, key, strlen(key));
        if (text.failed) {
            e = build_no_memory(b);
            break;
        }
        if ((e = json_comma(b, a, some, at_key)) != ERR_OK) break;
        nfa_eps(a, none, at_key);
        nfa_text(a, at_key, text.data, text.len, colon);
        json_colon(a, colon, value);
        size_t here = build_path_push(b, key);
        e = schema_emit(b, a, value, next_some, v);
        if (e != ERR_OK) break;
        build_path_pop(b, here);
        if (optional) {
            nfa_eps(a, none, next_none);
            nfa_eps(a, some, next_some);
        }
        none = next_none;
        some = next_some;
    }
    buf_free(&text);
    if (e != ERR_OK) return e;
    build_path_pop(b, was);
    nfa_eps(a, none, close);
    if ((e = json_gap(b, a, some, close)) != ERR_OK || extra == NULL) return e;
    int32_t at_key = nfa_state(a), colon = nfa_state(a), value = nfa_state(a);
    nfa_eps(a, none, at_key);
    if ((e = json_comma(b, a, some, at_key)) != ERR_OK) return e;
    emit_other_key(a, at_key, colon, members);
    json_colon(a, colon, value);
    was = build_path_push(b, "additionalProperties");
    if ((e = schema_emit(b, a, value, some, extra)) == ERR_OK) build_path_pop(b, was);
    return e;
}

enum err schema_object(struct build *b, struct nfa *a, int32_t start, int32_t end,
                       struct json_value *schema) {
    int32_t open = nfa_state(a), none = nfa_state(a), some = nfa_state(a), close = nfa_state(a);
    enum err e;
    nfa_range(a, start, '{', '{', open);
    if ((e = json_gap(b, a, open, none)) != ERR_OK ||
        (e = emit_members(b, a, schema, none, some, close)) != ERR_OK)
        return e;
    nfa_range(a, close, '}', '}', end);
    return ERR_OK;
}

/* ---- arrays */

/* A rule for one schema, so that a repetition costs one edge. */
static enum err rule_of(struct build *b, struct json_value *schema, const char *name,
                        int32_t *rule) {
    struct nfa own = {0};
    int32_t start = nfa_state(&own), end = nfa_state(&own);
    *rule = net_rule(&b->net, name);
    if (*rule < 0) return build_no_memory(b);
    enum err e = schema_emit(b, &own, start, end, schema);
    if (e == ERR_OK) e = net_define_nfa(&b->net, *rule, &own, start, end, LOWER_RAW);
    nfa_fini(&own);
    return e;
}

enum err schema_array(struct build *b, struct nfa *a, int32_t start, int32_t end,
                      struct json_value *schema) {
    struct json_value *prefix = NULL, *items = NULL;
    int min = 0, max = -1, n_prefix = 0;
    int32_t rule = -1, open = nfa_state(a), close = nfa_state(a), at = nfa_state(a);
    bool closed = false;
    enum err e;
    if ((e = schema_count(b, schema, "minItems", &min)) != ERR_OK ||
        (e = schema_count(b, schema, "maxItems", &max)) != ERR_OK)
        return e;
    if (schema_has(schema, "prefixItems")) {
        if (json_get_arr(schema, "prefixItems", &prefix) != JSON_OK)
            return schema_fail(b, "Invalid json_schema: '%s' must be an array", "prefixItems");
        n_prefix = (int)json_arr_len(prefix);
    }
    if (json_obj_find(schema, "items", &items)) {
        closed = json_is(items, json_type_boolean) && !json_bool(items);
        if (!json_is(items, json_type_object) && !json_is(items, json_type_boolean))
            return err_set(b->eb, ERR_INVALID,
                           "Invalid json_schema: 'items' at '%s' must be an object", b->path);
    }
    if (closed && (max < 0 || max > n_prefix)) max = n_prefix;
    if (max >= 0 && min > max)
        return schema_fail(b, "Invalid json_schema: '%s' allows no array",
                           closed ? "items" : "maxItems");
    nfa_range(a, start, '[', '[', open);
    nfa_range(a, close, ']', ']', end);
    if ((e = json_gap(b, a, open, at)) != ERR_OK) return e;
    if (min == 0) nfa_eps(a, at, close);
    int fixed = max >= 0 ? max : min > n_prefix ? min : n_prefix;
    if (!closed && (max < 0 || max > n_prefix)) {
        size_t was = build_path_push(b, "items");
        if (items != NULL && json_is(items, json_type_object))
            e = rule_of(b, items, "items of an array", &rule);
        else
            e = json_rule(b, RULE_VALUE, &rule);
        if (e != ERR_OK) return e;
        build_path_pop(b, was);
    }
    for (int i = 0; i < fixed && e == ERR_OK; i++) {
        int32_t done = nfa_state(a);
        if (i < n_prefix) {
            char idx[40];
            snprintf(idx, sizeof(idx), "prefixItems.%d", i);
            size_t was = build_path_push(b, idx);
            e = schema_emit(b, a, at, done, json_arr_at(prefix, (size_t)i));
            if (e == ERR_OK) build_path_pop(b, was);
        } else {
            nfa_call(a, at, rule, done);
        }
        if (e == ERR_OK && i + 1 >= min) e = json_gap(b, a, done, close);
        at = nfa_state(a);
        if (e == ERR_OK && (i + 1 < fixed || max < 0)) e = json_comma(b, a, done, at);
    }
    if (e != ERR_OK || max >= 0) return e;
    /* Behind a comma an item must follow, so the array's begin is no state of the loop. */
    int32_t done = nfa_state(a), next = nfa_state(a);
    nfa_call(a, at, rule, done);
    nfa_call(a, next, rule, done);
    if ((e = json_gap(b, a, done, close)) != ERR_OK) return e;
    return json_comma(b, a, done, next);
}
