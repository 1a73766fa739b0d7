/* vectors_answer: numbers to answers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/base64.h"
#include "common/base/clock.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/endpoint/vectors.h"
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"
#include "proto/limits.h"

static const double LENGTH_MIN = 1e-12;

void vectors_normalize(float *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    const double length = sqrt(sum) > LENGTH_MIN ? sqrt(sum) : LENGTH_MIN;
    for (size_t i = 0; i < n; i++) v[i] = (float)((double)v[i] / length);
}

size_t vectors_row(const struct endpoint *ep, const struct vectors_req *v) {
    return (size_t)(v->score ? ep->model->n_labels : ep->model->hidden);
}

struct writing {
    const struct endpoint *ep;
    const struct vectors_req *v;
    float *rows;
    size_t n_row;
    struct buf *out;
};

/* Documents are shown once for each query, so a small body can ask for a very large answer: no list
 * goes on behind the bound of one answer. */
static bool is_full(const struct writing *w) {
    return w->out->len > DRESULT_PIECE_BYTES_MAX;
}

/* ---- vectors */

/* Little-endian f32, whatever this machine has. */
static void put_packed(struct buf *out, const float *v, size_t n) {
    struct buf bytes = BUF_INIT;
    buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &v[i], sizeof(u));
        for (int k = 0; k < 4; k++) buf_putc(&bytes, (char)(u >> (8 * k)));
    }
    if (bytes.failed)
        out->failed = true;
    else
        base64_put(out, bytes.data, bytes.len);
    buf_putc(out, '"');
    buf_free(&bytes);
}

/* Nine digits name an f32; Caikit prints the double that it is. */
static void put_numbers(const struct writing *w, const float *v, size_t n, bool as_double) {
    buf_putc(w->out, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(w->out, as_double ? "%s%.17g" : "%s%.9g", i > 0 ? "," : "", (double)v[i]);
    buf_putc(w->out, ']');
}

/* Row i as it is shown; returns its length. */
static size_t finish_row(const struct writing *w, size_t i) {
    const struct vectors_req *v = w->v;
    const size_t n = v->dimensions > 0 ? (size_t)v->dimensions : w->n_row;
    if (v->normalize) vectors_normalize(w->rows + i * w->n_row, n);
    return n;
}

static void put_usage(const struct writing *w) {
    buf_puts(w->out, "\"usage\":{\"prompt_tokens\":");
    put_u64(w->out, w->v->n_tokens);
    buf_puts(w->out, ",\"total_tokens\":");
    put_u64(w->out, w->v->n_tokens);
    buf_puts(w->out, ",\"completion_tokens\":0,\"prompt_tokens_details\":null}");
}

static void put_head(const struct writing *w, const char *kind) {
    buf_printf(w->out,
               "{\"id\":\"%s-%llx%08llx\",\"object\":\"list\",\"created\":%lld,\"model\":", kind,
               (unsigned long long)w->v->created_unix_s, (unsigned long long)w->v->serial,
               (long long)w->v->created_unix_s);
    put_cstr(w->out, w->ep->conf.model_name);
    buf_putc(w->out, ',');
}

static void put_list(const struct writing *w, const char *kind, const char *object,
                     const char *member) {
    put_head(w, kind);
    buf_puts(w->out, "\"data\":[");
    for (size_t i = 0; i < w->v->n_texts && !is_full(w); i++) {
        const size_t n = finish_row(w, i);
        buf_printf(w->out, "%s{\"index\":%zu,\"object\":\"%s\",\"%s\":", i > 0 ? "," : "", i,
                   object, member);
        if (w->v->base64)
            put_packed(w->out, w->rows + i * w->n_row, n);
        else
            put_numbers(w, w->rows + i * w->n_row, n, false);
        buf_putc(w->out, '}');
    }
    buf_puts(w->out, "],");
    put_usage(w);
    buf_putc(w->out, '}');
}

static void answer_embeddings(struct writing *w) {
    put_list(w, "embd", "embedding", "embedding");
}

static void answer_pooling(struct writing *w) {
    put_list(w, "pool", "pooling", "data");
}

/* ---- scores */

/* Of the i-th on the left with the j-th on the right. */
static double score_of(const struct writing *w, size_t i, size_t j) {
    const struct vectors_req *v = w->v;
    if (v->score) {
        const double x = (double)w->rows[(v->each ? i : i * v->n_right + j) * w->n_row];
        const bool raw = v->raw_scores || w->ep->model->score_raw;
        return raw ? x : 1 / (1 + exp(-x));
    }
    const float *a = w->rows + i * w->n_row, *b = w->rows + (v->n_left + j) * w->n_row;
    double sum = 0, aa = 0, bb = 0;
    for (size_t k = 0; k < w->n_row; k++) {
        sum += (double)a[k] * (double)b[k];
        aa += (double)a[k] * (double)a[k];
        bb += (double)b[k] * (double)b[k];
    }
    const double length = sqrt(aa) * sqrt(bb);
    return sum / (length > LENGTH_MIN ? length : LENGTH_MIN);
}

static void answer_score(struct writing *w) {
    put_head(w, "score");
    buf_puts(w->out, "\"data\":[");
    for (size_t j = 0; j < w->v->n_right; j++)
        buf_printf(w->out, "%s{\"index\":%zu,\"object\":\"score\",\"score\":%.9g}",
                   j > 0 ? "," : "", j, score_of(w, w->v->each ? j : 0, j));
    buf_puts(w->out, "],");
    put_usage(w);
    buf_putc(w->out, '}');
}

struct ranked {
    double score;
    size_t idx;
};

static int best_first(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->idx < y->idx ? -1 : x->idx > y->idx;
}

/* The documents for query i, best first; *n: how many are shown. NULL: no memory. */
static struct ranked *rank(const struct writing *w, size_t i, size_t *n) {
    const struct vectors_req *v = w->v;
    struct ranked *list = calloc(v->n_right, sizeof(*list));
    *n = 0;
    if (list == NULL) {
        w->out->failed = true;
        return NULL;
    }
    for (size_t j = 0; j < v->n_right; j++) list[j] = (struct ranked){score_of(w, i, j), j};
    qsort(list, v->n_right, sizeof(*list), best_first);
    *n = v->top_n > 0 && (uint64_t)v->top_n < v->n_right ? (size_t)v->top_n : v->n_right;
    return list;
}

/* Member `name` of the body, or of Caikit's inputs. */
static struct json_value *part(const struct vectors_req *v, const char *name) {
    struct json_value *o = NULL, *in = NULL;
    if (v->body == NULL) return NULL; /* nothing is repeated */
    if (json_get(v->body, name, &o) == JSON_OK) return o;
    if (json_get_obj(v->body, "inputs", &in) == JSON_OK && json_get(in, name, &o) == JSON_OK)
        return o;
    return NULL;
}

static struct json_value *item(struct json_value *list, size_t i) {
    return list != NULL && json_is(list, json_type_array) ? json_arr_at(list, i) : list;
}

static void put_value(struct buf *out, struct json_value *o) {
    size_t n = 0;
    const char *s = o != NULL ? json_to_text(o, JSON_COMPACT, &n) : NULL;
    if (s != NULL)
        buf_append(out, s, n);
    else
        buf_puts(out, "null");
}

static struct json_value *document_text(struct json_value *doc) {
    struct json_value *text = NULL;
    if (doc == NULL || json_is(doc, json_type_string)) return doc;
    if (json_get(doc, "text", &text) == JSON_OK || json_get(doc, "_text", &text) == JSON_OK)
        return text;
    return NULL;
}

/* What was compared: the text of a document that has none is empty. */
static void put_compared(struct buf *out, struct json_value *doc) {
    struct json_value *text = document_text(doc);
    if (text != NULL && json_is(text, json_type_string))
        put_value(out, text);
    else
        buf_puts(out, "\"\"");
}

static void answer_tei(struct writing *w, const struct ranked *list, size_t n) {
    buf_putc(w->out, '[');
    for (size_t k = 0; k < n && !is_full(w); k++) {
        buf_printf(w->out, "%s{\"index\":%zu,\"score\":%.9g", k > 0 ? "," : "", list[k].idx,
                   list[k].score);
        if (w->v->show_texts) {
            buf_puts(w->out, ",\"text\":");
            put_value(w->out, item(part(w->v, "texts"), list[k].idx));
        }
        buf_putc(w->out, '}');
    }
    buf_putc(w->out, ']');
}

/* One answer for Jina's, Cohere's and vLLM's clients: each finds its members. */
static void answer_rerank(struct writing *w) {
    size_t n;
    struct ranked *list = rank(w, 0, &n);
    if (w->v->tei) {
        answer_tei(w, list, n);
        free(list);
        return;
    }
    put_head(w, "rerank");
    put_usage(w);
    buf_puts(w->out, ",\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":"
                     "{\"search_units\":1}},\"results\":[");
    for (size_t k = 0; k < n && !is_full(w); k++) {
        buf_printf(w->out, "%s{\"index\":%zu,", k > 0 ? "," : "", list[k].idx);
        if (w->v->show_documents) {
            struct json_value *doc = item(part(w->v, "documents"), list[k].idx);
            buf_puts(w->out, "\"document\":");
            if (doc != NULL && json_is(doc, json_type_string)) buf_puts(w->out, "{\"text\":");
            put_value(w->out, doc);
            buf_puts(w->out, doc != NULL && json_is(doc, json_type_string) ? "}," : ",");
        }
        buf_printf(w->out, "\"relevance_score\":%.9g}", list[k].score);
    }
    buf_puts(w->out, "]}");
    free(list);
}

/* ---- Caikit */

static void put_caikit_end(const struct writing *w) {
    buf_puts(w->out, ",\"producer_id\":{\"name\":\"");
    buf_puts(w->out, w->v->score ? "CrossEncoderModule" : "EmbeddingModule");
    buf_puts(w->out, "\",\"version\":\"0.0.1\"},\"input_token_count\":");
    put_u64(w->out, w->v->n_tokens);
    buf_putc(w->out, '}');
}

static void put_caikit_vector(const struct writing *w, size_t i) {
    const size_t n = finish_row(w, i);
    buf_puts(w->out, w->v->path->frames == API_FRAMES_GRPC
                         ? "{\"data_npfloat32sequence\":{\"values\":"
                         : "{\"data\":{\"values\":");
    put_numbers(w, w->rows + i * w->n_row, n, true);
    buf_puts(w->out, "}}");
}

static void answer_caikit_embedding(struct writing *w) {
    buf_puts(w->out, "{\"result\":");
    put_caikit_vector(w, 0);
    put_caikit_end(w);
}

static void answer_caikit_embeddings(struct writing *w) {
    buf_puts(w->out, "{\"results\":{\"vectors\":[");
    for (size_t i = 0; i < w->v->n_texts && !is_full(w); i++) {
        if (i > 0) buf_putc(w->out, ',');
        put_caikit_vector(w, i);
    }
    buf_puts(w->out, "]}");
    put_caikit_end(w);
}

static void put_caikit_scores(const struct writing *w, size_t i) {
    buf_puts(w->out, "{\"scores\":[");
    for (size_t j = 0; j < w->v->n_right; j++)
        buf_printf(w->out, "%s%.17g", j > 0 ? "," : "", score_of(w, i, j));
    buf_puts(w->out, "]}");
}

static void put_caikit_ranks(const struct writing *w, size_t i) {
    const struct vectors_req *v = w->v;
    struct json_value *queries = part(v, "queries");
    size_t n;
    struct ranked *list = rank(w, i, &n);
    buf_puts(w->out, "{\"query\":");
    put_value(w->out,
              v->show_queries ? item(queries != NULL ? queries : part(v, "query"), i) : NULL);
    buf_puts(w->out, ",\"scores\":[");
    for (size_t k = 0; k < n && !is_full(w); k++) {
        struct json_value *doc = item(part(v, "documents"), list[k].idx);
        buf_puts(w->out, k > 0 ? ",{\"document\":" : "{\"document\":");
        put_value(w->out, v->show_documents ? doc : NULL);
        buf_printf(w->out, ",\"index\":%zu,\"score\":%.17g,\"text\":", list[k].idx, list[k].score);
        if (v->show_texts)
            put_compared(w->out, doc);
        else
            buf_puts(w->out, "null");
        buf_putc(w->out, '}');
    }
    buf_puts(w->out, "]}");
    free(list);
}

/* `put` once, or for each on the left. */
static void answer_caikit_scored(struct writing *w, bool plural,
                                 void (*put)(const struct writing *w, size_t i)) {
    buf_puts(w->out, plural ? "{\"results\":[" : "{\"result\":");
    for (size_t i = 0; i < (plural ? w->v->n_left : 1) && !is_full(w); i++) {
        if (i > 0) buf_putc(w->out, ',');
        put(w, i);
    }
    if (plural) buf_putc(w->out, ']');
    put_caikit_end(w);
}

static void answer_caikit_similarity(struct writing *w) {
    answer_caikit_scored(w, false, put_caikit_scores);
}
static void answer_caikit_similarities(struct writing *w) {
    answer_caikit_scored(w, true, put_caikit_scores);
}
static void answer_caikit_rerank(struct writing *w) {
    answer_caikit_scored(w, false, put_caikit_ranks);
}
static void answer_caikit_reranks(struct writing *w) {
    answer_caikit_scored(w, true, put_caikit_ranks);
}

/* ---- llama.cpp */

static void answer_llamacpp_embedding(struct writing *w) {
    buf_putc(w->out, '[');
    for (size_t i = 0; i < w->v->n_texts && !is_full(w); i++) {
        const size_t n = finish_row(w, i);
        buf_printf(w->out, "%s{\"index\":%zu,\"embedding\":[", i > 0 ? "," : "", i);
        put_numbers(w, w->rows + i * w->n_row, n, false);
        buf_puts(w->out, "]}");
    }
    buf_putc(w->out, ']');
}

/* ---- Ollama */

static void answer_ollama_embed(struct writing *w) {
    const struct vectors_req *v = w->v;
    buf_puts(w->out, "{\"model\":");
    put_cstr(w->out, v->model);
    buf_puts(w->out, ",\"embeddings\":[");
    for (size_t i = 0; i < v->n_texts && !is_full(w); i++) {
        const size_t n = finish_row(w, i);
        if (i > 0) buf_putc(w->out, ',');
        put_numbers(w, w->rows + i * w->n_row, n, false);
    }
    buf_puts(w->out, "],\"total_duration\":");
    put_u64(w->out, (clock_us() - v->arrival_us) * 1000);
    buf_puts(w->out, ",\"load_duration\":0,\"prompt_eval_count\":");
    put_u64(w->out, v->n_tokens);
    buf_putc(w->out, '}');
}

/* One vector, of the length the model gave it. */
static void answer_ollama_embeddings(struct writing *w) {
    buf_puts(w->out, "{\"embedding\":");
    put_numbers(w, w->rows, w->v->n_texts > 0 ? finish_row(w, 0) : 0, true);
    buf_putc(w->out, '}');
}

static void (*const answers[VECTORS_COUNT])(struct writing *w) = {
    [VECTORS_EMBEDDINGS] = answer_embeddings,
    [VECTORS_POOLING] = answer_pooling,
    [VECTORS_SCORE] = answer_score,
    [VECTORS_RERANK] = answer_rerank,
    [VECTORS_RERANK_SHORT] = answer_rerank,
    [VECTORS_CAIKIT_EMBEDDING] = answer_caikit_embedding,
    [VECTORS_CAIKIT_EMBEDDINGS] = answer_caikit_embeddings,
    [VECTORS_CAIKIT_SIMILARITY] = answer_caikit_similarity,
    [VECTORS_CAIKIT_SIMILARITIES] = answer_caikit_similarities,
    [VECTORS_CAIKIT_RERANK] = answer_caikit_rerank,
    [VECTORS_CAIKIT_RERANKS] = answer_caikit_reranks,
    [VECTORS_LLAMACPP] = answer_llamacpp_embedding,
    [VECTORS_OLLAMA_EMBED] = answer_ollama_embed,
    [VECTORS_OLLAMA_EMBEDDINGS] = answer_ollama_embeddings,
};

/* The JSON of an answer as the message that has its members. */
static void as_message(const struct vectors_req *v, struct api_answer *out) {
    const struct grpc_method *m = grpc_method_find(v->path->path);
    struct buf message = BUF_INIT;
    if (out->body.failed || m == NULL)
        message.failed = true;
    else
        grpc_put_text(&message, m->out, out->body.data, out->body.len);
    buf_free(&out->body);
    out->body = message;
    out->content_type = GRPC_TYPE;
}

void vectors_answer(const struct endpoint *ep, const struct vectors_req *v, float *rows,
                    struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
    struct writing w = {
        .ep = ep, .v = v, .rows = rows, .n_row = vectors_row(ep, v), .out = &out->body};
    answers[v->path->vectors](&w);
    const bool full = is_full(&w);
    char text[160];
    if (!full && v->path->frames == API_FRAMES_GRPC) as_message(v, out);
    if (!out->body.failed && !full) return;
    buf_free(&out->body);
    snprintf(text, sizeof(text),
             "The answer would have more than %d bytes, which is the limit. Ask for fewer texts, "
             "dimensions or documents.",
             (int)DRESULT_PIECE_BYTES_MAX);
    ep_answer_error(ep, v->path->errors, full ? 400 : 503, full ? text : err_text(ERR_NO_MEMORY),
                    out);
}
