/* cause: the list of cause.h as a table. */
#include "proto/cause.h"

#include <string.h>

static const struct {
    const char *name;
    int status;
    bool elsewhere, fault;
    enum cause_side side;
} rows[CAUSE_COUNT] = {
#define CAUSE_ROW(id, name, status, elsewhere, side, fault)                                        \
    [CAUSE_##id] = {name, status, elsewhere, fault, SIDE_##side},
    CAUSE_LIST(CAUSE_ROW)
#undef CAUSE_ROW
};

const char *cause_name(enum cause c) {
    return rows[c].name;
}

enum cause cause_parse(const char *name, size_t n) {
    for (int c = CAUSE_NONE + 1; c < CAUSE_COUNT; c++)
        if (strlen(rows[c].name) == n && memcmp(rows[c].name, name, n) == 0) return (enum cause)c;
    return CAUSE_NONE;
}

int cause_status(enum cause c) {
    return rows[c].status;
}

bool cause_elsewhere(enum cause c) {
    return rows[c].elsewhere;
}

enum cause_side cause_side(enum cause c) {
    return rows[c].side;
}

bool cause_is_fault(enum cause c) {
    return rows[c].fault;
}

enum cause cause_of_p_status(int status) {
    if (status == 200) return CAUSE_ANSWERED;
    if (status == 429) return CAUSE_P_FULL;
    if (status == 503) return CAUSE_P_NOT_SERVING;
    return status >= 500 ? CAUSE_P_FAILED : CAUSE_REQUEST;
}

enum cause cause_of_d_status(int status) {
    return status == 0 || status >= 500 ? CAUSE_D_FAILED : CAUSE_REQUEST;
}
