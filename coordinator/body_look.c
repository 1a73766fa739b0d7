/* body_look: a few members, by the brackets and quotes alone; no tree. */
#include "coordinator/body_look.h"

#include <pthread.h>
#include <string.h>
#include "coordinator/prefix_keys.h"
#include "proto/grpc.h"
#include "proto/json_lex.h"
#include "proto/json_skim.h"
#include "proto/pb.h"

/* Objects and strings with escapes, of an input, that are looked at one by one; what lies behind
 * them in a list counts by its bytes, so that a body's time does not depend on what is in it. */
enum { SINGLES_MAX = 8192 };
enum { TOKEN_CHARS = 4, OBJECTS_DEEP_MAX = 2 };

bool body_id_ok(const char *id, size_t n) {
    if (n < 1 || n > CLIENT_ID_BYTES_MAX) return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

struct walk {
    const struct json_skim *skim;
    const struct json_skim_names *texts, *members;
    const char *p;
    size_t n;
    unsigned n_singles;
    bool bad;
};

struct input {
    size_t n_chars;
    size_t n_prompts; /* of a list of texts or of lists its items; else 0 */
};

static struct input text_length(struct walk *w, size_t at, int deep);

/* ---- the input */

enum { M_CONTENT, M_TEXT, M_DATA, TEXT_MEMBERS };
static const char *const text_names[TEXT_MEMBERS] = {"content", "text", "data"};

/* Whether a member is there and not null. */
static bool is_there(const struct walk *w, size_t at) {
    return at != 0 && w->p[at] != 'n';
}

/* Of an object's texts the first of these that is there counts. *end: behind the object, or 0. */
static size_t object_length(struct walk *w, size_t at, int deep, size_t *end) {
    size_t found[TEXT_MEMBERS];
    if (deep >= OBJECTS_DEEP_MAX) {
        *end = w->skim->container(w->p, w->n, at);
        return 0;
    }
    *end = w->skim->members(w->p, w->n, at, w->texts, found);
    if (*end == 0) return 0;
    for (size_t i = 0; i < TEXT_MEMBERS; i++)
        if (is_there(w, found[i])) return text_length(w, found[i], deep + 1).n_chars;
    return 0;
}

static size_t space_from(const struct walk *w, size_t at) {
    return at < w->n && w->p[at] > ' ' ? at : w->skim->space(w->p, w->n, at);
}

/* What most chats are made of, objects and commas, is seen at a glance. */
static enum json_skim_item next_item(const struct walk *w, size_t *at, size_t *depth,
                                     struct json_skim_sum *sum) {
    if (*depth == 1 && w->n - *at >= 2) {
        const char *p = w->p + *at;
        if (p[0] == '{') return JSON_SKIM_OBJECT;
        if (p[0] == ',' && p[1] == '{') {
            sum->n_items++;
            ++*at;
            return JSON_SKIM_OBJECT;
        }
        if (p[0] == ']') {
            ++*at;
            *depth = 0;
            return JSON_SKIM_END;
        }
    }
    return w->skim->items(w->p, w->n, at, depth, sum);
}

static struct input list_length(struct walk *w, size_t from, int deep) {
    struct json_skim_sum sum = {0};
    struct input in = {0};
    size_t first = space_from(w, from + 1), at = first, depth = 1;
    enum json_skim_item item;
    while ((item = next_item(w, &at, &depth, &sum)) == JSON_SKIM_OBJECT ||
           item == JSON_SKIM_STRING) {
        size_t end, n_bytes = 0;
        if (++w->n_singles > SINGLES_MAX) {
            end = w->skim->arrays_end(w->p, w->n, at, depth);
            if (end > at) in.n_chars += end - at;
            w->bad = w->bad || end == 0;
            break;
        }
        if (item == JSON_SKIM_STRING)
            end = w->skim->string(w->p, w->n, at, &n_bytes);
        else
            n_bytes = object_length(w, at, deep, &end);
        in.n_chars += n_bytes;
        w->bad = w->bad || end == 0;
        if (w->bad) return in;
        at = end;
    }
    w->bad = w->bad || item == JSON_SKIM_BAD;
    in.n_chars += sum.n_text_bytes + TOKEN_CHARS * sum.n_scalars;
    if (first < w->n && (w->p[first] == '"' || w->p[first] == '[')) in.n_prompts = sum.n_items + 1;
    return in;
}

/* Characters of a text, of texts in a list, or of the texts of messages and their parts; deep: in
 * how many objects. */
static struct input text_length(struct walk *w, size_t at, int deep) {
    struct input in = {0};
    size_t end;
    switch (w->p[at]) {
    case '"': w->skim->string(w->p, w->n, at, &in.n_chars); break;
    case '[': return list_length(w, at, deep);
    case '{': in.n_chars = object_length(w, at, deep, &end); break;
    default: in.n_chars = TOKEN_CHARS;
    }
    return in;
}

/* ---- the members of the root object; of one that stands there twice the last counts */

enum member {
    M_N,
    M_BEST_OF,
    M_MAX_TOKENS,
    M_MAX_COMPLETION_TOKENS,
    M_MAX_OUTPUT_TOKENS,
    M_MAX_NEW_TOKENS,
    M_N_PREDICT,
    M_NUM_PREDICT,
    M_AMOUNTS, /* how much an answer is: members of the body, or of its parameters */
    M_STREAM = M_AMOUNTS,
    M_ID,
    M_REQUEST_ID,
    M_PARAMETERS,
    M_OPTIONS,
    M_MESSAGES,
    M_PROMPT,
    M_TEXT_INPUT,
    M_INPUTS,
    M_INPUT_ID,
    M_INPUT,
    M_PRIORITY,
    M_BEFORE, /* what stands before the input in a prompt */
    M_MODEL = M_BEFORE,
    M_SYSTEM,
    M_INSTRUCTIONS,
    M_TOOLS,
    M_CACHE_SALT,
    MEMBERS,
    M_NONE = MEMBERS
};

static const char *const member_names[MEMBERS] = {
    [M_N] = "n",
    [M_BEST_OF] = "best_of",
    [M_MAX_TOKENS] = "max_tokens",
    [M_MAX_COMPLETION_TOKENS] = "max_completion_tokens",
    [M_MAX_OUTPUT_TOKENS] = "max_output_tokens",
    [M_MAX_NEW_TOKENS] = "max_new_tokens",
    [M_N_PREDICT] = "n_predict",
    [M_NUM_PREDICT] = "num_predict",
    [M_STREAM] = "stream",
    [M_ID] = "id",
    [M_REQUEST_ID] = "request_id",
    [M_PARAMETERS] = "parameters",
    [M_OPTIONS] = "options",
    [M_MESSAGES] = "messages",
    [M_PROMPT] = "prompt",
    [M_TEXT_INPUT] = "text_input",
    [M_INPUTS] = "inputs",
    [M_INPUT_ID] = "input_id",
    [M_INPUT] = "input",
    [M_PRIORITY] = "priority",
    [M_MODEL] = "model",
    [M_SYSTEM] = "system",
    [M_INSTRUCTIONS] = "instructions",
    [M_TOOLS] = "tools",
    [M_CACHE_SALT] = "cache_salt",
};

/* The members a family's input may stand in; the first one there counts. */
enum { INPUTS_MAX = 2 };
static const enum member *inputs_of(const struct api_path *path) {
    static const enum member chat[INPUTS_MAX] = {M_MESSAGES, M_NONE},
                             completions[INPUTS_MAX] = {M_PROMPT, M_NONE},
                             responses[INPUTS_MAX] = {M_INPUT, M_NONE},
                             text[INPUTS_MAX] = {M_TEXT_INPUT, M_NONE},
                             tokens[INPUTS_MAX] = {M_INPUTS, M_NONE},
                             native[INPUTS_MAX] = {M_INPUTS, M_INPUT_ID},
                             generate[INPUTS_MAX] = {M_INPUTS, M_PROMPT};
    switch (path->api) {
    case API_OPENAI_CHAT:
    case API_ANTHROPIC:
    case API_OLLAMA_CHAT: return chat;
    case API_OPENAI_COMPLETIONS:
    case API_LLAMACPP:
    case API_OLLAMA_GENERATE: return completions;
    case API_RESPONSES: return responses;
    case API_TRITON_TEXT: return text;
    case API_TRITON_TOKEN: return tokens;
    case API_NATIVE: return native;
    default: return generate;
    }
}

/* The member that holds the client's own id; M_NONE: the family has none. */
static enum member id_of(const struct api_path *path) {
    switch (path->api) {
    case API_TRITON_TEXT:
    case API_TRITON_TOKEN: return M_ID;
    case API_OPENAI_CHAT:
    case API_OPENAI_COMPLETIONS: return M_REQUEST_ID;
    default: return M_NONE;
    }
}

static void take_id(const struct walk *w, size_t at, char id[CLIENT_ID_BYTES_MAX + 1]) {
    struct json_lex l = {.p = (const unsigned char *)w->p, .n = w->n, .at = at};
    struct json_span s;
    size_t n_bytes;
    if (at == 0 || w->p[at] != '"' || w->skim->string(w->p, w->n, at, &n_bytes) == 0) return;
    if (n_bytes > CLIENT_ID_BYTES_MAX || !json_lex_string(&l, &s)) return;
    json_unescape(id, l.p + s.at, s.len);
    id[s.n_bytes] = 0;
    if (!body_id_ok(id, s.n_bytes)) memset(id, 0, CLIENT_ID_BYTES_MAX + 1);
}

/* An unsigned integer; anything else is 0. */
static uint64_t take_u64(const struct walk *w, size_t at) {
    struct json_lex l = {.p = (const unsigned char *)w->p, .n = w->n, .at = at};
    enum json_number kind;
    uint64_t v = 0;
    if (at == 0 || (unsigned)l.p[at] - '0' > 9) return 0;
    if (!json_lex_number(&l, &kind) || kind != JSON_NUMBER_INT) return 0;
    for (; at < l.at; at++) v = v * 10 + (uint64_t)(l.p[at] - '0');
    return v;
}

/* How soon instances take it (ep_sampling.c); 0: it does not say. */
static unsigned priority_at(const struct walk *w, const struct api_path *path, size_t at) {
    struct json_lex l = {.p = (const unsigned char *)w->p, .n = w->n, .at = at};
    enum json_number kind;
    if (at == 0 || (w->p[at] != '-' && (unsigned)l.p[at] - '0' > 9) ||
        !json_lex_number(&l, &kind) || kind != JSON_NUMBER_INT)
        return 0;
    const bool below = w->p[at] == '-';
    const uint64_t v = take_u64(w, at + below);
    if (v == 0) return path->errors == API_ERRORS_V1 ? PRIORITY_FIRST : 0;
    return below ? PRIORITY_FIRST : v < PRIORITY_LAST ? (unsigned)v : PRIORITY_LAST;
}

static uint64_t largest(const struct walk *w, const size_t *body, const size_t *params,
                        enum member first, enum member last) {
    uint64_t most = 0, v;
    for (int i = first; i <= (int)last; i++) {
        if ((v = take_u64(w, body[i])) > most) most = v;
        if ((v = take_u64(w, params[i])) > most) most = v;
    }
    return most;
}

static uint64_t between(uint64_t v, uint64_t lo, uint64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

static void count_work(struct body_look *out, const struct walk *w, const struct api_path *path,
                       const size_t *body, size_t n_prompts) {
    size_t params[MEMBERS] = {0},
           at = is_there(w, body[M_PARAMETERS]) ? body[M_PARAMETERS] : body[M_OPTIONS];
    if (at != 0 && w->p[at] == '{') w->skim->members(w->p, w->n, at, w->members, params);
    uint64_t choices = between(largest(w, body, params, M_N, M_BEST_OF), 1, SEQUENCES_MAX);
    out->n_prompts = (unsigned)between(n_prompts, 1, PARTS_MAX);
    out->n_sequences = (unsigned)between(choices * out->n_prompts, 1, SEQUENCES_MAX);
    out->new_tokens_max =
        between(largest(w, body, params, M_MAX_TOKENS, M_NUM_PREDICT), 0, PROMPT_TOKENS_MAX);
    out->priority = priority_at(w, path, body[M_PRIORITY]);
    if (out->priority == 0) out->priority = priority_at(w, path, params[M_PRIORITY]);
}

/* Behind the value; 0: no string and no container ends here. */
static size_t end_of(const struct walk *w, size_t at) {
    size_t n_bytes;
    switch (w->p[at]) {
    case '"': return w->skim->string(w->p, w->n, at, &n_bytes);
    case '[':
    case '{': return w->skim->container(w->p, w->n, at);
    default: return 0;
    }
}

/* Of a body of this size all ends are looked for; of a longer one that takes too long. */
enum { ENDS_BYTES_MAX = 64 << 10 };

static void take_input(struct body_look *out, const struct walk *w, size_t at) {
    const size_t end = w->n <= ENDS_BYTES_MAX ? end_of(w, at) : w->n;
    if (end <= at) return;
    out->input = w->p + at;
    out->input_bytes = end - at;
}

static void take_before(struct body_look *out, const struct walk *w, const size_t *found) {
    for (int i = M_BEFORE; i < MEMBERS; i++) {
        const size_t end = is_there(w, found[i]) ? end_of(w, found[i]) : 0;
        if (end > found[i])
            out->before_input =
                prefix_keys_mix(out->before_input + (uint64_t)i, w->p + found[i], end - found[i]);
    }
}

static enum api_asks asks_of(const struct walk *w, size_t at) {
    if (at == 0) return API_ASKS_NOTHING;
    if (w->n - at >= 4 && memcmp(w->p + at, "true", 4) == 0) return API_ASKS_STREAM;
    return w->n - at >= 5 && memcmp(w->p + at, "false", 5) == 0 ? API_ASKS_WHOLE : API_ASKS_NOTHING;
}

/* False: what the walk came to is no JSON. */
static bool take_members(struct body_look *out, struct walk *w, const struct api_path *path,
                         const size_t *found) {
    const enum member *inputs = inputs_of(path), id = id_of(path);
    struct input in = {0};
    out->is_object = true;
    out->stream = api_streams(path, asks_of(w, found[M_STREAM]), is_there(w, found[M_PROMPT]));
    for (size_t i = 0; i < INPUTS_MAX && inputs[i] != M_NONE && !out->has_input; i++) {
        out->has_input = is_there(w, found[inputs[i]]);
        if (!out->has_input) continue;
        in = text_length(w, found[inputs[i]], 0);
        take_input(out, w, found[inputs[i]]);
        out->n_chars = in.n_chars;
    }
    count_work(out, w, path, found, in.n_prompts);
    take_before(out, w, found);
    if (id != M_NONE) take_id(w, found[id], out->client_id);
    out->client_id_soft = out->client_id[0] != 0 && id == M_REQUEST_ID;
    return !w->bad;
}

static void know_nothing(struct body_look *out, const struct api_path *path, size_t n) {
    memset(out, 0, sizeof(*out));
    out->n_chars = n;
    out->n_prompts = out->n_sequences = 1;
    out->stream = api_streams(path, API_ASKS_NOTHING, false);
}

/* ---- messages of gRPC: their top fields, as proto/grpc/ numbers them */

/* The prompts of a call of TGIS: `requests`, or `request`. */
enum { TGIS_REQUESTS = 3 };

/* So many fields are looked at: prompts stand among the first, and a body's time must not depend on
 * what is in it. P counts all of them. */
enum { FIELDS_LOOKED_MAX = 4096 };

/* How long a compressed message is. gzip says it at its end, and what says it wrongly is no gzip;
 * of the others the usual ratio of text is taken. It may be so many times as long, and a bit
 * (grpc_json.c). */
enum { TEXT_RATIO = 4, INFLATED_PER_BYTE = 16, INFLATED_FREE_BYTES = 1 << 20, GZIP_BYTES_MIN = 18 };
static size_t inflated_bytes(const struct grpc_frame *f) {
    size_t n = TEXT_RATIO * f->n;
    if (f->n >= GZIP_BYTES_MIN && memcmp(f->p, "\x1f\x8b", 2) == 0) {
        n = 0;
        for (size_t i = 0; i < 4; i++) n |= (size_t)(unsigned char)f->p[f->n - 4 + i] << 8 * i;
    }
    const size_t most = INFLATED_PER_BYTE * f->n + INFLATED_FREE_BYTES;
    return n < most ? n : most;
}

static void look_at_message(struct body_look *out, const struct api_path *path, const char *body,
                            size_t n) {
    struct grpc_frame frame;
    struct pb_field f;
    uint64_t n_prompts = 0;
    know_nothing(out, path, n);
    if (grpc_one_message(body, n) != NULL) return;
    out->is_object = out->has_input = true;
    (void)grpc_frame_take(&frame, body, n);
    if (frame.compressed) {
        out->n_chars = inflated_bytes(&frame);
        return; /* how many prompts there are P knows */
    }
    if (path->api != API_TGIS) return;
    struct pb_reader r = pb_reader(frame.p, frame.n);
    for (unsigned i = 0; i < FIELDS_LOOKED_MAX && pb_next(&r, &f); i++)
        n_prompts += f.number == TGIS_REQUESTS && f.wire == PB_BYTES;
    out->n_prompts = out->n_sequences = (unsigned)between(n_prompts, 1, PARTS_MAX);
}

/* Tables of names are made once: to find a slot of its own for each of so many takes a while. */
static struct json_skim_names text_table, member_table;
static pthread_once_t names_once = PTHREAD_ONCE_INIT;
static void names_init(void) {
    json_skim_names_init(&text_table, text_names, TEXT_MEMBERS);
    json_skim_names_init(&member_table, member_names, MEMBERS);
}

void body_look(struct body_look *out, const struct api_path *path, const char *body, size_t n) {
    struct walk w = {.skim = json_skim(), .p = body, .n = n};
    if (path->frames == API_FRAMES_GRPC) {
        look_at_message(out, path, body, n);
        return;
    }
    size_t found[MEMBERS], bom = n >= 3 && memcmp(body, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0,
                           at = w.skim->space(body, n, bom);
    know_nothing(out, path, n);
    if (at == n || body[at] != '{') return;
    (void)pthread_once(&names_once, names_init);
    w.texts = &text_table;
    w.members = &member_table;
    size_t end = w.skim->members(body, n, at, w.members, found);
    if (end == 0 || w.skim->space(body, n, end) != n) return;
    if (!take_members(out, &w, path, found)) know_nothing(out, path, n);
}
