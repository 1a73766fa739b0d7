/* ctl_doctor: `batonctl doctor`: looks, runs the checks, prints what they found. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/ctl/doctor.h"

enum { EXIT_GOOD = 0, EXIT_ERRORS = 1, EXIT_WARNINGS = 3 };
static const char *const severities[] = {"note", "warning", "error"};

void doc_say(struct doctor *d, enum doc_severity severity, const struct doc_node *n,
             const char *remedy, const char *fmt, ...) {
    struct buf text = BUF_INIT;
    va_list ap;
    d->counts[severity]++;
    if (d->n_findings == DOC_FINDINGS_MAX) {
        d->n_dropped++;
        return;
    }
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    struct doc_finding *f = &d->findings[d->n_findings];
    *f = (struct doc_finding){
        .severity = severity, .check = d->check, .what = text.data, .remedy = remedy};
    if (n != NULL) memcpy(f->node, n->name, sizeof(f->node));
    d->failed |= text.failed || text.data == NULL;
    d->n_findings += text.data != NULL;
}

static void run_checks(struct doctor *d) {
    for (const struct doc_check *k = doc_checks; k->name != NULL; k++) {
        d->check = k->name;
        for (size_t i = 0; k->node != NULL && i < d->n_nodes; i++) k->node(d, &d->nodes[i]);
        if (k->cluster != NULL) k->cluster(d);
    }
}

/* ---- printing */

static void print_text(const struct doctor *d) {
    for (int severity = DOC_ERROR; severity >= DOC_NOTE; severity--)
        for (size_t i = 0; i < d->n_findings; i++) {
            const struct doc_finding *f = &d->findings[i];
            if ((int)f->severity != severity) continue;
            ctl_paint(severities[severity], 0, severities[severity]);
            printf(": %s%s%s: %s\n", f->node, f->node[0] != 0 ? ": " : "", f->check, f->what);
            if (f->remedy[0] != 0) printf("    %s\n", f->remedy);
        }
    size_t n_answer = 0, n_checks = 0;
    for (size_t i = 0; i < d->n_nodes; i++) n_answer += d->nodes[i].answers;
    while (doc_checks[n_checks].name != NULL) n_checks++;
    printf("%zu nodes (%zu answer), %zu checks: ", d->n_nodes, n_answer, n_checks);
    if (d->counts[DOC_ERROR] + d->counts[DOC_WARNING] == 0)
        printf("nothing is wrong\n");
    else
        printf("%zu errors, %zu warnings\n", d->counts[DOC_ERROR], d->counts[DOC_WARNING]);
    if (d->n_dropped > 0) printf("%zu more are not shown\n", d->n_dropped);
}

static void put_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}

static struct json_value *node_json(const struct doc_node *n) {
    struct json_value *o = json_new_obj();
    put_str(o, "name", n->name);
    put_str(o, "kind", n->coordinator ? "coordinator" : "instance");
    put_str(o, "from", n->from);
    put_str(o, "file", n->file);
    put_str(o, "management", n->base);
    json_obj_set(o, "answers", json_new_bool(n->answers));
    if (n->clock_known) json_obj_set(o, "clockSeconds", json_new_f64(n->clock_s));
    json_obj_set(o, "facts", json_ref((struct json_value *)(uintptr_t)doc_facts(n)));
    if (n->measured != NULL) json_obj_set(o, "measured", json_ref(n->measured));
    return o;
}

static int print_json(const struct doctor *d, const char *worst) {
    struct json_value *root = json_new_obj(), *nodes = json_new_arr(), *findings = json_new_arr(),
                      *checks = json_new_arr(), *links = json_new_arr();
    for (size_t i = 0; i < d->n_nodes; i++) json_arr_add(nodes, node_json(&d->nodes[i]));
    for (size_t i = 0; i < d->n_findings; i++) {
        struct json_value *o = json_new_obj();
        put_str(o, "severity", severities[d->findings[i].severity]);
        put_str(o, "node", d->findings[i].node);
        put_str(o, "check", d->findings[i].check);
        put_str(o, "what", d->findings[i].what);
        put_str(o, "remedy", d->findings[i].remedy);
        json_arr_add(findings, o);
    }
    for (size_t i = 0; i < d->n_links; i++) {
        struct json_value *o = json_new_obj();
        put_str(o, "from", d->nodes[d->links[i].from].name);
        put_str(o, "to", d->nodes[d->links[i].to].name);
        json_obj_set(o, "bytesPerSecond",
                     json_new_f64(doc_num(d->links[i].measured, "bytesPerSecond")));
        json_obj_set(o, "rttMicroseconds",
                     json_new_f64(doc_num(d->links[i].measured, "rttMicroseconds")));
        json_arr_add(links, o);
    }
    for (const struct doc_check *k = doc_checks; k->name != NULL; k++) {
        struct json_value *o = json_new_obj();
        put_str(o, "name", k->name);
        put_str(o, "about", k->about);
        json_arr_add(checks, o);
    }
    put_str(root, "worst", worst);
    json_obj_set(root, "findings", findings);
    json_obj_set(root, "nodes", nodes);
    json_obj_set(root, "links", links);
    json_obj_set(root, "checks", checks);
    const char *text = json_to_text(root, JSON_COMPACT, NULL);
    if (text != NULL) puts(text);
    json_put(root);
    return text != NULL;
}

int ctl_cmd_doctor(struct ctl *c) {
    struct doctor d = {.c = c, .offline = ctl_option(c, "--offline") != NULL};
    int rc = 2;
    d.findings = calloc(DOC_FINDINGS_MAX, sizeof(*d.findings));
    if (d.findings == NULL) return ctl_fail(c, 1, "out of memory");
    if (doc_look(&d)) {
        run_checks(&d);
        const bool errors = d.counts[DOC_ERROR] > 0, warnings = d.counts[DOC_WARNING] > 0;
        rc = errors ? EXIT_ERRORS : warnings ? EXIT_WARNINGS : EXIT_GOOD;
        if (c->json)
            d.failed |= !print_json(&d, errors ? "error" : warnings ? "warning" : "good");
        else
            print_text(&d);
        if (d.failed) rc = ctl_fail(c, 1, "out of memory");
    }
    doc_free(&d);
    return rc;
}
