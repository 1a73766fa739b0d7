/* doctor_tls: would two nodes agree on TLS? Their files are opened here, as the nodes open them,
 * and a handshake is run between them in memory: no port and no server is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/tls_facts.h"
#include "tools/ctl/doctor.h"

enum { ROUNDS_MAX = 8, FLIGHT_BYTES = 65536 };

struct tls *doc_tls(struct doctor *d, const struct json_value *block, const char **why) {
    struct tls_conf conf;
    struct errbuf eb = {0};
    for (size_t i = 0; i < d->n_contexts; i++) {
        if (d->contexts[i].block != block) continue;
        *why = d->contexts[i].why;
        return d->contexts[i].tls;
    }
    void *grown = realloc(d->contexts, (d->n_contexts + 1) * sizeof(*d->contexts));
    *why = "out of memory";
    if (grown == NULL) return NULL;
    d->contexts = grown;
    d->contexts[d->n_contexts].block = block;
    d->contexts[d->n_contexts].tls = NULL;
    if (!tls_facts_conf(&conf, block))
        err_set(&eb, ERR_INVALID, "its files cannot be opened here");
    else
        (void)tls_open(&d->contexts[d->n_contexts].tls, &conf, &eb);
    snprintf(d->contexts[d->n_contexts].why, DOC_WHY_BYTES, "%.290s", eb.text);
    *why = d->contexts[d->n_contexts].why;
    return d->contexts[d->n_contexts++].tls;
}

static void carry(struct tls_session *from, struct tls_session *to, uint8_t *flight) {
    size_t n;
    while ((n = tls_session_drain(from, flight, FLIGHT_BYTES)) > 0)
        if (tls_session_feed(to, flight, n) != ERR_OK) break;
}

bool doc_handshake(struct tls *client, struct tls *server, const char *server_name,
                   const char *client_name, char why[DOC_WHY_BYTES]) {
    struct tls_session *c = NULL, *s = NULL;
    uint8_t *flight = malloc(FLIGHT_BYTES);
    bool up = false;
    snprintf(why, DOC_WHY_BYTES, "out of memory");
    if (flight != NULL && tls_session_create(&c, client, TLS_CLIENT, server_name) == ERR_OK &&
        tls_session_create(&s, server, TLS_SERVER, client_name) == ERR_OK) {
        for (int i = 0; i < ROUNDS_MAX; i++) {
            carry(c, s, flight);
            carry(s, c, flight);
        }
        up = tls_session_state(c) == TLS_UP && tls_session_state(s) == TLS_UP;
        const bool by_client = tls_session_state(c) == TLS_FAILED;
        snprintf(why, DOC_WHY_BYTES, "%s: %s",
                 by_client ? "the caller refuses" : "the server refuses",
                 tls_session_error(by_client ? c : s));
    }
    tls_session_free(&c);
    tls_session_free(&s);
    free(flight);
    return up;
}
