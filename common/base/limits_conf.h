/* limits_conf: the settings of the budgets (budget.h), the same for every daemon: "limits." of the
 * coordinator's and of the instance's configuration. A new limit is a member, a row, and a line in
 * docs/configuration.md. */
#ifndef BATON_BASE_LIMITS_CONF_H
#define BATON_BASE_LIMITS_CONF_H

#include <stdint.h>
#include "common/base/conf.h"

struct limits_conf {
    int64_t bodies_mib;  /* of request bodies in flight; 0: budget_bodies_default() */
    int64_t answers_mib; /* of answers between D and client; 0: the same */
    int64_t buffers_mib; /* that wait on connections; 0: half of the above's default */
    int64_t head_s, handshake_s, body_grace_s, body_rate, body_s; /* rate: bytes a second */
    int64_t conns, conns_per_address; /* 0: what the daemon's own settings need; none */
    /* of one HTTP/2 connection: requests at once; frames that ask for nothing, and requests given
     * up, a second */
    int64_t h2_streams, h2_control, h2_resets;
    /* responses that clients may come back to: MiB (0: 64, or a sixty-fourth of the memory), their
     * number, seconds since the last use */
    int64_t kept_mib, kept_count, kept_s;
};

/* Rows of a table of struct st, whose member m is a struct limits_conf; prefix: "pd.limits." */
#define LIMITS_KEYS(st, m, prefix)                                                                 \
    CONF_I(st, m.bodies_mib, prefix "bodiesInFlightMiB", 0, 1048576, "0",                          \
           "MiB of request bodies in flight over all connections; 0: 256 or a sixteenth of the "   \
           "memory, the smaller"),                                                                 \
        CONF_I(st, m.answers_mib, prefix "answersMiB", 0, 1048576, "0",                            \
               "MiB of answers that a decode instance keeps for the coordinator, and the "         \
               "coordinator "                                                                      \
               "until it can pass them on; 0: 256 or a sixteenth of the memory, the smaller"),     \
        CONF_I(st, m.buffers_mib, prefix "buffersMiB", 0, 1048576, "0",                            \
               "MiB that wait on all connections together: heads, what follows a request, "        \
               "answers unread; 0: 128 or a thirty-second of the memory, the smaller"),            \
        CONF_I(st, m.head_s, prefix "headSeconds", 1, 3600, "20",                                  \
               "seconds for the head of a request"),                                               \
        CONF_I(st, m.handshake_s, prefix "handshakeSeconds", 1, 3600, "10",                        \
               "seconds for a TLS handshake"),                                                     \
        CONF_I(st, m.body_grace_s, prefix "bodyGraceSeconds", 1, 3600, "10",                       \
               "seconds a body may lag behind its least rate"),                                    \
        CONF_I(st, m.body_rate, prefix "bodyBytesPerSecondMin", 0, 1073741824, "1024",             \
               "least rate of a body; 0: none"),                                                   \
        CONF_I(st, m.body_s, prefix "bodySeconds", 1, 65535, "600", "seconds for a whole body"),   \
        CONF_I(st, m.conns, prefix "connections", 0, 1000000, "0",                                 \
               "connections of the user plane; 0: three times the requests at once"),              \
        CONF_I(st, m.conns_per_address, prefix "connectionsPerAddress", 0, 1000000, "0",           \
               "connections of one address (IPv6: one /64) to the user plane; 0: no limit"),       \
        CONF_I(st, m.h2_streams, prefix "http2Streams", 1, 10000, "128",                           \
               "requests at once on one HTTP/2 connection"),                                       \
        CONF_I(st, m.h2_control, prefix "http2ControlFrames", 10, 1000000, "200",                  \
               "frames a second of one HTTP/2 connection that ask for nothing (SETTINGS, PING, "   \
               "empty DATA, WINDOW_UPDATE beyond what was sent...)"),                              \
        CONF_I(st, m.h2_resets, prefix "http2Resets", 1, 1000000, "50",                            \
               "requests a second that one HTTP/2 connection may begin and give up"),              \
        CONF_I(st, m.kept_mib, prefix "keptMiB", 0, 1048576, "0",                                  \
               "MiB of responses that are kept; 0: 64 or a sixty-fourth of the memory, the "       \
               "smaller"),                                                                         \
        CONF_I(st, m.kept_count, prefix "keptResponses", 0, 10000000, "10000",                     \
               "responses that are kept; 0: none"),                                                \
        CONF_I(st, m.kept_s, prefix "keptSeconds", 1, 31536000, "2592000",                         \
               "seconds that a response is kept behind its last use")

#endif
