/* api_keys: a file of keys, and the question whether a request shows one of them. */
#include "common/net/api_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/file_owner.h"
#include "common/base/log.h"

enum { FILE_BYTES_MAX = 1 << 20, HASH_BYTES = SHA256_DIGEST_LENGTH };

/* A key that has terms of its own. */
struct special {
    char tenant[TENANT_BYTES_MAX + 1];
    struct key_terms terms;
};

struct key_set {
    size_t n, cap;
    unsigned char (*hashes)[HASH_BYTES];
    struct special *special; /* by tenant */
    size_t n_special;
};

struct api_keys {
    const char *setting;
    char *path;
    pthread_mutex_t mutex; /* guards set */
    struct key_set set;
};

static enum err read_file(char **out, size_t *out_len, const struct api_keys *k,
                          struct errbuf *eb) {
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    enum err e = ERR_OK;
    int fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s: cannot open %s: %s", k->setting, k->path,
                       errno == ELOOP ? "it must not be a symbolic link" : strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s must be a regular file", k->setting, k->path);
    else if (st.st_uid != geteuid() && !file_lent_by_root(&st))
        e = err_set(eb, ERR_BAD_CONFIG,
                    "%s: %s must belong to the user of the process (uid %u), or to root with mode "
                    "0640 at most",
                    k->setting, k->path, (unsigned)geteuid());
    else if ((st.st_mode & 0077) != 0 && !file_lent_by_root(&st))
        e = err_set(eb, ERR_BAD_CONFIG,
                    "%s: %s must be closed to group and others (mode 0600 or 0400), it has %04o",
                    k->setting, k->path, (unsigned)(st.st_mode & 07777));
    else if (st.st_size > FILE_BYTES_MAX)
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s must have at most %d bytes, it has %lld",
                    k->setting, k->path, FILE_BYTES_MAX, (long long)st.st_size);
    else if ((text = malloc((size_t)st.st_size + 1)) == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", k->setting, k->path);
    while (e == ERR_OK && len < (size_t)st.st_size) {
        ssize_t n = read(fd, text + len, (size_t)st.st_size - len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: cannot read %s: %s", k->setting, k->path,
                        strerror(errno));
        if (n <= 0) break; /* 0: it became shorter; what is there counts */
        len += (size_t)n;
    }
    close(fd);
    if (e != ERR_OK) {
        if (text != NULL) OPENSSL_cleanse(text, len);
        free(text);
        return e;
    }
    text[len] = 0;
    *out = text;
    *out_len = len;
    return ERR_OK;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_hash(unsigned char out[HASH_BYTES], const char *s, size_t n) {
    if (n != 2 * HASH_BYTES) return false;
    for (size_t i = 0; i < HASH_BYTES; i++) {
        int hi = hex_digit(s[2 * i]), lo = hex_digit(s[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

static bool is_key(const char *s, size_t n) {
    if (n < API_KEY_BYTES_MIN || n > API_KEY_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~') return false;
    return true;
}

/* Hashed once more: the hash of a key lies in files, and what a tenant is called in logs and
 * headers must not lead to them. */
static void name_tenant(char tenant[TENANT_BYTES_MAX + 1], const unsigned char hash[HASH_BYTES]) {
    static const char label[] = "baton tenant";
    unsigned char in[sizeof(label) + HASH_BYTES], out[HASH_BYTES];
    memcpy(in, label, sizeof(label));
    memcpy(in + sizeof(label), hash, HASH_BYTES);
    SHA256(in, sizeof(in), out);
    tenant_of_key(tenant, out, sizeof(out));
}

static int by_tenant(const void *a, const void *b) {
    return strcmp(((const struct special *)a)->tenant, ((const struct special *)b)->tenant);
}

static void set_free(struct key_set *set) {
    free(set->hashes);
    free(set->special);
    *set = (struct key_set){0};
}

static enum err add_special(struct key_set *set, const unsigned char hash[HASH_BYTES],
                            const struct key_terms *t) {
    struct special *grown = realloc(set->special, (set->n_special + 1) * sizeof(*grown));
    if (grown == NULL) return ERR_NO_MEMORY;
    set->special = grown;
    name_tenant(grown[set->n_special].tenant, hash);
    grown[set->n_special++].terms = *t;
    return ERR_OK;
}

/* What may stand behind a key. */
static const struct term {
    const char *name;
    unsigned max;
    size_t at; /* in key_terms */
} terms[] = {{"weight", API_KEY_WEIGHT_MAX, offsetof(struct key_terms, weight)},
             {"digs_prefill_slo", API_KEY_SLO_MS_MAX, offsetof(struct key_terms, prefill_slo_ms)},
             {"digs_decode_slo", API_KEY_SLO_MS_MAX, offsetof(struct key_terms, decode_slo_ms)}};
enum { N_TERMS = sizeof(terms) / sizeof(terms[0]), DIGITS_MAX = 5 };

/* NAME=N of n bytes, which has not been said before. */
static bool read_term(struct key_terms *out, const char *s, size_t n) {
    for (size_t i = 0; i < N_TERMS; i++) {
        const size_t name = strlen(terms[i].name);
        unsigned *to = (unsigned *)((char *)out + terms[i].at), v = 0;
        if (n <= name + 1 || n > name + 1 + DIGITS_MAX || s[name] != '=' ||
            strncmp(s, terms[i].name, name) != 0)
            continue;
        for (size_t k = name + 1; k < n; k++) {
            if (s[k] < '0' || s[k] > '9') return false;
            v = v * 10 + (unsigned)(s[k] - '0');
        }
        if (v < 1 || v > terms[i].max || *to != 0) return false;
        *to = v;
        return true;
    }
    return false;
}

/* Takes the terms off the end of a line of *n bytes. False: what stands behind the key are none. */
static bool read_terms(struct key_terms *out, const char *s, size_t *n) {
    size_t at = 0, end = *n;
    *out = (struct key_terms){0};
    while (at < end && s[at] != ' ' && s[at] != '\t') at++;
    *n = at;
    while (at < end) {
        while (s[at] == ' ' || s[at] == '\t') at++; /* a line does not end with blanks */
        const size_t from = at;
        while (at < end && s[at] != ' ' && s[at] != '\t') at++;
        if (!read_term(out, s + from, at - from)) return false;
    }
    return true;
}

static bool says_nothing(const struct key_terms *t) {
    return t->weight <= 1 && t->prefill_slo_ms == 0 && t->decode_slo_ms == 0;
}

static enum err add_line(struct key_set *set, const char *s, size_t n) {
    static const char prefix[] = "sha256:";
    size_t p = sizeof(prefix) - 1;
    struct key_terms said;
    if (!read_terms(&said, s, &n)) return ERR_INVALID;
    if (set->n == API_KEYS_MAX) return ERR_TOO_LARGE;
    if (set->n == set->cap) {
        size_t cap = set->cap == 0 ? 16 : set->cap * 2;
        void *grown = realloc(set->hashes, cap * sizeof(set->hashes[0]));
        if (grown == NULL) return ERR_NO_MEMORY;
        set->hashes = grown;
        set->cap = cap;
    }
    unsigned char *hash = set->hashes[set->n];
    if (n >= p && strncmp(s, prefix, p) == 0) {
        if (!read_hash(hash, s + p, n - p)) return ERR_INVALID;
    } else {
        if (!is_key(s, n)) return ERR_INVALID;
        SHA256((const unsigned char *)s, n, hash);
    }
    set->n++;
    return says_nothing(&said) ? ERR_OK : add_special(set, hash, &said);
}

static enum err read_set(struct key_set *set, const struct api_keys *k, struct errbuf *eb) {
    char *text = NULL;
    size_t len = 0, line = 0;
    *set = (struct key_set){0};
    enum err e = read_file(&text, &len, k, eb);
    if (e != ERR_OK) return e;
    for (const char *p = text, *end = text + len; e == ERR_OK && p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p)),
                   *next = stop != NULL ? stop + 1 : end;
        if (stop == NULL) stop = end;
        while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r')) stop--;
        while (p < stop && (*p == ' ' || *p == '\t')) p++;
        if (p < stop && *p != '#') e = add_line(set, p, (size_t)(stop - p));
        p = next;
    }
    /* The text of a wrong line may be a mistyped key, so it is not shown. */
    if (e == ERR_INVALID)
        err_set(eb, e = ERR_BAD_CONFIG,
                "%s: line %zu of %s must be a key of %d to %d visible ASCII characters, or sha256: "
                "and 64 hex digits, then nothing or weight=1 to %d, digs_prefill_slo=1 to %d, "
                "digs_decode_slo=1 to %d, each at most once",
                k->setting, line, k->path, API_KEY_BYTES_MIN, API_KEY_BYTES_MAX, API_KEY_WEIGHT_MAX,
                API_KEY_SLO_MS_MAX, API_KEY_SLO_MS_MAX);
    else if (e == ERR_TOO_LARGE)
        err_set(eb, e = ERR_BAD_CONFIG, "%s: %s must have at most %d keys", k->setting, k->path,
                API_KEYS_MAX);
    else if (e == ERR_NO_MEMORY)
        err_set(eb, e, "%s: no memory for %s", k->setting, k->path);
    else if (set->n == 0)
        err_set(eb, e = ERR_BAD_CONFIG, "%s: %s holds no key", k->setting, k->path);
    OPENSSL_cleanse(text, len);
    free(text);
    if (e != ERR_OK) {
        set_free(set);
    } else if (set->n_special > 0) {
        qsort(set->special, set->n_special, sizeof(set->special[0]), by_tenant);
    }
    return e;
}

enum err api_keys_open(struct api_keys **out, const char *setting, const char *dir,
                       const char *path, struct errbuf *eb) {
    struct api_keys *k = calloc(1, sizeof(*k));
    size_t n = strlen(dir) + strlen(path) + 2;
    enum err e = ERR_OK;
    *out = NULL;
    if (k != NULL) pthread_mutex_init(&k->mutex, NULL);
    if (k == NULL || (k->path = malloc(n)) == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "%s: no memory", setting);
    if (e == ERR_OK) {
        k->setting = setting;
        if (path[0] == '/')
            snprintf(k->path, n, "%s", path);
        else
            snprintf(k->path, n, "%s/%s", dir, path);
        e = read_set(&k->set, k, eb);
    }
    if (e != ERR_OK)
        api_keys_close(&k);
    else
        *out = k;
    return e;
}

void api_keys_close(struct api_keys **kp) {
    struct api_keys *k = *kp;
    *kp = NULL;
    if (k == NULL) return;
    set_free(&k->set);
    free(k->path);
    pthread_mutex_destroy(&k->mutex);
    free(k);
}

enum err api_keys_reload(struct api_keys *k) {
    struct key_set set, old;
    struct errbuf eb = {0};
    enum err e = read_set(&set, k, &eb);
    if (e != ERR_OK) {
        log_error("keys", "event=reload_failed, the keys stay as they were: %s", eb.text);
        return e;
    }
    pthread_mutex_lock(&k->mutex);
    old = k->set;
    k->set = set;
    pthread_mutex_unlock(&k->mutex);
    set_free(&old);
    log_info("keys", "event=reloaded count=%zu", set.n);
    return ERR_OK;
}

const char *api_keys_path(const struct api_keys *k) {
    return k->path;
}

/* Whether s[0..n) is a key; tenant: as in api_keys_allow(). */
static bool has_key(struct api_keys *k, const char *s, size_t n,
                    char tenant[TENANT_BYTES_MAX + 1]) {
    unsigned char hash[HASH_BYTES];
    int found = 0;
    SHA256((const unsigned char *)s, n, hash);
    /* No early end: how long it takes tells nothing. */
    pthread_mutex_lock(&k->mutex);
    for (size_t i = 0; i < k->set.n; i++)
        found |= CRYPTO_memcmp(hash, k->set.hashes[i], HASH_BYTES) == 0;
    pthread_mutex_unlock(&k->mutex);
    if (found != 0 && tenant != NULL) name_tenant(tenant, hash);
    return found != 0;
}

bool api_keys_allow(struct api_keys *k, const char *authorization,
                    char tenant[TENANT_BYTES_MAX + 1]) {
    static const char scheme[] = "Bearer";
    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof(scheme) - 1) != 0)
        return false;
    const char *s = authorization + sizeof(scheme) - 1;
    if (*s != ' ') return false;
    s += strspn(s, " ");
    size_t n = strlen(s);
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t')) n--;
    return n > 0 && has_key(k, s, n, tenant);
}

bool api_keys_allow_key(struct api_keys *k, const char *key, char tenant[TENANT_BYTES_MAX + 1]) {
    size_t n = strlen(key);
    return n > 0 && has_key(k, key, n, tenant);
}

struct key_terms api_keys_terms(struct api_keys *k, const char *tenant) {
    struct special key = {0};
    struct key_terms out = {0};
    if (k != NULL) {
        snprintf(key.tenant, sizeof(key.tenant), "%s", tenant);
        pthread_mutex_lock(&k->mutex);
        const struct special *w =
            k->set.n_special > 0
                ? bsearch(&key, k->set.special, k->set.n_special, sizeof(key), by_tenant)
                : NULL;
        if (w != NULL) out = w->terms;
        pthread_mutex_unlock(&k->mutex);
    }
    if (out.weight == 0) out.weight = 1;
    return out;
}
