/* jinja_run: one rendering: its memory, its bounds, its error, its output. */
#ifndef BATON_TEXT_JINJA_RUN_H
#define BATON_TEXT_JINJA_RUN_H

#include "common/base/work_limit.h"
#include "common/text/chat_template.h"
#include "common/text/jinja_mem.h"
#include "common/text/jinja_value.h"
#include "proto/err.h"

/* Text that is being put together, in the memory of the rendering. Sticky on failure: the caller
 * checks once at the end. */
struct jinja_sb {
    struct jinja_run *r;
    char *s;
    size_t n, cap, n_max;
    bool failed;
};

struct jinja_scope {
    struct jinja_scope *parent;
    struct jv_dict vars;
    bool captured; /* a macro or call block remembers it: it cannot be used again */
};

/* The end of a string or of a list's items that were made with room behind them. */
struct jinja_open_end {
    char *end, *room_end;
};
enum { OPEN_ENDS = 4 };

struct jinja_run {
    struct jinja_mem mem;
    struct errbuf *eb;
    enum err code;           /* ERR_OK until something failed */
    uint64_t steps, look_at; /* the limit is looked at when so many steps are done */
    struct work_limit limit;
    int depth;
    uint32_t line; /* of the node at work, for messages */
    int64_t now_unix_s;
    chat_mark_fn *mark; /* of strings of the variables, or NULL */
    void *mark_arg;
    struct jinja_sb *out;                  /* where text goes now */
    struct jinja_scope *scope;             /* innermost */
    const struct jv_dict *vars;            /* the caller's variables */
    struct jinja_open_end open[OPEN_ENDS]; /* the latest ones */
    unsigned n_opened;
    struct jv block_text; /* what the filters of a block start from */
};

/* Both return false, so that a function can end with `return jinja_fail(...)`. The first error
 * stays; its text starts with the line. */
bool jinja_fail(struct jinja_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool jinja_fail_code(struct jinja_run *r, enum err code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* For using an undefined value where a defined one is needed. */
bool jinja_fail_undef(struct jinja_run *r, const struct jv *undef);

void *jinja_alloc(struct jinja_run *r, size_t n); /* NULL: r has failed */
bool jinja_tick(struct jinja_run *r,
                uint64_t n); /* n units of work; bytes are counted by the hundred or so */
/* Templates gather text and lists in a loop (ns.text = ns.text + more), so a long one keeps room
 * behind it and the rest goes there while nothing else has: the old value's own length stays, so
 * nobody sees the difference. Room: n bytes at end that are taken from now on, or NULL. */
void *jinja_alloc_open(struct jinja_run *r, size_t n);
void *jinja_room_behind(struct jinja_run *r, const void *end, size_t n);
/* a + b, two strings. */
bool jinja_append(struct jinja_run *r, const struct jv *a, const struct jv *b, struct jv *out);
bool jinja_enter(struct jinja_run *r); /* one level deeper */
void jinja_leave(struct jinja_run *r);

void jinja_sb_init(struct jinja_sb *t, struct jinja_run *r, size_t n_max);
void jinja_sb_add(struct jinja_sb *t, const char *s, size_t n);
void jinja_sb_adds(struct jinja_sb *t, const char *s);
void jinja_sb_addc(struct jinja_sb *t, int32_t c);
void jinja_sb_pad(struct jinja_sb *t, int32_t c, size_t n);
bool jinja_sb_take(struct jinja_sb *t, struct jv *out); /* false when a piece was lost */

#endif
