/* daemon_args: the command line of a daemon: its configuration files, what is to be done with them,
 * and every key of its table as a flag. */
#ifndef BATON_BASE_DAEMON_ARGS_H
#define BATON_BASE_DAEMON_ARGS_H

#include "common/base/cli.h"
#include "common/base/conf_layers.h"

struct daemon_cli {
    const char *name;  /* "prefill" */
    const char *about; /* one sentence */
    const struct cli_option
        *options; /* DAEMON_OPTIONS and the program's own; ends with an empty row */
    const struct conf_names *names;
};

/* Rows that every daemon has. */
#define DAEMON_OPTIONS                                                                             \
    {"--check-config", NULL, NULL,                                                                 \
     "check all settings, print those in effect as a file, and end"},                              \
        {"--print-config", NULL, NULL,                                                             \
         "print the settings in effect, and where each value came from, and end"},                 \
        {"--facts", NULL, NULL,                                                                    \
         "print what GET /v1/facts would say, from configuration and files alone, and end "        \
         "(batonctl doctor)"},                                                                     \
        {"--version", NULL, NULL, "what this program was built from and of"},                      \
        {"--man", NULL, NULL, "print the manual page, as roff"}, {                                 \
        "--help", "-h", NULL, "this text"                                                          \
    }

enum daemon_do { DAEMON_RUN, DAEMON_CHECK, DAEMON_PRINT, DAEMON_FACTS, DAEMON_VERSION, DAEMON_END };

struct daemon_args {
    enum daemon_do what;
    int status;             /* of DAEMON_END */
    const char *config;     /* --config; NULL: flags and environment say all */
    const char *controller; /* --controller, of a program that has it */
    struct conf_layers *layers;
};

/* Reads the command line and the environment. What is wrong is printed to stderr, with the nearest
 * name of a mistyped option; then, and after --help and --man, a->what is DAEMON_END. */
void daemon_args_read(struct daemon_args *a, const struct daemon_cli *cli, int argc, char **argv);
void daemon_args_free(struct daemon_args *a);

/* What --check-config and --print-config print; `conf` is what conf_print() made. Returns the exit
 * status. */
int daemon_args_show(const struct daemon_args *a, const struct buf *conf);

#endif
