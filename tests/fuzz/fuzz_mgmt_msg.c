/* Bodies and queries of the management plane: the first byte says which. What is taken keeps its
 * bounds; what is refused is said in words. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/mgmt_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void read_query(const char *p, size_t n) {
    struct mgmt_tasks t;
    struct mgmt_plan plan;
    struct mgmt_history h;
    struct errbuf eb = {0};
    char *query = malloc(n + 1);
    require(query != NULL);
    memcpy(query, p, n);
    query[n] = 0;
    require(mgmt_tasks_parse(&t, query, &eb) == ERR_OK || eb.text[0] != 0);
    require(t.n <= MGMT_TASKS_MAX);
    for (size_t i = 0; i < t.n; i++) require(t.ids[i] >= -1 && t.ids[i] <= UINT32_MAX);
    if (mgmt_plan_parse(&plan, query, &eb) == ERR_OK)
        require(plan.asks == (plan.role != ROLE_NONE) &&
                memchr(plan.name, 0, sizeof(plan.name)) != NULL);
    else
        require(eb.text[0] != 0);
    if (mgmt_history_parse(&h, query, &eb) == ERR_OK) {
        require(h.n <= MGMT_SERIES_MAX && h.since <= UINT64_C(1) << 53);
        for (size_t i = 0; i < h.n; i++) require(h.ids[i] > 0);
    } else {
        require(eb.text[0] != 0);
    }
    free(query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct mgmt_ids ids;
    struct mgmt_pair pair;
    struct mgmt_backup backup;
    struct errbuf eb = {0};
    if (size == 0) return 0;
    const char *p = (const char *)data + 1;
    switch (data[0]) {
    case 'i':
        require(mgmt_ids_parse(&ids, p, size - 1, &eb) == ERR_OK || eb.text[0] != 0);
        require(ids.n <= INSTANCES_MAX);
        break;
    case 'p': require(mgmt_pair_parse(&pair, p, size - 1, &eb) == ERR_OK || eb.text[0] != 0); break;
    case 'b':
        require(mgmt_backup_parse(&backup, p, size - 1, &eb) == ERR_OK || eb.text[0] != 0);
        break;
    default: read_query(p, size - 1);
    }
    return 0;
}
