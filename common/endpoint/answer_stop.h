/* answer_stop: finds stop strings in text that comes in pieces (inference-api 4.6). One
 * Knuth-Morris-Pratt automaton per string, so the cost is bytes x strings whatever the strings are,
 * and the automata say exactly how much of the end could still become a match. */
#ifndef BATON_ENDPOINT_ANSWER_STOP_H
#define BATON_ENDPOINT_ANSWER_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stop_set;

struct stop_match {
    int32_t idx;       /* which string; -1: none */
    size_t start, end; /* bytes of the whole text */
};

/* NULL: no memory. Borrows the strings; empty ones are no strings. */
struct stop_set *stop_set_create(char *const *strings, size_t n);
void stop_set_destroy(struct stop_set **s);
/* The next n bytes, which begin at offset `at` of the text. Among the matches that end inside them
 * *m becomes the one that starts first, of those the longest, unless *m (from an earlier call for
 * the same token) is better. */
void stop_set_feed(struct stop_set *s, const char *p, size_t n, size_t at, struct stop_match *m);
/* What comes next does not go on with what was fed. */
void stop_set_reset(struct stop_set *s);
/* Bytes at the end of all text so far that are the start of some stop string. */
size_t stop_set_held(const struct stop_set *s);

#endif
