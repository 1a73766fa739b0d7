/* Goal: no body that asks for vectors or scores breaks the endpoint. Byte 0 of the input chooses
 * the path, byte 1 the model (with a head for scores or without, sizes of vectors) and how long a
 * text may be, the rest is the body. Property: a refused body gives a status of 4xx and an error
 * that is JSON; a taken one gives texts within every limit and an answer that is JSON, or an error.
 */
#include "common/endpoint/vectors.h"
#include "proto/json.h"
#include "tests/unit/common/endpoint/fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HIDDEN = 8, TEXTS_MAX = 24, TOKENS_MAX = 4000 };

static struct fixture fx;

static void close_fixture(void) {
    fixture_close(&fx);
}

static void open_fixture(unsigned choice) {
    static int last = -1;
    if (fx.tok == NULL) {
        fixture_init(&fx, true);
        atexit(close_fixture);
    }
    if (last == (int)choice) return;
    last = (int)choice;
    fx.model.hidden = HIDDEN;
    fx.model.n_labels = choice & 1 ? 1 + (int)(choice >> 7) : 0;
    fx.model.matryoshka = choice & 2 ? (struct matryoshka){.n = 2, .sizes = {2, HIDDEN}}
                                     : (struct matryoshka){.any = true};
    fx.conf.max_seq_len = choice & 4 ? 8 : 256;
    fixture_open(&fx);
}

static void check_json(struct buf *b) {
    struct json_value *o = NULL;
    if (json_read(&o, b->data, b->len, NULL, NULL) != ERR_OK) abort();
    json_put(o);
    buf_free(b);
}

static void check_texts(const struct vectors_req *v) {
    uint64_t sum = 0;
    if (v->n_texts > TEXTS_MAX || v->n_tokens > TOKENS_MAX) abort();
    for (size_t i = 0; i < v->n_texts; i++) {
        const struct vectors_text *t = &v->texts[i];
        if (t->ids.n == 0 && !v->score) abort();
        if (t->ids.n > (size_t)fx.conf.max_seq_len || t->n_first > t->ids.n) abort();
        for (size_t k = 0; k < t->ids.n; k++)
            if (t->ids.ids[k] < 0 || t->ids.ids[k] >= FIXTURE_VOCAB) abort();
        sum += t->ids.n;
    }
    if (sum != v->n_tokens || v->dimensions < 0 || v->dimensions > HIDDEN) abort();
}

static void check_answer(const struct vectors_req *v) {
    const size_t n = v->n_texts * vectors_row(fx.ep, v);
    float *rows = malloc((n + 1) * sizeof(*rows));
    struct api_answer out = {0};
    if (rows == NULL) abort();
    for (size_t i = 0; i < n; i++) rows[i] = (float)((int)(i * 7 % 11) - 5) / 4;
    vectors_answer(fx.ep, v, rows, &out);
    free(rows);
    check_json(&out.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct vectors_limits limits = {.texts_max = TEXTS_MAX, .tokens_max = TOKENS_MAX};
    const struct api_path *path = api_paths;
    struct vectors_req *v = NULL;
    struct api_answer err = {0};
    if (size < 2 || size > 65536) return 0;
    open_fixture(data[1]);
    for (unsigned nth = data[0] % (VECTORS_COUNT - 1) + 1; path->path != NULL; path++)
        if ((unsigned)path->vectors == nth && path->frames != API_FRAMES_GRPC) break;
    if (path->path == NULL) abort();
    char *body = malloc(size - 1); /* a byte behind it */
    if (body == NULL) abort();
    memcpy(body, data + 2, size - 2);
    body[size - 2] = '\0';
    const struct endpoint_ask ask = {.path = path, .name = "", .body = body, .n = size - 2};
    if (vectors_read(fx.ep, &ask, &limits, &v, &err)) {
        check_texts(v);
        check_answer(v);
    } else {
        if (v != NULL || err.status < 400 || err.status > 499) abort();
        check_json(&err.body);
    }
    vectors_free(&v);
    free(body);
    return 0;
}
