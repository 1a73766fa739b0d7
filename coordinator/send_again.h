/* send_again: when something that a receiver did not take is sent once more: after a first wait,
 * then twice as long each time up to a longest. Thread: the main loop. */
#ifndef BATON_COORDINATOR_SEND_AGAIN_H
#define BATON_COORDINATOR_SEND_AGAIN_H

#include <stdint.h>

struct http_result;

struct send_again {
    const char *area, *url; /* of the lines of the log; live as long */
    unsigned first_ms, longest_ms;
    unsigned wait_ms; /* before the next try; 0: the last one was taken */
    uint64_t not_before_ms;
};

/* It was not taken; the first time of several is logged. */
void send_again_later(struct send_again *a, const struct http_result *r);

/* It was taken, or refused for good: the next may go at not_before_ms. */
void send_again_done(struct send_again *a, const struct http_result *r, uint64_t not_before_ms);

#endif
