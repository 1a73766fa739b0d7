/* daemon_args: see daemon_args.h. */
#include "common/base/daemon_args.h"

#include <string.h>
#include "proto/json.h"

static void print_help(FILE *to, const struct daemon_cli *cli, const struct conf_layers *l) {
    fprintf(to, "usage: %s [-c FILE] [OPTION...] [SETTING...]\n%s\n\noptions\n", cli->name,
            cli->about);
    cli_print_options(to, cli->options);
    fprintf(to,
            "\nsettings: each is a flag, a variable of the environment (%s and the flag's\n"
            "name in capitals, with _ for each dash) and a key of the file (in brackets). A flag "
            "wins over\nthe environment, that over the file, that over the default. "
            "--print-config shows which it was.\n",
            cli->names->env_prefix);
    conf_layers_help(to, l);
}

static void print_man(const struct daemon_cli *cli, const struct conf_layers *l) {
    struct buf b = BUF_INIT;
    char name[64];
    snprintf(name, sizeof(name), "baton-%s", cli->name);
    cli_man_head(&b, name, 8, cli->about);
    buf_printf(&b, ".SH SYNOPSIS\n.B %s\n[\\-c FILE] [OPTION...] [SETTING...]\n.SH OPTIONS\n",
               name);
    cli_man_options(&b, cli->options);
    buf_puts(&b, ".SH SETTINGS\n");
    cli_man_text(&b, "Each is a flag, a variable of the environment and a key of the file (in "
                     "brackets). The variable is ");
    cli_man_text(&b, cli->names->env_prefix);
    cli_man_text(&b, " and the flag's name in capitals, with _ for each dash. A flag wins over the "
                     "environment, that over the file, that over the default.\n");
    conf_layers_man(&b, l);
    buf_puts(&b, ".SH EXIT STATUS\n0 when it was stopped in order; 1 when it failed; 2 when "
                 "settings are wrong or a file of them is missing.\n.SH SEE ALSO\nbatonctl(1)\n");
    fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
}

static void end(struct daemon_args *a, int status) {
    a->what = DAEMON_END;
    a->status = status;
}

static void unknown(struct daemon_args *a, const struct daemon_cli *cli, const char *word) {
    struct cli_near near;
    cli_near_start(&near, word);
    for (const struct cli_option *o = cli->options; o->flag != NULL; o++)
        cli_near_show(&near, o->flag);
    conf_layers_near(a->layers, &near);
    fprintf(stderr, "%s: unknown %s %s", cli->name, word[0] == '-' ? "option" : "argument", word);
    cli_near_print(stderr, &near);
    fprintf(stderr, " (%s --help lists all)\n", cli->name);
    end(a, 2);
}

/* What a program does instead of running is its main()'s affair, as the first argument. */
static bool is_for_main(const struct cli_option *o) {
    static const char *const ours[] = {"--config",       "--controller", "--check-config",
                                       "--print-config", "--facts",      "--version",
                                       "--help",         "--man"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (strcmp(o->flag, ours[i]) == 0) return false;
    return true;
}

/* An option of the program itself; false: it is none. */
static bool own_option(struct daemon_args *a, const struct daemon_cli *cli, int argc, char **argv,
                       int *i) {
    const struct cli_option *o = cli_find(cli->options, argv[*i]);
    const char *eq = strchr(argv[*i], '='), *value = NULL;
    if (o == NULL) return false;
    if (o->arg != NULL) {
        value = eq != NULL ? eq + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (value == NULL || value[0] == '\0') {
            fprintf(stderr, "%s: %s needs a %s\n", cli->name, o->flag, o->arg);
            end(a, 2);
            return true;
        }
    } else if (eq != NULL) {
        fprintf(stderr, "%s: %s takes no value\n", cli->name, o->flag);
        end(a, 2);
        return true;
    }
    if (strcmp(o->flag, "--config") == 0) a->config = value;
    if (strcmp(o->flag, "--controller") == 0) a->controller = value;
    if (strcmp(o->flag, "--check-config") == 0) a->what = DAEMON_CHECK;
    if (strcmp(o->flag, "--print-config") == 0) a->what = DAEMON_PRINT;
    if (strcmp(o->flag, "--facts") == 0) a->what = DAEMON_FACTS;
    if (strcmp(o->flag, "--version") == 0) a->what = DAEMON_VERSION;
    if (is_for_main(o)) {
        fprintf(stderr, "%s: %s must be the first argument\n", cli->name, o->flag);
        end(a, 2);
    }
    if (strcmp(o->flag, "--help") == 0) {
        print_help(stdout, cli, a->layers);
        end(a, 0);
    }
    if (strcmp(o->flag, "--man") == 0) {
        print_man(cli, a->layers);
        end(a, 0);
    }
    return true;
}

void daemon_args_read(struct daemon_args *a, const struct daemon_cli *cli, int argc, char **argv) {
    struct errbuf eb = {0};
    memset(a, 0, sizeof(*a));
    enum err e = conf_layers_create(&a->layers, cli->names);
    if (e != ERR_OK) {
        fprintf(stderr, "%s: out of memory\n", cli->name);
        end(a, 1);
        return;
    }
    for (int i = 1; i < argc && a->what < DAEMON_VERSION; i++) {
        bool taken = false;
        if (own_option(a, cli, argc, argv, &i)) continue;
        e = conf_layers_flag(a->layers, argc, argv, &i, &taken, &eb);
        if (e != ERR_OK) {
            fprintf(stderr, "%s: %s\n", cli->name, eb.text);
            end(a, 2);
        } else if (!taken) {
            unknown(a, cli, argv[i]);
        }
    }
    if (a->what >= DAEMON_VERSION) return;
    e = conf_layers_env(a->layers, &eb);
    if (e != ERR_OK) {
        fprintf(stderr, "%s: %s\n", cli->name, eb.text);
        end(a, 2);
    } else if (a->config == NULL && !conf_layers_any(a->layers)) {
        fprintf(stderr,
                "%s: no settings: -c FILE is missing, and no flag or variable says anything "
                "(%s --help)\n",
                cli->name, cli->name);
        end(a, 2);
    }
}

void daemon_args_free(struct daemon_args *a) {
    conf_layers_free(&a->layers);
}

int daemon_args_show(const struct daemon_args *a, const struct buf *conf) {
    struct json_value *root = NULL;
    struct buf out = BUF_INIT;
    int status = conf->failed ? 1 : 0;
    if (a->what == DAEMON_CHECK) {
        fwrite(conf->data, 1, conf->len, stdout);
        return status;
    }
    if (status != 0 || json_read(&root, conf->data, conf->len, NULL, NULL) != ERR_OK) return 1;
    conf_layers_print(&out, a->layers, root);
    json_put(root);
    if (!out.failed) fwrite(out.data, 1, out.len, stdout);
    status = out.failed ? 1 : 0;
    buf_free(&out);
    return status;
}
