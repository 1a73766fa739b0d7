/* ctl_help: help, completion and the manual page, from the table of commands. */
#include <stdio.h>
#include <string.h>
#include "common/base/build.h"
#include "tools/ctl/ctl.h"

static const char about[] = "runs and looks after a Baton cluster";

int ctl_usage(const struct ctl_command *o, FILE *to) {
    fprintf(to, "usage: batonctl %s%s%s%s\n%s\n", o->name, o->args[0] != '\0' ? " " : "", o->args,
            o->options != NULL ? " [OPTION...]" : "", o->help);
    if (o->options != NULL) {
        fprintf(to, "\noptions\n");
        cli_print_options(to, o->options);
    }
    if (!(o->kind & CTL_RAW)) {
        fprintf(to, "\noptions of every command\n");
        cli_print_options(to, ctl_options);
    }
    return to == stderr ? 2 : 0;
}

static int print_all(FILE *to) {
    fprintf(to,
            "usage: batonctl [OPTION...] COMMAND [ARGUMENT...]\nbatonctl %s; `baton` is the "
            "same program.\n\ncommands\n",
            about);
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++) {
        char left[128];
        snprintf(left, sizeof(left), "%s%s%s", o->name, o->args[0] != '\0' ? " " : "", o->args);
        cli_print_row(to, left, o->help);
    }
    fprintf(to, "\noptions of every command\n");
    cli_print_options(to, ctl_options);
    fprintf(to, "\n`batonctl help COMMAND` has a command's own options.\n");
    return to == stderr ? 2 : 0;
}

int ctl_cmd_help(struct ctl *c) {
    if (c->n_args == 0) return print_all(stdout);
    const struct ctl_command *o = ctl_find(c->args[0]);
    if (o != NULL) return ctl_usage(o, stdout);
    struct cli_near near;
    cli_near_start(&near, c->args[0]);
    for (o = ctl_commands; o->name != NULL; o++) cli_near_show(&near, o->name);
    return ctl_fail(c, 2, "unknown command %s%s%s", c->args[0],
                    near.best != NULL ? "; the nearest one is " : "",
                    near.best != NULL ? near.best : "");
}

int ctl_cmd_version(struct ctl *c) {
    if (!c->json) {
        build_print(stdout, c->name, NULL);
        return 0;
    }
    struct json_value *o = json_new_obj();
    json_obj_set(o, "name", json_new_str(c->name));
    json_obj_set(o, "version", json_new_str(BATON_VERSION));
    json_obj_set(o, "commit", json_new_str(build_commit()));
    json_obj_set(o, "compiler", json_new_str(build_compiler()));
    json_obj_set(o, "isa", json_new_str(build_isa()));
    printf("%s\n", json_to_text(o, 0, NULL));
    json_put(o);
    return 0;
}

/* ---- bash */

static void print_flags(const struct cli_option *rows) {
    for (; rows != NULL && rows->flag != NULL; rows++) printf("%s ", rows->flag);
}

static void print_case(const char *words, const struct cli_option *rows) {
    for (; rows != NULL && rows->flag != NULL; rows++) {
        if (rows->arg == NULL) continue;
        const bool file = strcmp(rows->arg, "FILE") == 0 || strcmp(rows->arg, "DIR") == 0;
        if (file)
            printf("        %s%s%s) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); "
                   "return ;;\n",
                   rows->flag, rows->brief != NULL ? "|" : "",
                   rows->brief != NULL ? rows->brief : "");
        else
            printf("        %s%s%s) return ;;\n", rows->flag, rows->brief != NULL ? "|" : "",
                   rows->brief != NULL ? rows->brief : "");
    }
    (void)words;
}

/* Words of a row's arguments: "prefill|decode|auto" is three. */
static void print_words(const char *words) {
    for (; *words != '\0'; words++) putchar(*words == '|' ? ' ' : *words);
}

int ctl_cmd_completion(struct ctl *c) {
    if (c->n_args > 0 && strcmp(c->args[0], "bash") != 0)
        return ctl_fail(c, 2, "SHELL must be bash, got \"%s\"", c->args[0]);
    printf(
        "# bash completion for batonctl and baton, made by `batonctl completion bash`\n"
        "_batonctl() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word command= "
        "i\n"
        "    COMPREPLY=()\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        word=${COMP_WORDS[i]}\n"
        "        case $word in\n"
        "        ");
    bool first = true;
    for (const struct cli_option *o = ctl_options; o->flag != NULL; o++) {
        if (o->arg == NULL) continue;
        printf("%s%s%s%s", first ? "" : "|", o->flag, o->brief != NULL ? "|" : "",
               o->brief != NULL ? o->brief : "");
        first = false;
    }
    printf(") i=$((i + 1)) ;;\n"
           "        -*) ;;\n"
           "        *) command=$word; break ;;\n"
           "        esac\n"
           "    done\n"
           "    case $prev in\n");
    print_case("", ctl_options);
    printf("    esac\n"
           "    case $command in\n"
           "    '') COMPREPLY=($(compgen -W \"");
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++) printf("%s ", o->name);
    print_flags(ctl_options);
    printf("\" -- \"$cur\")) ;;\n");
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++) {
        printf("    %s)\n        case $prev in\n", o->name);
        print_case(o->name, o->options);
        printf("        esac\n        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"");
        print_flags(o->options);
        print_flags(ctl_options);
        printf("\" -- \"$cur\"))\n");
        const bool names = strncmp(o->args, "NAME", 4) == 0 || strncmp(o->args, "[NAME", 5) == 0;
        const bool files = strncmp(o->args, "FILE", 4) == 0 || strncmp(o->args, "MODEL", 5) == 0;
        if (names) {
            printf(
                "        elif [[ $prev == \"$command\" ]]; then COMPREPLY=($(compgen -W \"$(\"$1\" "
                "status --json 2>/dev/null | grep -o '\"name\":\"[^\"]*\",\"address\"' | cut -d "
                "'\"' "
                "-f 4)\" -- \"$cur\"))\n");
            if (o->words != NULL) {
                printf("        else COMPREPLY=($(compgen -W \"");
                print_words(o->words);
                printf("\" -- \"$cur\"))\n");
            }
        } else if (files) {
            printf("        else compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\"))\n");
        } else if (o->words != NULL) {
            printf("        else COMPREPLY=($(compgen -W \"");
            print_words(o->words);
            printf("\" -- \"$cur\"))\n");
        } else if (strcmp(o->name, "help") == 0 || strcmp(o->name, "watch") == 0) {
            printf("        else COMPREPLY=($(compgen -W \"");
            for (const struct ctl_command *p = ctl_commands; p->name != NULL; p++)
                printf("%s ", p->name);
            printf("\" -- \"$cur\"))\n");
        }
        printf("        fi ;;\n");
    }
    printf("    esac\n}\ncomplete -F _batonctl batonctl baton\n");
    return 0;
}

/* ---- manual page */

int ctl_cmd_man(struct ctl *c) {
    struct buf b = BUF_INIT;
    (void)c;
    cli_man_head(&b, "batonctl", 1, about);
    buf_puts(&b,
             ".SH SYNOPSIS\n.B batonctl\n[OPTION...] COMMAND [ARGUMENT...]\n.br\n.B baton serve\n"
             "MODEL [\\-\\-split]\n.SH COMMANDS\n");
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++) {
        char left[128];
        snprintf(left, sizeof(left), "%s%s%s", o->name, o->args[0] != '\0' ? " " : "", o->args);
        cli_man_row(&b, left, o->help);
        if (o->options == NULL) continue;
        buf_puts(&b, ".RS\n");
        cli_man_options(&b, o->options);
        buf_puts(&b, ".RE\n");
    }
    buf_puts(&b, ".SH OPTIONS\n");
    cli_man_options(&b, ctl_options);
    buf_puts(&b, ".SH EXIT STATUS\n0: done; 1: it could not be done; 2: wrong arguments.\n"
                 ".SH SEE ALSO\nbaton\\-coordinator(8), baton\\-prefill(8), baton\\-decode(8)\n");
    fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
    return 0;
}
