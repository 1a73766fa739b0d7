/* origin: one walk over the names. */
#include "common/net/origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include "common/net/cors.h"

enum { HOST_BYTES_MAX = 255 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

/* The host of an authority: without port, brackets and the dot of the root. False: it is none. */
static bool host_of(char out[HOST_BYTES_MAX + 1], const char *authority) {
    bool v6 = authority[0] == '[';
    size_t n = v6 ? strcspn(authority + 1, "]") : strcspn(authority, ":");
    const char *rest = authority + n + (v6 ? 1 : 0);
    if (v6 && *rest++ != ']') return false;
    if (*rest != '\0' && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")] != '\0'))
        return false;
    if (n == 0 || n > HOST_BYTES_MAX) return false;
    memcpy(out, authority + (v6 ? 1 : 0), n);
    out[n] = '\0';
    if (!v6 && n > 1 && out[n - 1] == '.') out[n - 1] = '\0';
    return true;
}

static bool is_literal(const char *host, bool v6) {
    unsigned char a[16];
    return inet_pton(v6 ? AF_INET6 : AF_INET, host, a) == 1;
}

/* The entry is the host's name, or a domain above it. */
static bool entry_fits(const char *entry, size_t n, const char *host) {
    size_t len = strlen(host);
    if (n == 1 && entry[0] == '*') return true;
    if (entry[0] == '.') return len > n && strncasecmp(host + len - n, entry, n) == 0;
    return len == n && strncasecmp(host, entry, n) == 0;
}

bool origin_host_ok(const char *authority, const char *names) {
    char host[HOST_BYTES_MAX + 1];
    if (!host_of(host, authority)) return false;
    if (is_literal(host, authority[0] == '[')) return true;
    if (strcasecmp(host, "localhost") == 0) return true;
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")) > 0; names += n)
        if (entry_fits(names, n, host)) return true;
    return false;
}

bool origin_ok(const char *origin, const char *names) {
    const char *at = strstr(origin, "://");
    return at != NULL && origin_host_ok(at + 3, names);
}

bool origin_names_ok(const char *names) {
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")) > 0; names += n)
        if (!(n == 1 && names[0] == '*') &&
            (n > HOST_BYTES_MAX || strspn(names, letters) < n || names[n - 1] == '.'))
            return false;
    return true;
}

enum err origin_check_conf(const char *prefix, const char *management_hosts,
                           const char *cors_origin, struct errbuf *eb) {
    if (!origin_names_ok(management_hosts))
        return err_set(eb, ERR_BAD_CONFIG,
                       "%smanagementHosts must be names with blanks between them, got \"%s\"",
                       prefix, management_hosts);
    if (!cors_origins_ok(cors_origin))
        return err_set(eb, ERR_BAD_CONFIG, "%scorsAllowOrigin must be " CORS_RULE ", got \"%s\"",
                       prefix, cors_origin);
    return ERR_OK;
}
