/* conf_layers: the settings of a table (conf.h) from where else than its file they may come, and
 * which of these each one came from. A flag wins over the environment, that over the file, that
 * over the default.
 *
 * Every key has a flag and a variable of the environment. Their names are its last segment, or as
 * many of the last ones as no other key ends with: "BackendConfig.ScheduleConfig.maxBatchSize" is
 * --max-batch-size and, with the prefix BATON_INSTANCE_, BATON_INSTANCE_MAX_BATCH_SIZE. A flag may
 * also be the whole key (--BackendConfig.ScheduleConfig.maxBatchSize).
 *
 * Thread: one. What is given is checked against its row at once; errors name flag or variable, key,
 * value and range. */
#ifndef BATON_BASE_CONF_LAYERS_H
#define BATON_BASE_CONF_LAYERS_H

#include <stdio.h>
#include "common/base/cli.h"
#include "common/base/conf.h"

struct conf_alias {
    const char *env, *path; /* a variable of another system's, and the key it stands for */
};

struct conf_names {
    const char *env_prefix; /* "BATON_INSTANCE_" */
    const struct conf_key *keys;
    size_t n_keys;
    const struct conf_alias *aliases; /* ends with a NULL variable */
    /* A key without a row, that takes JSON as it is; or NULL. */
    const char *json_path, *json_help;
};

struct conf_layers;

/* names must live as long. */
enum err conf_layers_create(struct conf_layers **out, const struct conf_names *names);
void conf_layers_free(struct conf_layers **l);

/* Takes the variables of the environment, after the flags; "" counts as not there. Unknown ones
 * with the prefix are logged with the nearest that is known. */
enum err conf_layers_env(struct conf_layers *l, struct errbuf *eb);

/* Takes argv[*i], and its value behind it, when it is the flag of a key, and leaves *i at the last
 * one it took. *taken false: it is none. A list may be given several times, or as a JSON array; of
 * a boolean the flag alone stands for true, and with no- before its name for false. */
enum err conf_layers_flag(struct conf_layers *l, int argc, char **argv, int *i, bool *taken,
                          struct errbuf *eb);

/* Something was set by flag or environment. */
bool conf_layers_any(const struct conf_layers *l);

/* Puts what was set into root, the tree of `file` (NULL: there is none). What lies in the way there
 * is left for conf_read() to refuse. ERR_NO_MEMORY. */
enum err conf_layers_apply(struct conf_layers *l, struct json_value *root, const char *file,
                           struct errbuf *eb);

/* How a daemon's configuration comes out of a tree. */
struct conf_reading {
    const struct conf_names *names;
    void (*normalise)(struct json_value *root); /* older forms of the file; or NULL */
    enum err (*fill)(void *conf, struct json_value *root, struct errbuf *eb);
};

/* Fills conf from root, the tree of `file` (NULL: there is none), with what was set elsewhere put
 * over it. Errors say where the value in them came from. */
enum err conf_layers_read(struct conf_layers *l, const struct conf_reading *how, void *conf,
                          struct json_value *root, const char *file, struct errbuf *eb);

/* The same of a text, json [n], and the variables of the environment. */
enum err conf_layers_parse(const struct conf_reading *how, void *conf, const char *json, size_t n,
                           struct errbuf *eb);

/* The folder that paths in the file are relative to: dir [size], "." where path is NULL. */
enum err conf_folder_of(const char *path, char *dir, size_t size, struct errbuf *eb);

/* An error of conf_read() or of a rule between keys, with where the value in it came from before
 * it. */
enum err conf_layers_blame(const struct conf_layers *l, const char *file, enum err e,
                           const struct errbuf *why, struct errbuf *eb);

/* "KEY = VALUE  # from" for each key of `printed`, what conf_print() made of the settings in
 * effect. */
void conf_layers_print(struct buf *out, const struct conf_layers *l,
                       const struct json_value *printed);

/* Every flag, its range, default, sentence and variable. */
void conf_layers_help(FILE *to, const struct conf_layers *l);
void conf_layers_man(struct buf *out, const struct conf_layers *l);
void conf_layers_near(const struct conf_layers *l, struct cli_near *n);

/* Row i of the table, for whoever describes it: "--max-batch-size"; NULL: there is none so far. */
const char *conf_layers_flag_name(const struct conf_layers *l, size_t i);

#endif
