/* How fast text becomes ids, in MB (1e6 bytes) a second of one core's time, best of several rounds:
 *
 *   tokenizer_llama3_pattern_mb_s  qwen2's vocabulary (151,643 tokens) behind Llama 3's pattern
 *   tokenizer_llama2_mb_s          llama2: no cuts but those at U+2581
 *   tokenizer_decode_mb_s          the first one's ids back to text
 *
 * Argument: a text file, English for comparable numbers. Without one, words of the vocabulary are
 * drawn at random, frequent ones more often. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/text/tokenizer.h"

#define DATA "tests/data/tokenizers/"

enum { GENERATED_BYTES = 4 * 1000 * 1000, FILE_BYTES_MAX = 64 * 1000 * 1000, ROUNDS = 5 };

static void die(const char *what) {
    fprintf(stderr, "bench_tokenizer: %s\n", what);
    exit(1);
}

static struct buf read_all(FILE *f, size_t max) {
    struct buf b = BUF_INIT;
    size_t n;
    if (f == NULL) die("cannot open the input");
    do {
        if (!buf_reserve(&b, b.len + 65536)) die("out of memory");
        n = fread(b.data + b.len, 1, b.cap - b.len - 1, f);
        b.len += n;
    } while (n > 0 && b.len < max);
    b.data[b.len] = '\0';
    return b;
}

/* pattern: put in place of qwen2's `\p{N}`, the one difference to Llama 3's pattern. */
static struct tokenizer *load(const char *path, const char *pattern) {
    static const char there[] = "|\\\\p{N}|";
    char cmd[200];
    FILE *f;
    struct buf json, b = BUF_INIT;
    struct tokenizer *t;
    struct errbuf eb = {.code = ERR_OK};
    char *hit;
    snprintf(cmd, sizeof cmd, "gzip -dc < %s", path);
    f = popen(cmd, "r");
    json = read_all(f, FILE_BYTES_MAX);
    pclose(f);
    hit = pattern != NULL ? strstr(json.data, there) : NULL;
    if (pattern != NULL && hit == NULL) die("the pattern is not where it was");
    if (hit != NULL) {
        buf_append(&b, json.data, (size_t)(hit - json.data));
        buf_puts(&b, pattern);
        buf_puts(&b, hit + sizeof there - 1);
    } else {
        buf_append(&b, json.data, json.len);
    }
    if (tokenizer_parse(&t, b.data, b.len, path, &eb) != ERR_OK) die(eb.text);
    buf_free(&json);
    buf_free(&b);
    return t;
}

/* A word that starts with a space, 0 when the id has none. */
static size_t word_of(const struct tokenizer *t, int32_t id, const char **p) {
    size_t n = tokenizer_token_bytes(t, id, p);
    if (n < 3 || (*p)[0] != ' ') return 0;
    for (size_t i = 1; i < n; i++) {
        if ((*p)[i] < 'a' || (*p)[i] > 'z') return 0;
    }
    return n;
}

static struct buf generate(const struct tokenizer *t) {
    struct buf b = BUF_INIT;
    uint64_t x = 88172645463325252u;
    int in_sentence = 0;
    while (b.len < GENERATED_BYTES) {
        const char *p;
        int32_t id;
        size_t n;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        id = (int32_t)exp((double)(x >> 40) / (1 << 24) * log(tokenizer_vocab_size(t)));
        if ((n = word_of(t, id, &p)) == 0) continue;
        buf_append(&b, p, n);
        if (x % 16 == 0) buf_append(&b, p + 1, n - 1); /* words the vocabulary does not have */
        if (++in_sentence > 12 + (int)(x % 7)) {
            buf_puts(&b, x % 3 ? "." : x % 2 ? ", 1984;\n" : "!\"\n\n\"Isn't");
            in_sentence = 0;
        }
    }
    return b;
}

static double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double encode_mb_s(const struct tokenizer *t, const struct buf *text, struct id_list *l) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double from = now_s(), mb_s;
        l->n = 0;
        if (tokenizer_encode(t, text->data, text->len, false, SIZE_MAX, l) != ERR_OK) {
            die("the text cannot be encoded");
        }
        mb_s = (double)text->len / 1e6 / (now_s() - from);
        if (mb_s > best) best = mb_s;
    }
    return best;
}

static double decode_mb_s(const struct tokenizer *t, const struct id_list *l) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct buf out = BUF_INIT;
        double from = now_s(), mb_s;
        if (tokenizer_decode(t, l->ids, l->n, false, &out) != ERR_OK) die("cannot decode");
        mb_s = (double)out.len / 1e6 / (now_s() - from);
        if (mb_s > best) best = mb_s;
        buf_free(&out);
    }
    return best;
}

int main(int argc, char **argv) {
    struct tokenizer *llama3 = load(DATA "qwen2/tokenizer.json.gz", "|\\\\p{N}{1,3}|");
    struct tokenizer *llama2 = load(DATA "llama2/tokenizer.json.gz", NULL);
    struct id_list l = {0};
    struct buf text;
    if (argc > 1) {
        FILE *f = fopen(argv[1], "rb");
        text = read_all(f, FILE_BYTES_MAX);
        fclose(f);
    } else {
        text = generate(llama3);
    }
    printf("tokenizer_text_mb %.2f\n", (double)text.len / 1e6);
    printf("tokenizer_llama2_mb_s %.1f\n", encode_mb_s(llama2, &text, &l));
    printf("tokenizer_llama3_pattern_mb_s %.1f\n", encode_mb_s(llama3, &text, &l));
    printf("tokenizer_bytes_per_token %.2f\n", (double)text.len / (double)l.n);
    printf("tokenizer_decode_mb_s %.1f\n", decode_mb_s(llama3, &l));
    id_list_free(&l);
    buf_free(&text);
    tokenizer_free(&llama2);
    tokenizer_free(&llama3);
    return 0;
}
