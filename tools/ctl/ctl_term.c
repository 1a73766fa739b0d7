/* ctl_term: colour and motion for a terminal, and for nothing else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/ctl/ctl.h"

bool ctl_moves(void) {
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && term != NULL && strcmp(term, "dumb") != 0;
}

void ctl_clear(void) {
    if (ctl_moves()) fputs("\033[H\033[2J", stdout);
}

/* https://no-color.org: whatever it holds. */
static const char *colour_of(const char *state) {
    static const struct {
        const char *state, *colour;
    } rows[] = {{"serving", "\033[32m"},  {"ready", "\033[32m"},  {"draining", "\033[33m"},
                {"drained", "\033[33m"},  {"role", "\033[33m"},   {"link", "\033[33m"},
                {"online", "\033[31m"},   {"health", "\033[31m"}, {"engine", "\033[31m"},
                {"NOT ready", "\033[31m"}};
    const char *no = getenv("NO_COLOR");
    if (!ctl_moves() || (no != NULL && no[0] != '\0')) return NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].state, state) == 0) return rows[i].colour;
    return NULL;
}

void ctl_paint(const char *state, int width, const char *text) {
    const char *colour = colour_of(state);
    printf("%s%-*s%s", colour != NULL ? colour : "", width, text, colour != NULL ? "\033[0m" : "");
}

void ctl_sleep_ms(unsigned ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    fflush(stdout);
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}
