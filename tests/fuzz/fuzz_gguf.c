/* Goal: no bytes make the readers of GGUF files read outside their input, overflow, or hand out
 * what lies outside the file. Method: the input is a whole file; what is accepted is checked
 * against the promises of gguf.h, and goes through the readers of configuration and tokenizer, of
 * which holds what holds of every tokenizer. */
#include <stdlib.h>
#include <string.h>
#include "common/engine/model_conf_gguf.h"
#include "tests/fuzz/tokenizer_props.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pairs(const struct gguf_header *h, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < h->n_pairs; i++) {
        const struct gguf_pair *p = &h->pairs[i];
        struct gguf_cursor at = {0};
        const char *s;
        size_t n;
        double v;
        if (p->value < data || p->value > data + size || p->kind >= GGUF_KINDS) abort();
        while (gguf_next_str(p, &at, &s, &n))
            if ((const uint8_t *)s < data || n > size || (const uint8_t *)s + n > data + size)
                abort();
        if (p->n > 0) gguf_pair_f64(p, p->n - 1, &v);
    }
}

static void check_tensors(const struct gguf_header *h, size_t size) {
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct gguf_tensor *t = &h->tensors[i];
        if (t->begin > size || t->bytes > size - t->begin || t->n_dims < 1 ||
            t->n_dims > GGUF_DIMS_MAX || gguf_type_name(t->type, NULL, NULL) == NULL)
            abort();
    }
}

static void check_text(const struct gguf *g) {
    struct tokenizer *t = NULL;
    struct errbuf eb = {0};
    if (tokenizer_from_gguf(&t, g, &eb) != ERR_OK) return;
    check_tokenizer(t);
    tokenizer_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf_header h;
    struct gguf *g = NULL;
    struct errbuf eb = {0};
    if (gguf_header_parse(&h, data, size, size, &eb) != ERR_OK) return 0;
    check_pairs(&h, data, size);
    check_tensors(&h, size);
    gguf_header_free(&h);
    if (gguf_open_bytes(&g, data, size, "fuzz.gguf", &eb) != ERR_OK) return 0;
    struct buf config = BUF_INIT, generation = BUF_INIT;
    if (gguf_config(&config, &generation, g, &eb) == ERR_OK && config.data[config.len - 1] != '}')
        abort();
    buf_free(&config);
    buf_free(&generation);
    check_text(g);
    gguf_close(&g);
    return 0;
}
