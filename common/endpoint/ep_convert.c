/* ep_convert: the builder of chats. */
#include "common/endpoint/ep_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/entropy.h"
#include "common/engine/siphash.h"

/* Beside the client's own tree; what a small body takes does not matter. */
enum { CALL_BYTES = 640, MESSAGE_BYTES = 320, TREES_PER_BYTE = 4, TREES_FREE_BYTES = 8 << 20 };

static void count(struct conv *c, size_t bytes) {
    struct ep_read *r = c->r;
    char text[160];
    const size_t most = TREES_PER_BYTE * r->in->body_len + TREES_FREE_BYTES;
    c->built_bytes += bytes;
    const size_t all = c->built_bytes + json_tree_bytes(r->body);
    if (r->status != 0 || all <= most) return;
    snprintf(text, sizeof(text),
             "messages: so many messages and tool calls would take over %zu bytes of memory, the "
             "limit for a body of %zu bytes",
             most, r->in->body_len);
    ep_fail(r, 422, text);
}

static void set_str(struct json_value *o, const char *key, const char *s, size_t n) {
    json_obj_set(o, key, json_new_str_n(s, n));
}

void conv_begin(struct conv *c, struct ep_read *r) {
    *c = (struct conv){.r = r, .body = json_new_obj()};
    struct json_value *messages = json_new_arr();
    json_obj_set(c->body, "messages", messages);
    c->messages = messages;
    if (!entropy_get(c->key, sizeof(c->key))) ep_fail_memory(r);
}

/* The message under way is complete. */
static void put_message(struct conv *c) {
    if (c->role == NULL) return;
    struct json_value *m = json_new_obj();
    json_obj_set(m, "role", json_new_str(c->role));
    if (c->has_text || c->calls == NULL)
        set_str(m, "content", c->text.data != NULL ? c->text.data : "", c->text.len);
    if (c->thinking.len > 0) set_str(m, "reasoning_content", c->thinking.data, c->thinking.len);
    if (c->calls != NULL) json_obj_set(m, "tool_calls", c->calls);
    if (c->call_id.len > 0) set_str(m, "tool_call_id", c->call_id.data, c->call_id.len);
    json_arr_add(c->messages, m);
    if (c->text.failed || c->thinking.failed || c->call_id.failed) ep_fail_memory(c->r);
    buf_clear(&c->text);
    buf_clear(&c->thinking);
    buf_clear(&c->call_id);
    c->calls = NULL;
    c->has_text = false;
    c->role = NULL;
}

bool conv_end(struct conv *c, bool good) {
    struct ep_read *r = c->r;
    put_message(c);
    good = good && r->status == 0;
    buf_free(&c->text);
    buf_free(&c->thinking);
    buf_free(&c->call_id);
    free(c->called.at);
    free(c->answered.at);
    free(c->calls_made);
    if (!good) {
        json_put(c->body);
        return false;
    }
    r->args_bytes += json_tree_bytes(r->body);
    json_put(r->params);
    json_put(r->body);
    r->body = c->body;
    r->params = json_ref(c->body);
    return true;
}

void conv_message(struct conv *c, const char *role, bool joined) {
    if (joined && c->role != NULL && strcmp(c->role, role) == 0) return;
    put_message(c);
    c->role = role;
    c->turn_calls = c->n_calls;
    c->n_messages++;
    count(c, MESSAGE_BYTES);
}

void conv_text(struct conv *c, const char *s, size_t n, const char *between) {
    if (c->has_text) buf_puts(&c->text, between);
    buf_append(&c->text, s, n);
    c->has_text = true;
}

void conv_thinking(struct conv *c, const char *s, size_t n) {
    buf_append(&c->thinking, s, n);
}

/* ---- calls */

static uint64_t call_hash(const struct conv *c, const char *id) {
    const uint64_t h = siphash24(c->key, id, strlen(id));
    return h != 0 ? h : 1;
}

/* Where h is, or a free place for it. */
static uint64_t *call_slot(uint64_t *table, size_t mask, uint64_t h) {
    size_t i = (size_t)h & mask;
    while (table[i] != 0 && table[i] != h) i = (i + 1) & mask;
    return &table[i];
}

static bool ids_grow(struct conv_ids *ids) {
    const size_t mask = ids->at != NULL ? 2 * ids->mask + 1 : 15;
    uint64_t *more = calloc(mask + 1, sizeof(*more));
    if (more == NULL) return false;
    for (size_t i = 0; ids->at != NULL && i <= ids->mask; i++)
        if (ids->at[i] != 0) *call_slot(more, mask, ids->at[i]) = ids->at[i];
    free(ids->at);
    ids->at = more;
    ids->mask = mask;
    return true;
}

static void ids_add(struct conv *c, struct conv_ids *ids, const char *id) {
    if ((ids->at == NULL || 2 * ids->n > ids->mask) && !ids_grow(ids)) {
        ep_fail_memory(c->r);
        return;
    }
    const uint64_t h = call_hash(c, id);
    uint64_t *at = call_slot(ids->at, ids->mask, h);
    ids->n += *at == 0;
    *at = h;
}

static bool ids_have(const struct conv *c, const struct conv_ids *ids, const char *id) {
    return ids->at != NULL && *call_slot(ids->at, ids->mask, call_hash(c, id)) != 0;
}

bool conv_is_called(const struct conv *c, const char *id) {
    return ids_have(c, &c->called, id);
}

static void note_call(struct conv *c, const char *id) {
    ids_add(c, &c->called, id);
    if (c->n_calls == c->calls_cap) {
        const size_t cap = c->calls_cap > 0 ? 2 * c->calls_cap : 16;
        const char **more = realloc(c->calls_made, cap * sizeof(*more));
        if (more == NULL) {
            ep_fail_memory(c->r);
            return;
        }
        c->calls_made = more;
        c->calls_cap = cap;
    }
    c->calls_made[c->n_calls++] = id;
}

const char *conv_unanswered(const struct conv *c) {
    const bool last_word = c->role != NULL && strcmp(c->role, "assistant") == 0;
    const size_t n = last_word ? c->turn_calls : c->n_calls;
    for (size_t i = 0; i < n; i++)
        if (!ids_have(c, &c->answered, c->calls_made[i])) return c->calls_made[i];
    return NULL;
}

void conv_call(struct conv *c, const char *id, const char *name, const char *args, size_t n_args) {
    struct json_value *call = json_new_obj(), *fn = json_new_obj();
    size_t n_id = 0;
    const char *own = NULL; /* the call's, which lasts as long as the conversation */
    json_obj_set(call, "id", json_new_str(id));
    json_get_str(call, "id", &own, &n_id);
    json_obj_set(call, "type", json_new_str("function"));
    json_obj_set(fn, "name", json_new_str(name));
    set_str(fn, "arguments", args, n_args);
    json_obj_set(call, "function", fn);
    if (c->calls == NULL) c->calls = json_new_arr();
    if (json_arr_add(c->calls, call) != 0 || own == NULL) {
        ep_fail_memory(c->r);
        return;
    }
    note_call(c, own);
    count(c, CALL_BYTES);
}

void conv_result_of(struct conv *c, const char *id) {
    buf_clear(&c->call_id);
    buf_puts(&c->call_id, id);
    ids_add(c, &c->answered, id);
}

void conv_tool(struct conv *c, const char *name, const char *description,
               struct json_value *params) {
    struct json_value *tool = json_new_obj(), *fn = json_new_obj();
    json_obj_set(tool, "type", json_new_str("function"));
    json_obj_set(fn, "name", json_new_str(name));
    if (description != NULL) json_obj_set(fn, "description", json_new_str(description));
    if (params != NULL) json_obj_set(fn, "parameters", json_ref(params));
    json_obj_set(tool, "function", fn);
    if (c->tools == NULL) {
        c->tools = json_new_arr();
        json_obj_set(c->body, "tools", c->tools);
    }
    json_arr_add(c->tools, tool);
}

void conv_force(struct conv *c, const char *name) {
    struct json_value *o = json_new_obj(), *fn = json_new_obj();
    json_obj_set(o, "type", json_new_str("function"));
    json_obj_set(fn, "name", json_new_str(name));
    json_obj_set(o, "function", fn);
    conv_set(c, "tool_choice", o);
}

void conv_set(struct conv *c, const char *key, struct json_value *v) {
    json_obj_set(c->body, key, v);
}

void conv_copy(struct conv *c, struct json_value *from, const char *const *keys) {
    struct json_value *v;
    for (; *keys != NULL; keys++)
        if (json_get(from, *keys, &v) == JSON_OK) conv_set(c, *keys, json_ref(v));
}

void conv_var(struct conv *c, const char *key, struct json_value *v) {
    struct json_value *vars;
    if (json_get_obj(c->body, "chat_template_kwargs", &vars) != JSON_OK) {
        vars = json_new_obj();
        conv_set(c, "chat_template_kwargs", vars);
    }
    json_obj_set(vars, key, v);
}

void conv_schema(struct conv *c, struct json_value *schema) {
    struct json_value *format = json_new_obj(), *inner = json_new_obj();
    json_obj_set(format, "type", json_new_str("json_schema"));
    json_obj_set(inner, "name", json_new_str("answer"));
    json_obj_set(inner, "schema", json_ref(schema));
    json_obj_set(format, "json_schema", inner);
    conv_set(c, "response_format", format);
}

/* ---- for all of them */

bool ep_model_named(struct ep_read *r, const char *s, size_t n, const char *text) {
    if (!ep_names_served(r, s, n)) {
        if (r->status == 0) r->code = EP_NO_MODEL;
        return ep_fail_with(r, 404, text, "{got}", s, NULL);
    }
    free(r->req->head.model);
    r->req->head.model = ep_dup(s, n);
    return r->req->head.model != NULL || ep_fail_memory(r);
}
