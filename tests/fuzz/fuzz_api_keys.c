/* Any bytes as a file of API keys: taken or refused, and what was taken lets nobody in without a
 * key. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/net/api_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[] = "/tmp/baton-fuzz-keys-XXXXXX", line[1024];
    struct api_keys *k = NULL;
    struct errbuf eb = {0};
    int fd = mkstemp(path); /* mode 0600 */
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
    log_init(LOG_NONE, 2);
    if (api_keys_open(&k, "fuzz", "/", path, &eb) == ERR_OK) {
        if (api_keys_allow(k, NULL, NULL) || api_keys_allow(k, "Bearer ", NULL)) abort();
        /* The first bytes as what a client sends. */
        snprintf(line, sizeof(line), "Bearer %.*s", (int)(n < 900 ? n : 900), (const char *)data);
        (void)api_keys_allow(k, line, NULL);
        api_keys_reload(k);
    } else if (k != NULL || eb.text[0] == 0) {
        abort();
    }
    api_keys_close(&k);
    unlink(path);
    return 0;
}
