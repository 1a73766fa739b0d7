/* advise_measure: how fast an instance is: measured here, as many at once as share a machine; or
 * said by the instances of a cluster, or by a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/ctl/advise.h"
#include "tools/ctl/doctor.h"
#include "tools/sim/sim_abilities.h"

enum { AT_ONCE_MAX = 64, WORD_BYTES = 32, LOOK_BUSY_MS = 500 };
enum { CHUNK_TOKENS = 256, PASS_PROMPTS = 50, PASS_TOKENS = 8192 }; /* an instance's defaults */

static long threads_each(const struct advise *a) {
    const long each = sysconf(_SC_NPROCESSORS_ONLN) / (long)a->per_machine;
    return each > 0 ? each : 1;
}

/* Adds what one process, or one instance, says to an ability. */
static bool take(struct ability *to, const struct json_value *o, double *n) {
    struct perf_msg *perf = calloc(1, sizeof(*perf));
    struct json_value *p;
    const bool ok = perf != NULL && json_get_obj(o, "perf", &p) == JSON_OK &&
                    perf_parse(perf, p, NULL) == ERR_OK;
    if (ok) {
        perf_merge(&to->perf, perf);
        to->spread = (to->spread * *n + ctl_real(o, "spread")) / (*n + 1);
        *n += 1;
    }
    free(perf);
    return ok;
}

/* One that nothing can be computed with is refused. */
static bool usable(const struct ability *m) {
    return perf_prompt_s(&m->perf, 1) > 0 && perf_step_s(&m->perf, 1, 1) > 0;
}

static bool start_one(struct advise *a, struct ctl_child *child, double for_s, const char *program,
                      const char *model, const char *dtype) {
    static char measure[] = "--measure", f_dtype[] = "--dtype", f_threads[] = "--threads",
                f_tokens[] = "--tokens", f_context[] = "--context", f_slots[] = "--slots",
                f_seconds[] = "--seconds";
    char threads[WORD_BYTES], tokens[WORD_BYTES], context[WORD_BYTES], slots[WORD_BYTES],
        seconds[WORD_BYTES], type[WORD_BYTES];
    snprintf(threads, sizeof(threads), "%ld", threads_each(a));
    snprintf(tokens, sizeof(tokens), "%u", a->longest_in);
    snprintf(context, sizeof(context), "%.0f", a->mean_in + a->mean_out / 2 + 1);
    snprintf(slots, sizeof(slots), "%u", a->slots);
    snprintf(seconds, sizeof(seconds), "%.0f", for_s < 1 ? 1 : for_s);
    snprintf(type, sizeof(type), "%.30s", dtype);
    char *const argv[] = {(char *)(uintptr_t)program,
                          measure,
                          (char *)(uintptr_t)model,
                          f_dtype,
                          type,
                          f_threads,
                          threads,
                          f_tokens,
                          tokens,
                          f_context,
                          context,
                          f_slots,
                          slots,
                          f_seconds,
                          seconds,
                          NULL};
    return ctl_child_start(child, argv, true);
}

/* So many processes at once, each with its part of the cores. */
static bool measure_at_once(struct advise *a, struct ability *m, unsigned at_once, double for_s,
                            const char *program, const char *model, const char *dtype) {
    struct ctl_child children[AT_ONCE_MAX];
    double n = 0;
    bool ok = true;
    for (unsigned i = 0; i < at_once; i++)
        (void)start_one(a, &children[i], for_s, program, model, dtype);
    for (unsigned i = 0; i < at_once; i++) {
        struct buf out = BUF_INIT, said = BUF_INIT;
        struct json_value *o = NULL;
        const int rc = ctl_child_end(&children[i], &out, &said);
        if (rc == 0 && json_read(&o, out.data, out.len, NULL, NULL) == ERR_OK && take(m, o, &n)) {
            snprintf(m->dtype, sizeof(m->dtype), "%.15s", ctl_str(o, "dtype"));
            snprintf(m->kernels, sizeof(m->kernels), "%.15s", ctl_str(o, "kernels"));
            m->kv_token_bytes = ctl_real(o, "kvTokenBytes");
            m->weight_bytes = ctl_real(o, "weightBytes");
        } else if (ok) {
            ok = false;
            ctl_fail(a->c, 1, "measuring %s as %s: %.*s", model, dtype,
                     said.len > 0 ? (int)strcspn(said.data, "\n") : 7,
                     said.len > 0 ? said.data : "nothing");
        }
        json_put(o);
        buf_free(&out);
        buf_free(&said);
    }
    return ok;
}

/* Of instances that take nothing from each other, and ways that take no time. */
static struct sim_times advise_times(double cores, double threads) {
    return (struct sim_times){.cores = cores,
                              .threads = threads,
                              .prompt_beside_prompt = 1,
                              .prompt_beside_step = 1,
                              .step_beside_prompt = 1,
                              .step_beside_step = 1,
                              .hop_beside_engines = 1,
                              .prompt_sharing = 1,
                              .step_sharing = 1,
                              .chunk_tokens = CHUNK_TOKENS,
                              .pass_prompts = PASS_PROMPTS,
                              .pass_tokens = PASS_TOKENS};
}

static double longer(double ratio) {
    return ratio > 1 ? ratio : 1;
}

/* Alone; then, where several share a machine, as many at once as fill its cores, by so
 * much longer does the same take then. */
static bool measure_type(struct advise *a, const char *program, const char *model,
                         const char *dtype) {
    struct ability *m = &a->abilities[a->n_abilities], *crowd = calloc(1, sizeof(*crowd));
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), fill = cores / threads_each(a);
    const unsigned at_once = a->per_machine < fill ? a->per_machine : (unsigned)fill;
    const double for_s = at_once > 1 ? a->seconds / 2 : a->seconds;
    bool ok = crowd != NULL && measure_at_once(a, m, 1, for_s, program, model, dtype);
    if (ok && at_once > 1) ok = measure_at_once(a, crowd, at_once, for_s, program, model, dtype);
    m->times = advise_times((double)cores, (double)threads_each(a));
    if (ok && at_once > 1) {
        struct sim_times *t = &m->times;
        t->prompt_beside_prompt = longer(perf_prompt_ratio(&crowd->perf, &m->perf));
        t->step_beside_step = longer(perf_step_ratio(&crowd->perf, &m->perf));
        t->prompt_beside_step = t->prompt_beside_prompt; /* until a cluster says */
        t->step_beside_prompt = t->step_beside_step;
    }
    free(crowd);
    a->n_abilities += ok;
    return ok;
}

static bool measure_here(struct advise *a) {
    char program[4096], model[4096], words[128];
    const char *list = ctl_option(a->c, "--dtypes");
    if (!ctl_find_model(a->c, a->c->args[0], model) || !ctl_program(a->c, "prefill", program))
        return false;
    if (a->per_machine > AT_ONCE_MAX) {
        ctl_fail(a->c, 2, "--per-machine must be at most %d to measure here", AT_ONCE_MAX);
        return false;
    }
    if (snprintf(words, sizeof(words), "%s", list != NULL ? list : "bf16,int8") >=
        (int)sizeof(words)) {
        ctl_fail(a->c, 2, "--dtypes is too long");
        return false;
    }
    a->busy = ctl_machine_busy(LOOK_BUSY_MS);
    for (char *at = words, *word; (word = strsep(&at, ",")) != NULL;) {
        if (a->n_abilities == ADVISE_ABILITIES_MAX) {
            ctl_fail(a->c, 2, "--dtypes must be at most %d types", ADVISE_ABILITIES_MAX);
            return false;
        }
        if (!measure_type(a, program, model, word)) return false;
    }
    if (ctl_option(a->c, "--no-ways") != NULL) return true;
    return advise_cluster_start(a, model, a->abilities[0].dtype) && advise_ways(a);
}

static bool read_file(struct advise *a, const char *path) {
    struct errbuf eb = {0};
    struct ability *m = &a->abilities[0];
    if (sim_abilities_read(&m->perf, &m->times, path, &eb) != ERR_OK) {
        ctl_fail(a->c, 2, "--abilities: %s", eb.text);
        return false;
    }
    struct json_value *o = NULL; /* what `prefill --measure` prints says more than a status */
    (void)json_read_file(&o, path, SIM_ABILITIES_BYTES_MAX, NULL, NULL);
    const char *dtype = ctl_str(o, "dtype");
    a->n_abilities = 1;
    snprintf(m->dtype, sizeof(m->dtype), "%.15s", dtype[0] != 0 ? dtype : "?");
    m->kv_token_bytes = ctl_real(o, "kvTokenBytes");
    m->spread = ctl_real(o, "spread");
    if (!(m->spread >= 0 && m->spread < 1)) m->spread = 0;
    if (!(m->kv_token_bytes >= 0)) m->kv_token_bytes = 0;
    json_put(o);
    return true;
}

/* ---- links */

/* The mean over the links of an instance that have carried KV; 0: none has. */
static double handed_over(const struct doc_node *node, double *n) {
    size_t n_peers;
    double sum = 0;
    const struct json_value *peers = doc_arr(node->status, "linkStatus.peers", &n_peers);
    for (size_t i = 0; i < n_peers; i++) {
        const double rate = doc_num(json_arr_at(peers, i), "bytesPerSecond");
        sum += rate > 0 ? rate : 0;
        *n += rate > 0;
    }
    return sum;
}

void advise_link(struct advise *a, struct doctor *d) {
    double sum = 0, n = 0;
    if (strcmp(a->link_from, "given") == 0) return;
    a->link_from = "handed over";
    for (size_t i = 0; i < d->n_nodes; i++)
        if (!d->nodes[i].coordinator) sum += handed_over(&d->nodes[i], &n);
    for (size_t i = 0; i < d->n_nodes && n == 0; i++) {
        const bool prefills = strcmp(doc_str(d->nodes[i].seen, "role"), "prefill") == 0;
        if (d->nodes[i].coordinator || !prefills || !doc_measure_links(d, i)) continue;
        a->link_from = "measured";
        for (size_t k = 0; k < d->n_links; k++) {
            const double rate = doc_num(d->links[k].measured, "bytesPerSecond");
            sum += rate > 0 ? rate : 0;
            n += rate > 0;
        }
    }
    if (n > 0)
        a->link_bytes_per_s = sum / n;
    else
        a->link_from = "assumed";
}

/* ---- a cluster that runs */

static bool on_one_machine(const struct doc_node *x, const struct doc_node *y) {
    const char *name = doc_str(x->live, "host.name");
    return name[0] != '\0' && strcmp(name, doc_str(y->live, "host.name")) == 0;
}

/* The cores that an instance has, its threads, and how many of them share a machine, where all are
 * alike in that. What they take from each other cannot be seen from outside. */
static void share_machines(struct advise *a, const struct doctor *d) {
    struct sim_times *t = &a->abilities[0].times;
    unsigned most = 0;
    double cores = 0, threads = 0;
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct doc_node *x = &d->nodes[i];
        unsigned n = 0;
        if (x->coordinator || x->live == NULL) continue;
        for (size_t k = 0; k < d->n_nodes; k++)
            n += !d->nodes[k].coordinator && d->nodes[k].live != NULL &&
                 on_one_machine(x, &d->nodes[k]);
        if (n > most) most = n;
        cores = doc_num(x->live, "host.cpusAllowed");
        threads = doc_num(x->live, "threads");
    }
    if (!(cores >= 1 && cores <= SIM_CORES_MAX)) return;
    *t = advise_times(cores, threads >= 1 && threads <= cores ? threads : cores);
    if (ctl_option(a->c, "--per-machine") == NULL && most > 0)
        a->per_machine = most < ADVISE_INSTANCES_MAX ? most : ADVISE_INSTANCES_MAX;
}

/* Instances are asked as the doctor asks them. */
static bool ask_cluster(struct advise *a) {
    struct doctor d = {.c = a->c};
    struct ability *m = &a->abilities[0];
    double n = 0;
    bool ok = doc_look(&d);
    unsigned n_instances = 0;
    for (size_t i = 0; ok && i < d.n_nodes; i++) {
        const struct doc_node *node = &d.nodes[i];
        if (node->coordinator || node->live == NULL || node->status == NULL) continue;
        n_instances++;
        if (!take(m, node->status, &n)) continue;
        snprintf(m->dtype, sizeof(m->dtype), "%.15s", doc_str(node->live, "model.dtype"));
        snprintf(m->kernels, sizeof(m->kernels), "%.15s", doc_str(node->live, "model.kernels"));
        m->kv_token_bytes = doc_num(node->live, "model.kvTokenBytes");
        m->weight_bytes = doc_num(node->live, "model.weightBytes");
        const double slots = doc_num(node->live, "model.slots");
        if (ctl_option(a->c, "--slots") == NULL && slots >= 1 && slots <= SIM_SLOTS_MAX)
            a->slots = (unsigned)slots;
    }
    if (ok && ctl_option(a->c, "--instances") == NULL && n_instances > 0)
        a->instances = n_instances < ADVISE_INSTANCES_MAX ? n_instances : ADVISE_INSTANCES_MAX;
    if (ok) share_machines(a, &d);
    if (ok) advise_link(a, &d);
    doc_free(&d);
    if (ok && n == 0)
        ctl_fail(
            a->c, 1,
            "no instance answers with what it has measured (asked: the coordinator at %s; -m URL "
            "names another); name a MODEL to measure it here",
            a->c->base);
    a->n_abilities = 1;
    return ok && n > 0;
}

bool advise_abilities(struct advise *a) {
    const char *file = ctl_option(a->c, "--abilities");
    const bool ok = file != NULL       ? read_file(a, file)
                    : a->c->n_args > 0 ? measure_here(a)
                                       : ask_cluster(a);
    for (size_t i = 0; ok && i < a->n_abilities; i++)
        if (!usable(&a->abilities[i])) {
            ctl_fail(a->c, 1, "no prompt or no step was measured as %s", a->abilities[i].dtype);
            return false;
        }
    return ok;
}
