/* A line of a recording: what is taken can be used as it is: a decision is taken again, a body is
 * given its seed, tokens are in their ranges. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "proto/limits.h"
#include "tools/replay_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void decide(const struct record_event *e) {
    const struct schedule_conf conf = {.policy = e->decision.turn % 2 ? POLICY_ROUND_ROBIN
                                                                      : POLICY_LOAD_BALANCE,
                                       .limit_demand = e->decision.turn % 3 == 0,
                                       .res_limit_rate = 1.1,
                                       .coefficients = {1, 1, 1, 1, 1, 1, 1, 1, 1}};
    struct pair_choice pick;
    if (!schedule_pick(&pick, &conf, e->decision.p, e->decision.n_p, e->decision.d, e->decision.n_d,
                       e->decision.demand, e->decision.avoid_p, e->decision.avoid_d,
                       e->decision.turn))
        return;
    require(pick.p < e->decision.n_p && pick.d < e->decision.n_d);
}

/* A body that is JSON is JSON still, and what lies behind it as long. */
static void seed(struct record_event *e) {
    struct run_request r = {.path = (char *)(uintptr_t)e->request.path,
                            .body = e->request.body,
                            .n = e->request.n,
                            .n_json = e->request.n_json,
                            .has_tensors = e->request.has_tensors,
                            .has_seed = true,
                            .seed = 18446744073709551615u};
    struct buf with = BUF_INIT;
    struct json_value *was = NULL, *is = NULL;
    size_t n_json = 0;
    require(run_body(&with, &n_json, &r));
    require(with.len - n_json == r.n - r.n_json);
    if (json_read(&was, r.body, r.n_json, NULL, NULL) == ERR_OK)
        require(json_read(&is, with.data, n_json, NULL, NULL) == ERR_OK);
    json_put(was);
    json_put(is);
    buf_free(&with);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct record_event e;
    struct errbuf eb = {0};
    if (record_event_parse(&e, (const char *)data, size, &eb) != ERR_OK) {
        require(eb.text[0] != 0 && e.root == NULL && e.tokens == NULL);
        return 0;
    }
    if (e.kind == RECORD_DECISION) decide(&e);
    if (e.kind == RECORD_REQUEST) {
        require(e.request.path[0] == '/' && e.request.body[e.request.n] == 0);
        seed(&e);
    }
    for (size_t i = 0; i < e.n_tokens; i++)
        require(e.tokens[i].id >= 0 && e.tokens[i].choice < SEQUENCES_MAX);
    record_event_free(&e);
    return 0;
}
