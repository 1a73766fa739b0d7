/* body_look: one walk over the bytes, a few members; no tree. */
#include "coordinator/body_look.h"

#include <string.h>
#include "proto/json_pull.h"

enum { TOKEN_CHARS = 4, DEPTH_MAX = 4 };

bool body_id_ok(const char *id, size_t n) {
    if (n < 1 || n > CLIENT_ID_BYTES_MAX) return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

struct input {
    bool there; /* and not null */
    size_t n_chars;
};

static struct input text_length(struct json_pull *j, int depth);

/* Of an object's texts the first of these that is there counts. */
static size_t object_length(struct json_pull *j, int depth) {
    enum { N = 3 };
    static const char *const members[N] = {"content", "text", "data"};
    struct input got[N] = {0};
    struct json_span name;
    while (json_pull_member(j, &name)) {
        size_t i = 0;
        while (i < N && !json_pull_name_is(j, &name, members[i])) i++;
        if (i < N)
            got[i] = text_length(j, depth + 1);
        else
            json_pull_skip(j);
    }
    for (size_t i = 0; i < N; i++)
        if (got[i].there) return got[i].n_chars;
    return 0;
}

static size_t item_length(struct json_pull *j, int depth) {
    size_t n = json_pull_ints(j);
    if (n > 0) return depth > DEPTH_MAX ? 0 : n * TOKEN_CHARS;
    return json_pull_empties(j) > 0 ? 0 : text_length(j, depth).n_chars;
}

/* Characters of a text, of texts in a list, or of the texts of messages and their parts. */
static struct input text_length(struct json_pull *j, int depth) {
    struct input in = {.there = true};
    struct json_span s;
    if (depth > DEPTH_MAX) {
        in.there = json_pull_skip(j) != JSON_PULL_NULL;
        return in;
    }
    switch (json_pull_value(j, &s)) {
    case JSON_PULL_STRING: in.n_chars = s.n_bytes; break;
    case JSON_PULL_INT: in.n_chars = TOKEN_CHARS; break;
    case JSON_PULL_ARRAY:
        while (json_pull_item(j)) in.n_chars += item_length(j, depth + 1);
        break;
    case JSON_PULL_OBJECT: in.n_chars = object_length(j, depth); break;
    case JSON_PULL_NULL: in.there = false; break;
    default: break;
    }
    return in;
}

/* The members a family's input may stand in; the first one there counts. */
static const char *const *inputs_of(const struct api_path *path) {
    static const char *const chat[] = {"messages", NULL}, *const completions[] = {"prompt", NULL},
                             *const text[] = {"text_input", NULL},
                             *const tokens[] = {"inputs", NULL},
                             *const native[] = {"inputs", "input_id", NULL},
                             *const generate[] = {"inputs", "prompt", NULL};
    switch (path->api) {
    case API_OPENAI_CHAT: return chat;
    case API_OPENAI_COMPLETIONS: return completions;
    case API_TRITON_TEXT: return text;
    case API_TRITON_TOKEN: return tokens;
    case API_NATIVE: return native;
    default: return generate;
    }
}

/* The member that holds the client's own id; NULL: the family has none. */
static const char *id_of(const struct api_path *path) {
    switch (path->api) {
    case API_TRITON_TEXT:
    case API_TRITON_TOKEN: return "id";
    case API_OPENAI_CHAT:
    case API_OPENAI_COMPLETIONS: return "request_id";
    default: return NULL;
    }
}

enum { INPUTS_MAX = 2 };

struct found {
    bool stream, prompt;
    struct input inputs[INPUTS_MAX];
    char id[CLIENT_ID_BYTES_MAX + 1];
};

/* Which of the path's inputs this member is; -1: none. */
static int input_of(const struct json_pull *j, const struct json_span *name,
                    const char *const *inputs) {
    for (int i = 0; inputs[i] != NULL; i++)
        if (json_pull_name_is(j, name, inputs[i])) return i;
    return -1;
}

static void take_id(struct json_pull *j, char *id) {
    struct json_span s;
    enum json_pulled kind = json_pull_value(j, &s);
    if (kind != JSON_PULL_STRING || !json_pull_copy(j, &s, id, CLIENT_ID_BYTES_MAX + 1) ||
        !body_id_ok(id, s.n_bytes))
        id[0] = 0;
    if (kind >= JSON_PULL_ARRAY) json_pull_rest(j);
}

/* The members of the root object; of one that stands there twice the last counts. */
static void take_members(struct json_pull *j, struct found *f, const struct api_path *path) {
    const char *const *inputs = inputs_of(path), *id = id_of(path);
    struct json_span name;
    while (json_pull_member(j, &name)) {
        int i = input_of(j, &name, inputs);
        bool prompt = json_pull_name_is(j, &name, "prompt");
        if (i >= 0) {
            f->inputs[i] = text_length(j, 0);
            if (prompt) f->prompt = f->inputs[i].there;
        } else if (prompt) {
            f->prompt = json_pull_skip(j) != JSON_PULL_NULL;
        } else if (json_pull_name_is(j, &name, "stream")) {
            f->stream = json_pull_skip(j) == JSON_PULL_TRUE;
        } else if (id != NULL && json_pull_name_is(j, &name, id)) {
            take_id(j, f->id);
        } else {
            json_pull_skip(j);
        }
    }
}

void body_look(struct body_look *out, const struct api_path *path, const char *body, size_t n) {
    struct json_pull j;
    struct json_span s;
    struct found f = {0};
    memset(out, 0, sizeof(*out));
    out->n_chars = n;
    out->stream = api_streams(path, false, false);
    json_pull_start(&j, body, n);
    if (json_pull_value(&j, &s) != JSON_PULL_OBJECT) return;
    take_members(&j, &f, path);
    if (!json_pull_end(&j)) return;
    out->is_object = true;
    out->stream = api_streams(path, f.stream, f.prompt);
    for (size_t i = 0; i < INPUTS_MAX && !out->has_input; i++) {
        out->has_input = f.inputs[i].there;
        if (out->has_input) out->n_chars = f.inputs[i].n_chars;
    }
    memcpy(out->client_id, f.id, strlen(f.id) + 1);
    out->client_id_soft = f.id[0] != 0 && strcmp(id_of(path), "request_id") == 0;
}
