/* Bodies of a role post, both versions: what is taken says the same when it is written and read
 * again. First byte: the version. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/role_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    int version = 1 + data[0] % 2;
    struct role_msg m, again;
    struct errbuf eb = {0};
    if (role_msg_parse(&m, version, (const char *)data + 1, size - 1, &eb) != ERR_OK) {
        require(eb.text[0] != 0 && m.peers == NULL && m.local.devices == NULL);
        return 0;
    }
    char *one = role_msg_format(&m, version);
    require(one != NULL);
    require(role_msg_parse(&again, version, one, strlen(one), &eb) == ERR_OK);
    char *two = role_msg_format(&again, version);
    require(two != NULL && strcmp(one, two) == 0);
    require(again.n_peers == m.n_peers && again.local.n_devices == m.local.n_devices);
    free(one);
    free(two);
    role_msg_free(&m);
    role_msg_free(&again);
    return 0;
}
