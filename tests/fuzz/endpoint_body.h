/* endpoint_body: what the fuzz targets of the families share. Byte 0 of the input chooses path,
 * recompute and configuration, the rest is the body. Property: a refused body gives a status of 4xx
 * and an error that is JSON; a taken one gives a request that the wire takes back and an answer
 * that is JSON, and the same bytes when it is written by two instances. */
#ifndef BATON_TESTS_FUZZ_ENDPOINT_BODY_H
#define BATON_TESTS_FUZZ_ENDPOINT_BODY_H

#include "proto/json.h"
#include "proto/tensors.h"
#include "proto/wire.h"
#include "tests/unit/common/endpoint/fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fixture fuzz_fixture; /* one for the process: opening it costs more than an input */

static void fuzz_close(void) {
    fixture_close(&fuzz_fixture);
}

static struct fixture *fuzz_open(unsigned choice) {
    static int last = -1;
    struct fixture *f = &fuzz_fixture;
    if (f->tok == NULL) {
        fixture_init(f, true);
        atexit(fuzz_close);
    }
    if (last == (int)choice) return f;
    last = (int)choice;
    f->conf.split = choice & 1;
    f->conf.openai_vllm_mode = !(choice & 2);
    f->conf.error_style = choice & 4 ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE;
    f->conf.strict_ranges = !(choice & 4);
    f->conf.truncation = choice & 1 ? 1 : 0;
    f->conf.vllm_delimiter = '\n';
    fixture_open(f);
    return f;
}

/* A token of a zero byte may be a key of log-probabilities: sound for clients, but no key for our
 * own reader. */
static void fuzz_json(const char *p, size_t n) {
    struct json_value *o = NULL;
    char *copy = malloc(n + 1), *zero;
    if (copy == NULL) abort();
    memcpy(copy, p, n);
    copy[n] = 0;
    while ((zero = strstr(copy, "\\u0000")) != NULL) zero[5] = '1';
    if (json_read(&o, copy, n, NULL, NULL) != ERR_OK) abort();
    json_put(o);
    free(copy);
}

/* The answer of two instances, the second of which feeds the tokens of the first for nothing. */
static void fuzz_answer(struct fixture *f, const struct infer_req *req, size_t at,
                        struct buf *out) {
    const int32_t script[] = {TOK_A,
                              fixture_byte_id(0xE2),
                              fixture_byte_id(0x82),
                              fixture_byte_id(0xAC),
                              TOK_B,
                              fixture_byte_id(0xFF),
                              TOK_CONTROL,
                              TOK_C,
                              TOK_IM_END,
                              TOK_EOS};
    struct buf discard = BUF_INIT;
    size_t first = req->n_ids - req->n_prompt, fed = 0;
    for (int half = 0; half < 2; half++) {
        struct answer *a;
        fed = 0;
        if (answer_create(&a, f->ep, req) != ERR_OK) abort();
        for (size_t i = 0; !answer_done(a) && i < 64 && (half == 1 || fed < at); i++) {
            for (const struct infer_req *p = req; p != NULL; p = p->next_part) {
                for (int32_t c = 0; c < p->sampling.n_choices; c++, fed++) {
                    if (half == 0 && fed >= at) break;
                    struct token_event ev =
                        fixture_event(p, script, sizeof(script) / sizeof(script[0]), first + i);
                    ev.choice = c;
                    answer_token(a, p->head.part, &ev, half == 1 && fed < at ? &discard : out);
                }
            }
        }
        bool done = answer_done(a);
        answer_destroy(&a);
        if (half == 0 && done) break; /* P did it alone */
    }
    if (out->failed) abort();
    buf_free(&discard);
}

/* What a peer makes of the request, part by part. */
static struct infer_req *fuzz_again(const struct infer_req *req) {
    struct infer_req *head = NULL, **at = &head;
    for (; req != NULL; req = req->next_part, at = &(*at)->next_part) {
        struct wr w = WR_INIT;
        infer_req_pack(&w, req);
        struct rd r = rd_of(w.data, w.len);
        if (w.failed || infer_req_unpack(&r, at) != ERR_OK || !rd_done(&r)) abort();
        wr_free(&w);
    }
    return head;
}

/* Bodies of the path are JSON, its errors too. */
static bool fuzz_is_json(const char *path) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *row = api_path_find("POST", path, model);
    return row->frames != API_FRAMES_GRPC && row->frames != API_FRAMES_SSE_EVENTS;
}

static int fuzz_body(const char *const *paths, size_t n_paths, const uint8_t *data, size_t size) {
    struct infer_req *req = NULL;
    struct api_answer err;
    if (size < 1 || size > 65536) return 0;
    struct fixture *f = fuzz_open(data[0] & 7);
    const char *path = paths[(data[0] >> 4) % n_paths];
    if (!fixture_read_bytes(f, path, (const char *)data + 1, size - 1, (data[0] & 8) != 0, &req,
                            &err)) {
        const bool answered = err.status == 200; /* without generating anything */
        if (req != NULL || (!answered && (err.status < 400 || err.status > 499))) abort();
        if (fuzz_is_json(path)) fuzz_json(err.body.data, err.body.len);
        buf_free(&err.body);
        return 0;
    }
    struct buf whole = BUF_INIT, halves = BUF_INIT;
    struct infer_req *again = fuzz_again(req);
    if (req->n_ids - req->n_prompt < 64) { /* a long replay ends in the middle of a text */
        fuzz_answer(f, req, 0, &whole);
        fuzz_answer(f, again, 1 + size % 5, &halves);
        if (whole.len != halves.len ||
            (whole.len > 0 && memcmp(whole.data, halves.data, whole.len) != 0))
            abort();
        if (!req->answer.stream && whole.len > 0 && fuzz_is_json(path))
            fuzz_json(whole.data, tensors_json_end(whole.data, whole.len));
    }
    buf_free(&whole);
    buf_free(&halves);
    infer_req_destroy(&req);
    infer_req_destroy(&again);
    return 0;
}

#endif
