/* ep_input: from the client's input to token ids: text or parts, lengths, tokenising, the token
 * string of a recompute, truncation, admission. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "proto/api_error.h"

size_t ep_utf16_len(const char *s, size_t n) {
    size_t units = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c & 0xC0) != 0x80)
            units += c >= 0xF0 ? 2 : 1; /* beyond the first plane: a surrogate pair */
    }
    return units;
}

/* ---- text and parts */

/* The kinds of media a part can hold, and the member that holds it. A text-only model refuses all.
 */
static const char *const media_kinds[] = {"image_url", "video_url", "audio_url"};
enum { MEDIA_PARTS_MAX = 20 };

static bool bad_type(struct ep_read *r) {
    return ep_fail_with(r, 422, r->fam->input_bad_type, "{id}", r->in->req_id, NULL);
}

static bool join_part(struct ep_read *r, const struct json_value *part, struct buf *out,
                      size_t *n_media) {
    struct json_value *v;
    const char *type, *s;
    size_t n, type_len;
    if (json_get_str(part, "type", &type, &type_len) != JSON_OK) return bad_type(r);
    if (strcmp(type, "text") == 0 || strcmp(type, "refusal") == 0) {
        if (json_get_str(part, type, &s, &n) != JSON_OK)
            return ep_fail(r, 422, "Request param text must be string");
        buf_append(out, s, n);
        return true;
    }
    for (size_t i = 0; i < sizeof(media_kinds) / sizeof(media_kinds[0]); i++) {
        if (strcmp(type, media_kinds[i]) != 0) continue;
        if (json_get(part, type, &v) != JSON_OK)
            return ep_fail_with(r, 422, "Request param {kind} null", "{kind}", type, NULL);
        ++*n_media;
        return true;
    }
    return bad_type(r);
}

bool ep_join_parts(struct ep_read *r, const struct json_value *arr, struct buf *out) {
    size_t n_media = 0;
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (!join_part(r, json_arr_at(arr, i), out, &n_media)) return false;
    if (n_media > MEDIA_PARTS_MAX)
        return ep_fail(r, 422, "The number of multimodal url should be no more than 20");
    if (n_media > 0)
        return ep_fail(r, 422, "The type of inputs is abnormal"); /* the model reads text only */
    return !out->failed || ep_fail_memory(r);
}

bool ep_read_text(struct ep_read *r, const struct json_value *obj, const char *key) {
    struct json_value *v, *arr;
    if (json_get(obj, key, &v) != JSON_OK) return ep_missing_input(r, key, r->fam->input_missing);
    if (json_as_str(v, &r->prompt, &r->prompt_len) == JSON_OK) return true;
    if (json_as_arr(v, &arr) != JSON_OK) return bad_type(r);
    if (json_arr_len(arr) == 0) return ep_fail(r, 422, r->fam->input_empty_array);
    if (!ep_join_parts(r, arr, &r->text)) return false;
    r->prompt = r->text.data != NULL ? r->text.data : "";
    r->prompt_len = r->text.len;
    return true;
}

bool ep_check_text_length(struct ep_read *r) {
    size_t max = r->ep->conf.max_request_bytes, len = ep_utf16_len(r->prompt, r->prompt_len);
    char m[24], l[24];
    if (len >= 1 && len <= max) return true;
    snprintf(m, sizeof(m), "%zu", max);
    snprintf(l, sizeof(l), "%zu", len);
    return ep_fail_with(r, 422, r->fam->text_length, "{max}", m, "{len}", l, NULL);
}

bool ep_check_token_count(struct ep_read *r) {
    char got[24];
    if (r->ids.n >= 1 && r->ids.n <= PROMPT_TOKENS_MAX) return true;
    snprintf(got, sizeof(got), "%zu", r->ids.n);
    return ep_fail_with(r, 422, r->fam->token_count, "{got}", got, NULL);
}

bool ep_tokenise(struct ep_read *r, bool add_special) {
    enum err e = r->marked ? tokenizer_encode_marked(r->ep->tok, r->prompt, r->prompt_len,
                                                     add_special, PROMPT_TOKENS_MAX + 1, &r->ids)
                           : tokenizer_encode(r->ep->tok, r->prompt, r->prompt_len, add_special,
                                              PROMPT_TOKENS_MAX + 1, &r->ids);
    if (e == ERR_NO_MEMORY) return ep_fail_memory(r);
    if (e != ERR_OK && e != ERR_TOO_LARGE)
        return ep_fail(r, 422, "The text of the input cannot be tokenised");
    return ep_check_token_count(r);
}

bool ep_ids_from_array(struct ep_read *r, const struct json_value *arr) {
    size_t n = json_arr_len(arr);
    for (size_t i = 0; i < n; i++) {
        const struct json_value *v = json_arr_at(arr, i);
        int64_t id;
        uint64_t wide;
        if (json_as_i64(v, &id) != JSON_OK) {
            if (json_as_u64(v, &wide) != JSON_OK) return false;
            id = -1;
        }
        if (id < 0 || id > INT32_MAX) id = -1;
        if (id_list_push(&r->ids, (int32_t)id) != ERR_OK) return ep_fail_memory(r);
    }
    return true;
}

bool ep_keep_prompt(struct ep_read *r) {
    struct ep_prompt *grown = realloc(r->prompts, (r->n_prompts + 1) * sizeof(*grown));
    if (grown == NULL) return ep_fail_memory(r);
    r->prompts = grown;
    grown[r->n_prompts++] = (struct ep_prompt){r->prompt, r->prompt_len, r->ids};
    r->prompt = NULL;
    r->prompt_len = 0;
    r->ids = (struct id_list){0};
    return true;
}

/* ---- the token string of a recompute (cluster-api 5.7) */

static bool recompute_failed(struct ep_read *r) {
    return ep_fail(r, 422,
                   "The input of a recompute must be \"<N>,<N prompt ids>,<generated ids>\"");
}

bool ep_split_recompute(struct ep_read *r) {
    size_t n_all = r->ids.n;
    if (n_all < 2) return recompute_failed(r);
    int32_t n_prompt = r->ids.ids[0];
    if (n_prompt < 1 || (size_t)n_prompt > n_all - 1) return recompute_failed(r);
    memmove(r->ids.ids, r->ids.ids + 1, (n_all - 1) * sizeof(*r->ids.ids));
    r->ids.n = n_all - 1;
    if (r->ids.n > PROMPT_TOKENS_MAX) return ep_check_token_count(r);
    r->n_generated = r->ids.n - (size_t)n_prompt;
    return true;
}

bool ep_read_recompute(struct ep_read *r, const struct json_value *v) {
    const char *s, *end;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK) return recompute_failed(r);
    end = s + n;
    while (s < end) {
        uint64_t id = 0;
        int digits = 0;
        for (; s < end && *s >= '0' && *s <= '9' && digits < 11; s++, digits++)
            id = id * 10 + (uint64_t)(*s - '0');
        if (digits == 0 || id > INT32_MAX) return recompute_failed(r);
        if (r->ids.n > PROMPT_TOKENS_MAX + 1) return ep_check_token_count(r);
        if (id_list_push(&r->ids, (int32_t)id) != ERR_OK) return ep_fail_memory(r);
        if (s == end) break;
        if (*s++ != ',' || s == end) return recompute_failed(r);
    }
    return ep_split_recompute(r);
}

bool ep_read_prompt(struct ep_read *r) {
    struct json_value *v = NULL;
    if (r->in->is_recompute) {
        json_get(r->body, r->fam->input, &v);
        return ep_read_recompute(r, v);
    }
    return ep_read_text(r, r->body, r->fam->input) && ep_check_text_length(r) &&
           ep_tokenise(r, true);
}

/* ---- admission */

static void drop_left(struct id_list *l, size_t n) {
    memmove(l->ids, l->ids + n, (l->n - n) * sizeof(*l->ids));
    l->n -= n;
}

/* most: the tokens a prompt may have; max: the limit that the reference's text names. */
static bool too_long(struct ep_read *r, const char *limit, size_t max, size_t most, size_t got) {
    char m[24], g[24], b[24];
    snprintf(m, sizeof(m), "%zu", ep_openai_manner(r) ? most : max);
    snprintf(b, sizeof(b), "%zu", most + 1);
    snprintf(g, sizeof(g), "%zu", got);
    if (r->status == 0) r->code = EP_CONTEXT_LENGTH;
    if (r->fam->too_long != NULL)
        return ep_fail_with(r, 424, r->fam->too_long, "{max}", m, "{got}", g, "{below}", b, NULL);
    if (ep_openai_manner(r))
        return ep_fail_with(r, 424,
                            "Prompts of at most {max} tokens fit into this model's maximum context "
                            "length; the prompt has {got}. Please shorten it.",
                            "{max}", m, "{got}", g, NULL);
    return ep_fail_with(
        r, 424,
        "Failed to enqueue inferRequest. This model's maximum input ids length cannot be "
        "greater than {limit}{max},the input ids length is {got}",
        "{limit}", limit, "{max}", m, "{got}", g, NULL);
}

static size_t context_max(const struct ep_read *r) {
    const struct model_info *m = r->ep->model;
    return m->context_max > 0 ? (size_t)m->context_max : SIZE_MAX;
}

int32_t ep_seq_len(const struct ep_read *r) {
    const int32_t most = r->ep->conf.max_seq_len, asked = r->p.num_ctx;
    return asked < 1 || asked > most ? most : asked < 2 ? 2 : asked;
}

size_t ep_prompt_max(const struct ep_read *r) {
    const struct endpoint_conf *c = &r->ep->conf;
    size_t input = (size_t)c->max_input_token_len, seq = (size_t)ep_seq_len(r);
    size_t limit = input < seq - 1 ? input : seq - 1, context = context_max(r);
    return context < limit ? context : limit;
}

size_t ep_prompt_cut(const struct ep_read *r) {
    const size_t most = ep_prompt_max(r), seq = (size_t)ep_seq_len(r),
                 room = (size_t)r->answer_room;
    if (room == 0 || room >= seq) return most;
    return seq - room < most ? seq - room : most;
}

bool ep_generates_nothing(struct ep_read *r) {
    if (!r->ep->model->encoder) return false;
    r->code = EP_UNSUPPORTED;
    return !ep_fail(r, 422, API_GENERATES_NOTHING);
}

bool ep_admit(struct ep_read *r) {
    const struct endpoint_conf *c = &r->ep->conf;
    const struct model_info *m = r->ep->model;
    size_t context = context_max(r), limit = ep_prompt_max(r);
    size_t input = (size_t)c->max_input_token_len, seq = (size_t)ep_seq_len(r);

    if (ep_generates_nothing(r)) return false;
    if (!r->in->is_recompute) {
        int32_t keep = r->p.given[P_TRUNCATE] ? r->p.truncate : 0;
        if (r->p.given[P_TRUNCATE_PROMPT_TOKENS])
            keep = r->p.truncate_prompt_tokens == -1 ? (int32_t)ep_prompt_cut(r)
                                                     : r->p.truncate_prompt_tokens;
        if (keep > 0 && r->ids.n > (size_t)keep) {
            if (!r->p.truncate_right) drop_left(&r->ids, r->ids.n - (size_t)keep);
            r->ids.n = (size_t)keep;
        }
        if (c->truncation > 0 && r->ids.n > limit) drop_left(&r->ids, r->ids.n - limit);
        if (c->truncation < 0 && r->ids.n > limit) r->ids.n = limit;
    }
    size_t n = r->ids.n - r->n_generated;
    if (n > context) return too_long(r, "maxPositionEmbeddings ", context, limit, n);
    if (n > input) return too_long(r, "", input, limit, n);
    if (n > seq - 1) return too_long(r, "maxSeqLen ", seq, limit, n);
    for (size_t i = 0; i < r->ids.n; i++)
        if (r->ids.ids[i] < 0 || (m->vocab_size > 0 && r->ids.ids[i] >= m->vocab_size))
            return ep_fail(r, 424, "Failed to enqueue inferRequest. Invalid Input Ids");
    return true;
}
