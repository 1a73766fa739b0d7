/* What an instance says of itself, as a coordinator reads it: /v1/config and /v1|v2/status. What is
 * taken says the same when it is written and read again. First byte: which body. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void try_config(const char *p, size_t n) {
    struct config_msg m, again;
    struct errbuf eb = {0};
    if (config_msg_parse(&m, p, n, &eb) != ERR_OK) return;
    char *one = config_msg_format(&m);
    require(one != NULL && config_msg_parse(&again, one, strlen(one), &eb) == ERR_OK);
    char *two = config_msg_format(&again);
    require(two != NULL && strcmp(one, two) == 0);
    free(one);
    free(two);
}

static void try_status(const char *p, size_t n, int version) {
    struct status_msg m, again;
    struct errbuf eb = {0};
    if (status_msg_parse(&m, p, n, &eb) != ERR_OK) return;
    char *one = status_msg_format(&m, version);
    require(one != NULL && status_msg_parse(&again, one, strlen(one), &eb) == ERR_OK);
    require(again.n_links == m.n_links && again.waiting == m.waiting &&
            again.running == m.running && again.kv_leases == m.kv_leases &&
            again.avail_slots == m.avail_slots && again.total_slots == m.total_slots &&
            again.avail_blocks == m.avail_blocks && again.free_blocks == m.free_blocks &&
            again.total_blocks == m.total_blocks && again.role_status == m.role_status &&
            again.role == m.role && again.term == m.term && again.plan == m.plan &&
            again.id == m.id && again.listened == m.listened);
    /* Addresses of peers are for older readers only, and are not read back. */
    for (size_t i = 0; i < m.n_links; i++)
        require(again.links[i].target == m.links[i].target && again.links[i].ok == m.links[i].ok &&
                strcmp(again.links[i].text, m.links[i].text) == 0);
    free(one);
    status_msg_free(&m);
    status_msg_free(&again);
}

static void try_draining(const char *p, size_t n) {
    struct status_msg m = {0}, again = {0};
    if (!status_msg_parse_draining(&m, p, n)) return;
    char *one = status_msg_format_draining(&m, "stopped");
    require(one != NULL && status_msg_parse_draining(&again, one, strlen(one)));
    require(again.waiting == m.waiting && again.running == m.running &&
            again.kv_leases == m.kv_leases);
    free(one);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const char *p = (const char *)data + 1;
    if (data[0] % 3 == 0) {
        try_config(p, size - 1);
    } else {
        try_status(p, size - 1, data[0] % 3);
        try_draining(p, size - 1);
    }
    return 0;
}
