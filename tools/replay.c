/* replay: a recording of a coordinator again (docs/recording.md): its decisions through the same
 * function, its requests to a running cluster, and two recordings held against each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/build.h"
#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/tls.h"
#include "tools/replay_run.h"
#include "tools/replay_send.h"

enum { FAST_DEFAULT = 32, SECOND_WAIT_MS = 5000, LOOK_MS = 50 };

struct options {
    const char *file, *second;
    const char *ca, *cert, *key, *pass;
    struct replay_target to; /* base NULL: nothing is sent */
    bool faults, pairs;
};

static const struct cli_option rows[] = {
    {"--faults", NULL, NULL, "lists what was lost"},
    {"--base", NULL, "URL",
     "asks the recorded requests again there, spaced as they were, with the seeds that were drawn "
     "for them"},
    {"--fast", NULL, "[=N]", "with --base: N under way (32) instead of spaced"},
    {"--second", NULL, "FILE2",
     "a second recording to hold against it: decisions taken again, tokens of every answer "
     "compared"},
    {"--pairs", NULL, NULL, "with --second: each request began on the same P and D, too"},
    {"--ca", NULL, "FILE", "the CA of the user plane, where the URL is https; PEM of mode 0400"},
    {"--cert", NULL, "FILE", "our certificate"},
    {"--key", NULL, "FILE", "its key"},
    {"--pass", NULL, "FILE", "the file with the key's password, when it is encrypted"},
    {"--version", NULL, NULL, "what this program was built from and of"},
    {"--help", "-h", NULL, "this text"},
    {0},
};

static int help(void) {
    puts("usage: replay FILE [options]\n"
         "Takes every recorded decision again. FILE is what a coordinator wrote that was started\n"
         "with BATON_RECORD=FILE. A cluster with API keys: $BATON_API_KEY.\n");
    cli_print_options(stdout, rows);
    puts(
        "\nEnds with 0: all the same; 1: something differs, or a request had no answer; 2: usage,\n"
        "or a file that cannot be read.");
    return 0;
}

static bool refuse(const char *why, const char *what) {
    fprintf(stderr, "replay: %s%s; --help lists the options\n", why, what);
    return false;
}

/* ---- what was found */

/* Prints what the file has; false: a decision comes out in another way. */
static bool tell_run(const char *path, const struct run *run) {
    printf("%s: %zu requests, %zu decisions, %zu lost attempts%s%s\n", path, run->n,
           run->n_decisions, run->n_lost, run->closed[0] != 0 ? "; ended: " : "; cut off",
           run->closed);
    if (run->n_wrong == 0) return true;
    printf("%s: %zu of %zu decisions come out in another way; the first: %s\n", path, run->n_wrong,
           run->n_decisions, run->wrong);
    return false;
}

static bool tell_verdict(const struct run_verdict *v, bool pairs) {
    printf("answers: %zu of %zu the same", v->n_same, v->n);
    if (v->n_part > 0)
        printf(", %zu as far as the recorded one went, which was ended early", v->n_part);
    if (v->n_differ > 0) printf(", %zu differ", v->n_differ);
    if (v->n_missing > 0) printf(", %zu not in the second run", v->n_missing);
    if (v->n_open > 0) printf(", %zu without an end in the second run", v->n_open);
    printf(" (%zu tokens)\n", v->n_tokens);
    printf("pairs: %zu of %zu requests began on the same P and D\n", v->n_same_pair, v->n);
    if (v->first[0] != 0) printf("the first that differs: %s\n", v->first);
    return v->n_same + v->n_part == v->n && (!pairs || v->n_same_pair == v->n);
}

/* ---- the parts */

/* FILE2 may be written a moment after the last answer. */
static enum err compare(struct run_verdict *v, struct run **second, const struct options *o,
                        const struct run *first, struct errbuf *eb) {
    const uint64_t until = clock_ms() + (o->to.base != NULL ? SECOND_WAIT_MS : 0);
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    for (;;) {
        enum err e = run_read(second, o->second, NULL, eb);
        if (e == ERR_OK) e = run_compare(v, first, *second);
        if (e != ERR_OK || v->n_open + v->n_missing == 0 || clock_ms() >= until) return e;
        run_free(second);
        nanosleep(&pause, NULL);
    }
}

static bool send_all(const struct options *o, const struct run *run) {
    struct replay_sent sent;
    if (replay_send(&sent, run, &o->to) != ERR_OK) {
        fprintf(stderr, "replay: out of memory\n");
        return false;
    }
    printf("sent: %zu answered, %zu without an answer%s%s\n", sent.n_answered, sent.n_lost,
           sent.n_lost > 0 ? "; the first: " : "", sent.first_lost);
    return sent.n_lost == 0;
}

static int run(const struct options *o) {
    struct run *first = NULL, *second = NULL;
    struct errbuf eb = {0};
    struct run_verdict v;
    if (run_read(&first, o->file, o->faults ? stdout : NULL, &eb) != ERR_OK) {
        fprintf(stderr, "replay: %s\n", eb.text);
        return 2;
    }
    bool ok = tell_run(o->file, first);
    int status = 0;
    if (o->to.base != NULL) ok = send_all(o, first) && ok;
    if (o->second != NULL) {
        if (compare(&v, &second, o, first, &eb) != ERR_OK) {
            fprintf(stderr, "replay: %s\n", eb.text[0] != 0 ? eb.text : "out of memory");
            status = 2;
        } else {
            ok = tell_run(o->second, second) && ok;
            ok = tell_verdict(&v, o->pairs) && ok;
        }
    }
    run_free(&first);
    run_free(&second);
    return status != 0 ? status : !ok;
}

/* ---- options */

static bool take_fast(struct options *o, const char *value) {
    char *rest = NULL;
    unsigned long n = FAST_DEFAULT;
    if (value != NULL) {
        n = strtoul(value, &rest, 10);
        if (value[0] < '0' || value[0] > '9' || *rest != 0 || n < 1 || n > REPLAY_AT_ONCE_MAX) {
            fprintf(stderr, "replay: --fast must be 1 to %d, got %s\n", REPLAY_AT_ONCE_MAX, value);
            return false;
        }
    }
    o->to.n_at_once = (unsigned)n;
    return true;
}

static bool take_option(struct options *o, const char *flag, const char *value) {
    const struct {
        const char *flag;
        const char **value;
    } values[] = {{"--base", &o->to.base}, {"--second", &o->second}, {"--ca", &o->ca},
                  {"--cert", &o->cert},    {"--key", &o->key},       {"--pass", &o->pass}};
    if (strcmp(flag, "--fast") == 0) return take_fast(o, value);
    o->faults = o->faults || strcmp(flag, "--faults") == 0;
    o->pairs = o->pairs || strcmp(flag, "--pairs") == 0;
    for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++)
        if (strcmp(flag, values[k].flag) == 0) *values[k].value = value;
    return true;
}

static bool take_options(struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (text[0] != '-') {
            if (o->file != NULL) return refuse("one recording is wanted, and another is ", text);
            o->file = text;
            continue;
        }
        const struct cli_option *row = cli_find(rows, text);
        if (row == NULL) {
            cli_no_option("replay", rows, text);
            return false;
        }
        const char *value = strchr(text, '=');
        if (value != NULL) value++;
        if (row->arg == NULL && value != NULL) return refuse("no value is taken by ", row->flag);
        if (row->arg != NULL && value == NULL && strcmp(row->flag, "--fast") != 0) {
            if (++i == argc) return refuse("a value is needed by ", row->flag);
            value = argv[i];
        }
        if (!take_option(o, row->flag, value)) return false;
    }
    if (o->file == NULL) return refuse("a recording is wanted: ", "replay FILE");
    if (o->pairs && o->second == NULL) return refuse("--pairs goes with ", "--second");
    if (o->to.n_at_once != 0 && o->to.base == NULL) return refuse("--fast goes with ", "--base");
    return true;
}

static bool open_tls(struct options *o) {
    struct tls_conf c = {
        .names = {.ca = "--ca", .cert = "--cert", .key = "--key", .passwd = "--pass"},
        .verify_host = true};
    const struct {
        const char *from;
        char *to;
    } paths[] = {{o->ca, c.ca[0]}, {o->cert, c.cert}, {o->key, c.key}, {o->pass, c.passwd}};
    struct errbuf eb = {0};
    if (o->to.base == NULL || strncmp(o->to.base, "https://", 8) != 0) return true;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (snprintf(paths[i].to, TLS_PATH_BYTES, "%s", paths[i].from) >= TLS_PATH_BYTES) {
            fprintf(stderr, "replay: the path is too long: %.60s...\n", paths[i].from);
            return false;
        }
    }
    if (tls_open(&o->to.tls, &c, &eb) == ERR_OK) return true;
    fprintf(stderr, "replay: %s\n", eb.text);
    return false;
}

int main(int argc, char **argv) {
    struct options o = {.ca = "", .cert = "", .key = "", .pass = ""};
    log_init(LOG_ERROR, 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        build_print(stdout, "replay", NULL);
        return 0;
    }
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) return help();
    if (!take_options(&o, argc, argv)) return 2;
    const char *key = getenv("BATON_API_KEY");
    o.to.api_key = key != NULL && key[0] != 0 ? key : NULL;
    if (!open_tls(&o)) return 2;
    const int status = run(&o);
    tls_close(&o.to.tls);
    return status;
}
