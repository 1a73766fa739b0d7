/* doctor: `batonctl doctor`. First everything is looked at, in files and at the nodes
 * (doctor_look.c, doctor_net.c); then each row of a table of checks (doctor_checks.c) reads what
 * was found and says what is wrong with it and what to do. A check asks nobody. Thread: one.
 *
 * What nodes answer is untrusted: answers are bounded, their JSON is read member by member, and a
 * member that is missing or of another type reads as "" or 0. */
#ifndef BATON_TOOLS_CTL_DOCTOR_H
#define BATON_TOOLS_CTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/net/tls.h"
#include "tools/ctl/ctl.h"

enum {
    DOC_NODES_MAX = 1024,
    DOC_FINDINGS_MAX = 10000, /* further ones are counted */
    DOC_FACTS_BYTES_MAX = 4 << 20,
    DOC_LINKS_MAX = 4096, /* that are measured */
    DOC_ADDRESS_BYTES = 64,
    DOC_NAME_BYTES = 96,
    DOC_BASE_BYTES = 160,
    DOC_WHY_BYTES = 300,
};

enum doc_severity { DOC_NOTE, DOC_WARNING, DOC_ERROR };

struct doc_finding {
    enum doc_severity severity;
    char node[DOC_NAME_BYTES]; /* "": of the cluster */
    const char *check;         /* the row's name */
    char *what;
    const char *remedy;
};

struct doc_node {
    bool coordinator;
    char name[DOC_NAME_BYTES];
    char file[1024];               /* its configuration; "": none was given */
    char ip[DOC_ADDRESS_BYTES];    /* of its management plane */
    uint16_t port;                 /* likewise; 0: nobody said */
    char base[DOC_BASE_BYTES];     /* URL of it; "": unknown */
    char refused[DOC_WHY_BYTES];   /* what its daemon said of the file instead of facts; "": none */
    char warned[DOC_WHY_BYTES];    /* the first line it said beside them */
    const char *from;              /* how it is known: "file", "rank table", "coordinator" */
    bool in_table;                 /* the rank table of a coordinator lists it */
    struct json_value *conf;       /* --facts of the file; NULL: none */
    struct json_value *live;       /* GET /v1/facts; NULL: it did not answer, or was not asked */
    struct json_value *status;     /* GET /v2/status */
    struct json_value *measured;   /* POST /v1/measure */
    const struct json_value *seen; /* what the coordinator says of it */
    bool asked, answers;           /* answers: with HTTP, whatever it was */
    bool through;                  /* the coordinator asked it: from here it cannot be */
    bool unmeasured;               /* it refused to measure: why */
    bool unasked;                  /* it wants a certificate, and there is none for it here */
    int http_status;
    char why[DOC_WHY_BYTES]; /* why it did not answer */
    bool clock_known;
    double clock_s, clock_error_s; /* its clock less ours */
    struct tls *tls;               /* to ask it with; borrowed */
};

/* One TCP connection that was tried from here. */
struct doc_knock {
    size_t node;
    const char *plane;
    char ip[DOC_ADDRESS_BYTES];
    uint16_t port;
    bool open;
    char why[80];
    double rtt_us;
    unsigned mtu; /* of the way there, as the kernel knows it */
};

/* What one instance measured of its link to another. */
struct doc_link {
    size_t from, to;
    struct json_value *measured; /* NULL: it could not */
    char why[DOC_WHY_BYTES];
};

struct doctor {
    struct ctl *c;
    struct doc_node *nodes;
    size_t n_nodes;
    struct doc_knock *knocks;
    size_t n_knocks;
    struct doc_link *links;
    size_t n_links;
    struct json_value *cluster; /* the coordinator's /v2/status; NULL: it did not answer */
    struct doc_finding *findings;
    size_t n_findings, n_dropped;
    size_t counts[DOC_ERROR + 1];
    const char *check; /* the row that runs */
    struct {
        const struct json_value *block;
        struct tls *tls;
        char why[DOC_WHY_BYTES];
    } * contexts; /* of TLS blocks that were opened: doctor_tls.c */
    size_t n_contexts;
    bool offline, failed; /* failed: no memory */
};

/* One row: of every node, of the cluster, or of both. */
struct doc_check {
    const char *name, *about;
    void (*node)(struct doctor *d, struct doc_node *n);
    void (*cluster)(struct doctor *d);
};
extern const struct doc_check doc_checks[]; /* ends with a NULL name */

/* n NULL: of the cluster. remedy is static. */
void doc_say(struct doctor *d, enum doc_severity severity, const struct doc_node *n,
             const char *remedy, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- what was found: NULL, "" and 0 where it is missing, o NULL too */
static inline const struct json_value *doc_facts(const struct doc_node *n) {
    return n->live != NULL ? n->live : n->conf;
}
const char *doc_str(const struct json_value *o, const char *path); /* "model.name" */
double doc_num(const struct json_value *o, const char *path);
bool doc_bool(const struct json_value *o, const char *path);
struct json_value *doc_arr(const struct json_value *o, const char *path, size_t *n);
/* The entry of "planes" or "tls" of that name. */
const struct json_value *doc_plane(const struct json_value *facts, const char *name);
/* The TLS block that serves a plane: its own, or that of the plane whose socket it shares. */
const struct json_value *doc_block(const struct json_value *facts, const char *plane);
bool doc_shares_port(const struct json_value *facts, const char *plane); /* with an earlier one */
/* NULL: no node has that management plane. */
struct doc_node *doc_at(struct doctor *d, const char *ip, uint16_t port);
bool doc_is_loopback(const char *ip);

/* ---- doctor_look.c. False: nothing can be looked at, and that was said. */
bool doc_look(struct doctor *d);
/* Has node `from` measure the links that it has, into d->links. False: no memory. */
bool doc_measure_links(struct doctor *d, size_t from);
void doc_free(struct doctor *d);

/* ---- doctor_net.c */
struct doc_ask {
    const char *base, *path, *body; /* body: of a POST; NULL: GET */
    struct tls *tls;
    unsigned total_ms;
    struct ctl_answer answer; /* status 0: none */
    char why[DOC_WHY_BYTES];
    double sent_s, got_s; /* of the wall clock */
};
/* All at once, some hundred at a time; each answer is freed by ctl_answer_free(). */
void doc_ask_all(struct doc_ask *asks, size_t n);
void doc_knock_all(struct doc_knock *knocks, size_t n);

/* ---- doctor_tls.c */
/* The context of a block of `tls`; NULL: *why. The doctor keeps it. */
struct tls *doc_tls(struct doctor *d, const struct json_value *block, const char **why);
/* A handshake in memory between two blocks, as the daemons would do it. server_name: what the
 * server's certificate must name, or NULL; client_name likewise. False: why. */
bool doc_handshake(struct tls *client, struct tls *server, const char *server_name,
                   const char *client_name, char why[DOC_WHY_BYTES]);

#endif
