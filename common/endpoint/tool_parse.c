/* tool_parse: a machine that takes one byte at a time, so how the text is cut cannot matter. */
#include "common/endpoint/tool_parse.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/splitmix.h"
#include "common/endpoint/json_scan.h"
#include "common/endpoint/py_scan.h"
#include "proto/json.h"

#define DS_CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define DS_CALLS_END   "<｜tool▁calls▁end｜>"
#define DS_CALL_BEGIN  "<｜tool▁call▁begin｜>"
#define DS_CALL_END    "<｜tool▁call▁end｜>"
#define DS_SEP         "<｜tool▁sep｜>"

enum state {
    ST_TEXT, /* plain text, maybe with the beginning of a tag in held */
    ST_BARE, /* where a call may begin without a tag: only space was seen so far */
    ST_OPEN, /* after the tag */
    ST_LITERAL,
    ST_NAME,     /* a name that stands bare, up to a delimiter */
    ST_NAME_TAG, /* after name[ */
    ST_ID,       /* of [CALL_ID]; not used */
    ST_FENCE,    /* ```json before the arguments */
    ST_SPACE,    /* then the next state */
    ST_ITEM,     /* where one of a list begins that may be written in two ways */
    ST_ITEM_END, /* after an object of a list */
    ST_OBJECT,   /* {"name":..,"arguments":{..}} */
    ST_MEMBER_OR_END,
    ST_MEMBER,
    ST_KEY,
    ST_COLON,
    ST_VALUE,
    ST_NAME_STRING,
    ST_SKIP, /* the value of a member without a meaning here */
    ST_ARGS,
    ST_PY_ARGS, /* as Python writes them */
    ST_MEMBER_END,
    ST_DONE, /* nothing more counts */
};

enum step {
    TAKEN, /* the byte is part of what the state expects */
    AGAIN, /* look at the byte once more, in the state that is set now */
    BAD,   /* this is no call */
};

/* What a call looks like after its tag. */
enum shape {
    SHAPE_OBJECT,
    SHAPE_MISTRAL,
    SHAPE_DEEPSEEK_V3,
    SHAPE_DEEPSEEK_V31,
    SHAPE_LINES,
    SHAPE_PYTHON, /* [f(a=1), g()], or objects */
};

static const struct format {
    const char *names[3];            /* in configurations */
    const char *tags[TOOL_TAGS_MAX]; /* the first opens a call; those up to n_noise mean nothing */
    enum shape shape;
    bool bare;      /* a call needs no tag at the beginning of the text and after another call */
    bool marks;     /* tags open no call: behind one the text begins anew */
    uint32_t noise; /* tags around calls that are never content */
} formats[TOOLS_COUNT] = {
    [TOOLS_NONE] = {.names = {"none"}},
    [TOOLS_HERMES] = {.names = {"hermes", "qwen2_5", "qwen3"},
                      .tags = {"<tool_call>", "</tool_call>"}},
    [TOOLS_LLAMA3] = {.names = {"llama3"}, .tags = {"<|python_tag|>"}, .bare = true},
    [TOOLS_MISTRAL] = {.names = {"mistral"},
                       .tags = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
                       .shape = SHAPE_MISTRAL},
    [TOOLS_DEEPSEEK_V3] = {.names = {"deepseek_v3"},
                           .tags = {DS_CALL_BEGIN, DS_CALLS_BEGIN, DS_CALLS_END, DS_CALL_END,
                                    DS_SEP},
                           .shape = SHAPE_DEEPSEEK_V3,
                           .noise = 1u << 1 | 1u << 2},
    [TOOLS_DEEPSEEK_V31] = {.names = {"deepseek_v31"},
                            .tags = {DS_CALL_BEGIN, DS_CALLS_BEGIN, DS_CALLS_END, DS_CALL_END,
                                     DS_SEP},
                            .shape = SHAPE_DEEPSEEK_V31,
                            .noise = 1u << 1 | 1u << 2},
    [TOOLS_CHATGLM] = {.names = {"chatglm"}, .shape = SHAPE_LINES, .bare = true},
    [TOOLS_LLAMA4] = {.names = {"llama4", "llama4_pythonic", "llama4_json"},
                      .tags = {"<|python_start|>", "<|python_end|>"},
                      .shape = SHAPE_PYTHON,
                      .bare = true,
                      .marks = true,
                      .noise = 1u << 0 | 1u << 1},
    [TOOLS_HARMONY] = {.names = {"harmony", "openai"}}, /* no tags: tool_parse_open() */
};

struct tool_parse {
    struct tool_parse_opts opts;
    const struct format *format;
    enum state state, next; /* next: after a literal, space, or a member's colon */
    const char *literal;    /* what is left of it */
    struct buf held;        /* not content yet: space and half a tag, or the call so far */
    size_t tag_at;          /* ST_TEXT: where in held the half tag begins */
    bool drop;              /* plain text is dropped: a call was complete before it */
    bool closed;            /* no more calls, though text may go on */
    bool strict;            /* the object came without a tag: only known members are allowed */
    bool object, list;      /* the call is an object, in a list */
    bool ended;             /* the byte at hand was a call's last */
    bool cut;               /* the text is over inside a call */

    struct tool_call calls[TOOL_CALLS_MAX + 1]; /* calls[n_calls] is the one under way */
    size_t n_calls;                             /* that count */
    bool counted;                               /* the one under way is among them */
    bool named, has_args, in_args;
    struct buf word; /* key or name under way, as written */
    bool escaped;
    struct json_scan scan;
    struct py_scan py;

    struct buf content;
    bool failed;
};

/* ---- formats by their names and templates */

const char *const *tool_format_tags(enum tool_format format) {
    return formats[format].tags;
}

bool tool_format_of_name(const char *name, enum tool_format *out) {
    for (int f = 0; f < TOOLS_COUNT; f++)
        for (size_t i = 0; i < sizeof(formats[f].names) / sizeof(formats[f].names[0]); i++)
            if (formats[f].names[i] != NULL && strcmp(name, formats[f].names[i]) == 0) {
                *out = (enum tool_format)f;
                return true;
            }
    return false;
}

static bool mentions(const char *src, size_t n, const char *s) {
    return memmem(src, n, s, strlen(s)) != NULL;
}

enum tool_format tool_format_of_template(const char *src, size_t n) {
    /* Formats of their own although a known tag is in them too: calls written as XML. */
    if (mentions(src, n, "<function=") || mentions(src, n, "<arg_key>")) return TOOLS_NONE;
    if (mentions(src, n, "<|channel|>") && mentions(src, n, "<|message|>")) return TOOLS_HARMONY;
    if (mentions(src, n, DS_CALL_BEGIN))
        return mentions(src, n, "```json") ? TOOLS_DEEPSEEK_V3 : TOOLS_DEEPSEEK_V31;
    if (mentions(src, n, "[TOOL_CALLS]")) return TOOLS_MISTRAL;
    if (mentions(src, n, "<tool_call>")) return TOOLS_HERMES;
    if (mentions(src, n, "<|python_start|>") || mentions(src, n, "<|header_start|>"))
        return TOOLS_LLAMA4;
    if (mentions(src, n, "<|python_tag|>") || mentions(src, n, "Environment: ipython"))
        return TOOLS_LLAMA3;
    return mentions(src, n, "<|observation|>") ? TOOLS_CHATGLM : TOOLS_NONE;
}

/* ---- content */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Tag i is never content. */
static bool unseen(const struct tool_parse *p, size_t i) {
    return ((p->opts.hidden | p->format->noise) >> i & 1) != 0;
}

/* Text of a call that is none after all, without the tags that clients never see. */
static void give_back(struct tool_parse *p) {
    const char *s = p->held.data;
    size_t n = p->held.len;
    for (size_t at = 0; at < n;) {
        size_t skip = 0;
        for (size_t i = 0; i < TOOL_TAGS_MAX && skip == 0; i++) {
            const char *tag = p->format->tags[i];
            if (tag == NULL || !unseen(p, i)) continue;
            size_t len = strlen(tag);
            if (n - at >= len && memcmp(s + at, tag, len) == 0) skip = len;
        }
        if (skip == 0) buf_putc(&p->content, s[at]);
        at += skip > 0 ? skip : 1;
    }
    buf_clear(&p->held);
}

/* held was plain text. */
static void plain(struct tool_parse *p) {
    if (!p->drop && p->held.len > 0) buf_append(&p->content, p->held.data, p->held.len);
    buf_clear(&p->held);
}

/* ---- the life of a call */

static struct tool_call *under_way(struct tool_parse *p) {
    return &p->calls[p->counted ? p->n_calls - 1 : p->n_calls];
}

static void start_call(struct tool_parse *p, bool strict) {
    p->strict = strict;
    p->counted = p->named = p->has_args = p->in_args = p->object = false;
    struct tool_call *c = &p->calls[p->n_calls];
    buf_clear(&c->name);
    buf_clear(&c->args);
    c->complete = false;
}

static uint64_t mix(uint64_t x) {
    return splitmix_next(&x);
}

static void make_id(struct tool_parse *p, struct tool_call *c, size_t index) {
    static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = mix(p->opts.id_seed ^ mix(index));
    memcpy(c->id, "call_", 5);
    for (int i = 5; i < 13; i++, x /= 62) c->id[i] = alphabet[x % 62];
    c->id[13] = '\0';
}

/* From here on the call cannot be taken back, so its text so far is no content any more. */
static void count(struct tool_parse *p) {
    if (p->counted) return;
    make_id(p, &p->calls[p->n_calls], p->n_calls);
    p->calls[p->n_calls].content_at = p->content.len;
    p->n_calls++;
    p->counted = true;
    buf_clear(&p->held);
}

static void progress(struct tool_parse *p) {
    if (!p->named || (!p->in_args && !p->has_args)) return;
    if (!p->opts.whole) count(p);
    if (!p->has_args) return;
    count(p);
    under_way(p)->complete = true;
    p->drop = true;
}

static bool complete(const struct tool_parse *p) {
    return p->counted && p->calls[p->n_calls - 1].complete;
}

static bool enough(const struct tool_parse *p) {
    return p->n_calls >= (p->opts.parallel ? TOOL_CALLS_MAX : 1);
}

/* Where the text goes on after a call, good or bad. */
static void after_call(struct tool_parse *p, bool good) {
    p->state = ST_TEXT;
    p->closed = enough(p);
    if (good && p->closed)
        p->state = ST_DONE;
    else if (good && p->format->bare)
        p->state = ST_BARE;
    p->counted = false;
    p->ended = true;
    p->tag_at = 0;
}

static void not_a_call(struct tool_parse *p) {
    if (complete(p)) { /* only what stands around the arguments is odd */
        buf_clear(&p->held);
        after_call(p, true);
        return;
    }
    p->drop = false;
    give_back(p);
    after_call(p, false);
}

/* ---- plain text and tags */

enum match { MATCH_NO, MATCH_PART, MATCH_WHOLE };

/* How the end of held, from tag_at on, compares with the tags that matter in plain text. */
static enum match match_tags(const struct tool_parse *p, size_t *which) {
    const char *s = p->held.data + p->tag_at;
    size_t n = p->held.len - p->tag_at;
    enum match best = MATCH_NO;
    for (size_t i = 0; i < TOOL_TAGS_MAX; i++) {
        const char *tag = p->format->tags[i];
        if (tag == NULL || strncmp(tag, s, n) != 0) continue;
        if ((i > 0 || p->closed) && !unseen(p, i)) continue;
        *which = i;
        if (tag[n] == '\0') return MATCH_WHOLE;
        best = MATCH_PART;
    }
    return best;
}

static void open_call(struct tool_parse *p, bool strict) {
    start_call(p, strict);
    p->state = ST_OPEN;
}

/* Every tag begins with a character that is nowhere else in it, so after a mismatch only the last
 * byte can begin another. */
static enum step text(struct tool_parse *p, char c) {
    bool half = p->tag_at < p->held.len;
    size_t which;
    buf_putc(&p->held, c);
    if (p->held.failed) return TAKEN;
    switch (match_tags(p, &which)) {
    case MATCH_PART: return TAKEN;
    case MATCH_WHOLE:
        if (p->format->marks && !p->closed) {
            p->held.len = p->tag_at;
            p->state = ST_BARE;
            return TAKEN;
        }
        if (which > 0 || p->closed) { /* the space before it stays in held */
            p->held.len = p->tag_at;
            return TAKEN;
        }
        if (p->drop) buf_consume(&p->held, p->tag_at);
        open_call(p, false);
        return TAKEN;
    default: break;
    }
    if (half) {
        p->held.len--;
        plain(p);
        p->tag_at = 0;
        return AGAIN;
    }
    if (is_space(c)) { /* trimmed if a call follows */
        p->tag_at = p->held.len;
        return TAKEN;
    }
    plain(p);
    p->tag_at = 0;
    return TAKEN;
}

/* ---- inside a call; the byte is not in held yet */

static enum step bare(struct tool_parse *p, char c) {
    if (is_space(c) || (p->drop && c == ';')) return TAKEN;
    bool begins = p->format->shape == SHAPE_LINES
                      ? (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'
                      : c == '{' || (c == '[' && p->format->shape == SHAPE_PYTHON);
    if (begins) {
        open_call(p, true);
    } else {
        p->state = ST_TEXT;
        p->tag_at = p->held.len;
    }
    return AGAIN;
}

static enum step expect(struct tool_parse *p, const char *literal, enum state then) {
    p->literal = literal;
    p->state = ST_LITERAL;
    p->next = then;
    return TAKEN;
}

static enum step space_then(struct tool_parse *p, enum state then, enum step step) {
    p->state = ST_SPACE;
    p->next = then;
    return step;
}

static enum step bare_name(struct tool_parse *p) {
    buf_clear(&p->word);
    p->state = ST_NAME;
    return AGAIN;
}

static enum step open_object(struct tool_parse *p, enum step step) {
    p->object = true;
    return space_then(p, ST_OBJECT, step);
}

static enum step open(struct tool_parse *p, char c) {
    p->list = false;
    if (p->format->shape != SHAPE_DEEPSEEK_V31 && is_space(c)) return TAKEN;
    switch (p->format->shape) {
    case SHAPE_OBJECT: return open_object(p, AGAIN);
    case SHAPE_DEEPSEEK_V3:
        buf_clear(&p->word);
        expect(p, "function" DS_SEP, ST_NAME);
        return AGAIN;
    case SHAPE_DEEPSEEK_V31:
    case SHAPE_LINES: return bare_name(p);
    default: break;
    }
    p->list = c == '[';
    if (p->list && p->format->shape == SHAPE_PYTHON) return space_then(p, ST_ITEM, TAKEN);
    if (p->list) return open_object(p, TAKEN);
    return c == '{' ? open_object(p, AGAIN) : bare_name(p);
}

static bool name_good(const char *s, size_t n) {
    return n > 0 && n <= TOOL_NAME_BYTES && memchr(s, '\0', n) == NULL;
}

static enum step set_name(struct tool_parse *p, const char *s, size_t n) {
    if (!name_good(s, n)) return BAD;
    buf_append(&under_way(p)->name, s, n);
    p->named = true;
    progress(p);
    return TAKEN;
}

static bool name_byte(char c) {
    return (unsigned char)c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

/* A bare name: in DeepSeek v3 and ChatGLM it ends with the line, in v3.1 with the separator, in
 * Mistral where the arguments, or the tag before them, begin. */
static enum step name(struct tool_parse *p, char c) {
    enum shape shape = p->format->shape;
    bool line = shape == SHAPE_LINES || shape == SHAPE_DEEPSEEK_V3;
    if (name_byte(c)) {
        buf_putc(&p->word, c);
        return p->word.len > TOOL_NAME_BYTES ? BAD : TAKEN;
    }
    bool end = line                          ? c == '\n' || c == '\r'
               : shape == SHAPE_DEEPSEEK_V31 ? c == '<'
               : shape == SHAPE_PYTHON       ? c == '('
                                             : c == '[' || c == '{' || is_space(c);
    if (!end || set_name(p, p->word.data != NULL ? p->word.data : "", p->word.len) == BAD)
        return BAD;
    if (shape == SHAPE_PYTHON) {
        py_scan_start(&p->py);
        p->state = ST_PY_ARGS;
        return TAKEN;
    }
    if (shape == SHAPE_DEEPSEEK_V31) return expect(p, &DS_SEP[1], ST_ARGS);
    if (shape == SHAPE_MISTRAL && c == '[') {
        p->state = ST_NAME_TAG;
        return TAKEN;
    }
    return space_then(p, shape == SHAPE_DEEPSEEK_V3 ? ST_FENCE : ST_ARGS, AGAIN);
}

static enum step name_tag(struct tool_parse *p, char c) {
    if (c == 'A') return expect(p, "RGS]", ST_ARGS);
    return c == 'C' ? expect(p, "ALL_ID]", ST_ID) : BAD;
}

static enum step literal(struct tool_parse *p, char c) {
    if (c != *p->literal) return BAD;
    return *++p->literal != '\0' ? TAKEN : space_then(p, p->next, TAKEN);
}

static enum step item_end(struct tool_parse *p, char c) {
    if (is_space(c)) return TAKEN;
    if (c != ',') return BAD; /* the call before it is complete: the list is over */
    if (enough(p)) {
        p->state = ST_DONE;
        return TAKEN;
    }
    start_call(p, false);
    return p->format->shape == SHAPE_PYTHON ? space_then(p, ST_ITEM, TAKEN) : open_object(p, TAKEN);
}

static enum step item(struct tool_parse *p, char c) {
    return c == '{' ? open_object(p, AGAIN) : bare_name(p);
}

/* ---- {"name":..,"arguments":{..}} */

static enum step set_key(struct tool_parse *p, const char *s, size_t n) {
    bool is_name = n == 4 && memcmp(s, "name", 4) == 0;
    bool is_args =
        (n == 9 && memcmp(s, "arguments", 9) == 0) || (n == 10 && memcmp(s, "parameters", 10) == 0);
    bool known = is_name || is_args || (n == 4 && memcmp(s, "type", 4) == 0) ||
                 (n == 2 && memcmp(s, "id", 2) == 0);
    if ((is_name && p->named) || (is_args && p->has_args)) return BAD; /* twice */
    if (p->strict && !known) return BAD;
    /* What the value is for stays in `next` until it begins. */
    p->next = is_name ? ST_NAME_STRING : is_args ? ST_ARGS : ST_SKIP;
    p->state = ST_COLON;
    return TAKEN;
}

/* The bytes of a string, without its quotes, in word; decoded once the string is over. */
static enum step string_byte(struct tool_parse *p, char c, bool *over) {
    *over = !p->escaped && c == '"';
    if (*over) return TAKEN;
    p->escaped = !p->escaped && c == '\\';
    buf_putc(&p->word, c);
    return p->word.len > 6 * TOOL_NAME_BYTES ? BAD : TAKEN;
}

static enum step open_word(struct tool_parse *p, enum state state) {
    buf_clear(&p->word);
    p->escaped = false;
    p->state = state;
    return TAKEN;
}

static enum step word_over(struct tool_parse *p, bool is_name) {
    struct json_value *o = NULL;
    struct buf quoted = BUF_INIT;
    const char *s;
    size_t n;
    enum step step = BAD;
    buf_putc(&quoted, '"');
    if (p->word.len > 0) buf_append(&quoted, p->word.data, p->word.len);
    buf_putc(&quoted, '"');
    if (quoted.failed)
        p->failed = true;
    else if (json_read(&o, quoted.data, quoted.len, NULL, NULL) == ERR_OK &&
             json_as_str(o, &s, &n) == JSON_OK)
        step = is_name ? set_name(p, s, n) : set_key(p, s, n);
    json_put(o);
    buf_free(&quoted);
    if (step == TAKEN && is_name) p->state = ST_MEMBER_END;
    return step;
}

static enum step object_byte(struct tool_parse *p, char c) {
    bool over;
    enum step step;
    switch (p->state) {
    case ST_KEY:
    case ST_NAME_STRING:
        step = string_byte(p, c, &over);
        return over ? word_over(p, p->state == ST_NAME_STRING) : step;
    case ST_SKIP:
        switch (json_scan_byte(&p->scan, (unsigned char)c)) {
        case JSON_SCAN_MORE: return TAKEN;
        case JSON_SCAN_DONE: p->state = ST_MEMBER_END; return TAKEN;
        case JSON_SCAN_AFTER: p->state = ST_MEMBER_END; return AGAIN;
        default: return BAD;
        }
    default: break;
    }
    if (is_space(c)) return TAKEN;
    switch (p->state) {
    case ST_OBJECT: p->state = ST_MEMBER_OR_END; return c == '{' ? TAKEN : BAD;
    case ST_MEMBER_OR_END:
    case ST_MEMBER: return c == '"' ? open_word(p, ST_KEY) : BAD;
    case ST_COLON: p->state = ST_VALUE; return c == ':' ? TAKEN : BAD;
    case ST_VALUE:
        if (p->next == ST_NAME_STRING) return c == '"' ? open_word(p, ST_NAME_STRING) : BAD;
        p->state = p->next;
        if (p->state == ST_SKIP) json_scan_start(&p->scan);
        return AGAIN;
    default: break; /* ST_MEMBER_END */
    }
    p->state = ST_MEMBER;
    if (c == ',') return TAKEN;
    if (c != '}' || !complete(p)) return BAD;
    buf_clear(&p->held);
    if (p->list)
        p->state = enough(p) ? ST_DONE : ST_ITEM_END;
    else
        after_call(p, true);
    return TAKEN;
}

static enum step args(struct tool_parse *p, char c) {
    if (!p->in_args) {
        if (c != '{') return BAD;
        p->in_args = true;
        json_scan_start(&p->scan);
        progress(p);
    }
    enum json_scan_step step = json_scan_byte(&p->scan, (unsigned char)c);
    if (step != JSON_SCAN_MORE && step != JSON_SCAN_DONE) return BAD;
    buf_putc(&under_way(p)->args, c);
    if (step == JSON_SCAN_MORE) return TAKEN;
    p->in_args = false;
    p->has_args = true;
    progress(p);
    if (p->object)
        p->state = ST_MEMBER_END;
    else
        after_call(p, true);
    return TAKEN;
}

/* The same of an item of a list, as Python writes it. */
static enum step py_args(struct tool_parse *p, char c) {
    const enum py_scan_step step = py_scan_byte(&p->py, (unsigned char)c, &under_way(p)->args);
    if (step == PY_SCAN_BAD) return BAD;
    if (!p->in_args && p->py.certain) {
        p->in_args = true;
        progress(p);
    }
    if (step == PY_SCAN_MORE) return TAKEN;
    p->in_args = false;
    p->has_args = true;
    progress(p);
    buf_clear(&p->held);
    p->state = enough(p) ? ST_DONE : ST_ITEM_END;
    return TAKEN;
}

/* ---- the machine */

static enum step step(struct tool_parse *p, char c) {
    switch (p->state) {
    case ST_TEXT: return text(p, c);
    case ST_BARE: return bare(p, c);
    case ST_OPEN: return open(p, c);
    case ST_LITERAL: return literal(p, c);
    case ST_NAME: return name(p, c);
    case ST_NAME_TAG: return name_tag(p, c);
    case ST_ID:
        if (c == '[') return expect(p, "ARGS]", ST_ARGS);
        return name_byte(c) ? TAKEN : BAD;
    case ST_SPACE:
        if (is_space(c)) return TAKEN;
        p->state = p->next;
        return AGAIN;
    case ST_FENCE: expect(p, "```json", ST_ARGS); return AGAIN;
    case ST_ITEM: return item(p, c);
    case ST_ITEM_END: return item_end(p, c);
    case ST_ARGS: return args(p, c);
    case ST_PY_ARGS: return py_args(p, c);
    case ST_DONE: return TAKEN;
    default: return object_byte(p, c);
    }
}

void tool_parse_feed(struct tool_parse *p, const char *s, size_t n) {
    for (size_t i = 0; i < n && !tool_parse_failed(p);) {
        enum state was = p->state;
        p->ended = false;
        switch (step(p, s[i])) {
        case TAKEN:
            /* What a call is written with is kept until it counts; text() keeps its own. */
            if (was != ST_TEXT && was != ST_DONE && !p->counted && !p->ended)
                buf_putc(&p->held, s[i]);
            i++;
            break;
        case AGAIN: break;
        case BAD: not_a_call(p); break;
        }
    }
}

bool tool_parse_open(struct tool_parse *p, const char *name, size_t n) {
    if (p->state != ST_TEXT || p->closed || !name_good(name, n)) return false;
    buf_clear(&p->held); /* the space before it is trimmed */
    p->tag_at = 0;
    start_call(p, false);
    p->list = false;
    set_name(p, name, n);
    space_then(p, ST_ARGS, TAKEN);
    p->counted = false;
    return true;
}

void tool_parse_shut(struct tool_parse *p) {
    if (p->state != ST_TEXT && p->state != ST_DONE) not_a_call(p);
}

void tool_parse_finish(struct tool_parse *p) {
    if (p->state == ST_TEXT || p->state == ST_BARE)
        plain(p);
    else if (p->state != ST_DONE && !complete(p))
        p->cut = true;
    if (p->cut && !p->counted) not_a_call(p);
    p->state = ST_DONE;
}

/* ---- life */

struct tool_parse *tool_parse_create(const struct tool_parse_opts *opts) {
    struct tool_parse *p = calloc(1, sizeof(*p));
    if (p == NULL) return NULL;
    p->opts = *opts;
    p->format = &formats[opts->format];
    p->state = p->format->bare ? ST_BARE : ST_TEXT;
    return p;
}

void tool_parse_destroy(struct tool_parse **pp) {
    struct tool_parse *p = *pp;
    if (p == NULL) return;
    for (size_t i = 0; i <= TOOL_CALLS_MAX; i++) {
        buf_free(&p->calls[i].name);
        buf_free(&p->calls[i].args);
    }
    buf_free(&p->held);
    buf_free(&p->word);
    buf_free(&p->content);
    free(p);
    *pp = NULL;
}

const struct buf *tool_parse_content(const struct tool_parse *p) {
    return &p->content;
}

size_t tool_parse_n_calls(const struct tool_parse *p) {
    return p->n_calls;
}

const struct tool_call *tool_parse_call(const struct tool_parse *p, size_t i) {
    return &p->calls[i];
}

bool tool_parse_called(const struct tool_parse *p) {
    for (size_t i = 0; i < p->n_calls; i++)
        if (!p->calls[i].complete) return false;
    return p->n_calls > 0 && !p->cut;
}

bool tool_parse_failed(const struct tool_parse *p) {
    const struct tool_call *c = &p->calls[p->n_calls], *last = p->n_calls > 0 ? c - 1 : c;
    return p->failed || p->held.failed || p->word.failed || p->content.failed || c->name.failed ||
           c->args.failed || last->name.failed || last->args.failed;
}
