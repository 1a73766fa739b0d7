/* doctor_look: which nodes there are, and what they and their files say. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/err.h"
#include "tools/ctl/doctor.h"

enum { ASK_MS = 5000, MEASURE_MS = 60000 };

/* ---- what was found */

/* The member at a path of names with dots; NULL: it is not there. */
static struct json_value *at_path(const struct json_value *o, const char *path) {
    char name[64];
    struct json_value *v = NULL;
    while (o != NULL) {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof(name)) return NULL;
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        if (!json_is(o, json_type_object) || json_get(o, name, &v) != JSON_OK) return NULL;
        if (path[n] == 0) return v;
        path += n + 1;
        o = v;
    }
    return NULL;
}

const char *doc_str(const struct json_value *o, const char *path) {
    const struct json_value *v = at_path(o, path);
    const char *s = "";
    size_t n;
    return v != NULL && json_as_str(v, &s, &n) == JSON_OK ? s : "";
}

double doc_num(const struct json_value *o, const char *path) {
    const struct json_value *v = at_path(o, path);
    double d = 0;
    return v != NULL && json_as_f64(v, &d) == JSON_OK ? d : 0;
}

/* 0: it is none. */
static uint16_t port_of(const struct json_value *o, const char *path) {
    const double v = doc_num(o, path);
    return v >= 1 && v <= UINT16_MAX ? (uint16_t)v : 0;
}

bool doc_bool(const struct json_value *o, const char *path) {
    const struct json_value *v = at_path(o, path);
    return v != NULL && json_is(v, json_type_boolean) && json_bool(v);
}

struct json_value *doc_arr(const struct json_value *o, const char *path, size_t *n) {
    struct json_value *v = at_path(o, path);
    if (v != NULL && !json_is(v, json_type_array)) v = NULL;
    *n = v != NULL ? json_arr_len(v) : 0;
    return v;
}

static const struct json_value *named(const struct json_value *facts, const char *list,
                                      const char *name) {
    size_t n;
    const struct json_value *arr = doc_arr(facts, list, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(doc_str(json_arr_at(arr, i), "plane"), name) == 0) return json_arr_at(arr, i);
    return NULL;
}

const struct json_value *doc_plane(const struct json_value *facts, const char *name) {
    return named(facts, "planes", name);
}

/* The first plane at the address and port of another; that one itself where it is the first. */
static const struct json_value *first_there(const struct json_value *facts, const char *plane) {
    const struct json_value *me = doc_plane(facts, plane);
    size_t n;
    const struct json_value *planes = doc_arr(facts, "planes", &n);
    for (size_t i = 0; me != NULL && i < n; i++) {
        const struct json_value *p = json_arr_at(planes, i);
        if (doc_num(p, "port") == doc_num(me, "port") &&
            strcmp(doc_str(p, "ip"), doc_str(me, "ip")) == 0)
            return p;
    }
    return me;
}

const struct json_value *doc_block(const struct json_value *facts, const char *plane) {
    const struct json_value *own = named(facts, "tls", plane);
    return own != NULL ? own : named(facts, "tls", doc_str(first_there(facts, plane), "plane"));
}

bool doc_shares_port(const struct json_value *facts, const char *plane) {
    return first_there(facts, plane) != doc_plane(facts, plane);
}

struct doc_node *doc_at(struct doctor *d, const char *ip, uint16_t port) {
    for (size_t i = 0; i < d->n_nodes; i++)
        if (d->nodes[i].port == port && strcmp(d->nodes[i].ip, ip) == 0) return &d->nodes[i];
    return NULL;
}

bool doc_is_loopback(const char *ip) {
    return strncmp(ip, "127.", 4) == 0 || strcmp(ip, "localhost") == 0 || strcmp(ip, "::1") == 0;
}

/* ---- nodes */

static struct doc_node *add_node(struct doctor *d, const char *from) {
    static struct doc_node nobody; /* what is put there when there is no room */
    if (d->n_nodes == DOC_NODES_MAX) {
        memset(&nobody, 0, sizeof(nobody));
        d->n_dropped++;
        return &nobody;
    }
    struct doc_node *n = &d->nodes[d->n_nodes++];
    n->from = from;
    return n;
}

static void set_base(struct doc_node *n, bool tls) {
    const char *ip = strcmp(n->ip, "0.0.0.0") == 0 ? "127.0.0.1" : n->ip;
    snprintf(n->base, sizeof(n->base), "%s://%s:%u", tls ? "https" : "http", ip, n->port);
}

static void name_node(struct doc_node *n, const char *name) {
    if (name[0] != 0) snprintf(n->name, sizeof(n->name), "%.90s", name);
}

/* Address and name, out of its facts. */
static void place(struct doc_node *n, const struct json_value *facts) {
    const struct json_value *p = doc_plane(facts, "management");
    name_node(n, doc_str(facts, "name"));
    n->coordinator = strcmp(doc_str(facts, "kind"), "coordinator") == 0;
    if (p == NULL || n->port != 0) return;
    snprintf(n->ip, sizeof(n->ip), "%.60s", doc_str(p, "ip"));
    n->port = port_of(p, "port");
    set_base(n, doc_bool(p, "tls"));
}

static void first_line(char *out, size_t cap, const struct buf *said) {
    const char *text = said->data != NULL && said->len > 0 ? said->data : "";
    snprintf(out, cap, "%.*s", (int)(said->len < 250 ? strcspn(text, "\n") : 250), text);
    out[strcspn(out, "\n")] = 0;
}

/* What the daemon of a file says of it; a rank table is what a coordinator without a file reads. */
static bool look_at_file(struct doctor *d, const char *file) {
    static char config[] = "-c", facts[] = "--facts", rank[] = "--global-rank-table-file-path";
    struct json_value *root = NULL;
    struct errbuf eb = {0};
    char program[4096], path[PATH_MAX];
    struct buf out = BUF_INIT, said = BUF_INIT;
    struct doc_node *n = add_node(d, "file");
    snprintf(n->file, sizeof(n->file), "%s", file);
    snprintf(n->name, sizeof(n->name), "%.90s", file);
    if (json_read_file(&root, file, CTL_FILE_BYTES_MAX, NULL, &eb) != ERR_OK) {
        snprintf(n->refused, sizeof(n->refused), "%.290s", eb.text);
        return true;
    }
    const char *kind = ctl_kind_of(root);
    const bool is_table = strcmp(kind, "rank table") == 0,
               is_instance = strcmp(kind, "instance") == 0;
    json_put(root);
    if (!ctl_program(d->c, is_instance ? "prefill" : "coordinator", program)) return false;
    if (realpath(file, path) == NULL) snprintf(path, sizeof(path), "%s", file);
    char *const argv[] = {program, is_table ? rank : config, is_table ? path : n->file, facts,
                          NULL};
    const int rc = ctl_run_program(argv, &out, &said);
    n->coordinator = !is_instance;
    if (rc != 0 || out.len == 0 || json_read(&n->conf, out.data, out.len, NULL, NULL) != ERR_OK)
        first_line(n->refused, sizeof(n->refused), &said);
    else
        first_line(n->warned, sizeof(n->warned), &said);
    if (rc != 0 && n->refused[0] == 0)
        snprintf(n->refused, sizeof(n->refused), "its daemon ended with %d and said nothing", rc);
    if (n->conf != NULL) place(n, n->conf);
    if (is_table) { /* it says where nodes are, and nothing of a coordinator */
        n->port = 0;
        n->base[0] = 0;
        snprintf(n->name, sizeof(n->name), "%.90s", file);
    }
    buf_free(&out);
    buf_free(&said);
    return true;
}

/* Nodes of rank tables that no file is of. */
static void look_at_tables(struct doctor *d) {
    const size_t n_known = d->n_nodes;
    for (size_t i = 0; i < n_known; i++) {
        size_t n;
        const struct json_value *conf = doc_facts(&d->nodes[i]),
                                *arr = doc_arr(conf, "rankTable.nodes", &n);
        const bool tls = doc_block(conf, "instance_control") != NULL;
        for (size_t k = 0; k < n; k++) {
            const struct json_value *o = json_arr_at(arr, k);
            const char *ip = doc_str(o, "managementIp");
            const uint16_t port = port_of(o, "management");
            struct doc_node *node = doc_at(d, ip, port);
            if (node == NULL) {
                node = add_node(d, "rank table");
                snprintf(node->ip, sizeof(node->ip), "%.60s", ip);
                node->port = port;
                snprintf(node->name, sizeof(node->name), "%.40s:%u", doc_str(o, "ip"),
                         (unsigned)port_of(o, "business"));
                set_base(node, tls);
            }
            node->in_table = true;
        }
    }
}

static struct doc_node *coordinator_of(struct doctor *d) {
    for (size_t i = 0; i < d->n_nodes; i++)
        if (d->nodes[i].coordinator && d->nodes[i].base[0] != 0) return &d->nodes[i];
    return NULL;
}

/* The coordinator of -m, or of nothing at all. */
static bool add_coordinator(struct doctor *d) {
    struct ctl *c = d->c;
    const bool wanted = d->c->n_args == 0 || ctl_option(c, "--manage") != NULL;
    if (d->offline || coordinator_of(d) != NULL || !wanted) return true;
    if (c->base == NULL) ctl_choose_base(c);
    if (!ctl_open(c)) return false;
    struct doc_node *n = add_node(d, "coordinator");
    n->coordinator = true;
    snprintf(n->name, sizeof(n->name), "coordinator");
    snprintf(n->base, sizeof(n->base), "%.150s", c->base);
    const char *host = strstr(n->base, "://");
    if (host != NULL) {
        host += 3;
        snprintf(n->ip, sizeof(n->ip), "%.*s", (int)strcspn(host, ":/"), host);
        const char *colon = strchr(host, ':');
        n->port = colon != NULL ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
    }
    return true;
}

/* ---- questions */

/* With whose certificate a node is asked: what the command line says, else what the coordinator's
 * file has for its own calls. */
static struct tls *tls_for(struct doctor *d, const struct doc_node *n) {
    const char *why;
    const struct doc_node *co = coordinator_of(d);
    if (strncmp(n->base, "https://", 8) != 0) return NULL;
    const struct json_value *block =
        co != NULL && !n->coordinator ? doc_block(co->conf, "instance_control") : NULL;
    return block != NULL ? doc_tls(d, block, &why) : d->c->tls;
}

static void take_answer(struct doc_node *n, const struct doc_ask *a, struct json_value **to) {
    n->asked = true;
    if (a->answer.status == 0) {
        if (!n->answers) snprintf(n->why, sizeof(n->why), "%s", a->why);
        return;
    }
    n->answers = true;
    n->http_status = a->answer.status;
    if (a->answer.status == 200) (void)json_read(to, a->answer.body, a->answer.len, NULL, NULL);
}

static void take_facts(struct doc_node *n, const struct doc_ask *a) {
    take_answer(n, a, &n->live);
    const double said_s = doc_num(n->live, "unixSeconds");
    if (said_s <= 0) return;
    n->clock_known = true;
    n->clock_error_s = a->got_s > a->sent_s ? (a->got_s - a->sent_s) / 2 : 0;
    n->clock_s = said_s - (a->got_s + a->sent_s) / 2;
    place(n, n->live);
}

enum { QUESTIONS = 2 }; /* of each node: facts, status */

/* Two questions to each node that `wanted` names, at its address or by way of the coordinator. */
static void ask_nodes(struct doctor *d, bool (*wanted)(struct doctor *d, struct doc_node *n),
                      bool through) {
    static const char *const paths[2][QUESTIONS] = {
        {"/v1/facts", "/v2/status"}, {"/v1/instances/facts", "/v1/instances/status"}};
    const struct doc_node *co = coordinator_of(d);
    struct doc_ask *asks = calloc(QUESTIONS * d->n_nodes + 1, sizeof(*asks));
    size_t *of = calloc(d->n_nodes + 1, sizeof(*of)), k = 0;
    char(*texts)[64] = calloc(QUESTIONS * d->n_nodes + 1, sizeof(*texts));
    if (asks == NULL || of == NULL || texts == NULL) d->failed = true;
    for (size_t i = 0; i < d->n_nodes && !d->failed; i++) {
        struct doc_node *node = &d->nodes[i];
        if (!wanted(d, node)) continue;
        for (size_t q = 0; q < QUESTIONS; q++) {
            const size_t at = k * QUESTIONS + q;
            snprintf(texts[at], sizeof(texts[at]), "%s", paths[through][q]);
            if (through)
                snprintf(texts[at], sizeof(texts[at]), "%s?id=%.0f", paths[1][q],
                         doc_num(node->seen, "id"));
            asks[at] = (struct doc_ask){.base = through ? co->base : node->base,
                                        .path = texts[at],
                                        .tls = through ? co->tls : node->tls,
                                        .total_ms = ASK_MS};
        }
        of[k++] = i;
    }
    if (!d->failed) doc_ask_all(asks, QUESTIONS * k);
    for (size_t i = 0; i < k; i++) {
        struct doc_node *node = &d->nodes[of[i]];
        const bool passed = through && asks[i * QUESTIONS].answer.status == 200;
        node->through |= passed;
        if (!through || passed) {
            take_facts(node, &asks[i * QUESTIONS]);
            take_answer(node, &asks[i * QUESTIONS + 1], &node->status);
        }
        for (size_t q = 0; q < QUESTIONS; q++) ctl_answer_free(&asks[i * QUESTIONS + q].answer);
    }
    free(asks);
    free(of);
    free(texts);
}

/* Once each, where there is an address, and a certificate when it wants one. */
static bool not_yet_asked(struct doctor *d, struct doc_node *n) {
    if (n->asked || n->unasked || n->base[0] == 0) return false;
    n->tls = tls_for(d, n);
    n->unasked = n->tls == NULL && strncmp(n->base, "https://", 8) == 0;
    return !n->unasked;
}

/* The coordinator may have a way, or the certificate, that there is none of here. */
static bool out_of_reach(struct doctor *d, struct doc_node *n) {
    (void)d;
    return !n->answers && n->seen != NULL;
}

/* Instances that the coordinator knows, and what it says of each. */
static void take_instances(struct doctor *d) {
    size_t n = 0;
    struct doc_node *co = coordinator_of(d);
    const struct json_value *arr =
        co != NULL ? doc_arr(d->cluster = co->status, "instances", &n) : NULL;
    const bool tls = co != NULL && (doc_block(doc_facts(co), "instance_control") != NULL ||
                                    doc_block(doc_facts(co), "instance_management") != NULL);
    for (size_t i = 0; arr != NULL && i < n; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        const char *at = doc_str(o, "management"), *colon = strrchr(at, ':');
        char ip[DOC_ADDRESS_BYTES];
        if (colon == NULL) continue;
        snprintf(ip, sizeof(ip), "%.*s", (int)(colon - at), at);
        const uint16_t port = (uint16_t)strtoul(colon + 1, NULL, 10);
        struct doc_node *node = doc_at(d, ip, port);
        if (node == NULL) {
            node = add_node(d, "coordinator");
            snprintf(node->ip, sizeof(node->ip), "%s", ip);
            node->port = port;
            set_base(node, tls);
        }
        if (node->conf == NULL) name_node(node, doc_str(o, "name"));
        node->seen = o;
    }
}

static void knock(struct doctor *d) {
    size_t k = 0;
    for (size_t i = 0; i < d->n_nodes; i++) {
        size_t n;
        (void)doc_arr(doc_facts(&d->nodes[i]), "planes", &n);
        k += d->nodes[i].answers && !d->nodes[i].through ? n : 0;
    }
    d->knocks = calloc(k + 1, sizeof(*d->knocks));
    if (d->knocks == NULL) {
        d->failed = true;
        return;
    }
    for (size_t i = 0; i < d->n_nodes; i++) {
        size_t n;
        const struct json_value *arr = doc_arr(doc_facts(&d->nodes[i]), "planes", &n);
        if (!d->nodes[i].answers || d->nodes[i].through) continue;
        for (size_t p = 0; p < n && d->n_knocks < k; p++) {
            const struct json_value *o = json_arr_at(arr, p);
            struct doc_knock *one = &d->knocks[d->n_knocks++];
            const char *ip = doc_str(o, "ip");
            *one = (struct doc_knock){
                .node = i, .plane = doc_str(o, "plane"), .port = port_of(o, "port")};
            snprintf(one->ip, sizeof(one->ip), "%.60s",
                     strcmp(ip, "0.0.0.0") == 0 ? d->nodes[i].ip : ip);
        }
    }
    doc_knock_all(d->knocks, d->n_knocks);
}

/* ---- measurements, one after the other: they would disturb each other */

/* NULL: why. */
static struct json_value *measure_at(struct doctor *d, const struct doc_node *n, const char *body,
                                     char why[DOC_WHY_BYTES]) {
    const struct doc_node *co = coordinator_of(d);
    char path[64] = "/v1/measure";
    struct json_value *o = NULL;
    if (n->through)
        snprintf(path, sizeof(path), "/v1/instances/measure?id=%.0f", doc_num(n->seen, "id"));
    struct doc_ask ask = {.base = n->through ? co->base : n->base,
                          .path = path,
                          .body = body,
                          .tls = n->through ? co->tls : n->tls,
                          .total_ms = MEASURE_MS};
    doc_ask_all(&ask, 1);
    if (ask.answer.status != 0) (void)json_read(&o, ask.answer.body, ask.answer.len, NULL, NULL);
    if (ask.answer.status != 200) {
        snprintf(why, DOC_WHY_BYTES, "%.290s",
                 ask.answer.status == 0 ? ask.why : doc_str(o, "error"));
        json_put(o);
        o = NULL;
    }
    ctl_answer_free(&ask.answer);
    return o;
}

bool doc_measure_links(struct doctor *d, size_t from) {
    size_t n;
    if (d->links == NULL) d->links = calloc(DOC_LINKS_MAX, sizeof(*d->links));
    if (d->links == NULL) return false;
    const struct json_value *arr = doc_arr(d->nodes[from].status, "linkStatus.peers", &n);
    for (size_t i = 0; i < n && d->n_links < DOC_LINKS_MAX; i++) {
        const double id = doc_num(json_arr_at(arr, i), "target");
        char body[64];
        size_t to = 0;
        if (strcmp(doc_str(json_arr_at(arr, i), "link"), "ok") != 0) continue;
        while (to < d->n_nodes &&
               (d->nodes[to].seen == NULL || doc_num(d->nodes[to].seen, "id") != id))
            to++;
        if (to == d->n_nodes) continue;
        struct doc_link *l = &d->links[d->n_links++];
        *l = (struct doc_link){.from = from, .to = to};
        snprintf(body, sizeof(body), "{\"what\":\"link\",\"peer\":%.0f}", id);
        l->measured = measure_at(d, &d->nodes[from], body, l->why);
    }
    return true;
}

static void measure(struct doctor *d) {
    for (size_t i = 0; i < d->n_nodes && !d->failed; i++) {
        struct doc_node *n = &d->nodes[i];
        if (n->coordinator || n->live == NULL) continue;
        n->measured = measure_at(d, n, "{\"what\":\"machine\"}", n->why);
        n->unmeasured = n->measured == NULL;
        d->failed = !doc_measure_links(d, i);
    }
}

bool doc_look(struct doctor *d) {
    struct ctl *c = d->c;
    d->nodes = calloc(DOC_NODES_MAX, sizeof(*d->nodes));
    if (d->nodes == NULL) {
        ctl_fail(c, 1, "out of memory");
        return false;
    }
    for (int i = 0; i < c->n_args; i++)
        if (!look_at_file(d, c->args[i])) return false;
    look_at_tables(d);
    if (d->offline && c->n_args == 0) {
        ctl_fail(c, 2, "--offline needs a FILE to look at");
        return false;
    }
    if (d->offline) return true;
    if (ctl_option(c, "--ca") != NULL && !ctl_open_certificates(c)) return false;
    if (!add_coordinator(d)) return false;
    ask_nodes(d, not_yet_asked, false);
    take_instances(d);
    look_at_tables(d);
    ask_nodes(d, not_yet_asked, false);
    if (d->cluster != NULL) ask_nodes(d, out_of_reach, true);
    knock(d);
    if (ctl_option(c, "--measure") != NULL) measure(d);
    if (d->failed) ctl_fail(c, 1, "out of memory");
    return !d->failed;
}

void doc_free(struct doctor *d) {
    for (size_t i = 0; i < d->n_nodes; i++) {
        json_put(d->nodes[i].conf);
        json_put(d->nodes[i].live);
        json_put(d->nodes[i].status);
        json_put(d->nodes[i].measured);
    }
    for (size_t i = 0; i < d->n_contexts; i++) tls_close(&d->contexts[i].tls);
    for (size_t i = 0; i < d->n_findings; i++) free(d->findings[i].what);
    for (size_t i = 0; i < d->n_links; i++) json_put(d->links[i].measured);
    free(d->links);
    free(d->contexts);
    free(d->knocks);
    free(d->findings);
    free(d->nodes);
}
