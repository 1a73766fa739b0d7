/* vectors_texts: the texts of a body to ids, each as the model takes it: alone or in pairs, within
 * its context. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/vectors_priv.h"
#include "proto/limits.h"

/* ---- texts */

static bool too_long(const struct reading *r, size_t n) {
    char text[160];
    if (r->form->dialect->too_long != NULL)
        return vectors_fail(r, 400, NULL, r->form->dialect->too_long);
    snprintf(text, sizeof(text),
             "This model's maximum context length is %zu tokens. However, a text has %zu tokens.",
             r->room, n);
    return vectors_fail_code(r, 400, NULL, "context_length_exceeded", text);
}

static bool add_tokens(const struct reading *r, size_t n) {
    char text[128];
    r->v->n_tokens += n;
    if (r->v->n_tokens <= r->limits->tokens_max) return true;
    snprintf(text, sizeof(text), "all texts together may have at most %llu tokens",
             (unsigned long long)r->limits->tokens_max);
    return vectors_fail(r, 400, NULL, text);
}

/* Ids of a string without specials; of too long a one no more than show it. */
static bool encode(const struct reading *r, const char *s, size_t n, struct id_list *out) {
    if (n > r->ep->conf.max_request_bytes)
        return vectors_fail(r, 400, NULL, "a text is longer than maxRequestLength allows");
    enum err e = tokenizer_encode(r->ep->tok, s, n, false, PROMPT_TOKENS_MAX, out);
    if (e == ERR_OK) return true;
    return vectors_fail(r, e == ERR_NO_MEMORY ? 503 : 400, NULL, "a text cannot be tokenised");
}

/* What stays of n ids beside n_special others; 0 and false: too long. */
static bool fit(const struct reading *r, size_t *n, size_t n_special) {
    const size_t room = r->room > n_special ? r->room - n_special : 0;
    size_t keep = r->content ? r->keep : r->keep > n_special ? r->keep - n_special : 0;
    if (keep > room) keep = room;
    if (!r->cut && *n > room) return too_long(r, *n + n_special);
    if (r->cut && *n > keep) *n = keep;
    return true;
}

static enum err copy_ids(const struct id_list *from, struct id_list *to) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < from->n && e == ERR_OK; i++) e = id_list_push(to, from->ids[i]);
    return e;
}

static bool wrap_one(const struct reading *r, const struct id_list *content,
                     struct vectors_text *out) {
    struct id_list part = *content;
    if (!fit(r, &part.n, r->plain ? 0 : tokenizer_special_count(r->ep->tok, false))) return false;
    if ((r->plain ? copy_ids(&part, &out->ids) : tokenizer_wrap(r->ep->tok, &part, &out->ids)) !=
        ERR_OK)
        return vectors_fail_memory(r);
    if (out->ids.n == 0) return vectors_fail(r, 400, NULL, "a text must have at least one token");
    return add_tokens(r, out->ids.n);
}

/* Of a pair the second text is cut, never the first. */
static bool wrap_pair(const struct reading *r, const struct id_list *a, const struct id_list *b,
                      struct vectors_text *out) {
    const struct tokenizer *t = r->ep->tok;
    const bool pairs = tokenizer_has_pairs(t);
    const size_t other = a->n + tokenizer_special_count(t, pairs);
    struct id_list part = *b;
    enum err e;
    if (!fit(r, &part.n, other)) return false;
    if (other > r->room) return too_long(r, other);
    if (pairs) {
        e = tokenizer_wrap_pair(t, a, &part, &out->ids, &out->n_first);
    } else {
        struct id_list both = {0};
        e = copy_ids(a, &both);
        if (e == ERR_OK) e = copy_ids(&part, &both);
        if (e == ERR_OK) e = tokenizer_wrap(t, &both, &out->ids);
        id_list_free(&both);
    }
    return e == ERR_OK ? add_tokens(r, out->ids.n) : vectors_fail_memory(r);
}

/* A list of ids, taken as it is. */
static bool take_ids(const struct reading *r, const struct json_value *list,
                     struct vectors_text *out) {
    const size_t n = json_arr_len(list);
    char text[128];
    for (size_t i = 0; i < n; i++) {
        int64_t id = -1;
        if (json_as_i64(json_arr_at(list, i), &id) != JSON_OK || id < 0 ||
            id >= r->ep->model->vocab_size) {
            snprintf(text, sizeof(text), "input: a token id must be an integer from 0 to %d",
                     r->ep->model->vocab_size - 1);
            return vectors_fail(r, 400, "input", text);
        }
        if (id_list_push(&out->ids, (int32_t)id) != ERR_OK) return vectors_fail_memory(r);
    }
    if (n == 0)
        return vectors_fail_code(r, 400, "input", EP_EMPTY_ARRAY, "input must not be empty");
    if (!fit(r, &out->ids.n, 0)) return false;
    return add_tokens(r, out->ids.n);
}

/* The string of an item of a side; documents may be objects, and some must be (no_bare). NULL: it
 * is none. */
static const char *text_of(const struct json_value *item, bool documents, bool no_bare, size_t *n) {
    const char *s = NULL;
    if (!(documents && no_bare) && json_as_str(item, &s, n) == JSON_OK) return s;
    if (!documents || !json_is(item, json_type_object)) return NULL;
    if (json_get_str(item, "text", &s, n) == JSON_OK) return s;
    if (json_get_str(item, "_text", &s, n) == JSON_OK) return s;
    *n = 0;
    return "";
}

static struct json_value *side_at(const struct side *s, size_t i) {
    return s->one != NULL ? s->one : s->ids ? s->list : json_arr_at(s->list, i);
}

bool vectors_is_nothing(const struct json_value *given) {
    struct json_value *arr;
    return given == NULL || (json_as_arr(given, &arr) == JSON_OK && json_arr_len(arr) == 0);
}

static bool find_side(const struct reading *r, bool is_left, struct side *s) {
    const struct form *f = r->form;
    const struct dialect *d = f->dialect;
    const char *const *names = is_left ? f->left : f->right;
    int64_t id;
    *s = (struct side){.name = names[0], .is_left = is_left, .one_only = is_left && f->left_one};
    if (f->bare && is_left && !json_is(r->in, json_type_object)) s->given = r->in;
    for (int i = 0; i < VECTORS_NAMES_MAX && names[i] != NULL && s->given == NULL; i++)
        if (json_get(r->in, names[i], &s->given) == JSON_OK)
            s->name = names[i];
        else
            s->given = NULL;
    if (vectors_is_nothing(s->given)) return d->no_texts(r, s);
    if (json_is(s->given, json_type_string) && (s->one_only || d->one_for_list)) {
        s->one = s->given;
        s->n = d->no_empty && s->one_only && json_str_len(s->one) == 0 ? 0 : 1;
        return s->n > 0 || d->no_texts(r, s);
    }
    if (s->one_only || json_as_arr(s->given, &s->list) != JSON_OK) return d->bad_side(r, s);
    s->ids = f->token_ids && json_as_i64(json_arr_at(s->list, 0), &id) == JSON_OK;
    s->n = s->ids ? 1 : json_arr_len(s->list);
    return true;
}

/* n: texts, or pairs of texts. */
static bool within_limit(const struct reading *r, size_t n, const char *what) {
    char text[128];
    if (n <= r->limits->texts_max) return true;
    snprintf(text, sizeof(text), "at most %zu %s can be asked for at once, got %zu",
             r->limits->texts_max, what, n);
    return vectors_fail(r, 400, NULL, text);
}

static bool texts_make(const struct reading *r, size_t n) {
    if (!within_limit(r, n, "texts")) return false;
    r->v->texts = calloc(n > 0 ? n : 1, sizeof(*r->v->texts));
    r->v->n_texts = r->v->texts != NULL ? n : 0;
    return r->v->texts != NULL || vectors_fail_memory(r);
}

static bool side_ids(const struct reading *r, const struct side *s, size_t i, bool documents,
                     struct id_list *out) {
    size_t n = 0;
    char text[96];
    if (r->ask->cancelled != NULL && atomic_load(r->ask->cancelled))
        return vectors_fail(r, 503, NULL, err_text(ERR_CANCELLED)); /* nobody reads this */
    const char *p = text_of(side_at(s, i), documents, r->form->dialect->no_bare, &n);
    if (p != NULL && n == 0 && r->form->no_empty) {
        snprintf(text, sizeof(text), "%s must not be an empty string", s->name);
        return vectors_fail_code(r, 400, s->name, EP_EMPTY_STRING, text);
    }
    if (p != NULL) return encode(r, p, n, out);
    snprintf(text, sizeof(text), "%s[%zu] must be a string", s->name, i);
    return vectors_wrong_kind(r, s->name, documents ? "dictionary" : "string", text);
}

static bool put_single(const struct reading *r, const struct side *s, size_t i, bool documents,
                       struct vectors_text *out) {
    struct id_list ids = {0};
    struct json_value *list;
    if (s->ids) return take_ids(r, s->list, out);
    if (r->form->token_ids && json_as_arr(side_at(s, i), &list) == JSON_OK)
        return take_ids(r, list, out);
    const bool good = side_ids(r, s, i, documents, &ids) && wrap_one(r, &ids, out);
    id_list_free(&ids);
    return good;
}

/* What of a text's ids can be of use with any other text: the rest is given back. */
static void keep_room(const struct reading *r, struct id_list *ids) {
    if (ids->n <= r->room) return;
    int32_t *less = realloc(ids->ids, r->room * sizeof(*less));
    if (less == NULL) return;
    *ids = (struct id_list){.ids = less, .n = r->room, .cap = r->room};
}

/* Every pair that is judged, as one text each. What stands on the right meets all on the left, and
 * is encoded once. */
static bool put_pairs(const struct reading *r, const struct side *left, const struct side *right) {
    struct vectors_req *v = r->v;
    size_t at = 0;
    struct id_list *rights = calloc(right->n, sizeof(*rights));
    if (rights == NULL) return vectors_fail_memory(r);
    bool good = texts_make(r, v->each ? right->n : left->n * right->n);
    for (size_t i = 0; i < left->n && good; i++) {
        struct id_list a = {0};
        good = side_ids(r, left, i, false, &a);
        for (size_t j = v->each ? i : 0; j < (v->each ? i + 1 : right->n) && good; j++) {
            if (v->each || i == 0) good = side_ids(r, right, j, r->form->documents, &rights[j]);
            good = good && wrap_pair(r, &a, &rights[j], &v->texts[at++]);
            keep_room(r, &rights[j]);
        }
        id_list_free(&a);
    }
    for (size_t j = 0; j < right->n; j++) id_list_free(&rights[j]);
    free(rights);
    return good;
}

/* vLLM's form of a text that is a chat: what its template makes of it, as it is. */
static bool is_chat(const struct reading *r) {
    struct json_value *v;
    return r->form->chat && json_get(r->in, r->form->left[0], &v) != JSON_OK &&
           json_get(r->in, "messages", &v) == JSON_OK;
}

static bool read_chat(const struct reading *r) {
    if (!texts_make(r, r->v->n_left = 1)) return false;
    struct id_list *ids = &r->v->texts[0].ids;
    return ep_chat_ids_of(r->ep, r->ask, r->v->body, ids, r->err) && fit(r, &ids->n, 0) &&
           add_tokens(r, ids->n);
}

bool vectors_read_texts(const struct reading *r) {
    const struct form *f = r->form;
    struct vectors_req *v = r->v;
    struct side left, right = {0};
    if (is_chat(r)) return read_chat(r);
    if (!find_side(r, true, &left)) return false;
    if (f->right[0] != NULL && !find_side(r, false, &right)) return false;
    v->n_left = left.n;
    v->n_right = right.n;
    v->tei = right.n > 0 && strcmp(right.name, "texts") == 0;
    if (v->tei) { /* which repeats nothing unasked */
        v->show_documents = v->show_texts = false;
        (void)json_get_bool(r->params, "return_text", &v->show_texts);
    }
    v->each = f->each && left.n == right.n;
    if (f->each && left.n != right.n && left.n != 1)
        return vectors_fail(r, 400, right.name,
                            "there must be one text on the left, or as many as on the right");
    if (right.n > 0 && !within_limit(r, v->each ? right.n : left.n * right.n, "pairs of texts"))
        return false;
    v->score = right.n > 0 && r->ep->model->n_labels > 0;
    if (v->score) return put_pairs(r, &left, &right);
    bool good = texts_make(r, left.n + right.n);
    for (size_t i = 0; i < left.n && good; i++) good = put_single(r, &left, i, false, &v->texts[i]);
    for (size_t i = 0; i < right.n && good; i++)
        good = put_single(r, &right, i, f->documents, &v->texts[left.n + i]);
    return good;
}
