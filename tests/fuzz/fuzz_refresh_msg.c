/* A pushed list of instances: what is taken keeps its bounds, what is left out or refused is said
 * in words. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/refresh_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void on_skip(void *arg, const char *text) {
    require(text[0] != 0);
    ++*(size_t *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct refresh_msg m;
    struct errbuf eb = {0};
    size_t n_skipped = 0, n_peers = 0;
    if (refresh_msg_parse(&m, size % 2 == 1, (const char *)data, size, on_skip, &n_skipped, &eb) !=
        ERR_OK) {
        require(eb.text[0] != 0 && m.ids == NULL && m.insts == NULL);
        return 0;
    }
    require(m.n_ids <= INSTANCES_MAX && m.n_insts + n_skipped <= INSTANCES_MAX);
    for (size_t i = 1; i < m.n_ids; i++) require(m.ids[i - 1] < m.ids[i]);
    for (size_t i = 0; i < m.n_insts; i++) {
        const struct refresh_inst *in = &m.insts[i];
        require(in->id != 0 && in->port >= 1024 && in->metric_port >= 1024);
        require(in->inter_comm_port >= 1024 && in->model_name[0] != 0);
        require(in->total_slots >= 1 && in->total_slots <= REFRESH_SLOTS_MAX);
        require(in->avail_slots <= in->total_slots && in->avail_blocks <= in->total_blocks);
        require(in->block_size >= 1 && in->block_size <= REFRESH_BLOCK_TOKENS_MAX);
        require(in->max_output_len >= 1 && in->max_output_len <= in->max_seq_len);
        require(in->role == ROLE_PREFILL || in->role == ROLE_DECODE || in->role == ROLE_FLEX);
        for (size_t k = 0; k < in->n_peers; k++) n_peers += in->peers[k] <= UINT32_MAX;
    }
    require(n_peers <= REFRESH_PEERS_MAX);
    refresh_msg_free(&m);
    return 0;
}
