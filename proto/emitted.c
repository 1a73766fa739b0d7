/* emitted: items of a token list, out and in. */
#include "proto/emitted.h"

#include <stdbool.h>
#include <stdio.h>

size_t emitted_format(char out[EMITTED_BYTES_MAX], const struct emitted *e) {
    int n = 0;
    if (e->choice != 0) n += snprintf(out, EMITTED_BYTES_MAX, "%u:", (unsigned)e->choice);
    n += snprintf(out + n, (size_t)(EMITTED_BYTES_MAX - n), "%d", (int)e->id);
    if (e->finish != FINISH_NONE)
        n += snprintf(out + n, (size_t)(EMITTED_BYTES_MAX - n), "!%u", (unsigned)e->finish);
    return (size_t)n;
}

/* Decimal digits from s[*at], at most max; at least one. */
static bool number(const char *s, size_t n, size_t *at, uint64_t max, uint64_t *out) {
    size_t from = *at;
    uint64_t v = 0;
    for (; *at < n && s[*at] >= '0' && s[*at] <= '9'; (*at)++) {
        v = v * 10 + (uint64_t)(s[*at] - '0');
        if (v > max) return false;
    }
    *out = v;
    return *at > from;
}

enum err emitted_parse(const char *s, size_t n, size_t *at, struct emitted *out) {
    uint64_t id, choice = 0, finish = FINISH_NONE;
    if (!number(s, n, at, INT32_MAX, &id)) return ERR_BAD_FRAME;
    if (*at < n && s[*at] == ':') {
        choice = id;
        (*at)++;
        if (choice >= SEQUENCES_MAX || !number(s, n, at, INT32_MAX, &id)) return ERR_BAD_FRAME;
    }
    if (*at < n && s[*at] == '!') {
        (*at)++;
        if (!number(s, n, at, FINISH_ERROR, &finish) || finish == FINISH_NONE) return ERR_BAD_FRAME;
    }
    if (*at < n && (s[*at] != ',' || ++*at == n)) return ERR_BAD_FRAME;
    *out =
        (struct emitted){.id = (int32_t)id, .choice = (uint16_t)choice, .finish = (uint8_t)finish};
    return ERR_OK;
}
