/* coord_metrics: what the coordinator counts itself, and GET /metrics of the external plane: its
 * own families and the sums over its instances (cluster-api 6.6).
 *
 * A scrape asks every instance's /metrics at once, each within SCRAPE_MS; its answer serves every
 * scrape of the next reuse_time seconds. An instance that fails has instance_scrape_up 0: its
 * gauges are left out, what it has counted stays in the sums.
 *
 * Thread: the loop thread. A NULL coord_metrics counts nothing. */
#ifndef BATON_COORDINATOR_COORD_METRICS_H
#define BATON_COORDINATOR_COORD_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct coord_metrics;
struct coordinator;
struct http_x;

enum { SCRAPE_MS = 2000 };

enum err coord_metrics_create(struct coord_metrics **out, struct coordinator *co);
/* Ends scrapes that wait. Before the listeners close. */
void coord_metrics_destroy(struct coord_metrics **cm);
void coord_metrics_scrape(struct coord_metrics *cm, struct http_x *x);
/* The instance is gone for good. */
void coord_metrics_forget(struct coord_metrics *cm, uint32_t id);

void coord_metrics_received(struct coord_metrics *cm);
/* Not admitted; reason is a word. */
void coord_metrics_rejected(struct coord_metrics *cm, const char *reason, int status);
/* One that was admitted, and refused before anything was done for it. */
void coord_metrics_turned_away(struct coord_metrics *cm, const char *reason);
void coord_metrics_scheduled(struct coord_metrics *cm, uint64_t waited_us);
void coord_metrics_first_token(struct coord_metrics *cm, uint64_t since_arrival_us);
/* what: "first_token" or "token"; own: of the tenant's own target. */
void coord_metrics_target(struct coord_metrics *cm, const char *what, bool own, bool met);
/* A request, or a further attempt, got a pair; one decode instance alone; a pair to which a decode
 * instance gives blocks back. */
enum coord_route { ROUTE_PAIR, ROUTE_ALONE, ROUTE_FETCHED };
void coord_metrics_routed(struct coord_metrics *cm, enum coord_route how);
/* cause: its name (proto/cause.h). */
void coord_metrics_retried(struct coord_metrics *cm, const char *cause);
/* The client hears again of a request whose attempt was lost. */
void coord_metrics_recovered(struct coord_metrics *cm, const char *cause, uint64_t silence_us);
/* A breaker opened; of: "instance" or "link". */
void coord_metrics_breaker(struct coord_metrics *cm, const char *of);
void coord_metrics_relayed(struct coord_metrics *cm, size_t bytes);

struct coord_request_end {
    int status; /* 499: the client went away */
    uint64_t total_us;
    uint64_t decode_us; /* from the first token to the last piece */
    uint64_t n_tokens;  /* of the one sequence; 0: unknown, or there are several */
    bool stopped;       /* a client asked for its end */
};
void coord_metrics_ended(struct coord_metrics *cm, const struct coord_request_end *e);
void coord_metrics_switched(struct coord_metrics *cm, uint64_t took_us);

#endif
