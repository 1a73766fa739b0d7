/* batonctl: the table of commands, and a command line read by it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/log.h"
#include "common/net/tls.h"
#include "tools/ctl/ctl.h"

#define END                                                                                        \
    { NULL, NULL, NULL, NULL }

const struct cli_option ctl_options[] = {
    {"--manage", "-m", "URL",
     "management plane of the coordinator ($BATON_MANAGE; else that of this user's `baton serve`, "
     "else http://127.0.0.1:1026)"},
    {"--ca", NULL, "FILE", "for an https URL: the CA of the management plane (PEM; $BATON_CA)"},
    {"--cert", NULL, "FILE", "our certificate, of mode 0400 ($BATON_CERT)"},
    {"--key", NULL, "FILE", "its key, of mode 0400 ($BATON_KEY)"},
    {"--pass", NULL, "FILE",
     "the file with the key's password, when it is encrypted ($BATON_PASS)"},
    {"--peer-name", NULL, "NAME",
     "the name that the server's certificate must have, where it is not that of the URL "
     "($BATON_PEER_NAME)"},
    {"--json", NULL, NULL, "JSON instead of tables and sentences"},
    {"--version", NULL, NULL, "what this program was built from and of"},
    {"--help", "-h", NULL, "this text, or that of a command"},
    END,
};

static const struct cli_option force[] = {
    {"--force", NULL, NULL, "also the last instance of its role"}, END};
static const struct cli_option role[] = {
    {"--for", NULL, "SECONDS", "for so long; then it goes back (1 to 604800)"},
    {"--force", NULL, NULL, "also the last instance of its role"},
    {"--dry-run", NULL, NULL, "says what would follow, and changes nothing"},
    END};
static const struct cli_option join[] = {
    {"--port", NULL, "PORT", "its business plane (default: the port before ADDRESS's)"},
    {"--metrics-port", NULL, "PORT", "its metrics plane (default: ADDRESS's)"},
    {"--kv-port", NULL, "PORT", "its KV links (default: 1121)"},
    {"--role", NULL, "ROLE",
     "what it is to be rather: prefill or decode (default: as the ratio has it)"},
    END};
static const struct cli_option leave[] = {
    {"--force", NULL, NULL, "also the last instance of its role"},
    {"--timeout", NULL, "SECONDS", "how long to wait until it is empty (default: 330)"},
    END};
static const struct cli_option plan[] = {
    {"--dry-run", NULL, NULL, "nothing else: it never changes anything"}, END};
static const struct cli_option upgrade[] = {
    {"--rolling", NULL, NULL, "one by one: the way there is"},
    {"--run", NULL, "COMMAND",
     "restarts the instance of $BATON_NAME, $BATON_ROLE, $BATON_ADDRESS and $BATON_MANAGEMENT; a "
     "shell runs it"},
    {"--timeout", NULL, "SECONDS", "for draining, and for serving again (default: 900)"},
    {"--force", NULL, NULL,
     "also the last instance of its role: its requests wait or end meanwhile"},
    END};
static const struct cli_option watch[] = {
    {"--every", NULL, "SECONDS", "between two looks (default: 2)"},
    {"--count", NULL, "N", "so many looks (default: until it is ended)"},
    END};
static const struct cli_option top[] = {
    {"--every", NULL, "SECONDS", "between two looks (default: 1)"},
    {"--count", NULL, "N",
     "so many tables (default: until it is ended; one where there is no terminal)"},
    END};
static const struct cli_option levels[] = {
    {"--on", NULL, "NAME", "of this instance"},
    {"--minutes", NULL, "N", "for so long (default: two hours; 0: as long as it runs)"},
    END};
static const struct cli_option logs[] = {
    {"--follow", "-f", NULL, "goes on with what is added"},
    {"--lines", "-n", "N", "so many of the last lines (default: 20)"},
    END};
static const struct cli_option probe[] = {
    {"--timeout", NULL, "SECONDS", "for the answer (default: 5)"}, END};
static const struct cli_option doctor[] = {
    {"--offline", NULL, NULL, "asks no node: what configuration files and this machine say"},
    {"--measure", NULL, NULL,
     "instances measure too, one after the other: memory, processor, and their KV links"},
    END};
static const struct cli_option advise[] = {
    {"--instances", NULL, "N",
     "instances of the cluster, 1 to 64 (default: 2; of a cluster its own)"},
    {"--per-machine", NULL, "N",
     "so many of them share a machine: they are measured at once, each on its part of the cores "
     "(default: 1)"},
    {"--dtypes", NULL, "LIST", "types of weights to measure, with commas (default: bf16,int8)"},
    {"--seconds", NULL, "N", "that a measurement takes (default: 8)"},
    {"--no-ways", NULL, NULL,
     "what lies between clients and engines is not measured, and takes no time; else a prefill and "
     "a "
     "decode instance are started for it, and the forecast is held against a run of them"},
    {"--clients-here", NULL, NULL,
     "clients are on the machine of the instances too: their processor time counts"},
    {"--abilities", NULL, "FILE",
     "what an instance says at /v2/status, or a measurement printed, instead of a MODEL"},
    {"--slots", NULL, "N", "sequences that an instance decodes at a time (default: 32)"},
    {"--link", NULL, "X",
     "bytes a second of KV from one instance to another (default: as hand-overs have had, or as "
     "measured; 1e9 where no two instances can be asked)"},
    {"--ttft-goal", NULL, "MS", "target for the first token (default: 1000)"},
    {"--gap-goal", NULL, "MS", "target for the mean time per further token (default: 50)"},
    {"--rate", "-r", "R", "R requests a second (default: 1)"},
    {"--arrivals", NULL, "KIND", "poisson, even, or bursty (default: poisson)"},
    {"--in", "-i", "N[:M]", "tokens of a prompt, N to M (default: 512)"},
    {"--out", "-o", "N[:M]", "tokens of an answer, N to M (default: 128)"},
    {"--requests", NULL, "N", "so many requests (default: 1000; of a trace all)"},
    {"--trace", NULL, "FILE", "instead: Azure's CSV or Mooncake's JSONL, also compressed by gzip"},
    {"--time-scale", NULL, "X", "times of a trace are multiplied by X (default: 1)"},
    {"--length-scale", NULL, "X", "lengths of a trace are multiplied by X (default: 1)"},
    {"--seed", NULL, "N", "the same seed gives the same load (default: 1)"},
    END};
static const struct cli_option serve[] = {
    {"--split", NULL, NULL,
     "a coordinator, a prefill and a decode instance instead of one instance"},
    {"--instances", NULL, "N",
     "so many instances behind a coordinator, 1 to 16, each on its part of the cores (default: 1); "
     "with --split half of them prefill, half decode (default: 2)"},
    {"--host", NULL, "ADDRESS", "address for clients (default: 127.0.0.1; others are without TLS)"},
    {"--port", NULL, "PORT", "port for clients (default: 1025, or the next that is free)"},
    {"--name", NULL, "NAME",
     "what clients call the model (default: the name of its folder or file)"},
    {"--context", NULL, "TOKENS", "tokens of prompt and answer together (default: 4096)"},
    {"--threads", NULL, "N",
     "threads that compute, of all instances together (default: one a core)"},
    END};

const struct ctl_command ctl_commands[] = {
    {"serve", "MODEL",
     "serves a model on this machine without any configuration, until Ctrl-C; MODEL is a folder, a "
     "GGUF file or a bundled model's name; what follows -- are settings of the instances",
     serve, 1, 1, CTL_LOCAL, ctl_cmd_serve, NULL},
    {"status", "", "the cluster: instances, links, last requests", NULL, 0, 0, 0, ctl_cmd_status,
     NULL},
    {"top", "", "instances and rates as a live table", top, 0, 0, 0, ctl_cmd_top, NULL},
    {"watch", "[COMMAND...]", "shows a command again and again (default: status)", watch, 0, 0,
     CTL_RAW, ctl_cmd_watch, NULL},
    {"request", "[ID]", "the way of a request: P, D, KV moved, attempts (default: the last one)",
     NULL, 0, 1, 0, ctl_cmd_request, ""},
    {"plan", "", "what the planner would change, now or later, and why; changes nothing", plan, 0,
     0, 0, ctl_cmd_plan, NULL},
    {"alarms", "", "the last alarms, newest first", NULL, 0, 0, 0, ctl_cmd_alarms, NULL},
    {"role", "NAME prefill|decode|auto",
     "changes the role of an instance; auto: the one that it had before --for", role, 2, 2, 0,
     ctl_cmd_role, "prefill|decode|auto"},
    {"drain", "NAME", "gives it no new work; what it has ends there, or goes on elsewhere", force,
     1, 1, 0, ctl_cmd_drain, NULL},
    {"undrain", "NAME", "gives it work again", NULL, 1, 1, 0, ctl_cmd_undrain, NULL},
    {"join", "ADDRESS",
     "makes an instance known that neither registers nor stands in the rank table; ADDRESS is "
     "IPV4:PORT of its management plane",
     join, 1, 1, 0, ctl_cmd_join, ""},
    {"leave", "NAME", "drains it, waits until it is empty, and forgets it", leave, 1, 1, 0,
     ctl_cmd_leave, NULL},
    {"upgrade", "[NAME...]",
     "restarts instances (default: all) with a command, one by one, each drained before and waited "
     "for afterwards",
     upgrade, 0, CTL_ARGS_MAX, 0, ctl_cmd_upgrade, NULL},
    {"reload", "[NAME]",
     "reads certificates, keys and the rank table again: of the coordinator, or of an instance",
     NULL, 0, 1, 0, ctl_cmd_reload, NULL},
    {"log", "[LEVEL [AREA]]",
     "levels of the log of the coordinator, or of an instance: shows them, or sets that of an area "
     "(\"relay\", \"kv\"; default: of all) to debug, info, warn, error, none or default",
     levels, 0, 2, 0, ctl_cmd_log, "debug|info|warn|error|none|default"},
    {"logs", "[NAME]", "the logs of this user's `baton serve`, or of the machine's units", logs, 0,
     1, CTL_LOCAL, ctl_cmd_logs, NULL},
    {"check", "FILE...", "checks configuration files and rank tables as a start would", NULL, 1,
     CTL_ARGS_MAX, CTL_LOCAL, ctl_cmd_check, NULL},
    {"probe", "startup|ready|live [URL]",
     "asks one daemon whether it has started, serves, or lives, and ends with 0 or 1: for exec "
     "probes and health checks of containers; URL is that of a plane of an instance, or of a "
     "coordinator's status or management plane (default: $BATON_PROBE_URL, else as of --manage)",
     probe, 1, 2, CTL_LOCAL, ctl_cmd_probe, "startup|ready|live"},
    {"doctor", "[FILE...]",
     "looks for what is wrong in and between the nodes of the configuration files, or of the "
     "coordinator, and says what to do about it",
     doctor, 0, CTL_ARGS_MAX, CTL_LOCAL, ctl_cmd_doctor, NULL},
    {"advise", "[MODEL]",
     "whether to split, how many instances of each role, and in which type, for a load: measured "
     "here with MODEL, or by the instances of the coordinator, and simulated",
     advise, 0, 1, CTL_LOCAL, ctl_cmd_advise, ""},
    {"inspect", "MODEL [--context TOKENS] [--slots N] [--dtype TYPE] [--kv TYPE] [--kernels SET]",
     "what a model is, the memory it needs, whether it fits here", NULL, 0, 0, CTL_RAW | CTL_LOCAL,
     ctl_cmd_inspect, NULL},
    {"quantize", "MODEL --dtype auto|bf16|f32|int8|int4 [--out DIR] [--kernels SET] [--threads N]",
     "packs a model's weights for later starts on this kind of CPU", NULL, 0, 0,
     CTL_RAW | CTL_LOCAL, ctl_cmd_quantize, NULL},
    {"help", "[COMMAND]", "this text, or that of a command", NULL, 0, 1, CTL_LOCAL, ctl_cmd_help,
     NULL},
    {"completion", "bash", "prints the completion of a shell: source <(batonctl completion bash)",
     NULL, 0, 1, CTL_LOCAL, ctl_cmd_completion, "bash"},
    {"man", "", "prints the manual page, as roff", NULL, 0, 0, CTL_LOCAL, ctl_cmd_man, NULL},
    {"version", "", "what this program was built from and of", NULL, 0, 0, CTL_LOCAL,
     ctl_cmd_version, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL},
};

const struct ctl_command *ctl_find(const char *name) {
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++)
        if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

const char *ctl_option(const struct ctl *c, const char *flag) {
    for (int i = 0; i < c->n_given; i++)
        if (strcmp(c->given[i].option->flag, flag) == 0) return c->given[i].value;
    return NULL;
}

bool ctl_number(const struct ctl *c, const char *flag, long min, long max, long *out) {
    const char *text = ctl_option(c, flag);
    if (text == NULL) return true;
    char *end;
    const long v = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || strlen(text) > 18 || v < min || v > max) {
        ctl_fail(c, 2, "%s must be a number from %ld to %ld, got %s", flag, min, max, text);
        return false;
    }
    *out = v;
    return true;
}

bool ctl_decimal(const struct ctl *c, const char *flag, double min, double max, double *out) {
    const char *text = ctl_option(c, flag);
    if (text == NULL) return true;
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= min && v <= max)) {
        ctl_fail(c, 2, "%s must be a number from %.10g to %.10g, got %s", flag, min, max, text);
        return false;
    }
    *out = v;
    return true;
}

/* ---- the command line */

static int unknown_option(struct ctl *c, const char *word) {
    struct cli_near near;
    cli_near_start(&near, word);
    const struct cli_option *own = c->command != NULL ? c->command->options : NULL;
    for (; own != NULL && own->flag != NULL; own++) cli_near_show(&near, own->flag);
    for (own = ctl_options; own->flag != NULL; own++) cli_near_show(&near, own->flag);
    return ctl_fail(c, 2, "unknown option %s%s%s%s", word,
                    near.best != NULL ? "; did you mean " : "", near.best != NULL ? near.best : "",
                    near.best != NULL ? "?" : "");
}

static int unknown_command(struct ctl *c, const char *word) {
    struct cli_near near;
    cli_near_start(&near, word);
    for (const struct ctl_command *o = ctl_commands; o->name != NULL; o++)
        cli_near_show(&near, o->name);
    return ctl_fail(c, 2, "unknown command %s%s%s%s (%s help lists all)", word,
                    near.best != NULL ? "; did you mean " : "", near.best != NULL ? near.best : "",
                    near.best != NULL ? "?" : "", c->name);
}

/* Takes argv[*i], and its value. Returns 0, or the exit status. */
static int take_option(struct ctl *c, int argc, char **argv, int *i) {
    const char *word = argv[*i], *eq = strchr(word, '='), *value = "";
    const struct cli_option *o = cli_find(ctl_options, word);
    if (o == NULL && c->command != NULL && c->command->options != NULL)
        o = cli_find(c->command->options, word);
    if (o == NULL) return unknown_option(c, word);
    if (ctl_option(c, o->flag) != NULL) return ctl_fail(c, 2, "%s is given twice", o->flag);
    if (o->arg == NULL && eq != NULL) return ctl_fail(c, 2, "%s takes no value", o->flag);
    if (o->arg != NULL) {
        value = eq != NULL ? eq + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (value == NULL) return ctl_fail(c, 2, "%s needs a %s", o->flag, o->arg);
    }
    if (c->n_given == CTL_OPTIONS_MAX)
        return ctl_fail(c, 2, "more than %d options", CTL_OPTIONS_MAX);
    c->given[c->n_given].option = o;
    c->given[c->n_given++].value = value;
    if (strcmp(o->flag, "--json") == 0) c->json = true;
    return 0;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int take_words(struct ctl *c, int argc, char **argv) {
    int i = 0, rc = 0;
    while (rc == 0 && i < argc) {
        const bool is_option = argv[i][0] == '-' && argv[i][1] != '\0';
        if (strcmp(argv[i], "--") == 0) {
            c->argc = argc - i - 1;
            c->argv = argv + i + 1;
            break;
        }
        if (is_option) {
            rc = take_option(c, argc, argv, &i);
            i++;
        } else if (c->command == NULL) {
            if ((c->command = ctl_find(argv[i])) == NULL) return unknown_command(c, argv[i]);
            i++;
            if ((c->command->kind & CTL_RAW) && !(i < argc && is_help(argv[i]))) {
                c->argc = argc - i;
                c->argv = argv + i;
                return 0;
            }
        } else {
            const int max = c->command->args_max;
            if (c->n_args >= max)
                return ctl_fail(c, 2, "%s takes %s, got %s as well", c->command->name,
                                max > 0 ? c->command->args : "no argument", argv[i]);
            c->args[c->n_args++] = argv[i++];
        }
    }
    return rc;
}

void ctl_choose_base(struct ctl *c) {
    const char *said = ctl_option(c, "--manage"), *env = getenv("BATON_MANAGE");
    char dir[512];
    if (said == NULL && env != NULL && env[0] != '\0') said = env;
    c->base_by_default = said == NULL;
    snprintf(c->base_text, sizeof(c->base_text), "http://127.0.0.1:1026");
    if (said == NULL) {
        struct json_value *served = ctl_served(dir);
        if (served != NULL && ctl_str(served, "manage")[0] != '\0')
            snprintf(c->base_text, sizeof(c->base_text), "%s", ctl_str(served, "manage"));
        json_put(served);
    }
    c->base = said != NULL ? said : c->base_text;
}

int ctl_run_words(struct ctl *c, int argc, char **argv) {
    c->command = NULL;
    c->n_args = c->argc = 0;
    int rc = take_words(c, argc, argv);
    if (rc != 0) return rc;
    if (ctl_option(c, "--version") != NULL) return ctl_cmd_version(c);
    if (ctl_option(c, "--help") != NULL) {
        if (c->command != NULL) return ctl_usage(c->command, stdout);
        return ctl_cmd_help(c);
    }
    if (c->command == NULL) {
        fprintf(stderr, "%s: a command is missing (%s help lists all)\n", c->name, c->name);
        return 2;
    }
    const bool settings = c->command->run == ctl_cmd_serve;
    if (c->argc > 0 && !settings && !(c->command->kind & CTL_RAW))
        return ctl_fail(c, 2, "%s takes nothing behind --", c->command->name);
    if (c->n_args < c->command->args_min) {
        ctl_fail(c, 2, "%s needs %s", c->command->name, c->command->args);
        return 2;
    }
    if (c->command->kind & CTL_LOCAL) return c->command->run(c);
    if (c->base == NULL) ctl_choose_base(c);
    return ctl_open(c) ? c->command->run(c) : 2;
}

int main(int argc, char **argv) {
    struct ctl c = {.name = "batonctl"};
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    if (argc > 0 && strcmp(slash != NULL ? slash + 1 : argv[0], "baton") == 0) c.name = "baton";
    log_init(LOG_ERROR, 2);
    const int rc = argc > 0 ? ctl_run_words(&c, argc - 1, argv + 1) : 2;
    tls_close(&c.tls);
    return rc;
}
