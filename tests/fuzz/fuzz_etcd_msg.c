/* Answers of etcd's gateway: what is taken keeps its bounds and can go into headers and lines; what
 * is said of an error is printable and short. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/etcd_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct etcd_answer a;
    struct errbuf eb = {0};
    char why[ETCD_WHY_BYTES];
    char *body = malloc(size + 1);
    if (body == NULL) return 0;
    if (size > 0) memcpy(body, data, size);
    body[size] = '\0';
    if (etcd_answer_parse(&a, body, size, &eb) != ERR_OK) {
        require(eb.text[0] != '\0' && a.value.data == NULL && !a.has_key);
    } else {
        require(a.revision >= 0 && a.lease >= 0 && a.ttl_s >= 0 && a.key_created >= 0);
        require(a.value.len <= size && !a.value.failed && (a.has_key || a.value.len == 0));
        require(strlen(a.token) < sizeof(a.token));
        for (const char *p = a.token; *p != '\0'; p++) require(*p > ' ' && *p < 0x7F);
        etcd_answer_free(&a);
    }
    etcd_answer_error(why, body, size);
    require(strlen(why) < sizeof(why));
    for (const char *p = why; *p != '\0'; p++) require(*p >= ' ' && *p < 0x7F && *p != '"');
    free(body);
    return 0;
}
