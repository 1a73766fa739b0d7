/* ctl: one tool as a table of commands. A row is a command: its name, arguments, options, help and
 * function; help, completion, the manual page and the message about a mistyped one walk the same
 * table. Thread: one. */
#ifndef BATON_TOOLS_CTL_H
#define BATON_TOOLS_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "common/base/buf.h"
#include "common/base/cli.h"
#include "proto/json.h"

struct tls;
struct ctl;

enum { CTL_ARGS_MAX = 8, CTL_OPTIONS_MAX = 32 };
enum {
    CTL_LOCAL = 1, /* it asks no coordinator */
    CTL_RAW = 2,   /* all behind the name is the affair of run(), in c->argc and c->argv */
};

struct ctl_command {
    const char *name, *args, *help;   /* args: "NAME prefill|decode|auto"; "": none */
    const struct cli_option *options; /* of its own, beside those of the table; NULL: none */
    int args_min, args_max;
    unsigned kind; /* of CTL_* */
    int (*run)(struct ctl *c);
    const char
        *words; /* what its first argument may be, for completion; NULL: names of instances */
};

/* One command line. */
struct ctl {
    const char *name; /* "batonctl", or "baton" */
    const struct ctl_command *command;
    const char *args[CTL_ARGS_MAX];
    int n_args;
    struct {
        const struct cli_option *option;
        const char *value; /* "" where it takes none */
    } given[CTL_OPTIONS_MAX];
    int n_given;
    int argc; /* what stands behind the name of a CTL_RAW, or behind "--" */
    char **argv;
    bool json;

    const char *base; /* management plane of the coordinator */
    char base_text[160];
    bool base_by_default; /* nobody said which */
    struct tls *tls;      /* NULL: plain */
    unsigned timeout_ms;  /* of an answer; 0: as usual */
};

extern const struct ctl_command ctl_commands[]; /* ends with a NULL name */
extern const struct cli_option ctl_options[];   /* of all commands */

/* The value of an option, "" where it takes none; NULL: it was not given. */
const char *ctl_option(const struct ctl *c, const char *flag);
/* A whole number in an option; false: it is another, and that was said. Absent: *out stays. */
bool ctl_number(const struct ctl *c, const char *flag, long min, long max, long *out);
/* The same of any number. */
bool ctl_decimal(const struct ctl *c, const char *flag, double min, double max, double *out);
/* Runs one command line behind the program's name, the connection as c has it already. */
int ctl_run_words(struct ctl *c, int argc, char **argv);
/* "batonctl: " and a line on stderr; with --json the line as {"error":...} on stdout too. Returns
 * 1, or the status that is asked for. */
int ctl_fail(const struct ctl *c, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const struct ctl_command *ctl_find(const char *name);

/* ---- ctl_ask.c: the coordinator's answers */
struct ctl_answer {
    int status; /* 0: there is none, and that was said */
    char *body;
    size_t len;
};
/* method, path and body of one request; false: no answer. With *quiet* nothing is said then. */
bool ctl_ask(const struct ctl *c, const char *method, const char *path, const char *body,
             struct ctl_answer *a);
bool ctl_ask_at(const struct ctl *c, const char *base, const char *method, const char *path,
                const char *body, bool quiet, struct ctl_answer *a);
/* Says nothing: why there is no answer goes to why[n]. */
bool ctl_ask_quiet(const struct ctl *c, const char *base, const char *method, const char *path,
                   struct ctl_answer *a, char *why, size_t n);
void ctl_answer_free(struct ctl_answer *a);
/* Says what the coordinator refused. Returns 1. */
int ctl_refused(const struct ctl *c, const struct ctl_answer *a);
/* The management plane of an instance by its name, address or number, or with NULL that of the
 * coordinator. False: there is none, and that was said. */
enum { CTL_BASE_BYTES = 160 };
bool ctl_base_of(const struct ctl *c, const char *name, char base[CTL_BASE_BYTES]);
/* Opens the connection's certificates where the URL is https. */
bool ctl_open(struct ctl *c);
bool ctl_open_certificates(struct ctl *c); /* whatever the URL is */
/* The coordinator that is meant where nobody says which. */
void ctl_choose_base(struct ctl *c);

/* Members of what it says: "" and 0 where they are missing. */
const char *ctl_str(const struct json_value *o, const char *key);
long long ctl_num(const struct json_value *o, const char *key);
double ctl_real(const struct json_value *o, const char *key);
/* The instance of a status that a person calls so: name, address or number. NULL: none. */
const struct json_value *ctl_instance(const struct json_value *status, const char *name);
/* GET /v2/status, read. NULL: there is none, and that was said. */
struct json_value *ctl_status(const struct ctl *c);

/* ---- ctl_term.c: what a terminal may be given */
bool ctl_moves(void); /* stdout is one that can be painted over */
void ctl_clear(void); /* where it moves */
void ctl_paint(const char *state, int width, const char *text); /* in the colour of a state */
void ctl_sleep_ms(unsigned ms);

/* ---- the commands */
int ctl_cmd_status(struct ctl *c);
int ctl_cmd_request(struct ctl *c);
int ctl_cmd_plan(struct ctl *c);
int ctl_cmd_alarms(struct ctl *c);
int ctl_cmd_role(struct ctl *c);
int ctl_cmd_drain(struct ctl *c);
int ctl_cmd_undrain(struct ctl *c);
int ctl_cmd_join(struct ctl *c);
int ctl_cmd_leave(struct ctl *c);
int ctl_cmd_reload(struct ctl *c);
int ctl_cmd_log(struct ctl *c);
int ctl_cmd_upgrade(struct ctl *c);
int ctl_cmd_watch(struct ctl *c);
int ctl_cmd_top(struct ctl *c);
int ctl_cmd_logs(struct ctl *c);
int ctl_cmd_check(struct ctl *c);
int ctl_cmd_probe(struct ctl *c);
int ctl_cmd_doctor(struct ctl *c);
int ctl_cmd_advise(struct ctl *c);
int ctl_cmd_inspect(struct ctl *c);
int ctl_cmd_quantize(struct ctl *c);
int ctl_cmd_serve(struct ctl *c);
int ctl_cmd_help(struct ctl *c);
int ctl_cmd_completion(struct ctl *c);
int ctl_cmd_man(struct ctl *c);
int ctl_cmd_version(struct ctl *c);
int ctl_show_plan(struct ctl *c, const char *path);
int ctl_usage(const struct ctl_command *command, FILE *to);

/* ---- ctl_local.c: what lies beside this program, and what `serve` left */
/* The path of a program of ours, as it is called in the build folder or installed. False: neither
 * is there, and that was said. */
bool ctl_program(const struct ctl *c, const char *name, char path[4096]);
/* A folder, a GGUF file or a bundled model's name: its whole path. False: it is none, and that was
 * said. */
bool ctl_find_model(const struct ctl *c, const char *word, char model[4096]);
/* One of several programs that run at once; what it says to stderr must be little until its end. */
struct ctl_child {
    int pid, said_fd;
    FILE *out;
};
bool ctl_child_start(struct ctl_child *child, char *const argv[], bool keep_out);
void ctl_child_stop(struct ctl_child *child); /* with SIGTERM, and waits for its end */
bool ctl_child_runs(const struct ctl_child *child);
/* Processor seconds of a process and its children, without threads that are called "engine". */
double ctl_cpu_beside_engines(int pid);
/* Of the threads of that name alone, in children that are called so ("prefill"); waited_s: they
 * could have gone on, and had no processor. 0 where the kernel does not say. */
struct ctl_cpu {
    double ran_s, waited_s;
};
struct ctl_cpu ctl_cpu_of_engines(int pid, const char *role);
/* The part of all processors that is at work, 0 to 1, over so many milliseconds from now on; what a
 * hypervisor takes counts. 0 where the kernel does not say. */
double ctl_machine_busy(unsigned ms);
int ctl_child_end(struct ctl_child *child, struct buf *out,
                  struct buf *said); /* also a failed one */
/* Runs argv; said has what it wrote to stderr, out what it wrote to stdout, the first megabytes of
 * each (out NULL: that is thrown away). Returns its exit status, or -1. */
int ctl_run_program(char *const argv[], struct buf *out, struct buf *said);
/* What a configuration file is for, by what it says: "rank table", "instance", "coordinator". */
const char *ctl_kind_of(const struct json_value *root);
enum { CTL_FILE_BYTES_MAX = 10 << 20 };
/* The folder of this user's running clusters; false: there is none, or it is not ours alone. */
bool ctl_run_dir(char path[256], bool create);
/* The youngest cluster that runs there: its folder and the members of its serve.json. NULL: none.
 */
struct json_value *ctl_served(char dir[512]);

#endif
