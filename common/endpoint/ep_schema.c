/* ep_schema: response_format and the JSON schema inside it, checked in the order and with the texts
 * of inference-api 8.6. What of a schema cannot be enforced is said when the guide is compiled. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"

#define RF "Parameter response_format"

enum { PATH_BYTES_MAX = 512 };

/* A dotted path such as schema.properties.a.items; what does not fit is cut. */
struct path {
    char text[PATH_BYTES_MAX];
    size_t len;
};

static size_t path_push(struct path *p, const char *part) {
    size_t was = p->len;
    int n = snprintf(p->text + p->len, sizeof(p->text) - p->len, "%s%s", was > 0 ? "." : "", part);
    if (n > 0) p->len += (size_t)n;
    if (p->len >= sizeof(p->text)) p->len = sizeof(p->text) - 1;
    return was;
}

static void path_pop(struct path *p, size_t was) {
    p->len = was;
    p->text[was] = '\0';
}

static bool failed(struct ep_read *r, const char *text, const struct path *p, const char *what) {
    return ep_fail_with(r, 422, text, "{path}", p->text, "{what}", what, NULL);
}

static bool type_known(const char *s) {
    static const char *const types[] = {"string", "integer", "number", "boolean",
                                        "array",  "object",  "null"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(s, types[i]) == 0) return true;
    return false;
}

static bool check_type_word(struct ep_read *r, const struct path *p, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return failed(r, "Invalid json_schema: 'type' at '{path}' must be a string", p, "");
    return type_known(s) ||
           failed(r, "Invalid json_schema: unsupported type '{what}' at '{path}'", p, s);
}

static bool check_type(struct ep_read *r, const struct path *p, const struct json_value *schema) {
    struct json_value *v, *arr;
    if (json_get(schema, "type", &v) == JSON_ABSENT) return true;
    if (json_get_arr(schema, "type", &arr) != JSON_OK)
        return check_type_word(r, p, json_get(schema, "type", &v) == JSON_OK ? v : NULL);
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (!check_type_word(r, p, json_arr_at(arr, i))) return false;
    return true;
}

/* A schema inside a schema: true and false are schemas too. */
static bool is_boolean(const struct json_value *v) {
    return json_is(v, json_type_boolean);
}

/* Recursion is as deep as the body, which the reader bounds by JSON_DEPTH_MAX. */
static bool check_schema(struct ep_read *r, struct path *p, const struct json_value *schema) {
    struct json_value *v, *in;
    const char *s;
    size_t n, was;
    if (!check_type(r, p, schema)) return false;
    if (json_get(schema, "properties", &v) != JSON_ABSENT) {
        if (json_get_obj(schema, "properties", &in) != JSON_OK)
            return failed(r, "Invalid json_schema: 'properties' at '{path}' must be an object", p,
                          "");
        json_obj_foreach(in, key, val) {
            if (is_boolean(val)) continue;
            if (!json_is(val, json_type_object))
                return failed(r,
                              "Invalid json_schema: property '{what}' at '{path} must be an object",
                              p, key);
            was = path_push(p, "properties");
            path_push(p, key);
            if (!check_schema(r, p, val)) return false;
            path_pop(p, was);
        }
    }
    if (json_get(schema, "items", &v) != JSON_ABSENT && !is_boolean(v)) {
        if (json_get_obj(schema, "items", &in) != JSON_OK)
            return failed(r, "Invalid json_schema: 'items' at '{path}' must be an object", p, "");
        was = path_push(p, "items");
        if (!check_schema(r, p, in)) return false;
        path_pop(p, was);
    }
    if (json_get(schema, "required", &v) != JSON_ABSENT) {
        if (json_get_arr(schema, "required", &in) != JSON_OK)
            return failed(r, "Invalid json_schema: 'required' at '{path}' must be an array", p, "");
        for (size_t i = 0; i < json_arr_len(in); i++)
            if (json_as_str(json_arr_at(in, i), &s, &n) != JSON_OK)
                return failed(
                    r, "Invalid json_schema: elements of 'required' at '{path}' must be strings", p,
                    "");
    }
    return true;
}

static bool check_json_schema(struct ep_read *r, const struct json_value *format) {
    struct json_value *v, *js, *schema;
    struct path path = {.len = 0};
    const char *s;
    size_t n;
    if (json_get(format, "json_schema", &v) != JSON_OK)
        return ep_fail(r, 422, RF ".json_schema is required when type is 'json_schema'");
    if (json_as_obj(v, &js) != JSON_OK) return ep_fail(r, 422, RF ".json_schema must be an object");
    if (json_get(js, "name", &v) != JSON_OK)
        return ep_fail(r, 422, RF ".json_schema.name is required");
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_fail(r, 422, RF ".json_schema.name must be a string");
    size_t units = ep_utf16_len(s, n);
    if (units < 1 || units > 64)
        return ep_fail(r, 422, RF ".json_schema.name must be 1-64 characters");
    if (json_get(js, "schema", &v) != JSON_OK)
        return ep_fail(r, 422, RF ".json_schema.schema is required when type is 'json_schema'");
    if (json_as_obj(v, &schema) != JSON_OK)
        return ep_fail(r, 422, RF ".json_schema.schema must be an object");
    path_push(&path, "schema");
    return check_schema(r, &path, schema);
}

bool ep_check_response_format(struct ep_read *r, const struct json_value *v) {
    struct json_value *format, *type;
    const char *s;
    size_t n;
    if (json_as_obj(v, &format) != JSON_OK) return ep_fail(r, 422, RF " must be an object");
    if (json_get(format, "type", &type) != JSON_OK)
        return ep_fail(r, 422, RF " must contain 'type' field");
    if (json_as_str(type, &s, &n) != JSON_OK) return ep_fail(r, 422, RF ".type must be a string");
    if (strcmp(s, "text") == 0) return true;
    bool schema = strcmp(s, "json_schema") == 0;
    if (!schema && strcmp(s, "json_object") != 0)
        return ep_fail_with(r, 422,
                            RF ".type must be 'json_object', 'json_schema' or 'text', got '{got}'",
                            "{got}", s, NULL);
    return !schema || check_json_schema(r, format);
}
