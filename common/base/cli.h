/* cli: command lines as tables. A row is an option: help, man pages, completion and the message
 * about a mistyped one all walk the same rows. */
#ifndef BATON_BASE_CLI_H
#define BATON_BASE_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "common/base/buf.h"

struct cli_option {
    const char *flag;  /* "--config" */
    const char *brief; /* "-c", or NULL */
    const char *arg;   /* "FILE"; NULL: it takes none */
    const char *help;
};

enum { CLI_HELP_COLUMN = 34, CLI_WIDTH = 100 };

/* Of a table that ends with a row without a flag, the row that `word` names, up to its '='; NULL:
 * none does. */
const struct cli_option *cli_find(const struct cli_option *rows, const char *word);

/* Options that all have a value, beside one word without a flag. */
struct cli_value {
    const char *flag;
    const char **to; /* NULL until it is given */
};
/* Reads argv into them and *word, which is `what` in messages. False: what is wrong was said on
 * stderr; *word may be NULL all the same. */
bool cli_read_values(const struct cli_value *rows, size_t n, const char **word, const char *what,
                     int argc, char **argv);

/* The name nearest to a mistyped one, found by showing it every name there is. */
struct cli_near {
    const char *word; /* up to a '=' */
    const char *best; /* NULL: none is near */
    size_t distance;
};
void cli_near_start(struct cli_near *n, const char *word);
void cli_near_show(struct cli_near *n, const char *name); /* it must live as long as n->best */
/* "; did you mean NAME?", or nothing. */
void cli_near_print(FILE *to, const struct cli_near *n);
/* One line on stderr: the program has no such option, and which of its table is near. */
void cli_no_option(const char *program, const struct cli_option *rows, const char *word);

/* "  --flag ARG      help", the help in a column of its own and wrapped. */
void cli_print_row(FILE *to, const char *left, const char *help);
void cli_print_options(FILE *to, const struct cli_option *rows);

/* Text of a man page: what roff would take for its own is escaped. */
void cli_man_text(struct buf *out, const char *text);
void cli_man_head(struct buf *out, const char *name, int section, const char *about);
void cli_man_row(struct buf *out, const char *left, const char *help);
void cli_man_options(struct buf *out, const struct cli_option *rows);

#endif
