/* lanes: bodies and answers of several choices and prompts (tests/unit/fakes/fake_instance.h), put
 * in an order that does not depend on who was faster. */
#ifndef BATON_TESTS_DECODE_LANES_H
#define BATON_TESTS_DECODE_LANES_H

#include "tests/unit/fakes/role_fixture.h"

enum { LANES = 64, LANE_BYTES = 4096 };

/* choices below 0: so many beams. */
static void UNUSED body_of(char *out, size_t cap, int stream, int max, int stop, int choices,
                           const int *lengths, int n_parts, int seed) {
    int at = snprintf(out, cap, "%d %d %d 1 0 *%d %s:", stream, max, stop, abs(choices),
                      choices < 0 ? "%" : "");
    for (int p = 0; p < n_parts; p++) {
        if (p > 0) at += snprintf(out + at, cap - (size_t)at, " |");
        for (int i = 0; i < lengths[p]; i++)
            at += snprintf(out + at, cap - (size_t)at, " %d", (i * 37 + seed + 100 * p) % 900);
    }
}

/* "P.C<id>" and the "(n:reason)" behind it, sorted by part and choice; then what is of all. */
static void UNUSED in_lanes(const char *text, int choices, char *out, size_t cap) {
    static char lanes[LANES + 1][LANE_BYTES];
    size_t lane = LANES;
    memset(lanes, 0, sizeof(lanes));
    while (*text != '\0') {
        unsigned part, choice;
        int n = 0;
        if (sscanf(text, "%u.%u<%n", &part, &choice, &n) == 2 && n > 0) {
            lane = part * (unsigned)choices + choice;
            assert_true(lane < LANES);
        } else if (*text == '[') {
            lane = LANES;
        }
        const char *end = text + 1;
        while (*end != '\0' && *end != '(' && *end != '[' && end[-1] != '>' && end[-1] != ')')
            end++;
        size_t used = strlen(lanes[lane]);
        snprintf(lanes[lane] + used, LANE_BYTES - used, "%.*s", (int)(end - text), text);
        text = end;
    }
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i <= LANES; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s", lanes[i]);
}

/* The tokens reported of each choice are those in its text, and its end with the last. */
static void UNUSED expect_tokens(const struct flight *x, const char *text) {
    static int32_t ids[LANES][256];
    size_t n[LANES] = {0}, n_choices = x->sent.n_choices;
    for (const char *p = text; *p != '\0'; p++) {
        unsigned part, choice;
        int id, used = 0;
        if (p > text && p[-1] >= '0' && p[-1] <= '9') continue; /* in the middle of a number */
        if (sscanf(p, "%u.%u<%d>%n", &part, &choice, &id, &used) != 3 || used == 0) continue;
        size_t lane = part * n_choices + choice;
        ids[lane][n[lane]++] = id;
    }
    for (size_t lane = 0; lane < x->sent.n_parts * n_choices; lane++) {
        const struct transcript_choice *c = &x->sent.choices[lane];
        assert_int_equal(c->n_ids, n[lane]);
        assert_memory_equal(c->ids, ids[lane], n[lane] * sizeof(int32_t));
        assert_int_not_equal(c->finish, FINISH_NONE);
    }
}

#endif
