/* conf_layers: names for the keys of a table, and the values given by them. */
#include "common/base/conf_layers.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/log.h"
#include "proto/json.h"

enum { NAME_BYTES = 128, SEGMENTS_MAX = 8, PATH_BYTES = 256 };

enum from { FROM_DEFAULT, FROM_FILE, FROM_ENV, FROM_FLAG };

struct row {
    const struct conf_key *key; /* NULL: the one that takes JSON */
    const char *path;
    char flag[NAME_BYTES]; /* "--max-batch-size" */
    char env[NAME_BYTES];  /* "BATON_INSTANCE_MAX_BATCH_SIZE" */
    enum from from;
    const char *said; /* the alias that set it; NULL: env or flag did */
    struct json_value *value;
};

struct conf_layers {
    const struct conf_names *names;
    char file[PATH_BYTES];
    size_t n;
    struct row rows[];
};

/* ---- names */

/* Flags of the programs themselves. */
static const char *const reserved[] = {"config",       "controller", "check-config",
                                       "print-config", "version",    "help",
                                       "man",          "inspect",    "pack-weights"};

/* "kvCacheMiB" and "kv_cache_mib": "kv-cache-mib". */
static void append_words(struct buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i], before = i > 0 ? (unsigned char)s[i - 1] : '_',
                            next = i + 1 < n ? (unsigned char)s[i + 1] : '_';
        const bool in_unit = c == 'B' && before == 'i'; /* MiB */
        const bool begins =
            isupper(c) && !in_unit &&
            (islower(before) || isdigit(before) || (isupper(before) && islower(next)));
        if (begins) buf_putc(out, '-');
        buf_putc(out, c == '_' ? '-' : (char)tolower(c));
    }
}

/* The last k segments of a path, indices left out, in words. False: it has not so many. */
static bool last_words(char out[NAME_BYTES], const char *path, int k) {
    const char *seg[SEGMENTS_MAX];
    size_t len[SEGMENTS_MAX];
    int n = 0;
    for (const char *p = path; n < SEGMENTS_MAX;) {
        const size_t at = strcspn(p, ".");
        if (!isdigit((unsigned char)p[0])) {
            seg[n] = p;
            len[n++] = at;
        }
        if (p[at] == '\0') break;
        p += at + 1;
    }
    if (k > n) return false;
    struct buf b = BUF_INIT;
    for (int i = n - k; i < n; i++) {
        if (i > n - k) buf_putc(&b, '-');
        append_words(&b, seg[i], len[i]);
    }
    snprintf(out, NAME_BYTES, "%s", b.data != NULL ? b.data : "");
    buf_free(&b);
    return true;
}

static bool is_reserved(const char *name) {
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (strcmp(reserved[i], name) == 0) return true;
    return false;
}

/* Names of one key: as few of its last segments as are its own. `words` has those of all keys, for
 * k segments, or "" where a key has not so many. */
static void name_rows(struct conf_layers *l) {
    char(*words)[NAME_BYTES] = calloc(l->n, sizeof(*words));
    bool *named = calloc(l->n, sizeof(*named));
    for (int k = 1; words != NULL && named != NULL && k <= SEGMENTS_MAX; k++) {
        for (size_t i = 0; i < l->n; i++)
            if (!last_words(words[i], l->rows[i].path, k)) words[i][0] = '\0';
        for (size_t i = 0; i < l->n; i++) {
            bool own = !named[i] && words[i][0] != '\0' && !is_reserved(words[i]);
            for (size_t j = 0; own && j < l->n; j++)
                own = j == i || strcmp(words[i], words[j]) != 0;
            if (!own) continue;
            snprintf(l->rows[i].flag, NAME_BYTES, "--%.120s", words[i]);
            named[i] = true;
        }
    }
    free(words);
    free(named);
    for (size_t i = 0; i < l->n; i++) {
        struct row *r = &l->rows[i];
        if (r->flag[0] == '\0') snprintf(r->flag, NAME_BYTES, "--%.120s", r->path);
        char *to = r->env;
        to += snprintf(to, NAME_BYTES, "%s", l->names->env_prefix);
        for (const char *p = r->flag + 2; *p != '\0' && to < r->env + NAME_BYTES - 1; p++)
            *to++ = *p == '-' || *p == '.' ? '_' : (char)toupper((unsigned char)*p);
        *to = '\0';
    }
}

enum err conf_layers_create(struct conf_layers **out, const struct conf_names *names) {
    const size_t n = names->n_keys + (names->json_path != NULL);
    struct conf_layers *l = *out = calloc(1, sizeof(*l) + n * sizeof(l->rows[0]));
    if (l == NULL) return ERR_NO_MEMORY;
    l->names = names;
    l->n = n;
    for (size_t i = 0; i < n; i++) {
        l->rows[i].key = i < names->n_keys ? &names->keys[i] : NULL;
        l->rows[i].path = i < names->n_keys ? names->keys[i].path : names->json_path;
    }
    name_rows(l);
    return ERR_OK;
}

void conf_layers_free(struct conf_layers **l) {
    if (*l == NULL) return;
    for (size_t i = 0; i < (*l)->n; i++) json_put((*l)->rows[i].value);
    free(*l);
    *l = NULL;
}

const char *conf_layers_flag_name(const struct conf_layers *l, size_t i) {
    return i < l->n ? l->rows[i].flag : NULL;
}

/* ---- values */

static const char *said_by(const struct row *r) {
    return r->said != NULL ? r->said : r->from == FROM_ENV ? r->env : r->flag;
}

/* Holds a value against its row, and forgets it. */
static enum err check(const struct conf_key *k, struct json_value *v, struct errbuf *eb) {
    const size_t n = k->type == CONF_LIST ? (size_t)k->max : 1;
    struct json_value *root = json_new_obj();
    void *dst = calloc(1, k->offset + n * k->size);
    enum err e = ERR_NO_MEMORY;
    if (root != NULL && dst != NULL && conf_put(root, k->path, json_ref(v)))
        e = conf_read(dst, k, 1, root, "", false, eb);
    else
        err_set(eb, e, "out of memory");
    free(dst);
    json_put(root);
    return e;
}

/* What the text stands for; NULL: eb has why not. */
static struct json_value *value_of_text(const struct row *r, const char *text, struct errbuf *eb) {
    struct json_value *v = NULL;
    const bool list = r->key != NULL && r->key->type == CONF_LIST;
    if (r->key == NULL || (list && text[0] == '[')) {
        (void)json_read(&v, text, strlen(text), NULL, eb);
        return v;
    }
    const size_t digits = strspn(text + (text[0] == '-'), "0123456789");
    if (r->key->type == CONF_BOOL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
        v = json_new_bool(text[0] == 't');
    else if (r->key->type == CONF_INT && digits > 0 && digits < 18 &&
             text[digits + (text[0] == '-')] == '\0')
        v = json_new_i64(strtoll(text, NULL, 10));
    else
        v = json_new_str(text);
    if (v != NULL && list) {
        struct json_value *arr = json_new_arr();
        if (arr == NULL)
            json_put(v);
        else if (text[0] != '\0')
            json_arr_add(arr, v);
        else
            json_put(v);
        v = arr;
    }
    if (v == NULL) err_set(eb, ERR_NO_MEMORY, "out of memory");
    return v;
}

/* Further entries of a list that a flag is given for again. */
static struct json_value *append(struct json_value *to, struct json_value *more) {
    struct json_value *both = json_new_arr();
    struct json_value *const parts[] = {to, more};
    for (int i = 0; both != NULL && i < 2; i++)
        for (size_t k = 0; k < json_arr_len(parts[i]); k++)
            json_arr_add(both, json_ref(json_arr_at(parts[i], k)));
    json_put(to);
    json_put(more);
    return both;
}

static enum err set(struct row *r, enum from from, const char *said, const char *text,
                    struct errbuf *eb) {
    struct errbuf why = {0};
    struct json_value *v = value_of_text(r, text, &why);
    const bool again =
        from == FROM_FLAG && r->from == FROM_FLAG && r->key != NULL && r->key->type == CONF_LIST;
    enum err e = v == NULL ? why.code : ERR_OK;
    if (e == ERR_OK && again) {
        v = append(r->value, v);
        r->value = NULL;
        if (v == NULL) e = err_set(&why, ERR_NO_MEMORY, "out of memory");
    }
    if (e == ERR_OK && r->key != NULL) e = check(r->key, v, &why);
    if (e != ERR_OK) {
        json_put(v);
        return err_set(eb, ERR_BAD_CONFIG, "%s%s: %s", from == FROM_ENV ? "environment " : "",
                       said != NULL       ? said
                       : from == FROM_ENV ? r->env
                                          : r->flag,
                       why.text);
    }
    json_put(r->value);
    r->value = v;
    r->from = from;
    r->said = said;
    return ERR_OK;
}

static struct row *row_at(struct conf_layers *l, const char *path) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->rows[i].path, path) == 0) return &l->rows[i];
    return NULL;
}

static void warn_unknown(const struct conf_layers *l, const char *name, size_t n) {
    char word[NAME_BYTES];
    struct cli_near near;
    if (n >= sizeof(word)) return;
    memcpy(word, name, n);
    word[n] = '\0';
    cli_near_start(&near, word);
    for (size_t i = 0; i < l->n; i++) cli_near_show(&near, l->rows[i].env);
    log_warn("conf", "unknown variable %s of the environment: ignored%s%s", word,
             near.best != NULL ? "; the nearest one is " : "", near.best != NULL ? near.best : "");
}

static bool knows_env(const struct conf_layers *l, const char *name, size_t n) {
    for (size_t i = 0; i < l->n; i++)
        if (strlen(l->rows[i].env) == n && memcmp(l->rows[i].env, name, n) == 0) return true;
    return false;
}

enum err conf_layers_env(struct conf_layers *l, struct errbuf *eb) {
    const struct conf_alias *a = l->names->aliases;
    for (; a != NULL && a->env != NULL; a++) {
        const char *v = getenv(a->env);
        struct row *r = row_at(l, a->path);
        if (v == NULL || v[0] == '\0' || r == NULL || r->from == FROM_FLAG) continue;
        const enum err e = set(r, FROM_ENV, a->env, v, eb);
        if (e != ERR_OK) return e;
    }
    for (size_t i = 0; i < l->n; i++) {
        const char *v = getenv(l->rows[i].env);
        if (v == NULL || v[0] == '\0' || l->rows[i].from == FROM_FLAG) continue;
        const enum err e = set(&l->rows[i], FROM_ENV, NULL, v, eb);
        if (e != ERR_OK) return e;
    }
    const size_t n = strlen(l->names->env_prefix);
    for (char **p = environ; *p != NULL; p++) {
        const size_t len = strcspn(*p, "=");
        if (strncmp(*p, l->names->env_prefix, n) == 0 && !knows_env(l, *p, len))
            warn_unknown(l, *p, len);
    }
    return ERR_OK;
}

/* The row of "--name" or "--whole.key", up to n; *no: it was --no-name. */
static struct row *row_of_flag(struct conf_layers *l, const char *arg, size_t n, bool *no) {
    *no = false;
    for (size_t i = 0; i < l->n; i++) {
        struct row *r = &l->rows[i];
        if (strlen(r->flag) == n && memcmp(r->flag, arg, n) == 0) return r;
        if (strlen(r->path) + 2 == n && memcmp(r->path, arg + 2, n - 2) == 0) return r;
        if (r->key != NULL && r->key->type == CONF_BOOL && n > 5 && memcmp(arg, "--no-", 5) == 0 &&
            strlen(r->flag) == n - 3 && memcmp(r->flag + 2, arg + 5, n - 5) == 0) {
            *no = true;
            return r;
        }
    }
    return NULL;
}

enum err conf_layers_flag(struct conf_layers *l, int argc, char **argv, int *i, bool *taken,
                          struct errbuf *eb) {
    const char *arg = argv[*i];
    const size_t n = strcspn(arg, "=");
    bool no;
    *taken = false;
    if (strncmp(arg, "--", 2) != 0) return ERR_OK;
    struct row *r = row_of_flag(l, arg, n, &no);
    if (r == NULL) return ERR_OK;
    *taken = true;
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (no && arg[n] == '=') return err_set(eb, ERR_BAD_CONFIG, "%.*s takes no value", (int)n, arg);
    if (no) return set(r, FROM_FLAG, NULL, "false", eb);
    if (arg[n] == '=') return set(r, FROM_FLAG, NULL, arg + n + 1, eb);
    if (r->key != NULL && r->key->type == CONF_BOOL &&
        (next == NULL || (strcmp(next, "true") != 0 && strcmp(next, "false") != 0)))
        return set(r, FROM_FLAG, NULL, "true", eb);
    if (next == NULL) return err_set(eb, ERR_BAD_CONFIG, "%s needs a value", arg);
    ++*i;
    return set(r, FROM_FLAG, NULL, next, eb);
}

bool conf_layers_any(const struct conf_layers *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->rows[i].from >= FROM_ENV) return true;
    return false;
}

enum err conf_layers_apply(struct conf_layers *l, struct json_value *root, const char *file,
                           struct errbuf *eb) {
    snprintf(l->file, sizeof(l->file), "%s", file != NULL ? file : "");
    for (size_t i = 0; i < l->n; i++) {
        struct row *r = &l->rows[i];
        struct json_value *v = NULL;
        if (r->from < FROM_ENV) {
            (void)conf_find(&v, root, r->path, "", NULL);
            r->from = v != NULL ? FROM_FILE : FROM_DEFAULT;
        } else if (json_is(root, json_type_object)) {
            struct json_value *copy = json_ref(r->value);
            if (copy == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
            (void)conf_put(root, r->path, copy);
        }
    }
    return ERR_OK;
}

enum err conf_layers_blame(const struct conf_layers *l, const char *file, enum err e,
                           const struct errbuf *why, struct errbuf *eb) {
    const struct row *best = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const struct row *r = &l->rows[i];
        const size_t n = strlen(r->path);
        if (strncmp(why->text, r->path, n) == 0 && (why->text[n] == ' ' || why->text[n] == ':') &&
            r->from >= FROM_ENV)
            best = r;
    }
    if (best != NULL)
        return err_set(eb, e, "%s%s: %s", best->from == FROM_ENV ? "environment " : "",
                       said_by(best), why->text);
    return file != NULL ? err_set(eb, e, "%s: %s", file, why->text)
                        : err_set(eb, e, "%s", why->text);
}

/* ---- what is shown */

/* What conf_print() made of it is the table's default. */
static bool is_default(const struct row *r, const struct json_value *v, const char *text) {
    char def[1024];
    if (r->key == NULL) return json_arr_len(v) == 0;
    switch (r->key->type) {
    case CONF_BOOL:
    case CONF_INT: return strcmp(text, r->key->def) == 0;
    case CONF_F64: return strtod(text, NULL) == strtod(r->key->def, NULL);
    case CONF_LIST:
        if (r->key->def[0] == '\0') return json_arr_len(v) == 0;
        snprintf(def, sizeof(def), "[\"%s\"]", r->key->def);
        return strcmp(text, def) == 0;
    case CONF_STR:
    case CONF_WORD:
    case CONF_LOWER:
    case CONF_NAME:
    case CONF_IP: break;
    }
    snprintf(def, sizeof(def), "\"%s\"", r->key->def);
    return strcmp(text, def) == 0;
}

void conf_layers_print(struct buf *out, const struct conf_layers *l,
                       const struct json_value *printed) {
    for (size_t i = 0; i < l->n; i++) {
        const struct row *r = &l->rows[i];
        struct json_value *v = NULL;
        if (conf_find(&v, printed, r->path, "", NULL) != ERR_OK || v == NULL) continue;
        const char *text = json_to_text(v, JSON_COMPACT, NULL);
        if (text == NULL) {
            out->failed = true;
            return;
        }
        buf_printf(out, "%s = %s  # ", r->path, text);
        if (r->from == FROM_FLAG)
            buf_printf(out, "flag %s\n", r->flag);
        else if (r->from == FROM_ENV)
            buf_printf(out, "environment %s\n", said_by(r));
        else if (r->from == FROM_FILE)
            buf_printf(out, "file %s\n", l->file);
        else
            buf_printf(out, "%s\n",
                       is_default(r, v, text) ? "default" : "follows from other settings");
    }
}

static void value_word(char *out, size_t cap, const struct row *r) {
    const struct conf_key *k = r->key;
    if (k == NULL)
        snprintf(out, cap, "JSON");
    else if (k->type == CONF_BOOL)
        snprintf(out, cap, "true|false");
    else if (k->type == CONF_INT)
        snprintf(out, cap, "%.0f..%.0f", k->min, k->max);
    else if (k->type == CONF_F64)
        snprintf(out, cap, "%g..%g", k->min, k->max);
    else if (k->type == CONF_WORD)
        snprintf(out, cap, "%s", k->words);
    else
        snprintf(out, cap, "%s",
                 k->type == CONF_IP     ? "ADDRESS"
                 : k->type == CONF_NAME ? "NAME"
                                        : "TEXT");
}

static void row_text(char *left, size_t left_cap, struct buf *help, const struct row *r) {
    char value[256];
    value_word(value, sizeof(value), r);
    snprintf(left, left_cap, "%s %s", r->flag, value);
    if (r->key != NULL) buf_puts(help, r->key->help);
    if (r->key != NULL && r->key->must)
        buf_puts(help, "; must be given");
    else if (r->key != NULL && r->key->def[0] != '\0')
        buf_printf(help, " (default: %s)", r->key->def);
    if (r->key != NULL && r->key->type == CONF_LIST)
        buf_printf(help, "; up to %.0f times", r->key->max);
    buf_printf(help, " [%s]", r->path);
}

void conf_layers_help(FILE *to, const struct conf_layers *l) {
    char left[NAME_BYTES + 264];
    for (size_t i = 0; i < l->n; i++) {
        struct buf help = BUF_INIT;
        if (l->rows[i].key == NULL) buf_puts(&help, l->names->json_help);
        row_text(left, sizeof(left), &help, &l->rows[i]);
        cli_print_row(to, left, help.data != NULL ? help.data : "");
        buf_free(&help);
    }
}

void conf_layers_man(struct buf *out, const struct conf_layers *l) {
    char left[NAME_BYTES + 264];
    for (size_t i = 0; i < l->n; i++) {
        struct buf help = BUF_INIT;
        if (l->rows[i].key == NULL) buf_puts(&help, l->names->json_help);
        row_text(left, sizeof(left), &help, &l->rows[i]);
        cli_man_row(out, left, help.data != NULL ? help.data : "");
        buf_free(&help);
    }
}

void conf_layers_near(const struct conf_layers *l, struct cli_near *n) {
    for (size_t i = 0; i < l->n; i++) cli_near_show(n, l->rows[i].flag);
}

enum err conf_layers_read(struct conf_layers *l, const struct conf_reading *how, void *conf,
                          struct json_value *root, const char *file, struct errbuf *eb) {
    struct errbuf why = {0};
    enum err e = ERR_OK;
    if (!json_is(root, json_type_object))
        e = err_set(&why, ERR_BAD_CONFIG, "the configuration must be a JSON object");
    if (e == ERR_OK && how->normalise != NULL) how->normalise(root);
    if (e == ERR_OK) e = conf_layers_apply(l, root, file, &why);
    if (e == ERR_OK) e = how->fill(conf, root, &why);
    return e == ERR_OK ? e : conf_layers_blame(l, file, e, &why, eb);
}

enum err conf_layers_parse(const struct conf_reading *how, void *conf, const char *json, size_t n,
                           struct errbuf *eb) {
    struct json_value *root = NULL;
    struct conf_layers *l = NULL;
    enum err e = json_read(&root, json, n, NULL, eb);
    if (e != ERR_OK) return e;
    if ((e = conf_layers_create(&l, how->names)) != ERR_OK) e = err_set(eb, e, "out of memory");
    if (e == ERR_OK) e = conf_layers_env(l, eb);
    if (e == ERR_OK) e = conf_layers_read(l, how, conf, root, NULL, eb);
    conf_layers_free(&l);
    json_put(root);
    return e;
}

enum err conf_folder_of(const char *path, char *dir, size_t size, struct errbuf *eb) {
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const int n = slash == NULL ? snprintf(dir, size, ".")
                                : snprintf(dir, size, "%.*s", (int)(slash - path), path);
    if (n < 0 || (size_t)n >= size)
        return err_set(eb, ERR_BAD_CONFIG, "the path of the configuration file is too long");
    return ERR_OK;
}
