/* cli: see cli.h. */
#include "common/base/cli.h"

#include <string.h>
#include "common/base/build.h"
#include "common/base/near_text.h"

static size_t name_len(const char *word) {
    return strcspn(word, "=");
}

const struct cli_option *cli_find(const struct cli_option *rows, const char *word) {
    for (; rows->flag != NULL; rows++) {
        const size_t n = name_len(word);
        if (rows->brief != NULL && strcmp(rows->brief, word) == 0) return rows;
        if (strlen(rows->flag) == n && memcmp(rows->flag, word, n) == 0) return rows;
    }
    return NULL;
}

void cli_near_start(struct cli_near *n, const char *word) {
    *n = (struct cli_near){.word = word};
    const size_t len = name_len(word);
    n->distance = len < 4 ? 2 : len < 12 ? 3 : len / 3; /* from there on nothing is near */
}

void cli_near_show(struct cli_near *n, const char *name) {
    const size_t d = near_distance(n->word, name_len(n->word), name, strlen(name));
    if (d >= n->distance) return;
    n->best = name;
    n->distance = d;
}

void cli_near_print(FILE *to, const struct cli_near *n) {
    if (n->best != NULL) fprintf(to, "; did you mean %s?", n->best);
}

void cli_no_option(const char *program, const struct cli_option *rows, const char *word) {
    struct cli_near near;
    cli_near_start(&near, word);
    for (const struct cli_option *r = rows; r->flag != NULL; r++) cli_near_show(&near, r->flag);
    fprintf(stderr, "%s: there is no option %s", program, word);
    cli_near_print(stderr, &near);
    fputs("; --help lists them\n", stderr);
}

/* Writes text from `column` on, in lines of CLI_WIDTH. */
static void print_wrapped(FILE *to, const char *text, size_t column) {
    size_t at = column;
    for (bool first = true; *text != '\0'; first = false) {
        const size_t n = strcspn(text, " ");
        if (!first && at + 1 + n > CLI_WIDTH) {
            fprintf(to, "\n%*s", (int)column, "");
            at = column;
        } else if (!first) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", (int)n, text);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

void cli_print_row(FILE *to, const char *left, const char *help) {
    const size_t n = strlen(left) + 2;
    fprintf(to, "  %s", left);
    if (n + 2 > CLI_HELP_COLUMN)
        fprintf(to, "\n%*s", CLI_HELP_COLUMN, "");
    else
        fprintf(to, "%*s", (int)(CLI_HELP_COLUMN - n), "");
    print_wrapped(to, help, CLI_HELP_COLUMN);
}

static void left_of(char *left, size_t cap, const struct cli_option *o) {
    snprintf(left, cap, "%s%s%s%s%s", o->brief != NULL ? o->brief : "",
             o->brief != NULL ? ", " : "", o->flag, o->arg != NULL ? " " : "",
             o->arg != NULL ? o->arg : "");
}

void cli_print_options(FILE *to, const struct cli_option *rows) {
    char left[128];
    for (; rows->flag != NULL; rows++) {
        left_of(left, sizeof(left), rows);
        cli_print_row(to, left, rows->help);
    }
}

void cli_man_text(struct buf *out, const char *text) {
    bool line_begins = out->len == 0 || out->data[out->len - 1] == '\n';
    for (; *text != '\0'; text++) {
        if (line_begins && (*text == '.' || *text == '\'')) buf_puts(out, "\\&");
        if (*text == '\\')
            buf_puts(out, "\\e");
        else if (*text == '-')
            buf_puts(out, "\\-");
        else if (*text == '|' || (*text == '.' && text[1] > ' ')) /* a line may end behind it */
            buf_printf(out, "%c\\:", *text);
        else
            buf_putc(out, *text);
        line_begins = *text == '\n';
    }
}

/* No day stands in it, so that the same sources give the same page. */
void cli_man_head(struct buf *out, const char *name, int section, const char *about) {
    buf_printf(out, ".TH \"");
    for (const char *p = name; *p != '\0'; p++)
        buf_putc(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
    buf_printf(out, "\" %d \"\" \"Baton %s\" \"Baton\"\n.ad l\n.nh\n.SH NAME\n", section,
               BATON_VERSION);
    cli_man_text(out, name);
    buf_puts(out, " \\- ");
    cli_man_text(out, about);
    buf_putc(out, '\n');
}

void cli_man_row(struct buf *out, const char *left, const char *help) {
    buf_puts(out, ".TP\n.B ");
    cli_man_text(out, left);
    buf_putc(out, '\n');
    cli_man_text(out, help);
    buf_putc(out, '\n');
}

void cli_man_options(struct buf *out, const struct cli_option *rows) {
    char left[128];
    for (; rows->flag != NULL; rows++) {
        left_of(left, sizeof(left), rows);
        cli_man_row(out, left, rows->help);
    }
}

static bool take_value(const struct cli_value *o, int argc, char **argv, int *i) {
    if (*o->to != NULL)
        fprintf(stderr, "%s is given twice\n", o->flag);
    else if (*i + 1 == argc)
        fprintf(stderr, "%s needs a value\n", o->flag);
    else
        *o->to = argv[++*i];
    return *o->to == argv[*i];
}

bool cli_read_values(const struct cli_value *rows, size_t n, const char **word, const char *what,
                     int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        size_t k = 0;
        while (k < n && strcmp(argv[i], rows[k].flag) != 0) k++;
        if (k < n) {
            if (!take_value(&rows[k], argc, argv, &i)) return false;
        } else if (argv[i][0] == '-') {
            struct cli_near near;
            cli_near_start(&near, argv[i]);
            for (k = 0; k < n; k++) cli_near_show(&near, rows[k].flag);
            fprintf(stderr, "unknown option %s", argv[i]);
            cli_near_print(stderr, &near);
            fputc('\n', stderr);
            return false;
        } else if (*word != NULL) {
            fprintf(stderr, "one %s is wanted, got %s as well\n", what, argv[i]);
            return false;
        } else {
            *word = argv[i];
        }
    }
    return true;
}
