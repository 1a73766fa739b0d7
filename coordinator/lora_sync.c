/* lora_sync: one adapter at a time to one instance, in the order in which they were loaded. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/lora.h"
#include "coordinator/relay.h"
#include "proto/json.h"

enum { LOAD_TIMEOUT_MS = 600000, RETRY_MS = 1000 };

/* ---- the list */

static void coord_lora_free(struct coord_lora *l) {
    free(l->name);
    free(l->body);
    free(l);
}

const struct coord_lora *lora_find(const struct coordinator *co, const char *name) {
    const struct coord_lora *l = co->loras;
    while (l != NULL && strcmp(l->name, name) != 0) l = l->next;
    return l;
}

void lora_forget(struct coordinator *co, const char *name) {
    unsigned i = 0;
    for (struct coord_lora **at = &co->loras; *at != NULL; at = &(*at)->next, i++) {
        struct coord_lora *l = *at;
        if (strcmp(l->name, name) != 0) continue;
        *at = l->next;
        for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
            if (in->lora_next > i)
                in->lora_next--; /* those after it have moved up */
            else if (in->lora_next == i && in->lora_call != NULL)
                in->lora_stale = true;
        }
        coord_lora_free(l);
        return;
    }
}

void lora_forget_all(struct coordinator *co) {
    while (co->loras != NULL) lora_forget(co, co->loras->name);
}

bool lora_remember(struct coordinator *co, const char *name, const char *body, size_t n) {
    struct coord_lora *l = calloc(1, sizeof(*l));
    if (l == NULL) return false;
    l->name = strdup(name);
    l->body = strndup(body, n);
    if (l->name == NULL || l->body == NULL) {
        coord_lora_free(l);
        return false;
    }
    lora_forget(co, name);
    struct coord_lora **at = &co->loras;
    while (*at != NULL) at = &(*at)->next;
    *at = l;
    return true;
}

/* The body of a load, as an operator would have sent it. Malloc'd; NULL: no memory. */
static char *body_of(const struct adapter_status *a) {
    struct json_value *o = json_new_obj();
    if (o == NULL) return NULL;
    json_obj_set(o, "lora_name", json_new_str(a->name));
    json_obj_set(o, "lora_path", json_new_str(a->path));
    const char *text = json_to_text(o, JSON_COMPACT, NULL);
    char *body = text != NULL ? strdup(text) : NULL;
    json_put(o);
    return body;
}

void lora_learn(struct inst *in) {
    struct coordinator *co = in->co;
    bool any = false;
    if (in->lora_asked) return;
    in->lora_asked = true;
    for (size_t i = 0; i < in->facts.status.n_adapters; i++) {
        const struct adapter_status *a = &in->facts.status.adapters[i];
        if (lora_find(co, a->name) != NULL) continue;
        char *body = body_of(a);
        if (body == NULL || !lora_remember(co, a->name, body, strlen(body))) {
            log_error("lora", "name=%s event=not_remembered", a->name);
        } else {
            log_info("lora", "name=%s event=learnt id=%u", a->name, in->id);
            any = true;
        }
        free(body);
    }
    if (!any) return;
    /* What is new stands behind all that an instance has: it goes on from where it was. Who serves
     * does so without the adapter meanwhile, as before. */
    for (struct inst *each = co->reg.first; each != NULL; each = each->next) {
        if (!each->facts.online || each->lora_due) continue;
        each->lora_due = true;
        each->lora_anew = !inst_state_has_role(each->life.state);
        each->lora_retry_ms = 0;
    }
}

/* ---- one instance */

enum err lora_post(struct coordinator *co, const struct inst *in, bool load, const void *body,
                   size_t n, unsigned total_ms,
                   void (*on_done)(void *arg, const struct http_result *r), void *arg,
                   struct http_call **call) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    char url[192];
    struct tls *tls = coord_tls_url(&co->tls, url, sizeof(url), &in->node, NODE_MANAGEMENT,
                                    load ? "/v1/load_lora_adapter" : "/v1/unload_lora_adapter");
    const struct http_call_opts o = {.method = "POST",
                                     .url = url,
                                     .tls = tls,
                                     .headers = headers,
                                     .body = body,
                                     .body_len = n,
                                     .total_ms = total_ms,
                                     .body_bytes_max = LORA_ANSWER_BYTES_MAX,
                                     .on_done = on_done,
                                     .arg = arg};
    return http_client_call(co->client, &o, call);
}

void lora_sync_start(struct inst *in) {
    lora_sync_stop(in);
    in->lora_next = 0;
    in->lora_retry_ms = 0;
    in->lora_due = in->lora_anew = in->co->loras != NULL;
}

void lora_sync_stop(struct inst *in) {
    http_call_cancel(&in->lora_call);
    in->lora_stale = false;
    in->lora_due = in->lora_anew = false;
}

static const struct coord_lora *nth(const struct coordinator *co, unsigned n) {
    const struct coord_lora *l = co->loras;
    while (l != NULL && n-- > 0) l = l->next;
    return l;
}

/* An instance that has the adapter did not restart. One that cannot be asked, or is about to let go
 * of it, is asked again; one that will not have the adapter serves without it, and refuses requests
 * that name it. */
static void on_loaded(void *arg, const struct http_result *r) {
    struct inst *in = arg;
    bool stale = in->lora_stale;
    in->lora_call = NULL;
    in->lora_stale = false;
    if (r->err != ERR_OK || r->status == 503 || r->status == 429 ||
        r->cause == CAUSE_ADAPTER_LEAVING) {
        in->lora_retry_ms = clock_ms() + RETRY_MS;
        return;
    }
    if (r->cause != CAUSE_ADAPTER_PRESENT && (r->cause != CAUSE_NONE || r->status != 200))
        log_error("lora", "id=%u event=not_given status=%d detail=\"%.200s\"", in->id, r->status,
                  r->body);
    if (!stale) in->lora_next++;
    lora_sync_tick(in, clock_ms());
}

void lora_sync_tick(struct inst *in, uint64_t now_ms) {
    if (!in->lora_due || in->lora_call != NULL || !inst_answers(in) || now_ms < in->lora_retry_ms)
        return;
    const struct coord_lora *l = nth(in->co, in->lora_next);
    if (l == NULL) {
        in->lora_due = in->lora_anew = false;
        log_info("lora", "id=%u event=given count=%u", in->id, in->lora_next);
        relay_schedule(in->co->relays);
        return;
    }
    if (lora_post(in->co, in, true, l->body, strlen(l->body), LOAD_TIMEOUT_MS, on_loaded, in,
                  &in->lora_call) != ERR_OK)
        in->lora_retry_ms = now_ms + RETRY_MS;
}
