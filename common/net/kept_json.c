/* kept_json: members, elements, events. */
#include "common/net/kept_json.h"

#include <string.h>
#include "proto/json_skim.h"

static bool is_null(const char *p) {
    return *p == 'n';
}

/* The value that begins at p[at], up to where it ends; of a number or a word up to what follows. */
static struct kept_span value_at(const char *p, size_t n, size_t at) {
    const struct json_skim *skim = json_skim();
    size_t end = 0, n_bytes;
    if (at == 0 || at >= n || is_null(p + at)) return (struct kept_span){0};
    if (p[at] == '{' || p[at] == '[')
        end = skim->container(p, n, at);
    else if (p[at] == '"')
        end = skim->string(p, n, at, &n_bytes);
    else
        for (end = at; end < n && strchr(",]} \t\r\n", p[end]) == NULL;) end++;
    return end > at ? (struct kept_span){p + at, end - at} : (struct kept_span){0};
}

/* ---- members */

enum { M_STORE, M_PREVIOUS, M_INPUT, BODY_MEMBERS };

void kept_body_look(struct kept_body *out, const char *body, size_t n) {
    static const char *const names[BODY_MEMBERS] = {"store", "previous_response_id", "input"};
    const struct json_skim *skim = json_skim();
    struct json_skim_names members;
    size_t found[BODY_MEMBERS], bom = n >= 3 && memcmp(body, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0,
                                at = skim->space(body, n, bom);
    *out = (struct kept_body){.store = true};
    json_skim_names_init(&members, names, BODY_MEMBERS);
    if (at == n || body[at] != '{' || skim->members(body, n, at, &members, found) == 0) return;
    out->is_object = true;
    out->store = found[M_STORE] == 0 || body[found[M_STORE]] != 'f';
    out->previous = value_at(body, n, found[M_PREVIOUS]);
    out->input = value_at(body, n, found[M_INPUT]);
}

struct kept_span kept_member(struct kept_span object, const char *name) {
    struct json_skim_names names;
    size_t found;
    if (object.n == 0 || object.p[0] != '{') return (struct kept_span){0};
    json_skim_names_init(&names, &name, 1);
    if (json_skim()->members(object.p, object.n, 0, &names, &found) == 0)
        return (struct kept_span){0};
    return value_at(object.p, object.n, found);
}

/* ---- elements */

struct kept_items kept_items_of(struct kept_span list) {
    return (struct kept_items){.list = list, .at = list.n > 0 && list.p[0] == '[' ? 1 : 0};
}

bool kept_items_next(struct kept_items *it, struct kept_span *item) {
    const char *p = it->list.p;
    const size_t n = it->list.n;
    if (n == 0 || it->at >= n) return false;
    if (p[0] != '[') {
        *item = it->list;
        it->at = n;
        return true;
    }
    while (it->at < n && strchr(", \t\r\n", p[it->at]) != NULL) it->at++;
    if (it->at >= n || p[it->at] == ']') return false;
    *item = value_at(p, n, it->at);
    if (item->n == 0) *item = (struct kept_span){p + it->at, 4}; /* null, which nobody keeps */
    it->at += item->n;
    return it->at <= n;
}

/* ---- items */

static bool is_text(struct kept_span s, const char *text) {
    const size_t n = strlen(text);
    return s.n == n + 2 && memcmp(s.p + 1, text, n) == 0;
}

enum { I_TYPE, I_ID, I_ROLE, I_CONTENT, ITEM_MEMBERS };

static void look_at_item(struct kept_span item, struct kept_span found[ITEM_MEMBERS]) {
    static const char *const names[ITEM_MEMBERS] = {"type", "id", "role", "content"};
    struct json_skim_names members;
    size_t at[ITEM_MEMBERS];
    memset(found, 0, ITEM_MEMBERS * sizeof(*found));
    if (item.n == 0 || item.p[0] != '{') return;
    json_skim_names_init(&members, names, ITEM_MEMBERS);
    if (json_skim()->members(item.p, item.n, 0, &members, at) == 0) return;
    for (size_t i = 0; i < ITEM_MEMBERS; i++) found[i] = value_at(item.p, item.n, at[i]);
}

bool kept_is_reference(struct kept_span item, struct kept_span *id) {
    struct kept_span of[ITEM_MEMBERS];
    look_at_item(item, of);
    *id = of[I_ID];
    if (id->n == 0 || id->p[0] != '"') return false;
    return is_text(of[I_TYPE], "item_reference") || (of[I_TYPE].n == 0 && of[I_ROLE].n == 0);
}

bool kept_plain(char *dst, size_t dst_bytes, struct kept_span string) {
    if (string.n < 2 || string.p[0] != '"' || string.n - 2 >= dst_bytes) return false;
    for (size_t i = 1; i + 1 < string.n; i++)
        if (string.p[i] < ' ' || string.p[i] > '~' || string.p[i] == '\\') return false;
    memcpy(dst, string.p + 1, string.n - 2);
    dst[string.n - 2] = '\0';
    return true;
}

/* An input that is a text is one message. */
static void put_text_input(struct buf *out, struct kept_span text) {
    buf_puts(out, "\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
                  "\"text\":");
    buf_append(out, text.p, text.n);
    buf_puts(out, "}]");
}

void kept_put_items(struct buf *out, struct kept_span list, bool *some) {
    struct kept_items it = kept_items_of(list);
    struct kept_span item;
    if (list.n > 0 && list.p[0] == '[') { /* all of it at once */
        if (!kept_items_next(&it, &item)) return;
        if (*some) buf_putc(out, ',');
        buf_append(out, list.p + 1, list.n - 2);
    } else if (list.n > 0) {
        if (*some) buf_putc(out, ',');
        buf_putc(out, '{');
        put_text_input(out, list);
        buf_putc(out, '}');
    } else {
        return;
    }
    *some = true;
}

static const char *prefix_of(struct kept_span type) {
    static const char *const prefixes[][2] = {{"function_call", "fc"},
                                              {"function_call_output", "fco"},
                                              {"custom_tool_call", "ctc"},
                                              {"custom_tool_call_output", "ctco"},
                                              {"reasoning", "rs"}};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (is_text(type, prefixes[i][0])) return prefixes[i][1];
    return type.n == 0 || is_text(type, "message") ? "msg" : "item";
}

static void put_id(struct buf *out, const struct kept_span of[ITEM_MEMBERS], const char *number,
                   size_t i) {
    if (of[I_ID].n > 2 && of[I_ID].p[0] == '"')
        buf_append(out, of[I_ID].p + 1, of[I_ID].n - 2);
    else
        buf_printf(out, "%s_%s_i%zu", prefix_of(of[I_TYPE]), number, i);
}

void kept_put_item_id(struct buf *out, struct kept_span item, const char *number, size_t i) {
    struct kept_span of[ITEM_MEMBERS];
    look_at_item(item, of);
    put_id(out, of, number, i);
}

void kept_put_item(struct buf *out, struct kept_span item, const char *number, size_t i) {
    struct kept_span of[ITEM_MEMBERS];
    look_at_item(item, of);
    buf_putc(out, '{');
    if (of[I_ID].n <= 2) {
        buf_puts(out, "\"id\":\"");
        put_id(out, of, number, i);
        buf_puts(out, "\",");
    }
    if (item.p[0] == '"') {
        put_text_input(out, item);
        buf_putc(out, '}');
        return;
    }
    if (of[I_TYPE].n == 0) buf_puts(out, "\"type\":\"message\",");
    const struct kept_span content = of[I_CONTENT];
    if (content.n == 0 || content.p[0] != '"') {
        buf_append(out, item.p + 1, item.n - 1);
        return;
    }
    buf_append(out, item.p + 1, (size_t)(content.p - item.p) - 1);
    buf_puts(out, is_text(of[I_ROLE], "assistant")
                      ? "[{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                      : "[{\"type\":\"input_text\",\"text\":");
    buf_append(out, content.p, content.n);
    buf_puts(out, "}]");
    buf_append(out, content.p + content.n, item.n - (size_t)(content.p + content.n - item.p));
}

/* ---- events */

static const char *end_of_event(const char *p, size_t n) {
    const char *end = memmem(p, n, "\n\n", 2);
    return end != NULL ? end + 2 : NULL;
}

struct kept_span kept_events_from(struct kept_span stream, size_t n_events) {
    const char *p = stream.p, *end = p + stream.n, *next;
    for (; n_events > 0 && p < end; n_events--) {
        if ((next = end_of_event(p, (size_t)(end - p))) == NULL) break;
        p = next;
    }
    return (struct kept_span){p, (size_t)(end - p)};
}

struct kept_span kept_last_event(struct kept_span stream) {
    size_t end = stream.n, from;
    while (end >= 2 && (stream.p[end - 1] != '\n' || stream.p[end - 2] != '\n')) end--;
    if (end < 2) return (struct kept_span){0};
    from = end - 2;
    while (from >= 2 && (stream.p[from - 1] != '\n' || stream.p[from - 2] != '\n')) from--;
    if (from < 2) from = 0;
    return (struct kept_span){stream.p + from, end - from};
}

struct kept_span kept_response_of(struct kept_span event) {
    static const char data[] = "\ndata: ";
    const char *p = event.n > 0 ? memmem(event.p, event.n, data, sizeof(data) - 1) : NULL;
    if (p == NULL) return (struct kept_span){0};
    p += sizeof(data) - 1;
    return kept_member((struct kept_span){p, event.n - (size_t)(p - event.p)}, "response");
}
