#include "tools/load/load_answer.h"

#include <stdio.h>
#include <string.h>
#include "common/base/buf.h"
#include "proto/json.h"

static bool is_text(const struct json_value *o, const char *key) {
    const char *s;
    size_t n;
    return json_get_str(o, key, &s, &n) == JSON_OK && n > 0;
}

static bool has_text(const struct json_value *choice) {
    struct json_value *delta, *calls;
    if (is_text(choice, "text")) return true;
    if (json_get_obj(choice, "delta", &delta) != JSON_OK) return false;
    return is_text(delta, "content") || is_text(delta, "reasoning_content") ||
           is_text(delta, "reasoning") ||
           (json_get_arr(delta, "tool_calls", &calls) == JSON_OK && json_arr_len(calls) > 0);
}

static void read_usage(struct load_event *e, const struct json_value *v) {
    struct json_value *usage;
    if (json_get_obj(v, "usage", &usage) != JSON_OK) return;
    int64_t n;
    if (json_get_i64(usage, "prompt_tokens", &n) == JSON_OK && n >= 0) e->in = n;
    if (json_get_i64(usage, "completion_tokens", &n) == JSON_OK && n >= 0) e->out = n;
}

/* The words of an error, wherever a server puts them. */
static bool error_words(const struct json_value *v, const char **s, size_t *n) {
    struct json_value *inner;
    if (json_get_obj(v, "error", &inner) == JSON_OK &&
        json_get_str(inner, "message", s, n) == JSON_OK)
        return true;
    return json_get_str(v, "error", s, n) == JSON_OK ||
           json_get_str(v, "message", s, n) == JSON_OK ||
           json_get_str(v, "detail", s, n) == JSON_OK;
}

bool load_event_read(struct load_event *e, const char *data, size_t n) {
    *e = (struct load_event){.in = -1, .out = -1};
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        e->is_end = true;
        return true;
    }
    struct json_value *v = NULL, *choices;
    if (json_read(&v, data, n, NULL, NULL) != ERR_OK) return false;
    const char *s;
    size_t len;
    if (json_get_arr(v, "choices", &choices) == JSON_OK) {
        for (size_t i = 0; i < json_arr_len(choices) && !e->has_text; i++)
            e->has_text = has_text(json_arr_at(choices, i));
    } else if (error_words(v, &s, &len)) {
        buf_copy_text(e->error, sizeof(e->error), s, len);
    }
    read_usage(e, v);
    json_put(v);
    return true;
}

void load_error_text(char *dst, size_t dst_bytes, const char *body, size_t n) {
    struct json_value *v = NULL;
    const char *s = body;
    size_t len = n;
    if (json_read(&v, body, n, NULL, NULL) == ERR_OK && error_words(v, &s, &len)) {
        buf_copy_text(dst, dst_bytes, s, len);
    } else {
        len = n < 120 ? n : 120;
        buf_copy_text(dst, dst_bytes, body, len);
        for (char *c = dst; *c != 0; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
    }
    json_put(v);
}
