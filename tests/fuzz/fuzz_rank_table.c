/* A rank table, or one registration (first byte): what is taken keeps the bounds of
 * cluster-api 7.1. */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/coord_conf.h"
#include "proto/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void check(const struct node_conf *n) {
    struct in_addr a;
    require(inet_pton(AF_INET, n->ip, &a) == 1 && inet_pton(AF_INET, n->mgmt_ip, &a) == 1);
    require(n->port >= 1024 && n->mgmt_port >= 1024 && n->metric_port >= 1024 &&
            n->inter_comm_port >= 1024);
    require(n->label >= -1 && n->label <= LABEL_FLEX_STATIC);
    require(n->n_devices >= 1 && n->n_devices <= DEVICES_MAX);
    for (size_t i = 0; i < n->n_devices; i++) {
        const struct role_device *d = &n->devices[i];
        require(inet_pton(AF_INET, d->device_ip, &a) == 1);
        require(strspn(d->device_id, "0123456789") == strlen(d->device_id));
        require(strspn(d->device_logical_id, "0123456789") == strlen(d->device_logical_id));
        require(strspn(d->rank_id, "0123456789") == strlen(d->rank_id));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct coord_conf c;
    struct errbuf eb = {0};
    struct rank_table t;
    struct node_conf n;
    struct json_value *root = NULL;
    if (size < 1) return 0;
    const char *p = (const char *)data + 1;
    require(coord_conf_parse(&c, "{}", 2, ".", &eb) == ERR_OK);
    if (data[0] % 2 == 0) {
        if (rank_table_parse(&t, &c, p, size - 1, &eb) != ERR_OK) {
            require(eb.text[0] != 0 && t.nodes == NULL);
            return 0;
        }
        require(t.n_nodes <= INSTANCES_MAX);
        for (size_t i = 0; i < t.n_nodes; i++) check(&t.nodes[i]);
        rank_table_free(&t);
    } else if (json_read(&root, p, size - 1, NULL, NULL) == ERR_OK) {
        if (node_conf_read(&n, &c, root, "body", &eb) == ERR_OK) {
            check(&n);
            node_conf_free(&n);
        } else {
            require(eb.text[0] != 0 && n.devices == NULL);
        }
        json_put(root);
    }
    return 0;
}
