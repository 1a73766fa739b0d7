/* A process file with a CRC that fits: what is taken keeps its bounds; what is refused is said in
 * words. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/process_file.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct process_file f;
    struct errbuf eb = {0};
    struct buf b = BUF_INIT;
    if (size == 0) return 0;
    buf_append(&b, data, size);
    require(process_file_seal(&b) == ERR_OK);
    if (process_file_parse(&f, b.data, b.len, &eb) != ERR_OK) {
        require(eb.text[0] != 0 && f.state.rows == NULL);
    } else {
        const struct store_state *s = &f.state;
        require(s->n_rows <= INSTANCES_MAX);
        for (size_t i = 0; i < s->n_rows; i++) {
            const struct store_row *r = &s->rows[i];
            require(r->id != 0 && r->group <= INSTANCES_MAX);
            require(r->role == ROLE_NONE || r->role == ROLE_PREFILL || r->role == ROLE_DECODE);
            require(i == 0 || strcmp(s->rows[i - 1].identity, r->identity) < 0);
        }
        store_state_free(&f.state);
    }
    buf_free(&b);
    return 0;
}
