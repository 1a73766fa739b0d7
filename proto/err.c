/* err: the list of err.h as tables. */
#include "proto/err.h"

#include <stdarg.h>
#include <stdio.h>

struct err_row {
    const char *name;
    const char *text;
    int status;
    bool retry;
};

static const struct err_row err_rows[ERR_COUNT] = {
#define ERR_ROW(name, status, retry, text) [name] = {#name, text, status, retry},
    ERR_LIST(ERR_ROW)
#undef ERR_ROW
};

/* A number that is in no row can only be our own mistake: it reads as ERR_INTERNAL does, by another
 * name. */
static const struct err_row err_unknown = {"ERR_UNKNOWN", "unknown error", 500, false};

static const struct err_row *err_row(enum err e) {
    return (int)e >= 0 && e < ERR_COUNT ? &err_rows[e] : &err_unknown;
}

const char *err_name(enum err e) {
    return err_row(e)->name;
}

const char *err_text(enum err e) {
    return err_row(e)->text;
}

int err_http_status(enum err e) {
    return err_row(e)->status;
}

bool err_retryable(enum err e) {
    return err_row(e)->retry;
}

enum err err_set(struct errbuf *eb, enum err code, const char *fmt, ...) {
    if (eb != NULL) {
        va_list ap;
        va_start(ap, fmt);
        eb->code = code;
        vsnprintf(eb->text, sizeof(eb->text), fmt, ap);
        va_end(ap);
    }
    return code;
}
