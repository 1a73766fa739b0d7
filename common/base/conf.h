/* conf: configuration as a table. A row is a key of a JSON file: where it stands, its type, its
 * bounds, its default, one sentence, and the member of the program's struct it fills. Reading,
 * checking, printing and the list of known keys all walk the same table.
 *
 * Errors: a wrong value gives ERR_BAD_CONFIG with key, value and allowed range. Unknown keys are
 * warnings, never fatal. */
#ifndef BATON_BASE_CONF_H
#define BATON_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

struct json_value;

enum conf_type {
    CONF_BOOL,  /* bool */
    CONF_INT,   /* int64_t in [min, max]; a decimal string is accepted too */
    CONF_F64,   /* double in [min, max]; a decimal string is accepted too */
    CONF_STR,   /* char[size] */
    CONF_WORD,  /* char[size]: one of the words in `words`, separated by '|' */
    CONF_LOWER, /* char[size]: at least one of a-z and _ */
    CONF_NAME,  /* char[size]: letters, digits, - . _ and none of these three at the ends */
    CONF_IP,    /* char[size]: an IPv4 or IPv6 literal */
    CONF_LIST,  /* char[max][size]: an array of at most max strings, or one string; "" is an unused
                   entry, and the last ones are */
};

struct conf_key {
    const char *path; /* "ServerConfig.port"; a segment of digits is an array index */
    enum conf_type type;
    bool must; /* no default: the file must say it */
    double min, max;
    /* As it would stand in the file; strings without quotes. Of a CONF_INT "" stands for none: the
     * member is 0 then, below min, and is not printed. */
    const char *def;
    const char *words;
    size_t offset, size;
    const char *help;
};

#define CONF_B(st, m, path, def, help)                                                             \
    { path, CONF_BOOL, false, 0, 1, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_I(st, m, path, min, max, def, help)                                                   \
    { path, CONF_INT, false, min, max, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_F(st, m, path, min, max, def, help)                                                   \
    { path, CONF_F64, false, min, max, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_S(st, m, path, def, help)                                                             \
    { path, CONF_STR, false, 0, 0, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_W(st, m, path, words, def, help)                                                      \
    { path, CONF_WORD, false, 0, 0, def, words, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_L(st, m, path, def, help)                                                             \
    { path, CONF_LOWER, false, 0, 0, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_IPADDR(st, m, path, def, help)                                                        \
    { path, CONF_IP, false, 0, 0, def, NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_LS(st, m, path, def, help)                                                            \
    {                                                                                              \
        path, CONF_LIST, false, 0, sizeof(((st *)0)->m) / sizeof(((st *)0)->m[0]), def, NULL,      \
            offsetof(st, m), sizeof(((st *)0)->m[0]), help                                         \
    }
#define CONF_MUST_S(st, m, path, help)                                                             \
    { path, CONF_STR, true, 0, 0, "", NULL, offsetof(st, m), sizeof(((st *)0)->m), help }
#define CONF_MUST_NAME(st, m, path, help)                                                          \
    { path, CONF_NAME, true, 0, 0, "", NULL, offsetof(st, m), sizeof(((st *)0)->m), help }

/* Where the values of keys go that are checked and then forgotten: what another system's file says
 * and this one has no use for. */
struct conf_scratch {
    bool flag;
    int64_t whole;
    double number;
    char text[1024], ip[64];
};
#define CONF_NO_EFFECT       "checked, without effect"
#define CHECKED_B(path, def) CONF_B(struct conf_scratch, flag, path, def, CONF_NO_EFFECT)
#define CHECKED_I(path, lo, hi, def)                                                               \
    CONF_I(struct conf_scratch, whole, path, lo, hi, def, CONF_NO_EFFECT)
#define CHECKED_F(path, lo, hi, def)                                                               \
    CONF_F(struct conf_scratch, number, path, lo, hi, def, CONF_NO_EFFECT)
#define CHECKED_S(path, def) CONF_S(struct conf_scratch, text, path, def, CONF_NO_EFFECT)
#define CHECKED_W(path, words, def)                                                                \
    CONF_W(struct conf_scratch, text, path, words, def, CONF_NO_EFFECT)
#define CHECKED_IP(path, def) CONF_IPADDR(struct conf_scratch, ip, path, def, CONF_NO_EFFECT)

/* Fills dst with the defaults. A default that does not fit its own row is a programming error and
 * asserts. */
void conf_defaults(void *dst, const struct conf_key *keys, size_t n_keys);

/* Reads a daemon's file, at most 10 MB; *root is the caller's to put. ERR_BAD_CONFIG: whoever is no
 * owner nor of the group could change it. Other errors: json_read_file(). */
enum err conf_read_file(struct json_value **root, const char *path, struct errbuf *eb);

/* The value at a dotted path; NULL in *out: there is none. An error: what lies on the way is there
 * and is something else than the object or array that the path needs. */
enum err conf_find(struct json_value **out, const struct json_value *root, const char *path,
                   const char *prefix, struct errbuf *eb);
/* Puts v at a dotted path, making the objects and arrays on the way. Takes v, also when it is
 * false: what lies on the way is something else, and nothing was put. */
bool conf_put(struct json_value *root, const char *path, struct json_value *v);

/* Fills dst from root (an object); members without a key in the file keep what they hold. prefix:
 * put before keys in messages ("" or "coordinator."). Stops at the first wrong value. check_must: a
 * `must` key that is absent is an error. */
enum err conf_read(void *dst, const struct conf_key *keys, size_t n_keys,
                   const struct json_value *root, const char *prefix, bool check_must,
                   struct errbuf *eb);

/* Several tables that make up one file. */
struct conf_tables {
    const struct conf_key *keys;
    size_t n_keys;
    const struct conf_key *checked; /* rows of struct conf_scratch */
    size_t n_checked;
    const char *const *also; /* paths known otherwise, with all below them; ends with NULL */
};

/* Holds what root says against the `checked` rows. Errors: conf_read(). */
enum err conf_check(const struct conf_tables *t, const struct json_value *root, struct errbuf *eb);

/* Calls fn for each leaf of root that no table knows. */
void conf_unknown(const struct conf_tables *t, const struct json_value *root,
                  void (*fn)(void *arg, const char *path), void *arg);

/* Appends the settings in effect as a JSON object that conf_read accepts again, one key a line. */
void conf_print(struct buf *out, const void *src, const struct conf_key *keys, size_t n_keys);

#endif
