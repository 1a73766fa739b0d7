/* Bytes of a result stream, in either version and in any cuts: the same bytes give the same frames
 * and the same end however they come, and a frame that was taken says the same when it is packed
 * and parsed again. First byte: version and the size of the cuts. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dresult.h"
#include "proto/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRAME_BYTES_MAX = 1 << 20 };

static void require(int ok) {
    if (!ok) abort();
}

struct seen {
    uint64_t hash; /* of every member of every frame */
    size_t n;
    int version;
    bool again; /* pack and parse each once more */
};

static void mix(struct seen *s, const void *p, size_t n) {
    s->hash = hash64_add(hash64_bytes(s->hash, p, n), n);
}

static enum err parse_all(struct seen *s, const char *p, size_t n, size_t cut);

static enum err on_frame(void *arg, const struct dresult_frame *f) {
    struct seen *s = arg, one = {.version = s->version}, two = {.version = s->version};
    s->n++;
    one.hash = two.hash = 0;
    mix(&one, &f->kind, sizeof(f->kind));
    mix(&one, f->req_id, strlen(f->req_id));
    mix(&one, &f->epoch, sizeof(f->epoch));
    mix(&one, &f->seq, sizeof(f->seq));
    for (size_t i = 0; i < f->n_tokens; i++) {
        const struct emitted *t = &f->tokens[i];
        mix(&one, &t->id, sizeof(t->id));
        mix(&one, &t->choice, sizeof(t->choice));
        mix(&one, &t->finish, sizeof(t->finish));
    }
    mix(&one, &f->status, sizeof(f->status));
    mix(&one, &f->cause, sizeof(f->cause));
    mix(&one, f->body, f->body_len);
    mix(s, &one.hash, sizeof(one.hash));
    if (!s->again) return ERR_OK;
    struct wr w = WR_INIT;
    /* Ids with separators in them are taken, never sent. An error frame carries its status where
     * the others carry tokens; a heartbeat has no id. */
    if (dresult_pack(&w, s->version, f) == ERR_OK && f->kind != DR_HEARTBEAT &&
        (f->kind != DR_ERROR || f->n_tokens == 0)) {
        require(parse_all(&two, (const char *)w.data, w.len, w.len) == ERR_OK);
        require(two.n == 1);
        struct seen want = {.version = s->version};
        want.hash = 0;
        mix(&want, &one.hash, sizeof(one.hash));
        require(two.hash == want.hash);
    }
    wr_free(&w);
    return ERR_OK;
}

/* Reads all of what it hears. */
static void on_ahead(void *arg, const char *id, size_t id_len) {
    uint64_t *sum = arg;
    for (size_t i = 0; i < id_len; i++) *sum += (uint8_t)id[i];
}

static enum err parse_all(struct seen *s, const char *p, size_t n, size_t cut) {
    struct dresult_parser *parser;
    uint64_t sum = 0;
    enum err e = dresult_parser_create(&parser, s->version, FRAME_BYTES_MAX);
    require(e == ERR_OK);
    dresult_parser_ahead(parser, on_ahead, &sum);
    for (size_t at = 0; e == ERR_OK && at < n; at += cut) {
        size_t k = n - at < cut ? n - at : cut;
        char *piece = malloc(k); /* exactly as long as it says */
        require(piece != NULL);
        memcpy(piece, p + at, k);
        e = dresult_parser_feed(parser, piece, k, on_frame, s);
        free(piece);
    }
    dresult_parser_destroy(&parser);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    struct seen whole = {.version = 1 + data[0] % 2, .again = true},
                cut = {.version = whole.version};
    const char *p = (const char *)data + 1;
    enum err a = parse_all(&whole, p, size - 1, size);
    enum err b = parse_all(&cut, p, size - 1, 1 + data[0] / 2 % 16);
    require(a == b && whole.n == cut.n && whole.hash == cut.hash);
    return 0;
}
