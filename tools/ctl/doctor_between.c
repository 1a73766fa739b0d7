/* doctor_between: the checks between nodes. */
#include "tools/ctl/doctor_between.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDSHAKES_MAX = 4096, CODES = 15 };
static const double MIB = 1048576, GB = 1e9;

/* ---- TLS between two */

/* Who calls whom, with which block, at which plane. */
static const struct call {
    bool from_coordinator, to_coordinator;
    const char *block, *plane;
    bool both_named; /* the callee's certificate names its address, and the caller's likewise */
} calls[] = {
    {true, false, "instance_business", "business", false},
    {true, false, "instance_management", "management", false},
    {true, false, "instance_control", "management", false},
    {true, false, "instance_metrics", "metrics", false},
    {false, true, "register", "management", false},
    {false, false, "cluster", "cluster", true},
};

static bool speaks_tls(const struct json_value *facts, const struct call *k) {
    if (strcmp(k->block, "cluster") == 0) return doc_bool(doc_plane(facts, "cluster"), "tls");
    if (strcmp(k->block, "register") == 0)
        return strncmp(doc_str(facts, "registerUrl"), "https://", 8) == 0;
    return doc_block(facts, k->block) != NULL;
}

static bool calls_at_all(const struct json_value *from, const struct json_value *to,
                         const struct call *k) {
    if (strcmp(k->block, "register") == 0) {
        char address[DOC_ADDRESS_BYTES + 8];
        const struct json_value *p = doc_plane(to, "management");
        snprintf(address, sizeof(address), "://%.60s:%.0f", doc_str(p, "ip"), doc_num(p, "port"));
        return strstr(doc_str(from, "registerUrl"), address) != NULL;
    }
    /* A metrics plane on another's port is called as that one is. */
    if (strcmp(k->plane, "metrics") == 0 && doc_shares_port(to, k->plane)) return false;
    return doc_plane(to, k->plane) != NULL &&
           (!k->both_named || doc_plane(from, "cluster") != NULL);
}

static void try_call(struct doctor *d, const struct doc_node *from, const struct doc_node *to,
                     const struct call *k, unsigned *n_done) {
    const struct json_value *a = from->conf, *b = to->conf, *plane = doc_plane(b, k->plane),
                            *client = doc_block(a, k->block), *server = doc_block(b, k->plane);
    char why[DOC_WHY_BYTES];
    const char *unused;
    if (!calls_at_all(a, b, k)) return;
    const bool tls = speaks_tls(a, k);
    if (tls != doc_bool(plane, "tls")) {
        doc_say(d, DOC_ERROR, to,
                "switch TLS on at both sides or at none: httpsEnabled, interCommTLSEnabled, the "
                "coordinator's ..tls_enable, https or http in registerUrl",
                "its %s plane is %s, but %s calls it %s (%s)", k->plane,
                doc_bool(plane, "tls") ? "with TLS" : "plain", from->name,
                tls ? "with TLS" : "without", k->block);
        return;
    }
    if (!tls || client == NULL || server == NULL || ++*n_done > HANDSHAKES_MAX) return;
    struct tls *ours = doc_tls(d, client, &unused), *theirs = doc_tls(d, server, &unused);
    if (ours == NULL || theirs == NULL) return; /* `certificates` says it */
    const char *name =
                   doc_bool(client, "verifyHost") || k->both_named ? doc_str(plane, "ip") : NULL,
               *caller = k->both_named ? doc_str(doc_plane(a, "cluster"), "ip") : NULL;
    if (doc_handshake(ours, theirs, name, caller, why)) return;
    doc_say(d, DOC_ERROR, to,
            "certificates of a plane must come from the CA that the other side has for it, be "
            "neither ended nor revoked, and name the address that is called, or what "
            "interCommPeerName, instance_peer_name or coordinator_peer_name say "
            "(tools/make-pki.sh issues such)",
            "TLS between %s (%s) and its %s plane fails: %s", from->name, k->block, k->plane, why);
}

void doc_check_trust(struct doctor *d) {
    unsigned n_done = 0;
    for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
        for (size_t i = 0; i < d->n_nodes; i++)
            for (size_t j = 0; j < d->n_nodes; j++) {
                const struct doc_node *from = &d->nodes[i], *to = &d->nodes[j];
                if (i == j || from->conf == NULL || to->conf == NULL || from->base[0] == 0 ||
                    to->base[0] == 0 || from->coordinator != calls[k].from_coordinator ||
                    to->coordinator != calls[k].to_coordinator || (calls[k].both_named && i > j))
                    continue;
                try_call(d, from, to, &calls[k], &n_done);
            }
    if (n_done > HANDSHAKES_MAX)
        doc_say(d, DOC_NOTE, NULL, "look at some of the files at a time",
                "%d handshakes were tried, and no more", HANDSHAKES_MAX);
}

void doc_check_plain(struct doctor *d, struct doc_node *n) {
    size_t planes;
    const struct json_value *facts = doc_facts(n), *arr = doc_arr(facts, "planes", &planes);
    char list[200] = "";
    for (size_t i = 0; i < planes; i++) {
        const struct json_value *p = json_arr_at(arr, i);
        const size_t at = strlen(list);
        if (n->base[0] == 0 || doc_bool(p, "tls") || doc_is_loopback(doc_str(p, "ip"))) continue;
        snprintf(list + at, sizeof(list) - at, "%s%.30s", at > 0 ? ", " : "", doc_str(p, "plane"));
    }
    if (list[0] != 0)
        doc_say(d, DOC_WARNING, n,
                "httpsEnabled, interCommTLSEnabled and the coordinator's ..tls_enable; "
                "tools/make-pki.sh makes certificates for all planes",
                "planes without TLS that other machines can reach: %s", list);
}

/* ---- addresses */

static bool both_taken(const struct json_value *a, const struct json_value *b) {
    const char *x = doc_str(a, "ip"), *y = doc_str(b, "ip");
    return doc_num(a, "port") == doc_num(b, "port") && doc_num(a, "port") > 0 &&
           (strcmp(x, y) == 0 || strcmp(x, "0.0.0.0") == 0 || strcmp(y, "0.0.0.0") == 0);
}

static void compare_planes(struct doctor *d, const struct doc_node *a, const struct doc_node *b) {
    size_t n, m;
    const struct json_value *x = doc_arr(a->conf, "planes", &n),
                            *y = doc_arr(b->conf, "planes", &m);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            const struct json_value *p = json_arr_at(x, i), *q = json_arr_at(y, k);
            if (!both_taken(p, q)) continue;
            doc_say(d, DOC_ERROR, b, "give one of them another port",
                    "its %s plane is at %s:%.0f, where %s has its %s plane", doc_str(q, "plane"),
                    doc_str(q, "ip"), doc_num(q, "port"), a->name, doc_str(p, "plane"));
            return;
        }
}

void doc_check_addresses(struct doctor *d) {
    for (size_t i = 0; i < d->n_nodes; i++)
        for (size_t k = i + 1; k < d->n_nodes; k++)
            if (d->nodes[i].conf != NULL && d->nodes[k].conf != NULL && d->nodes[i].base[0] != 0 &&
                d->nodes[k].base[0] != 0)
                compare_planes(d, &d->nodes[i], &d->nodes[k]);
}

/* The first coordinator of whose rank table something is known; NULL: instances register. */
static const struct json_value *table_of(const struct doctor *d, size_t *n) {
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct json_value *arr = doc_arr(doc_facts(&d->nodes[i]), "rankTable.nodes", n);
        if (arr != NULL && *n > 0) return arr;
    }
    *n = 0;
    return NULL;
}

void doc_check_table(struct doctor *d, struct doc_node *n) {
    static const char *const planes[] = {"business", "metrics", "cluster"};
    size_t n_table;
    const struct json_value *arr = table_of(d, &n_table), *facts = doc_facts(n);
    if (n->coordinator || arr == NULL) return;
    if (!n->in_table && n->conf != NULL && doc_str(n->conf, "registerUrl")[0] == 0)
        doc_say(d, DOC_ERROR, n,
                "write its management address and ports into the rank table, or set registerUrl",
                "neither does the rank table have its management plane %s:%u, nor does it register",
                n->ip, n->port);
    for (size_t i = 0; i < n_table; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        if (strcmp(doc_str(o, "managementIp"), n->ip) != 0 || doc_num(o, "management") != n->port)
            continue;
        for (size_t p = 0; p < 3; p++) {
            const double said = doc_num(o, planes[p]),
                         is = doc_num(doc_plane(facts, planes[p]), "port");
            if (is > 0 && said != is)
                doc_say(d, DOC_ERROR, n,
                        "correct predict_port, metric_port or inter_comm_port of the rank table",
                        "the rank table has port %.0f for its %s plane, which is at %.0f", said,
                        planes[p], is);
        }
    }
}

/* ---- what must be the same */

static const struct same {
    const char *path, *what;
    enum doc_severity severity;
    bool coordinator; /* it counts too */
    bool of_weights;  /* it may differ where all allow other weights (allowMixedWeightDtype) */
    const char *remedy;
} sames[] = {
    {"version", "version", DOC_WARNING, true, false,
     "finish the upgrade: `batonctl upgrade --rolling`"},
    {"commit", "build", DOC_NOTE, true, false, "run the same build everywhere"},
    {"mode", "inferMode", DOC_ERROR, false, false, "instances of a cluster have inferMode dmi"},
    {"model.name", "model name", DOC_ERROR, false, false, "give all the same modelName"},
    {"model.hash", "model hash", DOC_ERROR, false, true, "give all the same model files"},
    {"model.shape", "model", DOC_ERROR, false, true, "give all the same model files"},
    {"model.tokenizer", "tokenizer hash", DOC_ERROR, false, false,
     "give all the same tokenizer files"},
    {"model.kvDtype", "KV type", DOC_ERROR, false, false, "give all the same kvDtype"},
    {"model.dtype", "type of weights", DOC_ERROR, false, true,
     "give all the same weightDtype, or allowMixedWeightDtype"},
    {"model.kernels", "kernel set", DOC_WARNING, false, false,
     "where bits must not differ, set the same kernels on all: the best that each machine has"},
    {"host.cpu", "processor", DOC_NOTE, false, false,
     "answers of P and D may differ in their last bits where their kernel sets do"},
};

static void value_of(const struct json_value *facts, const char *path, char out[128]) {
    const char *s = doc_str(facts, path);
    snprintf(out, 128, "%.100s", s);
}

/* What most nodes have is what the others are held against. */
static void hold_against(struct doctor *d, const char *path, const char *what,
                         enum doc_severity severity, bool coordinator, const char *remedy,
                         void (*read)(const struct json_value *, const char *, char[128])) {
    char best[128] = "", value[128], other[128];
    const char *who = "";
    size_t n_best = 0;
    for (size_t i = 0; i < d->n_nodes; i++) {
        size_t n = 0;
        if (d->nodes[i].coordinator && !coordinator) continue;
        read(doc_facts(&d->nodes[i]), path, value);
        for (size_t k = 0; value[0] != 0 && k < d->n_nodes; k++) {
            if (d->nodes[k].coordinator && !coordinator) continue;
            read(doc_facts(&d->nodes[k]), path, other);
            n += strcmp(value, other) == 0;
        }
        if (n <= n_best) continue;
        n_best = n;
        who = d->nodes[i].name;
        memcpy(best, value, sizeof(best));
    }
    for (size_t i = 0; n_best > 0 && i < d->n_nodes; i++) {
        if (d->nodes[i].coordinator && !coordinator) continue;
        read(doc_facts(&d->nodes[i]), path, value);
        if (value[0] != 0 && strcmp(value, best) != 0)
            doc_say(d, severity, &d->nodes[i], remedy, "its %s is %.40s, that of %s %.40s", what,
                    value, who, best);
    }
}

static void number_of(const struct json_value *facts, const char *path, char out[128]) {
    const double v = doc_num(facts, path);
    snprintf(out, 128, "%.0f", v);
    if (v == 0) out[0] = 0;
}

static void sealing_of(const struct json_value *facts, const char *path, char out[128]) {
    const struct json_value *p = doc_plane(facts, "cluster");
    (void)path;
    snprintf(out, 128, "%s", p == NULL ? "" : doc_bool(p, "tls") ? "sealed" : "plain");
}

/* Every instance of which something is known says so. */
static bool all_mix_weights(const struct doctor *d) {
    bool all = true;
    for (size_t i = 0; i < d->n_nodes; i++)
        all &= d->nodes[i].coordinator || doc_facts(&d->nodes[i]) == NULL ||
               doc_bool(doc_facts(&d->nodes[i]), "model.mixedWeights");
    return all;
}

void doc_check_same(struct doctor *d) {
    const bool mixed = all_mix_weights(d);
    for (size_t i = 0; i < sizeof(sames) / sizeof(sames[0]); i++)
        hold_against(d, sames[i].path, sames[i].what,
                     sames[i].of_weights && mixed ? DOC_NOTE : sames[i].severity,
                     sames[i].coordinator, sames[i].remedy, value_of);
    hold_against(d, "model.blockTokens", "block size", DOC_ERROR, false,
                 "give all the same cacheBlockSize", number_of);
    hold_against(d, "", "KV link", DOC_ERROR, false, "give all the same interCommTLSEnabled",
                 sealing_of);
}

void doc_check_mtu(struct doctor *d) {
    bool apart = false;
    for (size_t i = 0; i < d->n_nodes; i++)
        apart |= d->nodes[i].base[0] != 0 && !doc_is_loopback(d->nodes[i].ip);
    if (apart)
        hold_against(d, "host.mtu", "MTU", DOC_WARNING, true,
                     "give all interfaces of one network the same MTU (ip link set DEV mtu N)",
                     number_of);
}

/* ---- machines that several nodes share */

static bool same_machine(const struct doc_node *a, const struct doc_node *b) {
    const char *x = doc_str(doc_facts(a), "host.name"), *y = doc_str(doc_facts(b), "host.name");
    return x[0] != 0 && strcmp(x, y) == 0 && strcmp(a->ip, b->ip) == 0;
}

void doc_check_machines(struct doctor *d) {
    for (size_t i = 0; i < d->n_nodes; i++) {
        double want = 0;
        size_t n = 0, first = i;
        for (size_t k = 0; k < d->n_nodes; k++) {
            if (!same_machine(&d->nodes[i], &d->nodes[k])) continue;
            want += doc_memory_wanted(&d->nodes[k]);
            n += doc_memory_wanted(&d->nodes[k]) > 0;
            if (k < first) first = k;
        }
        const double left = doc_memory_left(doc_facts(&d->nodes[i]));
        if (first == i && n > 1 && left > 0 && want > left)
            doc_say(d, DOC_ERROR, NULL,
                    "fewer instances there, or less KV; packed weights in a file "
                    "(weightCachePath) are in memory once for all of a machine",
                    "%zu instances of the machine %s need %.0f MiB together, and %.0f MiB are left",
                    n, doc_str(doc_facts(&d->nodes[i]), "host.name"), want / MIB, left / MIB);
    }
}

static bool share_a_core(const struct json_value *a, const struct json_value *b, double *core) {
    size_t n, m;
    const struct json_value *x = doc_arr(a, "cores", &n), *y = doc_arr(b, "cores", &m);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            double p = -1, q = -2;
            if (json_as_f64(json_arr_at(x, i), &p) == JSON_OK &&
                json_as_f64(json_arr_at(y, k), &q) == JSON_OK && p == q) {
                *core = p;
                return true;
            }
        }
    return false;
}

void doc_check_cores(struct doctor *d) {
    double core;
    for (size_t i = 0; i < d->n_nodes; i++)
        for (size_t k = i + 1; k < d->n_nodes; k++)
            if (same_machine(&d->nodes[i], &d->nodes[k]) &&
                share_a_core(doc_facts(&d->nodes[i]), doc_facts(&d->nodes[k]), &core))
                doc_say(d, DOC_WARNING, &d->nodes[k], "give each cores of its own (npuDeviceIds)",
                        "its threads are pinned to core %.0f, as those of %s are", core,
                        d->nodes[i].name);
    for (size_t i = 0; i < d->n_nodes; i++) {
        if (d->nodes[i].coordinator) continue;
        double threads = 0;
        size_t n = 0, first = i;
        for (size_t k = 0; k < d->n_nodes; k++) {
            const struct json_value *f = doc_facts(&d->nodes[k]);
            if (d->nodes[k].coordinator || !same_machine(&d->nodes[i], &d->nodes[k])) continue;
            const double own = doc_num(f, "threads");
            threads += own > 0 ? own : doc_num(f, "host.cpusAllowed");
            n++;
            if (k < first) first = k;
        }
        const double cpus = doc_num(doc_facts(&d->nodes[i]), "host.cpusOnline");
        if (first == i && n > 1 && cpus > 0 && threads > cpus)
            doc_say(d, DOC_WARNING, NULL,
                    "computeThreads of them together at most the cores of the machine",
                    "%zu instances of the machine %s compute with %.0f threads on %.0f cores", n,
                    doc_str(doc_facts(&d->nodes[i]), "host.name"), threads, cpus);
    }
}

/* ---- what the coordinator says */

void doc_check_cluster(struct doctor *d) {
    size_t n;
    const struct json_value *arr = doc_arr(d->cluster, "coordinator.reasons", &n);
    if (d->cluster != NULL && !doc_bool(d->cluster, "coordinator.ready"))
        doc_say(d, DOC_ERROR, NULL, "what follows says why",
                "the coordinator is not ready: requests are refused");
    for (size_t i = 0; i < n; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        if (doc_str(o, "name")[0] != 0) continue; /* of an instance: below */
        doc_say(d, DOC_ERROR, NULL,
                "start an instance, undrain one, or give one the role: `batonctl status` shows "
                "roles and states, `batonctl plan` what would change them",
                "%s", doc_str(o, "detail"));
    }
    for (size_t i = 0; i < d->n_nodes; i++) {
        struct doc_node *node = &d->nodes[i];
        const char *state = doc_str(node->seen, "state"), *why = doc_str(node->seen, "lastError");
        if (node->seen == NULL) continue;
        if (strcmp(state, "drained") == 0 || strcmp(state, "draining") == 0)
            doc_say(d, DOC_WARNING, node, "`batonctl undrain NAME` gives it work again",
                    "it is %s (%s)", state, doc_str(node->seen, "draining"));
        else if (strcmp(state, "serving") != 0)
            doc_say(d, DOC_ERROR, node,
                    "`batonctl status` shows when it serves; its log and that of the coordinator "
                    "say more",
                    "the coordinator gives it no work: stage \"%s\"%s%s", state,
                    why[0] != 0 ? ", " : "", why);
        if (strcmp(doc_str(node->seen, "breaker.state"), "open") == 0)
            doc_say(d, DOC_ERROR, node, "it is tried again by itself; its log says what failed",
                    "requests failed on it, and it rests: %s",
                    doc_str(node->seen, "breaker.cause"));
    }
}

/* By the number in `failed : N` (docs/wire-kv-link.md). */
static const char *link_remedy(const char *text) {
    static const char *const remedies[CODES] = {
        [1] = "run the same build on both",
        [2] = "give both the same model files",
        [3] = "give both the same model files",
        [4] = "give both the same kvDtype and weightDtype",
        [5] = "give both the same cacheBlockSize",
        [6] = "give both the same tokenizer files",
        [7] = "their roles do not fit: `batonctl status` shows them",
        [8] = "interCommPort and addresses must be as the rank table or registering says them, "
              "without address translation between the two",
        [9] = "another process sits on the pair's port: it goes away by itself",
        [10] = "the peer, or the network to it, stands still",
        [11] = "open interCommPort, and the ports of the kernel's choice, between the two machines",
        [12] = "look at the network between them: frames are lost or changed",
        [13] = "give both the same interCommTLSEnabled",
        [14] = "certificates of the cluster plane: one CA, not ended, naming both addresses",
    };
    const char *at = strstr(text, "failed : ");
    const unsigned long code = at != NULL ? strtoul(at + 9, NULL, 10) : 0;
    return code > 0 && code < CODES ? remedies[code] : "its log and that of the peer say more";
}

void doc_check_links(struct doctor *d, struct doc_node *n) {
    size_t n_links;
    const struct json_value *arr = doc_arr(n->status, "linkStatus.peers", &n_links);
    for (size_t i = 0; i < n_links; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        const char *text = doc_str(o, "link"), *detail = doc_str(o, "detail"), *peer = "";
        for (size_t k = 0; k < d->n_nodes; k++)
            if (d->nodes[k].seen != NULL && doc_num(d->nodes[k].seen, "id") == doc_num(o, "target"))
                peer = d->nodes[k].name;
        if (strcmp(text, "ok") != 0)
            doc_say(d, DOC_ERROR, n, link_remedy(text), "its KV link to %s: %s%s%s",
                    peer[0] != 0 ? peer : doc_str(o, "server_ip"), text, detail[0] != 0 ? ": " : "",
                    detail);
    }
}

void doc_check_rates(struct doctor *d) {
    for (size_t i = 0; i < d->n_links; i++) {
        const struct doc_link *l = &d->links[i];
        const struct doc_node *a = &d->nodes[l->from], *b = &d->nodes[l->to];
        const double rate = doc_num(l->measured, "bytesPerSecond"),
                     rtt = doc_num(l->measured, "rttMicroseconds"),
                     token = doc_num(doc_facts(a), "model.kvTokenBytes");
        if (l->measured == NULL)
            doc_say(d, DOC_WARNING, a, "ask again when it is idle; both need this build",
                    "its KV link to %s could not be measured: %s", b->name, l->why);
        else
            doc_say(d, DOC_NOTE, a, "",
                    "KV to %s: %.2f GB/s, %.0f us there and back; %.0f tokens/s", b->name,
                    rate / GB, rtt, token > 0 ? rate / token : 0);
    }
}
