/* lora_route: one load or unload over all instances.
 *
 *   load:   all at once; when one fails, those that took it are told to unload, then the failure is
 *           the answer
 *   unload: the prefill instances first, which answer when what they run is handed over; then the
 *           others, which by then have everything that still needs the adapter
 *
 * An operation carries on when its client goes away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/log.h"
#include "coordinator/lora.h"
#include "proto/json.h"
#include "proto/json_pull.h"

enum { LOAD_TIMEOUT_MS = 600000 };

enum part_state { PART_WAITING, PART_ASKED, PART_OK, PART_HAS, PART_HAS_NOT, PART_FAILED };

struct op;

struct part {
    struct op *op;
    uint32_t id;
    bool prefill;
    enum part_state state;
    int status;
    char content_type[64];
    struct buf body;
};

struct op {
    struct coordinator *co;
    struct http_x *x; /* NULL: the client is gone */
    bool load, undoing;
    char *name, *body;
    size_t body_len;
    unsigned n_open;
    size_t n_parts;
    struct part *parts;
};

static void op_free(struct op *op) {
    for (size_t i = 0; i < op->n_parts; i++) buf_free(&op->parts[i].body);
    free(op->parts);
    free(op->name);
    free(op->body);
    free(op);
}

static void on_gone(void *arg) {
    ((struct op *)arg)->x = NULL;
}

/* ---- the answer */

static void reply_part(struct op *op, const struct part *p, bool others_differ) {
    struct json_value *root = NULL;
    const char *text;
    size_t n;
    char full[1024];
    /* What one instance says of itself must name it when the others say something else. */
    if (others_differ && json_read(&root, p->body.data, p->body.len, NULL, NULL) == ERR_OK &&
        json_get_str(root, "error", &text, &n) == JSON_OK) {
        snprintf(full, sizeof(full), "%.900s (instance %u)", text, p->id);
        coord_reply_error(op->co, op->x, p->status, full);
    } else {
        http_x_reply(op->x, p->status, coord_media_type(p->content_type), p->body.data,
                     p->body.len);
    }
    json_put(root);
}

static size_t count(const struct op *op, enum part_state s) {
    size_t n = 0;
    for (size_t i = 0; i < op->n_parts; i++) n += op->parts[i].state == s;
    return n;
}

static const struct part *first(const struct op *op, enum part_state s) {
    for (size_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].state == s) return &op->parts[i];
    return NULL;
}

static void finish(struct op *op, const struct part *p) {
    log_info("lora", "name=%s event=%s status=%d", op->name, op->load ? "load" : "unload",
             p->status);
    if (op->x != NULL) {
        http_x_on_close(op->x, NULL, NULL);
        reply_part(op, p, p->status != 200 && count(op, p->state) < op->n_parts);
    }
    op_free(op);
}

/* ---- asking */

static void step(struct op *op);

/* By the cause alone: with legacy statuses (loraLegacyStatus) a failure is a 200 too. */
static enum part_state state_of(const struct op *op, const struct http_result *r) {
    if (r->cause == CAUSE_NONE) return r->status == 200 ? PART_OK : PART_FAILED;
    if (op->load && r->cause == CAUSE_ADAPTER_PRESENT) return PART_HAS;
    if (!op->load && r->cause == CAUSE_ADAPTER_MISSING) return PART_HAS_NOT;
    return PART_FAILED;
}

static void part_failed(struct part *p, const char *why) {
    char text[256];
    p->state = PART_FAILED;
    p->status = 500;
    snprintf(text, sizeof(text), "%.200s", why);
    char *body = api_error_body(API_ERRORS_PLAIN, coord_error_style(p->op->co), &p->status, text,
                                NULL, NULL);
    snprintf(p->content_type, sizeof(p->content_type), "application/json; charset=utf-8");
    buf_forgive(&p->body);
    if (body != NULL) buf_puts(&p->body, body);
    free(body);
}

static void on_answer(void *arg, const struct http_result *r) {
    struct part *p = arg;
    struct op *op = p->op;
    if (op->undoing) {
        if (r->err != ERR_OK || state_of(op, r) != PART_OK)
            log_error("lora", "name=%s id=%u event=not_taken_back status=%d", op->name, p->id,
                      r->status);
    } else if (r->err != ERR_OK) {
        part_failed(p, r->detail != NULL && r->detail[0] != 0 ? r->detail : err_text(r->err));
    } else {
        p->state = state_of(op, r);
        p->status = r->status;
        snprintf(p->content_type, sizeof(p->content_type), "%s", r->content_type);
        buf_append(&p->body, r->body, r->body_len);
    }
    if (--op->n_open == 0) step(op);
}

static void ask(struct part *p, bool load) {
    struct op *op = p->op;
    const struct inst *in = registry_find(&op->co->reg, p->id);
    enum err e = in == NULL ? ERR_PEER_LOST
                            : lora_post(op->co, in, load, op->body, op->body_len,
                                        load ? LOAD_TIMEOUT_MS : 0, on_answer, p, NULL);
    if (e == ERR_OK) {
        op->n_open++;
        if (!op->undoing) p->state = PART_ASKED;
    } else if (!op->undoing) {
        part_failed(p, err_text(e));
    }
}

/* ---- the order of things */

static void end_load(struct op *op) {
    const struct part *failed = first(op, PART_FAILED), *has = first(op, PART_HAS),
                      *ok = first(op, PART_OK);
    const struct coord_lora *known = lora_find(op->co, op->name);
    /* The same load again reaches an instance that had lost the adapter. */
    bool again = known != NULL && strcmp(known->body, op->body) == 0;
    if (failed == NULL && ok != NULL && (has == NULL || again)) {
        if (!lora_remember(op->co, op->name, op->body, op->body_len))
            log_error("lora", "name=%s event=not_remembered", op->name);
        finish(op, ok);
        return;
    }
    if (ok != NULL && !op->undoing) {
        op->undoing = true;
        for (size_t i = 0; i < op->n_parts; i++)
            if (op->parts[i].state == PART_OK) ask(&op->parts[i], false);
        if (op->n_open > 0) return;
    }
    finish(op, failed != NULL ? failed : has);
}

static void end_unload(struct op *op) {
    const struct part *p = first(op, PART_FAILED);
    if (p == NULL) p = first(op, PART_OK);
    finish(op, p != NULL ? p : first(op, PART_HAS_NOT));
}

/* Nothing is under way: asks who is next, or ends. */
static void step(struct op *op) {
    for (int prefill = 1; prefill >= 0; prefill--) {
        for (size_t i = 0; i < op->n_parts; i++) {
            struct part *p = &op->parts[i];
            if (p->state == PART_WAITING && (op->load || p->prefill == (prefill == 1)))
                ask(p, op->load);
        }
        if (op->n_open > 0) return;
    }
    if (op->load) {
        end_load(op);
    } else {
        end_unload(op);
    }
}

static bool is_there(const struct inst *in) {
    return in->facts.online && inst_answers(in) && in->life.state != INST_LEAVING;
}

/* What every instance checks anyway is left to them; the name is needed here. */
static char *name_in(const char *body, size_t n) {
    char name[ADAPTER_NAME_BYTES_MAX + 1];
    size_t len;
    json_pull_find(body, n, "lora_name", name, sizeof(name), &len);
    return strdup(name);
}

void lora_route(struct coordinator *co, struct http_x *x, bool load) {
    struct op *op = calloc(1, sizeof(*op));
    size_t n, there = 0;
    const char *body = http_x_body(x, &n);
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) there += is_there(in);
    if (there == 0) {
        free(op);
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 503, coord_not_ready(co));
        return;
    }
    if (op != NULL) {
        op->parts = calloc(there, sizeof(*op->parts));
        op->name = name_in(body, n);
        op->body = strndup(body, n);
    }
    if (op == NULL || op->parts == NULL || op->name == NULL || op->body == NULL) {
        if (op != NULL) op_free(op);
        coord_reply_error(co, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    op->co = co;
    op->x = x;
    op->load = load;
    op->body_len = strlen(op->body);
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!is_there(in)) continue;
        op->parts[op->n_parts++] =
            (struct part){.op = op, .id = in->id, .prefill = in->plan.place.role == ROLE_PREFILL};
    }
    if (!load) lora_forget(co, op->name); /* who comes now need not have it */
    http_x_on_close(x, on_gone, op);
    step(op);
}
