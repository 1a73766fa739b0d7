/* doctor_checks: the checks of one node by itself, and the table of all (those between nodes are in
 * doctor_between.c). A row is a check: a function over what was found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "proto/perf_msg.h"
#include "tools/ctl/doctor.h"
#include "tools/ctl/doctor_between.h"

enum { DAYS_WARNED = 14, DAY_S = 86400 };
static const double MIB = 1048576, GB = 1e9;
static const double CACHE_BYTES_MIN = 64 * 1048576.0; /* weightCachePath "auto" keeps no less */

/* ---- files */

static void check_file(struct doctor *d, struct doc_node *n) {
    if (n->refused[0] != 0)
        doc_say(d, DOC_ERROR, n,
                "correct the setting that is named; `batonctl check FILE` says "
                "whether a start would take the file",
                "%s", n->refused);
    if (n->warned[0] != 0)
        doc_say(d, DOC_WARNING, n, "correct the name of the setting, or take it out", "%s",
                n->warned);
    const char *why = doc_str(n->conf, "rankTable.error");
    if (why[0] != 0)
        doc_say(d, DOC_ERROR, n, "correct the rank table: `batonctl check` says the same of it",
                "its rank table cannot be read: %s", why);
}

static void check_certificates(struct doctor *d, struct doc_node *n) {
    size_t blocks;
    const struct json_value *facts = doc_facts(n), *arr = doc_arr(facts, "tls", &blocks);
    for (size_t i = 0; i < blocks; i++) {
        const struct json_value *b = json_arr_at(arr, i);
        const char *why = doc_str(b, "error");
        if (why[0] != 0)
            doc_say(d, DOC_ERROR, n,
                    "put the file in its place: readable for its user alone (mode 0400), of the "
                    "user that the daemon runs as, key and certificate of one pair",
                    "TLS files of the plane \"%s\" cannot be used: %s", doc_str(b, "plane"), why);
    }
}

static void check_days(struct doctor *d, struct doc_node *n) {
    size_t blocks, ends, n_soon = 0;
    const struct json_value *facts = doc_facts(n), *arr = doc_arr(facts, "tls", &blocks),
                            *first = NULL;
    const char *plane = "";
    for (size_t i = 0; i < blocks; i++) {
        const struct json_value *b = json_arr_at(arr, i), *e = doc_arr(b, "expires", &ends);
        for (size_t k = 0; k < ends; k++) {
            const struct json_value *one = json_arr_at(e, k);
            const double s = doc_num(one, "unixSeconds");
            if (s - (double)time(NULL) >= DAYS_WARNED * DAY_S) continue;
            n_soon++;
            if (first != NULL && doc_num(first, "unixSeconds") <= s) continue;
            first = one;
            plane = doc_str(b, "plane");
        }
    }
    if (first == NULL) return;
    const double days = (doc_num(first, "unixSeconds") - (double)time(NULL)) / DAY_S;
    doc_say(d, days < 1 ? DOC_ERROR : DOC_WARNING, n,
            "issue a new one, put it in the place of the old one and call `batonctl reload NAME`",
            "%zu of its certificates and CRLs end within %d days, the first %s %.1f days%s: %s, of "
            "the plane \"%s\"",
            n_soon, DAYS_WARNED, days < 0 ? "ended" : "in", days < 0 ? -days : days,
            days < 0 ? " ago" : "", doc_str(first, "file"), plane);
}

/* ---- reached from here */

static void check_answers(struct doctor *d, struct doc_node *n) {
    if (n->unasked && !n->answers)
        doc_say(d, DOC_NOTE, n,
                "--ca, --cert, --key and --pass, of a client of its management plane",
                "it was not asked: %s wants a certificate, and there is none for it here", n->base);
    if (!n->asked || (n->answers && n->live != NULL)) return;
    if (!n->answers)
        doc_say(d, DOC_ERROR, n,
                "start it (its unit, `baton-coordinator -c FILE`, `baton serve MODEL --split`), or "
                "correct its address; when it runs, look at firewalls on the way, and at the "
                "certificates that it is asked with",
                "its management plane %s does not answer: %s", n->base, n->why);
    else if (n->http_status == 503)
        doc_say(d, DOC_WARNING, n, "wait until it is up, then ask again",
                "its management plane %s answers 503: it loads its model, or stops", n->base);
    else
        doc_say(d, DOC_ERROR, n,
                "see which program listens there: an older build has no /v1/facts, and another "
                "program may have taken the port",
                "%s answers (status %d), but not as a management plane of this build does", n->base,
                n->http_status);
}

static void check_ports(struct doctor *d) {
    for (size_t i = 0; i < d->n_knocks; i++) {
        const struct doc_knock *k = &d->knocks[i];
        if (!k->open)
            doc_say(d, DOC_ERROR, &d->nodes[k->node],
                    "open the port in the firewalls between here and there; when it is open, see "
                    "whether the daemon listens at that address",
                    "its %s plane %s:%u cannot be reached from here: %s", k->plane, k->ip, k->port,
                    k->why);
    }
}

static void check_clock(struct doctor *d, struct doc_node *n) {
    const double off = n->clock_s < 0 ? -n->clock_s : n->clock_s;
    if (n->clock_known && off > 0.5 + n->clock_error_s)
        doc_say(d, off > 30 ? DOC_ERROR : DOC_WARNING, n,
                "let a time service (chrony, systemd-timesyncd) keep the clocks of all machines",
                "its clock is %.1f s %s that of this machine", off,
                n->clock_s < 0 ? "behind" : "ahead of");
}

/* One line for all: often it is a habit of the place. */
static void check_clocks(struct doctor *d) {
    char names[300] = "";
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct doc_node *n = &d->nodes[i];
        const size_t at = strlen(names);
        if (n->live == NULL || doc_bool(n->live, "host.clock.synchronised")) continue;
        snprintf(names + at, sizeof(names) - at, "%s%.60s", at > 0 ? ", " : "", n->name);
    }
    if (names[0] != 0)
        doc_say(d, DOC_NOTE, NULL,
                "let a time service (chrony, systemd-timesyncd) keep the clocks of all machines",
                "no time service keeps the clocks of: %s", names);
}

/* ---- the model, and what it needs */

static void check_model(struct doctor *d, struct doc_node *n) {
    const char *why = doc_str(n->conf, "model.error");
    if (why[0] != 0)
        doc_say(d, DOC_ERROR, n,
                "put the model's folder or GGUF file where modelWeightPath says, whole; `batonctl "
                "inspect MODEL` reads it as a start does",
                "its model %s cannot be used: %s", doc_str(n->conf, "model.path"), why);
}

/* What a start would take; what runs has it already. */
double doc_memory_wanted(const struct doc_node *n) {
    return n->live != NULL
               ? 0
               : doc_num(n->conf, "model.weightBytes") + doc_num(n->conf, "model.kvBytes");
}

/* What the machine and the control group leave. */
double doc_memory_left(const struct json_value *facts) {
    const double free_bytes = doc_num(facts, "host.memoryAvailable"),
                 max = doc_num(facts, "host.groupMemoryMax"),
                 left = max - doc_num(facts, "host.groupMemoryUsed");
    return max > 0 && left < free_bytes ? left : free_bytes;
}

static void check_memory(struct doctor *d, struct doc_node *n) {
    const struct json_value *facts = doc_facts(n);
    const double want = doc_memory_wanted(n), left = doc_memory_left(facts),
                 all = doc_num(facts, "host.memoryBytes");
    if (left <= 0) return;
    if (want > left)
        doc_say(d, DOC_ERROR, n,
                "a smaller type of weights (weightDtype), a smaller pool (kvCacheMiB, npuMemSize), "
                "or a machine or control group with more memory",
                "it needs %.0f MiB (weights %.0f, KV %.0f), and %.0f MiB are left", want / MIB,
                doc_num(facts, "model.weightBytes") / MIB, doc_num(facts, "model.kvBytes") / MIB,
                left / MIB);
    else if (n->live != NULL && left < 0.02 * all)
        doc_say(d, DOC_WARNING, n, "stop what else runs there, or give it less KV",
                "only %.0f MiB of memory are left on its machine", left / MIB);
}

static void check_huge_pages(struct doctor *d, struct doc_node *n) {
    const struct json_value *facts = doc_facts(n);
    const char *wanted = doc_str(facts, "kvHugePages"),
               *is = doc_str(facts, "host.transparentHugePages");
    const double pool = doc_num(facts, "host.hugePageFreeBytes"),
                 kv = doc_num(facts, "model.kvBytes");
    if (strcmp(wanted, "hugetlb") == 0 && n->live == NULL && pool < kv)
        doc_say(d, DOC_WARNING, n,
                "reserve more (sysctl vm.nr_hugepages), or set kvHugePages to transparent",
                "its KV pool of %.0f MiB is to be of reserved huge pages, of which %.0f MiB are "
                "free",
                kv / MIB, pool / MIB);
    if (strcmp(wanted, "transparent") == 0 && strcmp(is, "never") == 0)
        doc_say(d, DOC_WARNING, n, "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
                "its machine gives no transparent huge pages, which weights and KV are read "
                "faster from");
}

static void check_cores(struct doctor *d, struct doc_node *n) {
    const struct json_value *facts = doc_facts(n);
    const double threads = doc_num(facts, "threads"), allowed = doc_num(facts, "host.cpusAllowed"),
                 paid = doc_num(facts, "host.cpusPaid");
    if (allowed > 0 && threads > allowed)
        doc_say(d, DOC_WARNING, n, "set computeThreads to the number of cores, or 0",
                "%.0f threads compute on %.0f cores: they wait for each other", threads, allowed);
    if (paid > 0 && (threads > 0 ? threads : allowed) > paid + 0.5)
        doc_say(d, DOC_WARNING, n,
                "raise cpu.max of the control group, or set computeThreads to what it pays for",
                "its control group pays for %.1f cores, and %.0f threads compute: the kernel stops "
                "them in each period",
                paid, threads > 0 ? threads : allowed);
}

static void check_descriptors(struct doctor *d, struct doc_node *n) {
    const struct json_value *facts = doc_facts(n);
    const double wanted = doc_num(facts, "descriptorsWanted"),
                 max = doc_num(facts, "host.descriptorsHardMax"),
                 open = doc_num(facts, "host.descriptorsOpen");
    if (max > 0 && wanted > max)
        doc_say(d, DOC_WARNING, n,
                "LimitNOFILE in its unit, or `ulimit -Hn`; else fewer connections: maxLinkNum, "
                "connectionsMax",
                "it wants %.0f descriptors, and its limit is %.0f: fewer connections are taken",
                wanted, max);
    if (n->live != NULL && max > 0 && open > 0.9 * max)
        doc_say(d, DOC_WARNING, n, "LimitNOFILE in its unit, or `ulimit -Hn`",
                "%.0f of its %.0f descriptors are in use", open, max);
}

static void check_disk(struct doctor *d, struct doc_node *n) {
    const struct json_value *facts = doc_facts(n), *cache;
    const double weights = doc_num(facts, "model.weightBytes"),
                 left = doc_num(facts, "weightCache.freeBytes");
    const bool automatic = doc_bool(facts, "weightCache.automatic");
    if (json_get(facts, "weightCache", (struct json_value **)&cache) != JSON_OK ||
        (automatic && weights < CACHE_BYTES_MIN) ||
        strcmp(doc_str(facts, "model.weightsFrom"), "cache") == 0)
        return;
    if (!doc_bool(cache, "writable"))
        doc_say(d, DOC_WARNING, n,
                "give its user the folder, or set weightCachePath to another one",
                "it may not write to %s, so weights are packed at each start and are in memory "
                "once for each instance",
                doc_str(cache, "path"));
    else if (left < weights)
        doc_say(d, DOC_WARNING, n, "make room there, or set weightCachePath to another folder",
                "packed weights of %.0f MiB have no room in %s, where %.0f MiB are free",
                weights / MIB, doc_str(cache, "path"), left / MIB);
}

static void check_sockets(struct doctor *d, struct doc_node *n) {
    const double max = doc_num(doc_facts(n), "host.socketBufferMax");
    if (!n->coordinator && max > 0 && max < 4 * MIB)
        doc_say(d, DOC_NOTE, n, "sysctl net.core.wmem_max=4194304 net.core.rmem_max=4194304",
                "sockets may have %.0f KiB of buffer: KV links are faster with 4096", max / 1024);
}

/* ---- what runs */

static void check_state(struct doctor *d, struct doc_node *n) {
    const struct json_value *s = n->status;
    if (n->coordinator) return;
    if (doc_bool(s, "service.engineHeld"))
        doc_say(d, DOC_ERROR, n, "POST /v1/engine-server/fault-handling-command lets it go on",
                "its engine is held by an order");
    if (doc_num(s, "service.engineStuckMs") > 0)
        doc_say(d, DOC_ERROR, n, "look at its log and its machine; restart it when it stays so",
                "its engine has not got on for %.0f ms", doc_num(s, "service.engineStuckMs"));
    if (n->live != NULL && doc_str(n->live, "registerUrl")[0] != 0 &&
        !doc_bool(n->live, "registered"))
        doc_say(d, DOC_ERROR, n,
                "registerUrl must be the coordinator's management plane, reachable from there; its "
                "log says what came back",
                "it cannot register at %s", doc_str(n->live, "registerUrl"));
}

/* The largest batch that was measured, at most `slots`. */
static double most_measured(const struct perf_msg *m, double slots) {
    double most = 1;
    for (int b = 0; b < PERF_BATCHES; b++)
        for (int c = 0; c < PERF_CONTEXTS; c++)
            if (m->steps[b][c].n > 0 && m->steps[b][c].batch > most &&
                m->steps[b][c].batch <= slots)
                most = m->steps[b][c].batch;
    return most;
}

/* What its memory would let it do, where it has been measured; step_s: of one sequence. */
static void say_ceiling(struct doctor *d, const struct doc_node *n, double step_s, double read) {
    const double rate = doc_num(n->measured, "readBytesPerSecond"),
                 peak = doc_num(n->measured, "operationsPerSecond");
    if (n->unmeasured)
        doc_say(d, DOC_WARNING, n, "ask again when it is idle", "it did not measure: %s", n->why);
    if (rate <= 0 || step_s <= 0 || read <= 0) return;
    const bool slow = 1 / step_s < 0.4 * rate / read && read > CACHE_BYTES_MIN;
    doc_say(d, slow ? DOC_WARNING : DOC_NOTE, n,
            slow ? "see what else runs on its machine, and computeThreads and cores" : "",
            "memory is read at %.1f GB/s with %.0f threads, and a token reads %.3f GB%s: that "
            "allows %.1f tokens/s of one answer, and it makes %.1f; %s reaches %.0f Gop/s",
            rate / GB, doc_num(n->measured, "threads"), read / GB,
            read > CACHE_BYTES_MIN ? "" : ", which caches may hold", rate / read, 1 / step_s,
            doc_str(n->measured, "instruction"), peak / GB);
}

/* What it has measured of itself. */
static void check_speed(struct doctor *d, struct doc_node *n) {
    struct json_value *o = NULL;
    struct perf_msg *perf = calloc(1, sizeof(*perf));
    const struct json_value *facts = doc_facts(n);
    const double slots = doc_num(facts, "model.slots"), read = doc_num(facts, "model.readBytes");
    if (perf != NULL && n->status != NULL && json_get_obj(n->status, "perf", &o) == JSON_OK &&
        perf_parse(perf, o, NULL) == ERR_OK) {
        const double one = perf_step_s(perf, 1, 256), many = most_measured(perf, slots),
                     prompt = perf_prompt_s(perf, 512);
        if (one > 0 && prompt > 0)
            doc_say(d, DOC_NOTE, n, "",
                    "forecast: %.0f tokens/s of a prompt; of answers %.1f tokens/s one alone, %.0f "
                    "with %.0f at once",
                    512 / prompt, 1 / one, many / perf_step_s(perf, many, 256), many);
        say_ceiling(d, n, one, read);
    }
    free(perf);
}

const struct doc_check doc_checks[] = {
    {"file", "settings that a start would refuse or ignore; rank tables", check_file, NULL},
    {"certificates", "TLS files: there, allowed, sound, key and certificate of one pair",
     check_certificates, NULL},
    {"days", "certificates and CRLs that end soon", check_days, NULL},
    {"trust", "callers and callees: both with TLS, chains and names that the other takes", NULL,
     doc_check_trust},
    {"plain", "planes without TLS that other machines can reach", doc_check_plain, NULL},
    {"addresses", "two planes of two nodes at one address and port", NULL, doc_check_addresses},
    {"answers", "management planes that do not answer", check_answers, NULL},
    {"ports", "planes that cannot be reached from here", NULL, check_ports},
    {"table", "rank table and nodes that do not fit together", doc_check_table, NULL},
    {"clock", "clocks that differ, or are kept by nobody", check_clock, check_clocks},
    {"model", "model files that cannot be used", check_model, NULL},
    {"same", "what must be the same on all instances: build, model, tokenizer, types, blocks", NULL,
     doc_check_same},
    {"memory", "memory for weights and KV, of the machine and of the control group", check_memory,
     doc_check_machines},
    {"huge pages", "huge pages for weights and KV", check_huge_pages, NULL},
    {"cores", "threads, cores and what the control group pays for; cores that two have",
     check_cores, doc_check_cores},
    {"descriptors", "limits of open files", check_descriptors, NULL},
    {"disk", "room for packed weights", check_disk, NULL},
    {"sockets", "buffers of sockets, and MTUs that differ", check_sockets, doc_check_mtu},
    {"state", "engines that are held or stuck; registering", check_state, NULL},
    {"cluster", "whether it serves, and why not; drained and failing instances", NULL,
     doc_check_cluster},
    {"links", "KV links between instances", doc_check_links, doc_check_rates},
    {"speed", "forecast of tokens a second, and with --measure what memory allows", check_speed,
     NULL},
    {NULL, NULL, NULL, NULL},
};
