/* jinja_run: bounds and errors of a rendering, and text that grows in its memory. */
#include "common/text/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_text.h"

enum { TEXT_CAP_MIN = 64, BYTES_PER_STEP = 128, ROOM_BYTES_MIN = 1024, STEPS_PER_LOOK = 2000 };

/* A message that was too long may end in half a character. */
static void cut_to_whole_characters(char *s) {
    size_t n = strlen(s), last = n;
    if (n == 0 || (unsigned char)s[n - 1] < 0x80) return;
    if (jinja_char_prev(s, &last) < 0) {
        while (n > 0 && ((unsigned char)s[n - 1] & 0xC0) == 0x80) n--;
        s[n > 0 ? n - 1 : 0] = '\0';
    }
}

static bool fail_va(struct jinja_run *r, enum err code, const char *fmt, va_list ap) {
    if (r->code != ERR_OK) return false;
    r->code = code;
    if (r->eb != NULL) {
        int n = snprintf(r->eb->text, sizeof(r->eb->text), "line %u: ", r->line);
        vsnprintf(r->eb->text + n, sizeof(r->eb->text) - (size_t)n, fmt, ap);
        cut_to_whole_characters(r->eb->text);
        r->eb->code = code;
    }
    return false;
}

bool jinja_fail(struct jinja_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail_va(r, ERR_INVALID, fmt, ap);
    va_end(ap);
    return false;
}

bool jinja_fail_code(struct jinja_run *r, enum err code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail_va(r, code, fmt, ap);
    va_end(ap);
    return false;
}

bool jinja_fail_undef(struct jinja_run *r, const struct jv *u) {
    struct jv obj = {.type = u->of};
    int n = (int)(u->n < 200 ? u->n : 200);
    switch ((enum jv_undef)u->sub) {
    case UNDEF_NAME: return jinja_fail(r, "'%.*s' is undefined", n, u->s);
    case UNDEF_ATTR:
        return jinja_fail(r, "'%s object' has no attribute '%.*s'", jv_type_name(&obj), n, u->s);
    case UNDEF_INDEX:
        return jinja_fail(r, "%s object has no element %lld", jv_type_name(&obj), (long long)u->i);
    case UNDEF_UNSAFE:
        return jinja_fail(r, "access to attribute '%.*s' of '%s' object is unsafe", n, u->s,
                          jv_type_name(&obj));
    case UNDEF_HINT: break;
    }
    return jinja_fail(r, "%.*s", n, u->s);
}

void *jinja_alloc(struct jinja_run *r, size_t n) {
    void *p = r->code != ERR_OK ? NULL : jinja_mem_alloc(&r->mem, n);
    if (p == NULL && r->mem.exhausted) {
        jinja_fail_code(r, ERR_NO_MEMORY, "no memory left");
    } else if (p == NULL) {
        jinja_fail_code(r, ERR_TOO_LARGE, "the template needs more than %zu MiB of memory",
                        r->mem.bytes_max >> 20);
    }
    return p;
}

/* False: time is up, or nobody waits any more. */
static bool look_at_limit(struct jinja_run *r) {
    enum err e = work_limit_check(&r->limit);
    r->look_at = r->steps + STEPS_PER_LOOK;
    return e == ERR_OK || jinja_fail_code(r, e, "%s", err_text(e));
}

bool jinja_tick(struct jinja_run *r, uint64_t n) {
    r->steps += n;
    if (r->steps >= r->look_at && !look_at_limit(r)) return false;
    if (r->steps <= CHAT_TEMPLATE_STEPS_MAX) return true;
    return jinja_fail_code(r, ERR_TOO_LARGE, "the template takes more than %d steps",
                           CHAT_TEMPLATE_STEPS_MAX);
}

bool jinja_enter(struct jinja_run *r) {
    if (r->depth >= CHAT_TEMPLATE_DEPTH_MAX) {
        return jinja_fail(r, "nested deeper than %d", CHAT_TEMPLATE_DEPTH_MAX);
    }
    r->depth++;
    return jinja_tick(r, 1);
}

void jinja_leave(struct jinja_run *r) {
    r->depth--;
}

void *jinja_room_behind(struct jinja_run *r, const void *end, size_t n) {
    for (int i = 0; i < OPEN_ENDS; i++) {
        struct jinja_open_end *o = &r->open[i];
        if (end != o->end || n > (size_t)(o->room_end - o->end)) continue;
        char *at = o->end;
        o->end += n;
        return at;
    }
    return NULL;
}

void *jinja_alloc_open(struct jinja_run *r, size_t n) {
    size_t room = n < ROOM_BYTES_MIN ? 0 : n / 2;
    char *p = jinja_alloc(r, n + room);
    if (p != NULL && room > 0) {
        r->open[r->n_opened++ % OPEN_ENDS] = (struct jinja_open_end){p + n, p + n + room};
    }
    return p;
}

bool jinja_append(struct jinja_run *r, const struct jv *a, const struct jv *b, struct jv *out) {
    struct jv x = *a, y = *b; /* out may be one of them */
    size_t n = (size_t)x.n + y.n;
    if (n > CHAT_TEMPLATE_STRING_BYTES_MAX) {
        return jinja_fail_code(r, ERR_TOO_LARGE, "text larger than %d bytes",
                               CHAT_TEMPLATE_STRING_BYTES_MAX);
    }
    const char *s = x.s, *end = x.s + x.n;
    char *at = jinja_room_behind(r, end, y.n);
    if (at == NULL && y.n > 0 && jinja_mem_extend(&r->mem, end, y.n)) at = (char *)end;
    if (at == NULL) {
        char *p = jinja_alloc_open(r, n);
        if (p == NULL || !jinja_tick(r, x.n / BYTES_PER_STEP)) return false;
        memcpy(p, x.s, x.n);
        at = p + x.n;
        s = p;
    }
    memcpy(at, y.s, y.n);
    *out = jv_str(s, n);
    return jinja_tick(r, y.n / BYTES_PER_STEP);
}

void jinja_sb_init(struct jinja_sb *t, struct jinja_run *r, size_t n_max) {
    *t = (struct jinja_sb){.r = r, .n_max = n_max};
}

void jinja_sb_add(struct jinja_sb *t, const char *s, size_t n) {
    if (t->failed || n == 0) return;
    t->failed = true; /* until it has worked */
    if (n > t->n_max - t->n) {
        jinja_fail_code(t->r, ERR_TOO_LARGE, "text larger than %zu bytes", t->n_max);
        return;
    }
    if (!jinja_tick(t->r, 1 + n / BYTES_PER_STEP)) return;
    if (n > t->cap - t->n) {
        size_t cap = t->cap < TEXT_CAP_MIN ? TEXT_CAP_MIN : t->cap * 2;
        if (cap < t->n + n) cap = t->n + n;
        if (t->s == NULL || !jinja_mem_extend(&t->r->mem, t->s + t->cap, cap - t->cap)) {
            char *p = jinja_alloc(t->r, cap);
            if (p == NULL) return;
            if (t->n > 0) memcpy(p, t->s, t->n);
            t->s = p;
        }
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->failed = false;
}

void jinja_sb_adds(struct jinja_sb *t, const char *s) {
    jinja_sb_add(t, s, strlen(s));
}

void jinja_sb_addc(struct jinja_sb *t, int32_t c) {
    char b[4];
    jinja_sb_add(t, b, jinja_char_put(b, c));
}

void jinja_sb_pad(struct jinja_sb *t, int32_t c, size_t n) {
    for (size_t i = 0; i < n && !t->failed; i++) jinja_sb_addc(t, c);
}

bool jinja_sb_take(struct jinja_sb *t, struct jv *out) {
    if (t->failed) return false;
    if (t->s != NULL) jinja_mem_shrink(&t->r->mem, t->s + t->cap, t->cap - t->n);
    *out = jv_str(t->s == NULL ? "" : t->s, t->n);
    return true;
}
