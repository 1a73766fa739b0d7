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

bool build_own(struct build *b, struct json_object *v) {
    if (v == NULL) return false;
    if (!GROW(b->owned, b->n_owned, b->cap_owned)) {
        json_object_put(v);
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

static bool put(struct json_object *to, const char *key, struct json_object *v) {
    return v != NULL && json_object_object_add(to, key, v) == 0;
}

/* {"allOf":[x, y]} */
static struct json_object *both(struct json_object *x, struct json_object *y) {
    struct json_object *o = json_object_new_object(), *arr = json_object_new_array();
    if (o == NULL || arr == NULL || json_object_array_add(arr, json_object_get(x)) != 0 ||
        json_object_array_add(arr, json_object_get(y)) != 0 || !put(o, "allOf", arr)) {
        json_object_put(o);
        return NULL;
    }
    return o;
}

static struct json_object *merge_properties(struct json_object *x, struct json_object *y) {
    struct json_object *o = json_object_new_object(), *other;
    if (o == NULL) return NULL;
    json_object_object_foreach(x, key, v) {
        bool twice = json_object_object_get_ex(y, key, &other);
        if (!put(o, key, twice ? both(v, other) : json_object_get(v))) goto fail;
    }
    json_object_object_foreach(y, key2, v2) {
        if (json_object_object_get_ex(o, key2, NULL)) continue;
        if (!put(o, key2, json_object_get(v2))) goto fail;
    }
    return o;
fail:
    json_object_put(o);
    return NULL;
}

static bool holds(const struct json_object *arr, struct json_object *v) {
    for (size_t i = 0; i < json_object_array_length(arr); i++)
        if (json_object_equal(json_object_array_get_idx(arr, i), v)) return true;
    return false;
}

/* Union, or what both have. */
static struct json_object *merge_lists(struct json_object *x, struct json_object *y, bool common) {
    struct json_object *arr = json_object_new_array();
    if (arr == NULL) return NULL;
    for (size_t i = 0; i < json_object_array_length(x); i++) {
        struct json_object *v = json_object_array_get_idx(x, i);
        if (common && !holds(y, v)) continue;
        json_object_array_add(arr, json_object_get(v));
    }
    for (size_t i = 0; !common && i < json_object_array_length(y); i++) {
        struct json_object *v = json_object_array_get_idx(y, i);
        if (!holds(arr, v)) json_object_array_add(arr, json_object_get(v));
    }
    return arr;
}

/* Every branch of x with every branch of y. */
static struct json_object *merge_branches(struct json_object *x, struct json_object *y) {
    struct json_object *arr = json_object_new_array();
    size_t n = json_object_array_length(x), m = json_object_array_length(y);
    if (arr == NULL || n * m > BRANCHES_MAX) {
        json_object_put(arr);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            if (json_object_array_add(arr, both(json_object_array_get_idx(x, i),
                                                json_object_array_get_idx(y, k))) != 0) {
                json_object_put(arr);
                return NULL;
            }
    return arr;
}

/* What is no string is no type, and refused where types are read. */
static const char *type_name(const struct json_object *v) {
    const char *s = json_object_get_string(v);
    return s != NULL ? s : "";
}

/* Types as a list of strings; integer is the narrower of integer and number. */
static struct json_object *merge_types(struct json_object *x, struct json_object *y) {
    struct json_object *out = json_object_new_array();
    bool xs = !json_object_is_type(x, json_type_array),
         ys = !json_object_is_type(y, json_type_array);
    size_t n = xs ? 1 : json_object_array_length(x), m = ys ? 1 : json_object_array_length(y);
    for (size_t i = 0; out != NULL && i < n; i++)
        for (size_t k = 0; k < m; k++) {
            struct json_object *a = xs ? x : json_object_array_get_idx(x, i);
            struct json_object *c = ys ? y : json_object_array_get_idx(y, k), *hit = NULL;
            const char *p = type_name(a), *q = type_name(c);
            if (strcmp(p, q) == 0) hit = a;
            if (strcmp(p, "integer") == 0 && strcmp(q, "number") == 0) hit = a;
            if (strcmp(p, "number") == 0 && strcmp(q, "integer") == 0) hit = c;
            if (hit != NULL && !holds(out, hit)) json_object_array_add(out, json_object_get(hit));
        }
    return out;
}

static bool is_false(struct json_object *v) {
    return json_object_is_type(v, json_type_boolean) && !json_object_get_boolean(v);
}

static bool is_true(struct json_object *v) {
    return json_object_is_type(v, json_type_boolean) && json_object_get_boolean(v);
}

static struct json_object *merge_schemas(struct json_object *x, struct json_object *y) {
    if (is_false(x) || is_true(y)) return json_object_get(x);
    if (is_false(y) || is_true(x)) return json_object_get(y);
    return both(x, y);
}

static bool both_are(struct json_object *x, struct json_object *y, enum json_type t) {
    return json_object_is_type(x, t) && json_object_is_type(y, t);
}

/* The keyword with both values; NULL: cannot be merged (or no memory). */
static struct json_object *merge_keyword(const char *key, struct json_object *x,
                                         struct json_object *y) {
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    static const char *const schemas[] = {"items", "additionalProperties", NULL};
    static const char *const notes[] = {
        "title",    "description", "default",    "examples", "$comment",    "$schema", "$id",
        "readOnly", "writeOnly",   "deprecated", "$defs",    "definitions", "format",  NULL};
    if (in(key, notes)) return json_object_get(x);
    if (strcmp(key, "type") == 0) return merge_types(x, y);
    if (strcmp(key, "properties") == 0 && both_are(x, y, json_type_object))
        return merge_properties(x, y);
    if (strcmp(key, "required") == 0 && both_are(x, y, json_type_array))
        return merge_lists(x, y, false);
    if (strcmp(key, "enum") == 0 && both_are(x, y, json_type_array)) return merge_lists(x, y, true);
    if ((strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) && both_are(x, y, json_type_array))
        return merge_branches(x, y);
    if (in(key, schemas)) return merge_schemas(x, y);
    if (in(key, larger))
        return json_object_get(json_object_get_double(x) > json_object_get_double(y) ? x : y);
    if (in(key, smaller))
        return json_object_get(json_object_get_double(x) < json_object_get_double(y) ? x : y);
    if (strcmp(key, "pattern") == 0) {
        /* A list: guide_string reads both forms. */
        struct json_object *arr = json_object_new_array();
        struct json_object *two[] = {x, y};
        for (int i = 0; i < 2 && arr != NULL; i++) {
            if (!json_object_is_type(two[i], json_type_array)) {
                json_object_array_add(arr, json_object_get(two[i]));
                continue;
            }
            for (size_t k = 0; k < json_object_array_length(two[i]); k++)
                json_object_array_add(arr, json_object_get(json_object_array_get_idx(two[i], k)));
        }
        return arr;
    }
    return NULL;
}

enum err schema_merge(struct build *b, struct json_object *x, struct json_object *y,
                      struct json_object **out) {
    struct json_object *o, *other, *v;
    if (!json_object_is_type(x, json_type_object) || !json_object_is_type(y, json_type_object)) {
        if (is_true(x) || is_true(y)) {
            *out = is_true(x) ? y : x;
            return ERR_OK;
        }
        return schema_fail(b, "Invalid json_schema: %s must be an object", "a schema");
    }
    o = json_object_new_object();
    if (!build_own(b, o)) return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    json_object_object_foreach(x, key, vx) {
        bool twice = json_object_object_get_ex(y, key, &other) && !json_object_equal(vx, other);
        if (twice && strcmp(key, "$ref") == 0) {
            /* Two references: the second becomes a branch of its own to merge with. */
            struct json_object *ref = json_object_new_object(), *arr = json_object_new_array();
            if (!put(ref, "$ref", json_object_get(other)) || json_object_array_add(arr, ref) != 0 ||
                !put(o, "allOf", arr))
                return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
            v = json_object_get(vx);
        } else {
            v = twice ? merge_keyword(key, vx, other) : json_object_get(vx);
        }
        if (v == NULL && twice)
            return schema_fail(b, "Invalid json_schema: the schemas of allOf differ in '%s'", key);
        if (json_object_object_add(o, key, v) != 0)
            return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    }
    json_object_object_foreach(y, key2, vy) {
        if (json_object_object_get_ex(x, key2, NULL)) continue;
        if (json_object_object_add(o, key2, json_object_get(vy)) != 0)
            return err_set(b->eb, ERR_NO_MEMORY, "out of memory");
    }
    *out = o;
    return ERR_OK;
}
