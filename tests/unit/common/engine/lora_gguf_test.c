/* Goal: an adapter in GGUF becomes the products that its file says: ranks and scale from tensors
 * and alpha, rows of q in the order of the kernels where the architecture's converter made them
 * pairs; a file that is cut anywhere, or lies in a key, is refused. Method: a file of one adapted
 * layer, written byte by byte; the panels read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/base/buf.h"
#include "common/base/gguf.h"
#include "common/engine/kernels.h"
#include "common/engine/lora.h"

enum { HEADS = 2, DIM = 4, HIDDEN = 8, RANK = 2, Q_ROWS = HEADS * DIM, LAYER = 1 };

static const struct model_info llama = {.family = "llama",
                                        .n_layers = 2,
                                        .n_heads = HEADS,
                                        .n_kv_heads = 1,
                                        .head_dim = DIM,
                                        .rope_dim = DIM,
                                        .hidden = HIDDEN,
                                        .intermediate = 12,
                                        .vocab_size = 8,
                                        .kernels = "ref"};

static void put(struct buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(b, (char)(v >> (8 * i)));
}

static void put_text(struct buf *b, const char *s) {
    put(b, strlen(s), 8);
    buf_puts(b, s);
}

static void put_pair(struct buf *b, const char *key, const char *value) {
    put_text(b, key);
    put(b, GGUF_STRING, 4);
    put_text(b, value);
}

static void put_info(struct buf *b, const char *name, uint64_t k, uint64_t n, uint64_t offset) {
    put_text(b, name);
    put(b, 2, 4);
    put(b, k, 8);
    put(b, n, 8);
    put(b, 0, 4); /* F32 */
    put(b, offset, 8);
}

static void put_floats(struct buf *b, int n, int k, float tens) {
    for (int i = 0; i < n * k; i++) {
        const float v = (float)(i / k) * tens + (float)(i % k);
        uint32_t bits;
        memcpy(&bits, &v, sizeof(bits));
        put(b, bits, 4);
    }
}

/* q of layer LAYER: A[r][i] = 100 r + i, B[r][i] = 10 r + i. alpha: bits of an f32. */
static struct buf adapter(const char *arch, const char *type, uint32_t alpha) {
    struct buf b = BUF_INIT;
    buf_puts(&b, "GGUF");
    put(&b, 3, 4);
    put(&b, 2, 8);
    put(&b, 4, 8);
    put_pair(&b, "general.architecture", arch);
    put_pair(&b, "general.type", "adapter");
    put_pair(&b, "adapter.type", type);
    put_text(&b, "adapter.lora.alpha");
    put(&b, GGUF_F32, 4);
    put(&b, alpha, 4);
    put_info(&b, "blk.1.attn_q.weight.lora_a", HIDDEN, RANK, 0);
    put_info(&b, "blk.1.attn_q.weight.lora_b", RANK, Q_ROWS, RANK * HIDDEN * 4);
    while (b.len % 32 != 0) buf_putc(&b, 0);
    put_floats(&b, RANK, HIDDEN, 100);
    put_floats(&b, Q_ROWS, RANK, 10);
    return b;
}

static bool read_at(void *arg, uint64_t offset, void *dst, size_t n) {
    const struct buf *b = arg;
    if (offset > b->len || n > b->len - offset) return false;
    if (n > 0) memcpy(dst, b->data + offset, n);
    return true;
}

static enum err open_bytes(struct lora **out, struct buf *b, const struct model_info *base,
                           struct errbuf *eb) {
    const struct lora_source source = {"a.gguf", read_at, b, b->len};
    return lora_read(out, NULL, 0, &source, base, 8, eb);
}

enum { ALPHA_OF_FIVE = 0x40a00000, ALPHA_INFINITE = 0x7f800000 };

static void rows_come_in_the_order_of_the_kernels(void **state) {
    static const char *const families[] = {"llama", "mistral", "qwen2"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const bool pairs = i < 2; /* Mistral's converter writes files of Llama's architecture */
        struct model_info base = llama;
        struct buf b = adapter(pairs ? "llama" : "qwen2", "lora", i == 0 ? 0 : ALPHA_OF_FIVE);
        struct lora *l = NULL;
        struct errbuf eb = {0};
        float row[HIDDEN];
        strcpy(base.family, families[i]);
        if (open_bytes(&l, &b, &base, &eb) != ERR_OK) fail_msg("%s", eb.text);
        const struct lora_pair *p = lora_pair(l, LAYER, LORA_Q);
        assert_int_equal(p->rank, RANK);
        assert_true(p->scale == (i == 0 ? 1.0f : 5.0f / RANK));
        assert_int_equal(lora_pair(l, 0, LORA_Q)->rank, 0);
        assert_int_equal(lora_pair(l, LAYER, LORA_V)->rank, 0);
        for (int r = 0; r < RANK; r++) {
            panel_row_columns(row, p->a, r, HIDDEN, DTYPE_F32);
            for (int j = 0; j < HIDDEN; j++) assert_true(row[j] == (float)(100 * r + j));
        }
        for (int r = 0; r < Q_ROWS; r++) {
            const int at = r % DIM, half = DIM / 2,
                      in_file = !pairs ? r : r - at + (at < half ? 2 * at : 2 * (at - half) + 1);
            panel_row_columns(row, p->b, r, RANK, DTYPE_F32);
            for (int j = 0; j < RANK; j++) assert_true(row[j] == (float)(10 * in_file + j));
        }
        lora_unref(&l);
        buf_free(&b);
    }
}

static void what_is_cut_or_lies_is_refused(void **state) {
    static const struct {
        const char *arch, *type;
        uint32_t alpha;
        const char *says;
    } lies[] = {
        {"qwen2", "lora", 0, "a.gguf: key general.architecture must be that of the base model"},
        {"", "lora", 0, "a.gguf: key general.architecture must be that of the base model"},
        {"llama", "cvec", 0, "a.gguf: key adapter.type must be \"lora\", got \"cvec\""},
        {"llama", "lora", ALPHA_INFINITE, "a.gguf: key adapter.lora.alpha must be a number from"},
    };
    struct lora *l = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct errbuf eb = {0};
        struct buf b = adapter(lies[i].arch, lies[i].type, lies[i].alpha);
        assert_int_equal(open_bytes(&l, &b, &llama, &eb), ERR_BAD_FILE);
        if (strstr(eb.text, lies[i].says) == NULL) fail_msg("%s", eb.text);
        buf_free(&b);
    }
    struct buf b = adapter("llama", "lora", ALPHA_OF_FIVE);
    const size_t whole = b.len;
    for (b.len = 0; b.len < whole; b.len++) {
        struct errbuf eb = {0};
        assert_int_equal(open_bytes(&l, &b, &llama, &eb), ERR_BAD_FILE);
        assert_null(l);
        assert_int_equal(strncmp(eb.text, "a.gguf: ", 8), 0);
    }
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_in_the_order_of_the_kernels),
        cmocka_unit_test(what_is_cut_or_lies_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
