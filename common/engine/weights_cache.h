/* weights_cache: packed weights in a file that every process of a host maps, so that they are in
 * memory once and a second start packs nothing.
 *
 * File: a header of WC_HEADER_BYTES, little-endian, with a checksum; then the data exactly as the
 * kernel set reads them. The file serves one model, one data type and one panel layout: the layout
 * is known by the bytes a sample of numbers is packed to, so whoever changes a packing function
 * need not remember to change a version, and sets that pack alike share a file.
 *
 * Trust: only a regular file of this user or of root that nobody else may write is mapped. The file
 * is never changed in place but for the stamp in its header: it is written beside, synced and
 * renamed, under a lock that dies with its process. So a crash leaves a temporary file that the
 * next one replaces, and a process that still maps a replaced file keeps its bytes.
 *
 * Thread: one at a time. Errors: nothing here fails a start; a cache that cannot be used is a line
 * in the log, and the weights are packed into memory. */
#ifndef BATON_ENGINE_WEIGHTS_CACHE_H
#define BATON_ENGINE_WEIGHTS_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"
#include "proto/err.h"

enum {
    WC_HEADER_BYTES = 4096,
    WC_VERSION = 1,
    WC_SHA_BYTES = 32,
    WC_XXH_BYTES = 16,
    WC_PATH_BYTES = 4096,
    /* "auto" makes no file of less: packing is faster than looking after one */
    WC_AUTO_BYTES_MIN = 64 * 1024 * 1024,
    WC_WAIT_S = 600, /* for another process that packs the same weights */
};

struct wc_header {
    uint32_t dtype;               /* enum dtype of the matrices */
    uint64_t data_bytes;          /* after the header */
    uint8_t config[WC_SHA_BYTES]; /* of the line of model_conf.h */
    uint8_t plan[WC_SHA_BYTES];   /* of name, shape and place of every tensor in the data */
    uint8_t stamp[WC_SHA_BYTES];  /* of name, size, time and inode of the .safetensors files */
    uint8_t layout[WC_XXH_BYTES]; /* of the packed sample */
    uint8_t model[WC_SHA_BYTES];  /* struct weights.hash */
    uint8_t sum[WC_XXH_BYTES];    /* of the data, wc_sum() */
};

/* Pure. read: ERR_BAD_FILE: eb says what is wrong; n: at least WC_HEADER_BYTES; file_bytes: the
 * size of the whole file. */
void wc_header_write(uint8_t out[WC_HEADER_BYTES], const struct wc_header *h);
enum err wc_header_read(struct wc_header *h, const uint8_t *p, size_t n, uint64_t file_bytes,
                        struct errbuf *eb);

/* The sum of the data: that of each piece of WEIGHTS_CHUNK_BYTES (weights.h), then over all. */
uint64_t wc_sum_chunk(const void *p, size_t n);
/* The same, with a look at *stop every now and then. False: it was set, and there is no sum. */
bool wc_sum_chunk_unless(uint64_t *sum, const void *p, size_t n, const atomic_bool *stop);
void wc_sum(uint8_t out[WC_XXH_BYTES], const uint64_t *sums, size_t n);

struct wc_file {
    bool may_make; /* else a file is used when it is there */
    char path[WC_PATH_BYTES], tmp[WC_PATH_BYTES + 8], lock[WC_PATH_BYTES + 8];
    int lock_fd, tmp_fd; /* -1: none */
    uint64_t dev, ino;   /* of the file that wc_map() mapped */
    uint8_t *map;        /* the whole file, or NULL */
    size_t map_bytes;
};

/* Where the file of this model is: setting "auto": in .baton of the model's folder; "off", "" or
 * NULL: nowhere; else a folder. model: a folder, or a file, whose folder may hold other models
 * too. want: config, plan, layout, dtype and data_bytes are set. sample: some bytes of the content,
 * which keep the models of one folder apart. False: no cache, which is no trouble. */
bool wc_place(struct wc_file *f, const char *setting, const char *model,
              const struct wc_header *want, const uint8_t sample[WC_XXH_BYTES]);

enum wc_found {
    WC_MISS,    /* none, or one that is of no use; the log says which */
    WC_TOUCHED, /* fits, but for the stamp: mapped; compare got->model with the content */
    WC_HIT      /* mapped */
};
/* Maps the file read-only when it fits `want`. */
enum wc_found wc_map(struct wc_file *f, const struct wc_header *want, struct wc_header *got);
void wc_unmap(struct wc_file *f);

/* Takes the lock, waiting for whoever packs the same now, until cancel is set (NULL: none). False:
 * not to be had, the log says why. After true look again with wc_map(): the file may be there now.
 */
bool wc_lock(struct wc_file *f, const atomic_bool *cancel);
/* Under the lock: a new file of that size, all of it on disk, mapped for writing at f->map; its
 * data start at f->map + WC_HEADER_BYTES. False: the log says why. */
bool wc_begin(struct wc_file *f, uint64_t data_bytes);
/* The data are complete: syncs them, writes the header, gives the file its name and makes the
 * mapping read-only. False: not in the cache (the log says why), yet the mapping stays good. */
bool wc_commit(struct wc_file *f, const struct wc_header *h);
/* The content was compared and is the same: puts h, with the new stamp, over the header of the file
 * that is mapped, so that the next start need not compare. Where that cannot be: nothing. */
void wc_restamp(struct wc_file *f, const struct wc_header *h);
/* Gives up the lock and an unfinished file; a mapping stays. Safe twice. */
void wc_end(struct wc_file *f);

#endif
