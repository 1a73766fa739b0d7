/* weights_file: the model's hash, and packed weights as a file that is mapped: weights_cache.h. */
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "common/base/log.h"
#include "common/engine/kernels_blocks.h"
#include "common/engine/weights_priv.h"

enum { SAMPLE_BYTES = 64 /* of each tensor */, SAMPLES_HELD = 8 };
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

void weights_hash_parts(const struct loader *l, XXH3_state_t *hash, const struct slot *s) {
    const struct tensor *part;
    for (int i = 0; (part = packed_part(s->t.packed, i)) != NULL; i++) {
        uint64_t at, end;
        packed_span(s->t.packed, i, (uint64_t)s->from, (uint64_t)slot_hashed_rows(s), &at, &end);
        for (; at < end && !cancelled(l); at += WEIGHTS_HASH_STEP_BYTES) {
            const uint64_t n =
                end - at < WEIGHTS_HASH_STEP_BYTES ? end - at : WEIGHTS_HASH_STEP_BYTES;
            XXH3_128bits_update(hash, part->data + at, (size_t)n);
        }
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct slot *)a)->name, ((const struct slot *)b)->name);
}

/* SHA-256 over the config's line and, by name, each tensor's name, type, shape and digest: sharding
 * does not change it. */
enum err weights_hash(struct loader *l, struct errbuf *eb) {
    char *line = malloc(MODEL_CONF_LINE_BYTES);
    size_t cap = (size_t)l->n_slots * (TENSOR_NAME_BYTES + 64), at = 0;
    char *text = malloc(cap);
    if (line == NULL || text == NULL) {
        free(line);
        free(text);
        return err_set(eb, ERR_NO_MEMORY, "no memory to hash the model");
    }
    SHA256((const uint8_t *)line, (size_t)model_conf_line(l->c, line), l->w->hash);
    qsort(l->slots, (size_t)l->n_slots, sizeof(*l->slots), by_name);
    for (int i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        if (i > 0 && by_name(s - 1, s) == 0) { /* their order would be nobody's choice */
            err_set(eb, ERR_INTERNAL, "two parts of the model are called %s", s->name);
            free(line);
            free(text);
            return ERR_INTERNAL;
        }
        at += (size_t)snprintf(text + at, cap - at, "%s %s %d %d ", s->name, s->t.type_name, s->n,
                               s->k);
        memcpy(text + at, s->digest, sizeof(s->digest));
        at += sizeof(s->digest);
    }
    uint8_t both[2 * SHA256_DIGEST_LENGTH];
    memcpy(both, l->w->hash, SHA256_DIGEST_LENGTH);
    SHA256((const uint8_t *)text, at, both + SHA256_DIGEST_LENGTH);
    SHA256(both, sizeof(both), l->w->hash);
    free(line);
    free(text);
    return ERR_OK;
}
/* What tells this model's packed data from others: SHA-256 over lines of text. */
enum err weights_describe_plan(struct loader *l, struct errbuf *eb) {
    size_t cap = (size_t)l->n_slots * (TENSOR_NAME_BYTES + 96), at = 0;
    char *text = malloc(cap > MODEL_CONF_LINE_BYTES ? cap : MODEL_CONF_LINE_BYTES);
    if (text == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory to describe the weights");
    SHA256((const uint8_t *)text, (size_t)model_conf_line(l->c, text), l->want.config);
    for (int i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        at += (size_t)snprintf(text + at, cap - at, "%s %s %s%s %d %d %llu\n", s->name,
                               s->t.type_name, dtype_name(s->dtype), s->grid ? " grid" : "", s->n,
                               s->k, (unsigned long long)s->at);
    }
    SHA256((const uint8_t *)text, at, l->want.plan);
    free(text);
    return ERR_OK;
}

void weights_describe_files(struct loader *l) {
    const struct file_map *f;
    char line[512];
    uint8_t chain[2 * WC_SHA_BYTES] = {0}; /* the digest so far, the digest of a line */
    for (int i = 0; (f = tensor_source_file(l->files, i)) != NULL; i++) {
        int n = snprintf(line, sizeof(line), "%s %llu %llu %llu\n", f->name,
                         (unsigned long long)f->bytes, (unsigned long long)f->mtime_ns,
                         (unsigned long long)f->inode);
        SHA256((const uint8_t *)line, (size_t)n, chain + WC_SHA_BYTES);
        SHA256(chain, sizeof(chain), chain);
    }
    memcpy(l->want.stamp, chain, sizeof(l->want.stamp));
}

/* n bytes, the same each time. */
static void sample_bytes(uint8_t *p, size_t n) {
    uint32_t lcg = 1;
    for (size_t i = 0; i < n; i++) {
        lcg = lcg * 1664525u + 1013904223u;
        p[i] = (uint8_t)(lcg >> 24);
    }
}

static void pack_sample_blocks(uint8_t *panel, int n_rows, int k, enum dtype dtype) {
    struct block_parts parts;
    sample_bytes((uint8_t *)&parts, sizeof(parts));
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < k / block_format(dtype).k; i++) {
            parts.q[i % 32] ^= (uint8_t)(r + 1);
            panel_put_block(panel, &parts, r, i, dtype);
        }
    }
}

/* What becomes of a full and of a ragged panel of sample numbers of k columns. */
static bool sample_layout(const struct loader *l, XXH3_state_t *hash, int k, enum dtype dtype) {
    const size_t bytes = (panel_bytes(k, dtype) + WEIGHTS_ALIGN_BYTES - 1) / WEIGHTS_ALIGN_BYTES *
                         WEIGHTS_ALIGN_BYTES;
    const size_t n = (size_t)PANEL_ROWS * (size_t)k;
    float *rows = malloc(n * sizeof(float));
    uint8_t *panel = aligned_alloc(WEIGHTS_ALIGN_BYTES, bytes);
    const bool ok = rows != NULL && panel != NULL;
    uint32_t lcg = 1;
    for (size_t j = 0; ok && j < n; j++) {
        lcg = lcg * 1664525u + 1013904223u;
        rows[j] = (float)(int32_t)lcg * 0x1p-31f;
    }
    for (int n_rows = PANEL_ROWS; ok && n_rows > 0; n_rows -= PANEL_ROWS - 5) {
        memset(panel, 0, bytes);
        if (dtype_is_blocks(dtype))
            pack_sample_blocks(panel, n_rows, k, dtype);
        else
            l->kn->panel_pack(panel, rows, n_rows, k, dtype);
        XXH3_128bits_update(hash, panel, bytes);
    }
    free(rows);
    free(panel);
    return ok;
}

/* The layout, by samples of each type that a matrix has, as wide as the narrowest one of it. */
enum err weights_describe_layout(struct loader *l, struct errbuf *eb) {
    int narrowest[DTYPE_COUNT] = {0};
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    for (int i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        if (s->matrix != NULL && (narrowest[s->dtype] == 0 || s->k < narrowest[s->dtype]))
            narrowest[s->dtype] = s->k;
    }
    for (enum dtype t = DTYPE_NONE; t < DTYPE_COUNT; t++)
        if (narrowest[t] > 0 && !sample_layout(l, &hash, narrowest[t], t))
            return err_set(eb, ERR_NO_MEMORY, "no memory to pack a sample");
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(l->want.layout, digest.digest, sizeof(l->want.layout));
    return ERR_OK;
}

/* The first bytes of each tensor: models of one shape differ in them. */
void weights_sample(const struct loader *l, uint8_t out[WC_XXH_BYTES]) {
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    for (int i = 0; i < l->n_slots; i++) {
        const struct tensor *t = &l->slots[i].t;
        XXH3_128bits_update(&hash, t->data, t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES);
        /* a fault may have mapped far more than what was read: 2 MiB where the cache has it so */
        if (i % SAMPLES_HELD == 0 || i == l->n_slots - 1) tensor_source_drop_all(l->files);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(out, digest.digest, WC_XXH_BYTES);
}

static uint8_t *chunk_at(const struct loader *l, int item, size_t *n) {
    uint64_t at = (uint64_t)item * WEIGHTS_CHUNK_BYTES;
    *n = l->w->bytes - at < WEIGHTS_CHUNK_BYTES ? (size_t)(l->w->bytes - at) : WEIGHTS_CHUNK_BYTES;
    return l->cache.map + WC_HEADER_BYTES + at;
}

static int n_chunks(const struct loader *l) {
    return (int)((l->w->bytes + WEIGHTS_CHUNK_BYTES - 1) / WEIGHTS_CHUNK_BYTES);
}

static void sum_chunk(void *arg, int item, int thread) {
    struct loader *l = arg;
    size_t n;
    const uint8_t *p = chunk_at(l, item, &n);
    (void)thread;
    if (cancelled(l)) return;
    l->sums[item] = wc_sum_chunk(p, n);
}

static bool sum_data(struct loader *l, uint8_t out[WC_XXH_BYTES]) {
    size_t n = (size_t)n_chunks(l);
    if ((l->sums = malloc(n * sizeof(*l->sums))) == NULL) return false;
    pool_run(l->pool, sum_chunk, l, (int)n);
    wc_sum(out, l->sums, n);
    free(l->sums);
    l->sums = NULL;
    return true;
}

/* Maps the pages now, not in the first request. */
static void populate_chunk(void *arg, int item, int thread) {
    size_t n;
    uint8_t *p = chunk_at(arg, item, &n);
    uint8_t *from = (uint8_t *)((uintptr_t)p / WC_HEADER_BYTES * WC_HEADER_BYTES);
    (void)thread;
    if (cancelled(arg)) return;
    if (madvise(from, n + (size_t)(p - from), MADV_POPULATE_READ) == 0) return;
    for (size_t i = 0; i < n; i += WC_HEADER_BYTES) (void)((volatile uint8_t *)p)[i];
}

static void hash_slot(void *arg, int item, int thread) {
    struct loader *l = arg;
    struct slot *s = &l->slots[item];
    const uint8_t *src = s->t.data;
    const uint64_t bytes = s->t.bytes;
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    const uint64_t before = /* of a tensor that others have a part of */
        s->t.packed == NULL ? (uint64_t)s->from * tensor_row_bytes(s->t.type, s->k) : 0;
    (void)thread;
    XXH3_128bits_reset(&hash);
    if (s->t.packed != NULL) weights_hash_parts(l, &hash, s);
    for (uint64_t at = 0; s->t.packed == NULL && at < bytes && !cancelled(l);
         at += WEIGHTS_HASH_STEP_BYTES) {
        uint64_t n = bytes - at < WEIGHTS_HASH_STEP_BYTES ? bytes - at : WEIGHTS_HASH_STEP_BYTES;
        XXH3_128bits_update(&hash, src + at, (size_t)n);
        tensor_source_drop(l->files, &s->t, before + at, n);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(s->digest, digest.digest, sizeof(s->digest));
}

/* The file fits but for its stamp: somebody copied or touched the model, or changed its content. */
static bool content_is(struct loader *l, const struct wc_header *got) {
    if (!l->hashed) {
        pool_run(l->pool, hash_slot, l, l->n_slots);
        if (cancelled(l) || weights_hash(l, NULL) != ERR_OK) return false;
        l->hashed = true;
    }
    if (memcmp(got->model, l->w->hash, sizeof(l->w->hash)) == 0) return true;
    log_info("load", "weight cache %s: the model has changed since", l->cache.path);
    return false;
}

static bool data_are_sound(struct loader *l, const struct wc_header *got) {
    uint8_t sum[WC_XXH_BYTES];
    if (!l->place.verify) return true;
    if (!sum_data(l, sum) || cancelled(l)) return false;
    if (memcmp(sum, got->sum, sizeof(sum)) == 0) return true;
    log_warn("load", "weight cache %s is not used: the checksum of its data is wrong",
             l->cache.path);
    return false;
}

bool weights_from_file(struct loader *l) {
    struct wc_header got;
    enum wc_found found = wc_map(&l->cache, &l->want, &got);
    if (found == WC_MISS) return false;
    if ((found == WC_TOUCHED && !content_is(l, &got)) || !data_are_sound(l, &got)) {
        wc_unmap(&l->cache);
        return false;
    }
    if (found == WC_TOUCHED) {
        memcpy(got.stamp, l->want.stamp, sizeof(got.stamp));
        wc_restamp(&l->cache, &got);
    }
    memcpy(l->w->hash, got.model, sizeof(l->w->hash));
    pool_run(l->pool, populate_chunk, l, n_chunks(l));
    l->w->from = WEIGHTS_FROM_CACHE;
    struct weights_file *f = &l->w->file;
    f->path = strdup(l->cache.path);
    f->dev = l->cache.dev;
    f->ino = l->cache.ino;
    memcpy(f->sum, got.sum, sizeof(f->sum));
    f->unchecked = f->path != NULL && !l->place.verify;
    return true;
}

void weights_to_file(struct loader *l) {
    struct wc_header h = l->want;
    memcpy(h.model, l->w->hash, sizeof(h.model));
    if (!sum_data(l, h.sum)) {
        wc_end(&l->cache);
        log_warn("load", "weight cache %s: no memory for its checksum", l->cache.path);
    } else if (wc_commit(&l->cache, &h)) {
        l->w->from = WEIGHTS_PACKED_TO_CACHE;
    }
}
