/* tenant: words made of keys and addresses. */
#include "proto/tenant.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { KEY_HEX_BYTES = 16, NET_BYTES = 8 };

bool tenant_ok(const char *s) {
    size_t n = strlen(s);
    return n >= 1 && n <= TENANT_BYTES_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-") == n;
}

void tenant_of_peer(char out[TENANT_BYTES_MAX + 1], const char *peer) {
    const char *port = strrchr(peer, ':');
    char host[INET6_ADDRSTRLEN];
    struct in6_addr six;
    struct in_addr four;
    size_t open = peer[0] == '[', n = port != NULL && (size_t)(port - peer) >= 2 * open
                                          ? (size_t)(port - peer) - 2 * open
                                          : 0;
    snprintf(out, TENANT_BYTES_MAX + 1, "addr-unknown");
    if (n == 0 || n >= sizeof(host)) return;
    memcpy(host, peer + open, n);
    host[n] = '\0';
    if (inet_pton(AF_INET, host, &four) == 1) {
        snprintf(out, TENANT_BYTES_MAX + 1, "addr-%s", host);
    } else if (inet_pton(AF_INET6, host, &six) == 1) {
        /* One subscriber has a whole /64 to choose addresses from. An IPv4 address in IPv6 clothes
         * is one host. */
        if (IN6_IS_ADDR_V4MAPPED(&six)) {
            inet_ntop(AF_INET, six.s6_addr + 12, host, sizeof(host));
        } else {
            memset(six.s6_addr + NET_BYTES, 0, sizeof(six.s6_addr) - NET_BYTES);
            inet_ntop(AF_INET6, &six, host, sizeof(host));
        }
        snprintf(out, TENANT_BYTES_MAX + 1, "addr-%s", host);
    }
}

void tenant_of_key(char out[TENANT_BYTES_MAX + 1], const unsigned char *hash, size_t n) {
    size_t at = strlen(TENANT_KEY_PREFIX);
    memcpy(out, TENANT_KEY_PREFIX, at + 1);
    for (size_t i = 0; i < n && i < KEY_HEX_BYTES; i++, at += 2)
        snprintf(out + at, 3, "%02x", hash[i]);
}

const char *tenant_owner(const char *t) {
    return t != NULL && strncmp(t, TENANT_KEY_PREFIX, strlen(TENANT_KEY_PREFIX)) == 0 ? t : "";
}

bool tenant_same_owner(const char *a, const char *b) {
    return strcmp(tenant_owner(a), tenant_owner(b)) == 0;
}
