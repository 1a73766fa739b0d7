/* jinja_loop: items, look-ahead, and the members of `loop`. */
#include "common/text/jinja_loop.h"

#include "common/text/jinja_call.h"
#include "common/text/jinja_eval.h"

bool jinja_loop_new(struct jinja_run *r, const struct jinja_stmt *s, const struct jv_list *items,
                    struct jinja_loop **out) {
    struct jinja_loop *l = jinja_alloc(r, sizeof(*l));
    if (l == NULL) return false;
    *l = (struct jinja_loop){.items = items,
                             .target = s->loop.target,
                             .test = s->loop.test,
                             .outer = r->scope,
                             .index0 = -1,
                             .length = s->loop.test == NULL ? (int64_t)items->n : -1};
    *out = l;
    return true;
}

/* Takes the next item that passes the test; JV_ABSENT when there is none. */
static bool fetch(struct jinja_run *r, struct jinja_loop *l, struct jv *out) {
    *out = (struct jv){0};
    while (l->at < l->items->n) {
        struct jv item = l->items->v[l->at++], pass = jv_bool(true);
        if (l->test != NULL) {
            /* The test sees the names around the for block and the target, but no loop variable. */
            struct jinja_scope *inner = r->scope, *scope = jinja_alloc(r, sizeof(*scope));
            if (scope == NULL) return false;
            *scope = (struct jinja_scope){.parent = l->outer};
            r->scope = scope;
            if (!jinja_assign(r, l->target, &item) || !jinja_eval(r, l->test, &pass)) return false;
            r->scope = inner;
        }
        if (jv_truth(&pass)) {
            *out = item;
            return true;
        }
    }
    return true;
}

static bool peek(struct jinja_run *r, struct jinja_loop *l) {
    return l->after.type != JV_ABSENT || fetch(r, l, &l->after);
}

bool jinja_loop_next(struct jinja_run *r, struct jinja_loop *l, bool *got) {
    struct jv item = l->after;
    l->after = (struct jv){0};
    if (item.type == JV_ABSENT && !fetch(r, l, &item)) return false;
    *got = item.type != JV_ABSENT;
    if (!*got) return true;
    l->index0++;
    l->before = l->current;
    l->current = item;
    return true;
}

bool jinja_loop_len(struct jinja_run *r, struct jinja_loop *l, size_t *out) {
    if (l->length < 0) {
        struct jv_list *rest;
        struct jv item;
        if (!jv_list_new(r, 0, &rest)) return false;
        for (;;) {
            if (!fetch(r, l, &item)) return false;
            if (item.type == JV_ABSENT) break;
            if (!jv_list_push(r, rest, item)) return false;
        }
        l->length = (int64_t)rest->n + l->index0 + 1 + (l->after.type != JV_ABSENT);
        l->items = rest;
        l->at = 0;
        l->test = NULL;
    }
    *out = (size_t)l->length;
    return true;
}

bool jinja_loop_attr(struct jinja_run *r, struct jinja_loop *l, const struct jv *name,
                     struct jv *out) {
    size_t n;
    *out = (struct jv){0};
    if (jv_is_str(name, "index")) {
        *out = jv_int(l->index0 + 1);
    } else if (jv_is_str(name, "index0")) {
        *out = jv_int(l->index0);
    } else if (jv_is_str(name, "first")) {
        *out = jv_bool(l->index0 == 0);
    } else if (jv_is_str(name, "last")) {
        if (!peek(r, l)) return false;
        *out = jv_bool(l->after.type == JV_ABSENT);
    } else if (jv_is_str(name, "length") || jv_is_str(name, "revindex") ||
               jv_is_str(name, "revindex0")) {
        if (!jinja_loop_len(r, l, &n)) return false;
        int64_t done = jv_is_str(name, "length")     ? 0
                       : jv_is_str(name, "revindex") ? l->index0
                                                     : l->index0 + 1;
        *out = jv_int((int64_t)n - done);
    } else if (jv_is_str(name, "previtem")) {
        *out = l->index0 == 0 ? jv_undef_hint("there is no previous item") : l->before;
    } else if (jv_is_str(name, "nextitem")) {
        if (!peek(r, l)) return false;
        *out = l->after.type == JV_ABSENT ? jv_undef_hint("there is no next item") : l->after;
    } else if (jv_is_str(name, "depth")) {
        *out = jv_int(1);
    } else if (jv_is_str(name, "depth0")) {
        *out = jv_int(0);
    }
    return true;
}

static bool loop_cycle(struct jinja_call *c) {
    if (c->args->n_pos == 0) return jinja_fail(c->r, "loop.cycle needs at least one item");
    *c->out = c->args->pos[(size_t)c->self.loop->index0 % c->args->n_pos];
    return true;
}

static bool loop_changed(struct jinja_call *c) {
    struct jv_list *l;
    bool same;
    if (!jv_list_new(c->r, c->args->n_pos, &l)) return false;
    for (size_t i = 0; i < c->args->n_pos; i++) l->v[l->n++] = c->args->pos[i];
    struct jv now = jv_of_tuple(l);
    if (!jv_equal(c->r, &c->self.loop->changed, &now, &same)) return false;
    c->self.loop->changed = now;
    *c->out = jv_bool(!same);
    return true;
}

const struct jinja_def jinja_loop_methods[LOOP_METHODS] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
};
