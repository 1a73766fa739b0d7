/* Any bytes as Host or Origin of a request, and as the names of a setting (first line: names;
 * second: the header's value): what is let in is a literal address, localhost, or fits a name. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The text as an Origin header has it says the same as it does as Host. */
static void check_origin(const char *host, const char *names) {
    const size_t room = strlen(host) + 16;
    char *origin = malloc(room);
    if (origin == NULL) abort();
    memcpy(origin, "http://", 8);
    strcat(origin, host);
    if (origin_ok(origin, names) != origin_host_ok(host, names)) abort();
    free(origin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *names = malloc(n + 1);
    if (names == NULL) abort();
    if (n > 0) memcpy(names, data, n);
    names[n] = '\0';
    char *host = strchr(names, '\n');
    if (host != NULL)
        *host++ = '\0';
    else
        host = names + strlen(names);
    const bool open = origin_host_ok(host, names), closed = origin_host_ok(host, "");
    /* Names only ever let in more; without any, a host is an address or localhost. */
    if (closed && !open) abort();
    if (closed && strspn(host, "0123456789abcdefABCDEFlocahstLOCAHST.:[]") != strlen(host)) abort();
    if (host[0] == '\0' && open) abort();
    if (origin_ok("null", names)) abort();
    if (origin_names_ok(names) && strchr(names, '*') == NULL && open &&
        strpbrk(host, " \t@/\\%") != NULL)
        abort();
    check_origin(host, names);
    free(names);
    return 0;
}
