/* What guided decoding costs a token, on the vocabulary of qwen2 (151,643 tokens), one core:
 *
 * - guide_token_KIND: mask and advance, mean over steady state, when the guide has been used
 * - guide_first_KIND: the same for the first output of a fresh guide
 * - guide_slowest_KIND: its slowest token
 * - guide_compile_KIND: text to automaton, masks of wide states included
 *
 * Outputs are random walks along the masks, 24 of up to 160 tokens; guide_token has its share of
 * the bar (50 us) as ratio. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/buf.h"
#include "common/guide/guide.h"

enum { FILE_BYTES_MAX = 64 * 1000 * 1000, WALKS = 24, TOKENS_MAX = 160, BAR_US = 50 };

static void die(const char *what) {
    fprintf(stderr, "bench_guide: %s\n", what);
    exit(1);
}

static struct tokenizer *load(void) {
    struct buf b = BUF_INIT;
    struct errbuf eb = {.code = ERR_OK};
    struct tokenizer *t;
    FILE *f = popen("gzip -dc < tests/data/tokenizers/qwen2/tokenizer.json.gz", "r");
    size_t n;
    if (f == NULL) die("cannot read the tokenizer");
    do {
        if (!buf_reserve(&b, b.len + 65536)) die("out of memory");
        n = fread(b.data + b.len, 1, b.cap - b.len - 1, f);
        b.len += n;
    } while (n > 0 && b.len < FILE_BYTES_MAX);
    pclose(f);
    if (tokenizer_parse(&t, b.data, b.len, "qwen2", &eb) != ERR_OK) die(eb.text);
    buf_free(&b);
    return t;
}

static double now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int32_t draw(const uint64_t *bits, int n_ids, uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    int32_t id = (int32_t)(*seed % (uint64_t)n_ids);
    for (int32_t i = 0; i < n_ids; i++, id = id + 1 < n_ids ? id + 1 : 0)
        if (bits[id >> 6] >> (id & 63) & 1) return id;
    return -1;
}

struct cost {
    double us, slowest_us;
    long n;
};

/* Walks of the same seeds each time, so that a second run meets the positions of the first. */
static struct cost walk(struct guide *g, uint64_t *bits, int n_ids, int32_t eos) {
    struct cost c = {0};
    for (int w = 0; w < WALKS; w++) {
        struct token_guide tg;
        uint64_t seed = 1000003u * (uint64_t)(w + 1);
        if (guide_start(g, (struct detok_cut){0}, &tg) != ERR_OK) die("out of memory");
        for (int i = 0; i < TOKENS_MAX; i++) {
            double from = now_us(), us;
            if (!tg.ops->mask(tg.state, bits, n_ids)) break;
            us = now_us() - from;
            int32_t id = draw(bits, n_ids, &seed);
            if (id == eos) break;
            from = now_us();
            if (!tg.ops->advance(tg.state, id)) die("a token of the mask was refused");
            us += now_us() - from;
            c.us += us;
            if (us > c.slowest_us) c.slowest_us = us;
            c.n++;
        }
        tg.ops->free(tg.state);
    }
    return c;
}

int main(void) {
    static const struct {
        const char *name, *text;
    } kinds[] = {
        {"json_object", "{\"type\":\"json_object\"}"},
        {"json_schema",
         "{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\",\"properties\":{\"name\":{"
         "\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},"
         "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"note\":{\"type\":\"string\","
         "\"maxLength\":2000},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
         "\"maxItems\":50},\"parent\":{\"$ref\":\"#\"}},\"required\":[\"name\",\"age\",\"note\","
         "\"tags\"]}}"},
        {"regex", "{\"type\":\"regex\",\"value\":\"([A-Z][a-z]+ ){3,40}[0-9]{4}-[0-9]{2}\"}"},
        {"grammar",
         "{\"type\":\"grammar\",\"value\":\"root ::= t (op t)*\\nt ::= [0-9]+ | [a-z]+ | "
         "\\\"(\\\" root \\\")\\\"\\nop ::= \\\" \\\"? [-+*/] \\\" \\\"?\"}"},
    };
    struct tokenizer *t = load();
    struct guide_vocab *v;
    int n_ids = tokenizer_vocab_size(t);
    int32_t eos = tokenizer_token_id(t, "<|im_end|>");
    uint64_t *bits = calloc((size_t)n_ids / 64 + 1, sizeof(*bits));
    double from = now_us();
    if (bits == NULL || guide_vocab_create(&v, t, n_ids, &eos, 1) != ERR_OK) die("out of memory");
    printf("guide_vocab %.1f ms tokens %d\n", (now_us() - from) / 1e3, n_ids);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct errbuf eb = {.code = ERR_OK};
        struct guide *g;
        fprintf(stderr, "bench_guide: %s\n", kinds[k].name);
        from = now_us();
        if (guide_compile(&g, v, kinds[k].text, strlen(kinds[k].text), NULL, &eb) != ERR_OK)
            die(eb.text);
        printf("guide_compile_%s %.1f ms\n", kinds[k].name, (now_us() - from) / 1e3);
        struct cost first = walk(g, bits, n_ids, eos), steady = walk(g, bits, n_ids, eos);
        double us = steady.us / (double)steady.n;
        printf("guide_first_%s %.1f us\n", kinds[k].name, first.us / (double)first.n);
        printf("guide_slowest_%s %.0f us\n", kinds[k].name, first.slowest_us);
        printf("guide_token_%s %.2f us %.3f of %d_us\n", kinds[k].name, us, us / BAR_US, BAR_US);
        guide_unref(&g);
    }
    guide_vocab_destroy(&v);
    tokenizer_free(&t);
    free(bits);
    return 0;
}
