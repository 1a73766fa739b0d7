/* replay_run: lines to a run. */
#include "tools/replay_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests */

static struct run_request *find(const struct run *run, uint64_t id) {
    struct run_request *r = run->buckets[id % RUN_BUCKETS];
    while (r != NULL && r->id != id) r = r->next_id;
    return r;
}

static void request_free(struct run_request *r) {
    if (r == NULL) return;
    free(r->path);
    free(r->body);
    free(r->tokens);
    free(r);
}

static enum err take_request(struct run *run, struct record_event *e, struct errbuf *eb) {
    if (find(run, e->id) != NULL)
        return err_set(eb, ERR_INVALID, "id %s is that of a request before", e->id_text);
    if (run->n == run->cap) {
        const size_t cap = run->cap * 2 + 64;
        struct run_request **grown = realloc(run->requests, cap * sizeof(struct run_request *));
        if (grown == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
        run->requests = grown;
        run->cap = cap;
    }
    struct run_request *r = calloc(1, sizeof(*r));
    if (r == NULL || (r->path = strdup(e->request.path)) == NULL) {
        request_free(r);
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    }
    r->id = e->id;
    r->us = e->us;
    r->end_us = UINT64_MAX;
    r->body = e->request.body;
    r->n = e->request.n;
    r->n_json = e->request.n_json;
    r->has_tensors = e->request.has_tensors;
    e->request.body = NULL;
    r->next_id = run->buckets[r->id % RUN_BUCKETS];
    run->buckets[r->id % RUN_BUCKETS] = r;
    run->requests[run->n++] = r;
    return ERR_OK;
}

static enum err add_tokens(struct run_request *r, const struct record_event *e, struct errbuf *eb) {
    if (e->n_tokens == 0) return ERR_OK;
    if (e->n_tokens > r->cap - r->n_tokens) {
        const size_t cap = 2 * r->cap + e->n_tokens + 64;
        struct emitted *grown = realloc(r->tokens, cap * sizeof(*grown));
        if (grown == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
        r->tokens = grown;
        r->cap = cap;
    }
    memcpy(r->tokens + r->n_tokens, e->tokens, e->n_tokens * sizeof(*r->tokens));
    r->n_tokens += e->n_tokens;
    return ERR_OK;
}

/* ---- decisions */

static void say_pair(char out[64], bool found, uint32_t p, uint32_t d) {
    if (found)
        snprintf(out, 64, "P %u and D %u", p, d);
    else
        snprintf(out, 64, "no pair");
}

static void take_decision(struct run *run, struct run_request *r, const struct record_event *e) {
    struct pair_choice pick = {0};
    run->conf.kv_token_bytes = e->decision.kv_token_bytes;
    const bool found = schedule_pick(&pick, &run->conf, e->decision.p, e->decision.n_p,
                                     e->decision.d, e->decision.n_d, e->decision.demand,
                                     e->decision.avoid_p, e->decision.avoid_d, e->decision.turn);
    const uint32_t p = !found       ? 0
                       : pick.alone ? e->decision.d[pick.d].id
                                    : e->decision.p[pick.p].id,
                   d = found ? e->decision.d[pick.d].id : 0;
    run->n_decisions++;
    if (r != NULL && e->decision.found && r->p == 0) {
        r->p = e->decision.p_id;
        r->d = e->decision.d_id;
    }
    if (found == e->decision.found && p == e->decision.p_id && d == e->decision.d_id) return;
    if (run->n_wrong++ > 0) return;
    char was[64], is[64];
    say_pair(was, e->decision.found, e->decision.p_id, e->decision.d_id);
    say_pair(is, found, p, d);
    snprintf(run->wrong, sizeof(run->wrong),
             "request %s, attempt %u, at %.6f s: recorded %s, now %s", e->id_text, e->epoch + 1,
             (double)e->us / 1e6, was, is);
}

/* ---- faults */

static void tell_lost(FILE *to, const struct record_event *e) {
    fprintf(to, "%12.6f s  request %s lost attempt %u on P %u and D %u: %s, %u tokens kept\n",
            (double)e->us / 1e6, e->id_text, e->epoch + 1, e->p_id, e->d_id, e->cause, e->n_kept);
}

static void tell_instance(FILE *to, const struct record_event *e) {
    fprintf(to, "%12.6f s  instance %u (%s, %s): %s%s%s\n", (double)e->us / 1e6, e->instance,
            e->name, e->role, e->what, e->why[0] != 0 ? ": " : "", e->why);
}

/* ---- lines */

static enum err take(struct run *run, struct record_event *e, FILE *faults, struct errbuf *eb) {
    struct run_request *r = e->id != 0 ? find(run, e->id) : NULL;
    enum err got = ERR_OK;
    if ((run->n_events++ == 0) != (e->kind == RECORD_START))
        return err_set(eb, ERR_INVALID, "a recording has one start, in its first line");
    switch (e->kind) {
    case RECORD_START: run->conf = e->conf; break;
    case RECORD_REQUEST: got = take_request(run, e, eb); break;
    case RECORD_DECISION: take_decision(run, r, e); break;
    case RECORD_FIRST:
        if (r != NULL && e->has_seed && !r->has_seed) {
            r->has_seed = true;
            r->seed = e->seed;
        }
        if (r != NULL) got = add_tokens(r, e, eb);
        break;
    case RECORD_TOKENS:
        if (r != NULL) got = add_tokens(r, e, eb);
        break;
    case RECORD_LOST:
        run->n_lost++;
        if (r != NULL) r->n_lost++;
        if (r != NULL && e->n_kept == 0) r->n_tokens = 0; /* nobody was sent them */
        if (faults != NULL) tell_lost(faults, e);
        break;
    case RECORD_END:
        if (r == NULL) break;
        r->status = e->status;
        r->end_us = e->us;
        break;
    case RECORD_INSTANCE:
        if (faults != NULL && run->n > 0) tell_instance(faults, e);
        break;
    case RECORD_CLOSED: snprintf(run->closed, sizeof(run->closed), "%s", e->why); break;
    }
    return got;
}

static enum err read_lines(struct run *run, FILE *f, const char *path, FILE *faults,
                           struct errbuf *eb) {
    char *line = NULL;
    size_t cap = 0, n_line = 0;
    ssize_t n;
    enum err got = ERR_OK;
    while (got == ERR_OK && (n = getline(&line, &cap, f)) > 0) {
        struct record_event e;
        struct errbuf why = {0};
        n_line++;
        if (line[n - 1] != '\n') break; /* whoever wrote it died */
        got = record_event_parse(&e, line, (size_t)n - 1, &why);
        if (got == ERR_OK) {
            got = take(run, &e, faults, &why);
            record_event_free(&e);
        }
        if (got != ERR_OK) (void)err_set(eb, got, "%s, line %zu: %s", path, n_line, why.text);
    }
    free(line);
    if (got == ERR_OK && ferror(f)) return err_set(eb, ERR_IO, "%s: cannot be read", path);
    if (got == ERR_OK && run->n_events == 0)
        return err_set(eb, ERR_INVALID, "%s: no recording: it is empty", path);
    return got;
}

enum err run_read(struct run **out, const char *path, FILE *faults, struct errbuf *eb) {
    *out = NULL;
    FILE *f = fopen(path, "re");
    if (f == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    struct run *run = calloc(1, sizeof(*run));
    enum err e = run != NULL ? read_lines(run, f, path, faults, eb)
                             : err_set(eb, ERR_NO_MEMORY, "out of memory");
    fclose(f);
    if (e != ERR_OK) run_free(&run);
    *out = run;
    return e;
}

void run_free(struct run **runp) {
    struct run *run = *runp;
    if (run == NULL) return;
    for (size_t i = 0; i < run->n; i++) request_free(run->requests[i]);
    free(run->requests);
    free(run);
    *runp = NULL;
}
