/* The state file of a coordinator, with a CRC that fits: what is taken keeps its bounds, and is
 * written and read again as it is. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/store.h"
#include "proto/crc32c.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct store_state s, again;
    struct errbuf eb = {0};
    struct buf b = BUF_INIT, out = BUF_INIT;
    buf_append(&b, data, size);
    buf_printf(&b, "%08x\n", crc32c(0, data, size));
    if (store_state_parse(&s, b.data, b.len, &eb) != ERR_OK) {
        require(eb.text[0] != 0 && s.rows == NULL);
    } else {
        require(s.n_rows <= INSTANCES_MAX);
        require(store_state_format(&out, &s) == ERR_OK);
        require(store_state_parse(&again, out.data, out.len, &eb) == ERR_OK);
        require(again.term == s.term && again.n_rows == s.n_rows);
        for (size_t i = 0; i < s.n_rows; i++) {
            const struct store_row *x = &s.rows[i], *y = &again.rows[i];
            require(strcmp(x->identity, y->identity) == 0 && x->id == y->id && x->id != 0);
            require(x->role == y->role && x->group == y->group && x->drained == y->drained);
            require(x->override == y->override && x->back == y->back &&
                    x->override_unix_s == y->override_unix_s);
        }
        store_state_free(&again);
        store_state_free(&s);
    }
    buf_free(&b);
    buf_free(&out);
    return 0;
}
