/* pace: what a test allows for on a machine that is slower than its author's: under a sanitizer and
 * under an emulator. tests/run.sh says so for all of them, by two variables of the environment. */
#ifndef BATON_TESTS_PACE_H
#define BATON_TESTS_PACE_H

#include <stdlib.h>

/* How many times as long things may take (TEST_SLOW): 1 to 100. */
static inline unsigned pace_slow(void) {
    const char *text = getenv("TEST_SLOW");
    const long n = text == NULL ? 1 : strtol(text, NULL, 10);
    return n < 1 ? 1 : n > 100 ? 100 : (unsigned)n;
}

/* A deadline: what is fast enough within ms elsewhere is so within this here. For what must not
 * come too late; never for what must not come too early. */
static inline unsigned pace_ms(unsigned ms) {
    return ms * pace_slow();
}

/* Of n equal rounds, a part where only a sample is wanted (TEST_SAMPLE): computing takes tens of
 * times as long there, and what the rounds look for was looked for without. */
static inline size_t pace_rounds(size_t n, size_t sample) {
    return getenv("TEST_SAMPLE") == NULL ? n : sample;
}

/* What starts this program once more: under an emulator a script that has the emulator run it
 * (TEST_SELF). */
static inline const char *pace_self(void) {
    const char *path = getenv("TEST_SELF");
    return path == NULL ? "/proc/self/exe" : path;
}
#endif
