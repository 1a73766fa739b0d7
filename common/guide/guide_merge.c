/* guide_merge: two schemas that both hold become one, keyword by keyword: `allOf`, keywords beside
 * a
 * `$ref`, and keywords beside an `anyOf` all come here. Objects are merged as a union of their
 * members, so `additionalProperties: false` in one of them speaks of the merged object. */
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

enum { BRANCHES_MAX = 256 };

bool build_own(struct build *b, struct json_value *v) {
    if (v == NULL) return false;
    if (!GROW(b->owned, b->n_owned, b->cap_owned)) {
        json_put(v);
        return false;
    }
    b->owned[b->n_owned++] = v;
    return true;
}

static bool in(const char *key, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(key, *list) == 0) return true;
    return false;
}

static bool put(struct json_value *to, const char *key, struct json_value *v) {
    return v != NULL && json_obj_set(to, key, v) == 0;
}

/* {"allOf":[x, y]} */
static struct json_value *both(struct json_value *x, struct json_value *y) {
    struct json_value *o = json_new_obj(), *arr = json_new_arr();
    bool made = json_arr_add(arr, json_ref(x)) == 0 && json_arr_add(arr, json_ref(y)) == 0;
    if (put(o, "allOf", arr) && made) return o;
    json_put(o);
    return NULL;
}

static struct json_value *merge_properties(struct json_value *x, struct json_value *y) {
    struct json_value *o = json_new_obj(), *other;
    if (o == NULL) return NULL;
    json_obj_foreach(x, key, v) {
        bool twice = json_obj_find(y, key, &other);
        if (!put(o, key, twice ? both(v, other) : json_ref(v))) goto fail;
    }
    json_obj_foreach(y, key2, v2) {
        if (json_obj_find(o, key2, NULL)) continue;
        if (!put(o, key2, json_ref(v2))) goto fail;
    }
    return o;
fail:
    json_put(o);
    return NULL;
}

static bool holds(const struct json_value *arr, struct json_value *v) {
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (json_equal(json_arr_at(arr, i), v)) return true;
    return false;
}

/* Union, or what both have. */
static struct json_value *merge_lists(struct json_value *x, struct json_value *y, bool common) {
    struct json_value *arr = json_new_arr();
    if (arr == NULL) return NULL;
    for (size_t i = 0; i < json_arr_len(x); i++) {
        struct json_value *v = json_arr_at(x, i);
        if (common && !holds(y, v)) continue;
        json_arr_add(arr, json_ref(v));
    }
    for (size_t i = 0; !common && i < json_arr_len(y); i++) {
        struct json_value *v = json_arr_at(y, i);
        if (!holds(arr, v)) json_arr_add(arr, json_ref(v));
    }
    return arr;
}

/* Every branch of x with every branch of y. */
static struct json_value *merge_branches(struct json_value *x, struct json_value *y) {
    struct json_value *arr = json_new_arr();
    size_t n = json_arr_len(x), m = json_arr_len(y);
    if (arr == NULL || n * m > BRANCHES_MAX) {
        json_put(arr);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            if (json_arr_add(arr, both(json_arr_at(x, i), json_arr_at(y, k))) != 0) {
                json_put(arr);
                return NULL;
            }
    return arr;
}

/* What is no string is no type, and refused where types are read. */
static const char *type_name(const struct json_value *v) {
    const char *s = json_str(v);
    return s != NULL ? s : "";
}

/* Types as a list of strings; integer is the narrower of integer and number. */
static struct json_value *merge_types(struct json_value *x, struct json_value *y) {
    struct json_value *out = json_new_arr();
    bool xs = !json_is(x, json_type_array), ys = !json_is(y, json_type_array);
    size_t n = xs ? 1 : json_arr_len(x), m = ys ? 1 : json_arr_len(y);
    for (size_t i = 0; out != NULL && i < n; i++)
        for (size_t k = 0; k < m; k++) {
            struct json_value *a = xs ? x : json_arr_at(x, i);
            struct json_value *c = ys ? y : json_arr_at(y, k), *hit = NULL;
            const char *p = type_name(a), *q = type_name(c);
            if (strcmp(p, q) == 0) hit = a;
            if (strcmp(p, "integer") == 0 && strcmp(q, "number") == 0) hit = a;
            if (strcmp(p, "number") == 0 && strcmp(q, "integer") == 0) hit = c;
            if (hit != NULL && !holds(out, hit)) json_arr_add(out, json_ref(hit));
        }
    return out;
}

static bool is_false(struct json_value *v) {
    return json_is(v, json_type_boolean) && !json_bool(v);
}

static bool is_true(struct json_value *v) {
    return json_is(v, json_type_boolean) && json_bool(v);
}

static struct json_value *merge_schemas(struct json_value *x, struct json_value *y) {
    if (is_false(x) || is_true(y)) return json_ref(x);
    if (is_false(y) || is_true(x)) return json_ref(y);
    return both(x, y);
}

static bool both_are(struct json_value *x, struct json_value *y, enum json_type t) {
    return json_is(x, t) && json_is(y, t);
}

/* The keyword with both values; NULL: cannot be merged (or no memory). */
static struct json_value *merge_keyword(const char *key, struct json_value *x,
                                        struct json_value *y) {
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    static const char *const schemas[] = {"items", "additionalProperties", NULL};
    static const char *const notes[] = {
        "title",    "description", "default",    "examples", "$comment",    "$schema", "$id",
        "readOnly", "writeOnly",   "deprecated", "$defs",    "definitions", "format",  NULL};
    if (in(key, notes)) return json_ref(x);
    if (strcmp(key, "type") == 0) return merge_types(x, y);
    if (strcmp(key, "properties") == 0 && both_are(x, y, json_type_object))
        return merge_properties(x, y);
    if (strcmp(key, "required") == 0 && both_are(x, y, json_type_array))
        return merge_lists(x, y, false);
    if (strcmp(key, "enum") == 0 && both_are(x, y, json_type_array)) return merge_lists(x, y, true);
    if ((strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) && both_are(x, y, json_type_array))
        return merge_branches(x, y);
    if (in(key, schemas)) return merge_schemas(x, y);
    if (in(key, larger)) return json_ref(json_f64(x) > json_f64(y) ? x : y);
    if (in(key, smaller)) return json_ref(json_f64(x) < json_f64(y) ? x : y);
    if (strcmp(key, "pattern") == 0) {
        /* A list: guide_string reads both forms. */
        struct json_value *arr = json_new_arr();
        struct json_value *two[] = {x, y};
        for (int i = 0; i < 2 && arr != NULL; i++) {
            if (!json_is(two[i], json_type_array)) {
                json_arr_add(arr, json_ref(two[i]));
                continue;
            }
            for (size_t k = 0; k < json_arr_len(two[i]); k++)
                json_arr_add(arr, json_ref(json_arr_at(two[i], k)));
        }
        return arr;
    }
    return NULL;
}

enum err schema_merge(struct build *b, struct json_value *x, struct json_value *y,
                      struct json_value **out) {
    struct json_value *o, *other, *v;
    if (!json_is(x, json_type_object) || !json_is(y, json_type_object)) {
        if (is_true(x) || is_true(y)) {
            *out = is_true(x) ? y : x;
            return ERR_OK;
        }
        return schema_fail(b, "Invalid json_schema: %s must be an object", "a schema");
    }
    o = json_new_obj();
    if (!build_own(b, o)) return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    json_obj_foreach(x, key, vx) {
        bool twice = json_obj_find(y, key, &other) && !json_equal(vx, other);
        if (twice && strcmp(key, "$ref") == 0) {
            /* Two references: the second becomes a branch of its own to merge with. */
            struct json_value *ref = json_new_obj(), *arr = json_new_arr();
            if (!put(ref, "$ref", json_ref(other)) || json_arr_add(arr, ref) != 0 ||
                !put(o, "allOf", arr))
                return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
            v = json_ref(vx);
        } else {
            v = twice ? merge_keyword(key, vx, other) : json_ref(vx);
        }
        if (v == NULL && twice)
            return schema_fail(b, "Invalid json_schema: the schemas of allOf differ in '%s'", key);
        if (json_obj_set(o, key, v) != 0) return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    }
    json_obj_foreach(y, key2, vy) {
        if (json_obj_find(x, key2, NULL)) continue;
        if (json_obj_set(o, key2, json_ref(vy)) != 0)
            return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    }
    *out = o;
    return ERR_OK;
}
