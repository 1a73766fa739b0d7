/* harmony: one byte at a time, so how the text is cut cannot matter. */
#include "common/endpoint/harmony.h"

#include <string.h>

enum { TAG_START, TAG_END, TAG_MESSAGE, TAG_CHANNEL, TAG_CONSTRAIN, TAG_RETURN, TAG_CALL };
const char *const harmony_tags[HARMONY_TAGS] = {[TAG_START] = "<|start|>",
                                                [TAG_END] = "<|end|>",
                                                [TAG_MESSAGE] = "<|message|>",
                                                [TAG_CHANNEL] = "<|channel|>",
                                                [TAG_CONSTRAIN] = "<|constrain|>",
                                                [TAG_RETURN] = "<|return|>",
                                                [TAG_CALL] = "<|call|>"};

/* Where what is said goes. */
struct sink {
    struct tool_parse *calls;
    struct buf *content;
};

void harmony_init(struct harmony *h, enum harmony_state opened) {
    *h = (struct harmony){.state = opened, .tagged = opened != HARMONY_HEADER};
}

void harmony_fini(struct harmony *h) {
    buf_free(&h->header);
    buf_free(&h->held);
    buf_free(&h->text);
}

static void put_content(const struct sink *to, const char *s, size_t n) {
    if (to->calls != NULL)
        tool_parse_feed(to->calls, s, n);
    else
        buf_append(to->content, s, n);
}

/* ---- headers */

/* What follows `mark` in the header, up to space or a tag. */
static const char *word_after(const struct harmony *h, const char *mark, size_t *n) {
    const char *s = h->header.data,
               *at = s == NULL ? NULL : memmem(s, h->header.len, mark, strlen(mark));
    *n = 0;
    if (at == NULL) return NULL;
    at += strlen(mark);
    const char *end = s + h->header.len;
    while (at + *n < end && memchr(" \t\r\n<", at[*n], 5) == NULL) (*n)++;
    return at;
}

static void answers(struct harmony *h) {
    if (!h->answered) h->lead = h->text.len;
    h->answered = true;
}

/* Of one kind only the first message is not parted from what was before. */
static void part(struct harmony *h, bool content, const struct sink *to) {
    if (content) answers(h);
    if (h->begun[content] && content) put_content(to, "\n", 1);
    if (h->begun[content] && !content) buf_putc(&h->text, '\n');
    h->begun[content] = true;
}

/* Whether it is of a message rather than text of a model that writes no headers. */
static bool addressed(const struct harmony *h) {
    size_t n, at = 0;
    while (at < h->header.len && memchr(" \t\r\n", h->header.data[at], 4) != NULL) at++;
    return word_after(h, harmony_tags[TAG_CHANNEL], &n) != NULL ||
           (h->header.len - at >= 3 && memcmp(h->header.data + at, "to=", 3) == 0);
}

/* The message is thinking or content, as its channel says. */
static void begin(struct harmony *h, const struct sink *to) {
    size_t n;
    const char *channel = word_after(h, harmony_tags[TAG_CHANNEL], &n);
    const bool content = channel == NULL || n != 8 || memcmp(channel, "analysis", 8) != 0;
    h->state = content ? HARMONY_CONTENT : HARMONY_THINKING;
    part(h, content, to);
}

/* Too long: the message begins here, unless the channel's name may still go on. */
static void overflow(struct harmony *h, const struct sink *to) {
    size_t n;
    const char *channel = word_after(h, harmony_tags[TAG_CHANNEL], &n);
    if (channel != NULL && n <= 8 && channel + n == h->header.data + h->header.len) return;
    begin(h, to);
    if (!addressed(h)) put_content(to, h->header.data, h->header.len);
    buf_clear(&h->header);
}

static void open_message(struct harmony *h, const struct sink *to) {
    static const char ours[] = "functions.";
    size_t n, len = sizeof(ours) - 1;
    const char *whom = word_after(h, "to=", &n);
    if (to->calls != NULL && whom != NULL && n > len && memcmp(whom, ours, len) == 0 &&
        tool_parse_open(to->calls, whom + len, n - len)) {
        h->state = HARMONY_CALL;
        answers(h);
    } else {
        begin(h, to);
    }
    buf_clear(&h->header);
}

static void close_message(struct harmony *h, size_t at, const struct sink *to) {
    if (h->state == HARMONY_CALL) tool_parse_shut(to->calls);
    if (h->state == HARMONY_THINKING) {
        h->closed = true;
        h->close_at = at;
    }
    buf_clear(&h->header);
}

/* ---- text and tags */

static void put_text(struct harmony *h, const char *s, size_t n, const struct sink *to) {
    switch (h->state) {
    case HARMONY_HEADER:
        buf_append(&h->header, s, n);
        if (h->header.len > HARMONY_HEADER_BYTES_MAX && !h->header.failed) overflow(h, to);
        return;
    case HARMONY_THINKING:
        h->begun[false] = true;
        buf_append(&h->text, s, n);
        return;
    case HARMONY_CONTENT: /* also of a message that the prompt has opened */
        answers(h);
        h->begun[true] = true;
        put_content(to, s, n);
        return;
    case HARMONY_CALL: tool_parse_feed(to->calls, s, n); return;
    case HARMONY_BETWEEN: return;
    }
}

/* Text of a model that has written no header so far. */
static bool is_plain(const struct harmony *h) {
    return h->state == HARMONY_HEADER && !h->tagged && h->header.len > 0 && !addressed(h);
}

static void put_plain(struct harmony *h, const struct sink *to) {
    begin(h, to);
    put_content(to, h->header.data, h->header.len);
}

/* at: where the tag began. A channel also begins a header where nothing closed the message. */
static void take_tag(struct harmony *h, int tag, size_t at, const struct sink *to) {
    if (is_plain(h) && (tag == TAG_END || tag == TAG_RETURN || tag == TAG_CALL)) put_plain(h, to);
    h->tagged = true;
    if (tag == TAG_MESSAGE) {
        if (h->state == HARMONY_HEADER || h->state == HARMONY_BETWEEN) open_message(h, to);
        return;
    }
    if (tag == TAG_CONSTRAIN || (tag == TAG_CHANNEL && h->state == HARMONY_HEADER)) {
        if (h->state == HARMONY_HEADER)
            put_text(h, harmony_tags[tag], strlen(harmony_tags[tag]), to);
        return;
    }
    close_message(h, at, to);
    h->state = tag == TAG_START || tag == TAG_CHANNEL ? HARMONY_HEADER : HARMONY_BETWEEN;
    if (tag == TAG_CHANNEL) put_text(h, harmony_tags[tag], strlen(harmony_tags[tag]), to);
}

/* Every tag begins with a character that is nowhere else in it, so after a mismatch only the last
 * byte can begin another. */
static void take(struct harmony *h, char c, const struct sink *to) {
    if (h->held.len == 0 && c != '<') {
        put_text(h, &c, 1, to);
        return;
    }
    buf_putc(&h->held, c);
    if (h->held.failed) return;
    for (int i = 0; i < HARMONY_TAGS; i++) {
        if (strncmp(harmony_tags[i], h->held.data, h->held.len) != 0) continue;
        if (harmony_tags[i][h->held.len] != '\0') return;
        const size_t at = h->taken + 1 - h->held.len;
        buf_clear(&h->held);
        take_tag(h, i, at, to);
        return;
    }
    h->held.len--;
    if (h->held.len > 0) put_text(h, h->held.data, h->held.len, to);
    buf_clear(&h->held);
    if (c == '<')
        buf_putc(&h->held, c);
    else
        put_text(h, &c, 1, to);
}

void harmony_feed(struct harmony *h, const char *s, size_t n, struct tool_parse *calls,
                  struct buf *content) {
    const struct sink to = {calls, content};
    for (size_t i = 0; i < n; i++, h->taken++) take(h, s[i], &to);
}

void harmony_finish(struct harmony *h, struct tool_parse *calls, struct buf *content) {
    const struct sink to = {calls, content};
    /* nothing before half a tag: a header begins with it */
    if (h->held.len > 0 && (h->state != HARMONY_HEADER || is_plain(h)))
        put_text(h, h->held.data, h->held.len, &to);
    buf_clear(&h->held);
    if (is_plain(h)) put_plain(h, &to);
    if (h->state == HARMONY_CALL) tool_parse_shut(calls);
    h->state = HARMONY_BETWEEN;
}

size_t harmony_lead(const struct harmony *h) {
    return h->answered ? h->lead : h->text.len;
}

/* ---- prompts */

enum harmony_state harmony_opened(const char *s, size_t n) {
    static const char role[] = "assistant";
    const size_t start = strlen(harmony_tags[TAG_START]), len = sizeof(role) - 1;
    const char *last = NULL, *end = s + n;
    for (const char *at = s; at != NULL && (at = memmem(at, (size_t)(end - at),
                                                        harmony_tags[TAG_START], start)) != NULL;
         at += start)
        last = at + start;
    if (last == NULL) return HARMONY_CONTENT;
    while (end > last && memchr(" \t\r\n", end[-1], 4) != NULL) end--;
    if ((size_t)(end - last) == len && memcmp(last, role, len) == 0) return HARMONY_HEADER;
    struct harmony h;
    struct buf content = BUF_INIT;
    harmony_init(&h, HARMONY_HEADER);
    h.tagged = true;
    harmony_feed(&h, last, (size_t)(s + n - last), NULL, &content);
    const bool thinking = h.state == HARMONY_THINKING;
    harmony_fini(&h);
    buf_free(&content);
    return thinking ? HARMONY_THINKING : HARMONY_CONTENT;
}

/* ---- what clients see */

void harmony_look_init(struct harmony_look *l, enum harmony_state opened, bool no_thinking) {
    *l = (struct harmony_look){.no_thinking = no_thinking};
    if (opened == HARMONY_CONTENT) l->state = LOOK_TEXT;
    if (opened == HARMONY_THINKING) l->state = no_thinking ? LOOK_BETWEEN : LOOK_TEXT;
}

/* Whether a message with that header is shown. */
static bool header_shown(const struct harmony_look *l, const char *s, size_t n) {
    static const char thinking[] = "<|channel|>analysis", call[] = "to=functions.";
    const char *at = memmem(s, n, thinking, sizeof(thinking) - 1);
    if (!l->no_thinking || at == NULL || memmem(s, n, call, sizeof(call) - 1) != NULL) return true;
    at += sizeof(thinking) - 1;
    return at < s + n && memchr(" \t\r\n<", *at, 5) == NULL;
}

/* Behind a tag, which ends at `taken` of the text. */
static void look_tag(struct harmony_look *l, int tag, const char *text) {
    const size_t began = l->taken - strlen(harmony_tags[tag]);
    const bool in_header = l->state == LOOK_HEADER || l->state == LOOK_FIRST;
    l->fresh = true;
    switch (tag) {
    case TAG_MESSAGE:
        if (in_header)
            l->state =
                header_shown(l, text + l->header, began - l->header) ? LOOK_TEXT : LOOK_BETWEEN;
        else if (l->state == LOOK_BETWEEN && !l->no_thinking)
            l->state = LOOK_TEXT;
        l->from = l->taken;
        return;
    case TAG_CONSTRAIN:
        if (in_header) l->state = LOOK_HEADER;
        l->from = l->taken;
        return;
    case TAG_START: l->header = l->taken; break;
    case TAG_CHANNEL:
        if (!in_header) l->header = began;
        break;
    default: l->state = LOOK_BETWEEN; return;
    }
    l->state = LOOK_HEADER;
}

/* The tag that the byte at `taken` completes, -1: none. Counts what may begin one. */
static int look_byte(struct harmony_look *l, const char *text) {
    l->taken++;
    for (int again = 0; again < 2; again++) {
        const size_t n = l->tag + 1;
        for (int i = 0; i < HARMONY_TAGS; i++) {
            if (strncmp(harmony_tags[i], text + l->taken - n, n) != 0) continue;
            l->tag = harmony_tags[i][n] == '\0' ? 0 : n;
            if (l->tag == 0) return i;
            return -1;
        }
        if (l->tag == 0) return -1;
        l->tag = 0;
    }
    return -1;
}

/* Text before any tag: what does not begin as a header is shown. */
static void look_first(struct harmony_look *l, const char *text, size_t n, bool over) {
    static const char to[] = "to=";
    size_t at = 0, k = 0;
    while (at < n && memchr(" \t\r\n", text[at], 4) != NULL) at++;
    while (at + k < n && k < 3 && text[at + k] == to[k]) k++;
    if (k == 3)
        l->state = LOOK_HEADER;
    else if (at + k < n || (over && n > 0))
        l->state = LOOK_TEXT;
}

bool harmony_look_next(struct harmony_look *l, const char *text, size_t n, bool over,
                       struct harmony_span *out) {
    for (;;) {
        const bool more = l->taken < n;
        const int tag = more ? look_byte(l, text) : -1;
        if (more && tag < 0) continue;
        const size_t to = tag >= 0 ? l->taken - strlen(harmony_tags[tag]) : over ? n : n - l->tag;
        if (l->state == LOOK_FIRST) look_first(l, text, to, over);
        const bool seen = l->state == LOOK_TEXT && l->from < to;
        if (seen) *out = (struct harmony_span){l->from, to, l->fresh};
        if (seen) l->fresh = false;
        if (l->state == LOOK_TEXT) l->from = to > l->from ? to : l->from;
        if (tag >= 0) look_tag(l, tag, text);
        if (seen) return true;
        if (!more) return false;
    }
}

bool harmony_failed(const struct harmony *h) {
    return h->header.failed || h->held.failed || h->text.failed;
}
