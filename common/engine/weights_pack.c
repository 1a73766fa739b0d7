/* weights_pack: tensors on their way from the files into panels. */
#include <stdlib.h>
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels_grid.h"
#include "common/engine/weights_priv.h"

enum { STEP_BYTES = 8 * 1024 * 1024 };

/* Where row r of a matrix of q or k lies in a file whose heads have their rows as RoPE's pairs:
 * (0, half), (1, half + 1), ... */
static int row_in_file(const struct loader *l, const struct slot *s, int r) {
    const int dim = l->c->head_dim, at = r % dim;
    return s->pairs ? r - at + (at < dim / 2 ? 2 * at : 2 * (at - dim / 2) + 1) : r;
}

/* Rows of the tensor, behind those that are another's. */
static void read_file_rows(const struct slot *s, float *dst, int first, int n) {
    const struct tensor_type *type = s->t.type;
    if (s->t.packed != NULL)
        packed_rows(s->t.packed, dst, (uint64_t)(s->from + first), (size_t)n);
    else
        type->to_f32(dst, s->t.data + (size_t)first * tensor_row_bytes(type, s->k),
                     (size_t)n * (size_t)(s->k / type->elements));
}

/* Rows [first, first + n) of the matrix, or values of the vector, as f32. */
static void read_rows(const struct loader *l, const struct slot *s, float *dst, int first, int n) {
    if (!s->pairs) {
        read_file_rows(s, dst, first, n);
        return;
    }
    for (int i = 0; i < n; i++)
        read_file_rows(s, dst + (size_t)i * (size_t)s->k, row_in_file(l, s, first + i), 1);
}

/* All exponents below the one of infinities and NaNs. */
static bool all_finite(const float *v, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits_of_f32(v[i]) & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    return most < 0x7f800000;
}

/* The integers of n rows from `first` on, and their scales. False: one is not finite. */
static bool read_grid(const struct loader *l, const struct slot *s, int8_t *q, float *scale,
                      int first, int n) {
    const int groups = s->k / GROUP;
    for (int r = 0; r < n; r++) {
        const int row = row_in_file(l, s, first + r);
        for (int g = 0; g < groups; g++) {
            int8_t *to = q + (size_t)r * (size_t)s->k + (size_t)g * GROUP;
            scale[r * groups + g] =
                s->t.packed != NULL
                    ? packed_grid(s->t.packed, to, (uint64_t)(s->from + row), (uint64_t)g)
                    : s->t.type->grid(to, s->t.data +
                                              (size_t)row * tensor_row_bytes(s->t.type, s->k) +
                                              (size_t)g * (size_t)s->t.type->bytes);
        }
    }
    return all_finite(scale, (size_t)n * (size_t)groups);
}

static void pack_panel(void *arg, int item, int thread) {
    struct loader *l = arg;
    const struct slot *s = l->slot;
    int first = item * PANEL_ROWS,
        n = l->n_rows - first < PANEL_ROWS ? l->n_rows - first : PANEL_ROWS;
    float *rows = l->rows + (size_t)thread * PANEL_ROWS * l->rows_stride;
    uint8_t *panel = s->matrix->panels +
                     (size_t)(l->row_first / PANEL_ROWS + item) * panel_bytes(s->k, s->dtype);
    bool finite;
    if (s->grid) {
        int8_t *q = (int8_t *)rows; /* a quarter of the room; the scales lie behind */
        float *scale = rows + (size_t)PANEL_ROWS / 4 * (size_t)s->k;
        finite = read_grid(l, s, q, scale, l->row_first + first, n);
        panel_pack_grid(panel, q, scale, n, s->k, s->dtype);
    } else {
        read_rows(l, s, rows, l->row_first + first, n);
        finite = all_finite(rows, (size_t)n * (size_t)s->k);
        l->kn->panel_pack(panel, rows, n, s->k, s->dtype);
    }
    if (!finite) atomic_store_explicit(&l->not_finite, true, memory_order_relaxed);
}

/* Which value it is, for whoever looks for the damage. */
static enum err refuse_values(const struct loader *l, const struct slot *s, int first, int n,
                              struct errbuf *eb) {
    float *row = malloc((size_t)s->k * sizeof(*row));
    if (row == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory to pack the weights");
    for (int r = first; r < first + n; r++) {
        read_rows(l, s, row, r, 1);
        for (int i = 0; i < s->k; i++) {
            if (all_finite(&row[i], 1)) continue;
            err_set(eb, ERR_BAD_FILE,
                    "%s: tensor %s: value [%d, %d] is %s: the file is damaged, or its training "
                    "diverged",
                    s->t.file, s->file_name, s->from + row_in_file(l, s, r), i,
                    row[i] != row[i] ? "NaN" : "infinite");
            free(row);
            return ERR_BAD_FILE;
        }
    }
    free(row);
    return ERR_INTERNAL;
}

/* Rows of one step: whole panels, and whole heads where rows change places. */
static int step_rows(const struct loader *l, const struct slot *s, size_t row_bytes) {
    const int unit = s->pairs ? PANEL_ROWS * l->c->head_dim : PANEL_ROWS;
    const int n = (int)(STEP_BYTES / row_bytes) / unit * unit;
    return n > unit ? n : unit;
}

/* Some megabytes at a time: hashed, packed, let go. So the file is read once, and little of it is
 * resident. A quantised layer lies across its tensors, so these are hashed first. */
enum err weights_load_slot(struct loader *l, struct slot *s, struct errbuf *eb) {
    const size_t row_bytes = s->t.packed == NULL ? tensor_row_bytes(s->t.type, s->k)
                                                 : (size_t)(s->t.bytes / (uint64_t)s->n + 1);
    const int step = step_rows(l, s, row_bytes);
    const uint64_t before = l->done_bytes;
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    if (s->t.packed != NULL) weights_hash_parts(l, &hash, s->t.packed);
    l->slot = s;
    for (int first = 0; first < s->n && !cancelled(l); first += step) {
        const int n = s->n - first < step ? s->n - first : step;
        const uint64_t behind = (uint64_t)(s->from + first + n) * row_bytes;
        l->row_first = first;
        l->n_rows = n;
        if (s->t.packed == NULL)
            XXH3_128bits_update(&hash, s->t.data + (size_t)first * row_bytes,
                                (size_t)n * row_bytes);
        if (s->matrix != NULL) {
            pool_run(l->pool, pack_panel, l, (n + PANEL_ROWS - 1) / PANEL_ROWS);
        } else {
            read_rows(l, s, *s->vector + first, first, n);
            if (!all_finite(*s->vector + first, (size_t)n)) l->not_finite = true;
        }
        if (l->not_finite) return refuse_values(l, s, first, n, eb);
        tensor_source_drop(l->files, &s->t, behind);
        l->done_bytes = before + s->t.bytes * (uint64_t)(first + n) / (uint64_t)s->n;
        if (l->progress != NULL)
            l->progress(l->progress_arg, "weights", l->done_bytes, l->total_bytes);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(s->digest, digest.digest, sizeof(s->digest));
    return ERR_OK;
}
