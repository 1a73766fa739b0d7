/* baton-bench: load for servers that speak OpenAI's API: this one, llama-server, vLLM. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/build.h"
#include "common/base/cli.h"
#include "common/base/log.h"
#include "common/net/tls.h"
#include "tools/load/load_report.h"

static const struct cli_option rows[] = {
    {"--model", NULL, "NAME", "model to ask; default: the first of /v1/models"},
    {"--completions", NULL, NULL, "asks /v1/completions instead of /v1/chat/completions"},
    {"--clients", "-c", "N",
     "closed loop: N clients, each of which waits for its answer; default 8"},
    {"--rate", "-r", "R", "open loop: R requests a second, whatever the answers do"},
    {"--arrivals", NULL, "KIND",
     "of an open loop: poisson (default), even, or bursty (crowds of 8)"},
    {"--trace", NULL, "FILE",
     "open loop: as a trace has them: Azure's CSV or Mooncake's JSONL, also compressed by gzip"},
    {"--time-scale", NULL, "X", "times of a trace are multiplied by X; default 1"},
    {"--length-scale", NULL, "X", "lengths of a trace are multiplied by X; default 1"},
    {"--in", "-i", "N[:M]", "tokens of a prompt, N to M; default 128"},
    {"--out", "-o", "N[:M]", "tokens of an answer, N to M; default 64"},
    {"--prefix", NULL, "N", "the first N tokens of a prompt are those of others; default 0"},
    {"--groups", NULL, "N", "so many different prefixes; default 1"},
    {"--seconds", "-s", "S", "sends for S seconds; default 30 unless --requests says how many"},
    {"--requests", "-n", "N", "sends N requests"},
    {"--warm-up", NULL, "S", "what is sent in the first S seconds is not counted; default 2"},
    {"--timeout", NULL, "S", "a request that takes longer has failed; default 300"},
    {"--ttft-goal", NULL, "MS", "goal for the first token, for goodput"},
    {"--gap-goal", NULL, "MS", "goal for the mean time per further token, for goodput"},
    {"--long", NULL, "N", "interference: prompts of N tokens, one at a time, beside the others"},
    {"--long-every", NULL, "S", "seconds from the end of one to the next; default 1"},
    {"--keep-eos", NULL, NULL, "answers may end before their length"},
    {"--against", "-b", "URL",
     "a second server, asked the same in turns: ratios with their spread"},
    {"--against-model", NULL, "NAME", "its model"},
    {"--rounds", NULL, "N", "runs of each server, in turns; default 1, with --against 3"},
    {"--seed", NULL, "N", "the same seed asks the same; default 1"},
    {"--json", NULL, "FILE", "writes all figures as JSON; - is standard output, without the table"},
    {"--html", NULL, "FILE", "writes a page with plots"},
    {"--ca", NULL, "FILE", "of an https URL: the CA (PEM, mode 0400)"},
    {"--cert", NULL, "FILE", "our certificate"},
    {"--key", NULL, "FILE", "its key"},
    {"--pass", NULL, "FILE", "the file with the key's password"},
    {"--version", NULL, NULL, "what this program was built from"},
    {"--help", "-h", NULL, "this text"},
    {0},
};

struct options {
    const char *urls[LOAD_SIDES_MAX], *models[LOAD_SIDES_MAX];
    const char *trace, *json, *html, *ca, *cert, *key, *pass;
    bool chat, keep_eos, has_clients, has_seconds;
    unsigned rounds;
    struct load_shape shape;
    struct load_plan plan;
};

static int fail(const char *fmt, const char *a, const char *b) {
    fputs("baton-bench: ", stderr);
    fprintf(stderr, fmt, a, b);
    fputs("; --help lists the options\n", stderr);
    return 2;
}

/* ---- values of options */

static bool number(const char *flag, const char *text, double least, double most, double *out) {
    char *rest;
    const double v = strtod(text, &rest);
    if (rest != text && *rest == 0 && v >= least && v <= most) {
        *out = v;
        return true;
    }
    fprintf(stderr, "baton-bench: %s must be in [%.10g, %.10g], got %s\n", flag, least, most, text);
    return false;
}

static bool whole(const char *flag, const char *text, double least, double most, double *out) {
    if (!number(flag, text, least, most, out)) return false;
    if (*out == floor(*out)) return true;
    fprintf(stderr, "baton-bench: %s must be a whole number, got %s\n", flag, text);
    return false;
}

static bool range(const char *flag, const char *text, struct load_range *out) {
    char first[32];
    const char *colon = strchr(text, ':');
    double a, b;
    const size_t n = colon == NULL ? strlen(text) : (size_t)(colon - text);
    if (n >= sizeof(first)) return whole(flag, text, 1, LOAD_TOKENS_MAX, &a);
    memcpy(first, text, n);
    first[n] = 0;
    if (!whole(flag, first, 1, LOAD_TOKENS_MAX, &a)) return false;
    b = a;
    if (colon != NULL && !whole(flag, colon + 1, a, LOAD_TOKENS_MAX, &b)) return false;
    *out = (struct load_range){(uint32_t)a, (uint32_t)b};
    return true;
}

static bool arrivals(const char *text, enum load_arrivals *out) {
    static const char *const names[] = {
        [LOAD_POISSON] = "poisson", [LOAD_EVEN] = "even", [LOAD_BURSTY] = "bursty"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (enum load_arrivals)i;
        return true;
    }
    fprintf(stderr, "baton-bench: --arrivals must be poisson, even or bursty, got %s\n", text);
    return false;
}

static bool is(const struct cli_option *o, const char *flag) {
    return strcmp(o->flag, flag) == 0;
}

/* Options whose value is a text as it stands. */
static const char **text_of(struct options *o, const struct cli_option *row) {
    const struct {
        const char *flag;
        const char **to;
    } texts[] = {{"--model", &o->models[0]}, {"--against-model", &o->models[1]},
                 {"--against", &o->urls[1]}, {"--trace", &o->trace},
                 {"--json", &o->json},       {"--html", &o->html},
                 {"--ca", &o->ca},           {"--cert", &o->cert},
                 {"--key", &o->key},         {"--pass", &o->pass}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (is(row, texts[i].flag)) return texts[i].to;
    return NULL;
}

static bool take_count(struct options *o, const struct cli_option *row, const char *v) {
    double n;
    const char *f = row->flag;
    if (is(row, "--clients")) {
        if (!whole(f, v, 1, LOAD_CLIENTS_MAX, &n)) return false;
        o->plan.clients = (unsigned)n;
        o->has_clients = true;
    } else if (is(row, "--prefix")) {
        if (!whole(f, v, 0, LOAD_TOKENS_MAX, &n)) return false;
        o->shape.prefix_tokens = (uint32_t)n;
    } else if (is(row, "--groups")) {
        if (!whole(f, v, 1, 1e6, &n)) return false;
        o->shape.n_groups = (uint32_t)n;
    } else if (is(row, "--requests")) {
        if (!whole(f, v, 1, 1e9, &n)) return false;
        o->plan.requests = (uint64_t)n;
    } else if (is(row, "--long")) {
        if (!whole(f, v, 1, LOAD_TOKENS_MAX, &n)) return false;
        o->plan.long_tokens = (uint32_t)n;
    } else if (is(row, "--rounds")) {
        if (!whole(f, v, 1, LOAD_ROUNDS_MAX, &n)) return false;
        o->rounds = (unsigned)n;
    } else {
        if (!whole(f, v, 0, 0x1p53, &n)) return false;
        o->plan.seed = o->shape.seed = (uint64_t)n;
    }
    return true;
}

static bool take_value(struct options *o, const struct cli_option *row, const char *v) {
    const struct {
        const char *flag;
        double least, most, *to;
    } numbers[] = {{"--rate", 1e-3, 1e5, &o->shape.rate},
                   {"--time-scale", 1e-6, 1e6, &o->shape.time_scale},
                   {"--length-scale", 1e-6, 1e3, &o->shape.length_scale},
                   {"--seconds", 0.1, 1e6, &o->plan.seconds},
                   {"--warm-up", 0, 1e6, &o->plan.warm_up_s},
                   {"--timeout", 0.1, 4e6, &o->plan.timeout_s},
                   {"--ttft-goal", 1e-3, 1e9, &o->plan.ttft_goal_ms},
                   {"--gap-goal", 1e-3, 1e9, &o->plan.gap_goal_ms},
                   {"--long-every", 0, 1e6, &o->plan.long_every_s}};
    const char **text = text_of(o, row);
    if (text != NULL) {
        *text = v;
        return true;
    }
    if (is(row, "--seconds")) o->has_seconds = true;
    if (is(row, "--in")) return range(row->flag, v, &o->shape.in);
    if (is(row, "--out")) return range(row->flag, v, &o->shape.out);
    if (is(row, "--arrivals")) return arrivals(v, &o->shape.arrivals);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (is(row, numbers[i].flag))
            return number(row->flag, v, numbers[i].least, numbers[i].most, numbers[i].to);
    return take_count(o, row, v);
}

static bool take_switch(struct options *o, const struct cli_option *row) {
    if (is(row, "--completions"))
        o->chat = false;
    else if (is(row, "--keep-eos"))
        o->keep_eos = true;
    return true;
}

static int help(void) {
    puts("usage: baton-bench URL [options]\n"
         "Asks a server of OpenAI's API (http://HOST:PORT) for streams, and prints how long first "
         "tokens,\n"
         "further tokens and whole answers took. An API key is taken from $BATON_API_KEY.\n");
    cli_print_options(stdout, rows);
    puts("\nEnds with 0: measured; 1: every request failed; 2: usage, or no server.");
    return 0;
}

/* ---- all options together: 0 goes on, else the exit status and 1 */

static int take_options(struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || word[1] == 0) {
            if (o->urls[0] != NULL)
                return fail("%s: one URL is wanted, and %s is there", word, o->urls[0]);
            o->urls[0] = word;
            continue;
        }
        const struct cli_option *row = cli_find(rows, word);
        if (row == NULL) {
            cli_no_option("baton-bench", rows, word);
            return 2;
        }
        const char *value = strchr(word, '=');
        if (row->arg == NULL) {
            if (value != NULL) return fail("%s takes no value%s", row->flag, "");
            if (!take_switch(o, row)) return 2;
            continue;
        }
        if (value == NULL && i + 1 == argc) return fail("%s needs its %s", row->flag, row->arg);
        if (!take_value(o, row, value != NULL ? value + 1 : argv[++i])) return 2;
    }
    if (o->urls[0] == NULL)
        return fail("a URL is wanted: %s%s", "baton-bench http://127.0.0.1:1025", "");
    if (o->trace != NULL && o->shape.rate > 0)
        return fail("%s and %s exclude each other", "--trace", "--rate");
    if ((o->trace != NULL || o->shape.rate > 0) && o->has_clients)
        return fail("%s and %s exclude each other: clients that wait are a closed loop",
                    "--clients", o->trace != NULL ? "--trace" : "--rate");
    if (o->shape.prefix_tokens > o->shape.in.from)
        return fail("%s must not be above the shortest prompt (%s)", "--prefix", "--in");
    return 0;
}

static void fill_defaults(struct options *o) {
    if (o->trace != NULL || o->shape.rate > 0)
        o->plan.clients = 0;
    else if (!o->has_clients)
        o->plan.clients = 8;
    if (!o->has_seconds) o->plan.seconds = o->plan.requests > 0 || o->trace != NULL ? 0 : 30;
    if (o->rounds == 0) o->rounds = o->urls[1] != NULL ? 3 : 1;
}

static void describe(char *dst, size_t n, const struct options *o) {
    char how[160], what[160], until[80];
    if (o->trace != NULL)
        snprintf(how, sizeof(how), "trace %.100s, times x %g, lengths x %g", o->trace,
                 o->shape.time_scale, o->shape.length_scale);
    else if (o->shape.rate > 0)
        snprintf(how, sizeof(how), "%g requests a second", o->shape.rate);
    else
        snprintf(how, sizeof(how), "%u clients", o->plan.clients);
    snprintf(what, sizeof(what), ", prompts of %u to %u tokens, answers of %u to %u",
             o->shape.in.from, o->shape.in.to, o->shape.out.from, o->shape.out.to);
    if (o->plan.requests > 0)
        snprintf(until, sizeof(until), ", %llu requests", (unsigned long long)o->plan.requests);
    else if (o->plan.seconds > 0)
        snprintf(until, sizeof(until), ", %g s", o->plan.seconds);
    else
        until[0] = 0;
    snprintf(dst, n, "%s%s%s, %u round%s, seed %llu", how, o->trace != NULL ? "" : what, until,
             o->rounds, o->rounds == 1 ? "" : "s", (unsigned long long)o->shape.seed);
}

/* ---- targets */

static bool open_target(struct load_target *t, const struct options *o, size_t side,
                        struct errbuf *eb) {
    const char *key = getenv("BATON_API_KEY");
    *t = (struct load_target){.base = o->urls[side],
                              .api_key = key != NULL && key[0] != 0 ? key : NULL,
                              .chat = o->chat,
                              .keep_eos = o->keep_eos};
    if (o->models[side] != NULL &&
        (size_t)snprintf(t->model, sizeof(t->model), "%s", o->models[side]) >= sizeof(t->model)) {
        err_set(eb, ERR_INVALID, "a model's name has at most %zu bytes", sizeof(t->model) - 1);
        return false;
    }
    if (strncmp(t->base, "http://", 7) != 0 && strncmp(t->base, "https://", 8) != 0) {
        err_set(eb, ERR_INVALID, "%s: a URL begins with http:// or https://", t->base);
        return false;
    }
    if (strncmp(t->base, "https://", 8) == 0) {
        struct tls_conf c = {
            .names = {.ca = "--ca", .cert = "--cert", .key = "--key", .passwd = "--pass"},
            .verify_host = true};
        snprintf(c.ca[0], TLS_PATH_BYTES, "%s", o->ca);
        snprintf(c.cert, TLS_PATH_BYTES, "%s", o->cert);
        snprintf(c.key, TLS_PATH_BYTES, "%s", o->key);
        snprintf(c.passwd, TLS_PATH_BYTES, "%s", o->pass);
        if (tls_open(&t->tls, &c, eb) != ERR_OK) return false;
    }
    return load_target_prepare(t, eb) == ERR_OK;
}

static bool write_file(const char *path, const struct buf *text) {
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    bool ok = f != NULL && !text->failed && fwrite(text->data, 1, text->len, f) == text->len;
    if (f != NULL && f != stdout) ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "baton-bench: %s cannot be written\n", path);
    return ok;
}

/* ---- the runs, in turns: the second side goes first in every second round */

static bool run_rounds(struct load_report *rep, struct load_source *source) {
    for (size_t i = 0; i < rep->sides[0].n_rounds; i++) {
        for (size_t k = 0; k < rep->n_sides; k++) {
            struct load_side *side = &rep->sides[i % 2 == 0 ? k : rep->n_sides - 1 - k];
            if (load_run(&side->rounds[i], side->target, rep->plan, source) != ERR_OK) {
                fputs("baton-bench: out of memory\n", stderr);
                return false;
            }
        }
    }
    return true;
}

static bool all_failed(const struct load_report *rep) {
    for (size_t s = 0; s < rep->n_sides; s++)
        for (size_t i = 0; i < rep->sides[s].n_rounds; i++)
            if (rep->sides[s].rounds[i].ttft.n > 0) return false;
    return true;
}

static int write_all(const struct options *o, const struct load_report *rep) {
    struct buf text = BUF_INIT;
    bool ok = true;
    if (o->json == NULL || strcmp(o->json, "-") != 0) load_report_text(stdout, rep);
    if (o->json != NULL) {
        load_report_json(&text, rep);
        ok = write_file(o->json, &text);
        buf_clear(&text);
    }
    if (o->html != NULL) {
        load_report_html(&text, rep);
        ok = write_file(o->html, &text) && ok;
    }
    buf_free(&text);
    return !ok ? 2 : all_failed(rep);
}

static int bench(const struct options *o, struct load_source *source) {
    struct load_target targets[LOAD_SIDES_MAX] = {0};
    char workload[512];
    struct load_report rep = {
        .plan = &o->plan, .workload = workload, .n_sides = o->urls[1] != NULL ? 2 : 1};
    struct errbuf eb = {0};
    int status = 0;
    describe(workload, sizeof(workload), o);
    for (size_t s = 0; s < rep.n_sides && status == 0; s++) {
        struct load_side *side = &rep.sides[s];
        side->target = &targets[s];
        side->n_rounds = o->rounds;
        side->rounds = calloc(o->rounds, sizeof(*side->rounds));
        if (side->rounds == NULL) err_set(&eb, ERR_NO_MEMORY, "out of memory");
        if (side->rounds == NULL || !open_target(&targets[s], o, s, &eb)) {
            fprintf(stderr, "baton-bench: %s\n", eb.text);
            status = 2;
        }
    }
    if (status == 0) status = run_rounds(&rep, source) ? write_all(o, &rep) : 2;
    for (size_t s = 0; s < LOAD_SIDES_MAX; s++) {
        free(rep.sides[s].rounds);
        tls_close(&targets[s].tls);
    }
    return status;
}

int main(int argc, char **argv) {
    struct options o = {.chat = true,
                        .ca = "",
                        .cert = "",
                        .key = "",
                        .pass = "",
                        .shape = {.seed = 1,
                                  .in = {128, 128},
                                  .out = {64, 64},
                                  .n_groups = 1,
                                  .time_scale = 1,
                                  .length_scale = 1},
                        .plan = {.seed = 1,
                                 .warm_up_s = 2,
                                 .timeout_s = 300,
                                 .long_every_s = 1,
                                 .progress = isatty(2) != 0}};
    log_init(LOG_ERROR, 2);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return help();
        if (strcmp(argv[i], "--version") == 0) {
            build_print(stdout, "baton-bench", NULL);
            return 0;
        }
    }
    int status = take_options(&o, argc, argv);
    if (status != 0) return status;
    fill_defaults(&o);
    struct load_source *source = NULL;
    struct errbuf eb = {0};
    const enum err e = o.trace != NULL ? load_source_read_trace(&source, &o.shape, o.trace, &eb)
                                       : load_source_create(&source, &o.shape);
    if (e != ERR_OK) {
        fprintf(stderr, "baton-bench: %s\n", eb.text[0] != 0 ? eb.text : "out of memory");
        return 2;
    }
    status = bench(&o, source);
    load_source_free(&source);
    return status;
}
