/* weights_pack: tensors on their way from the files into panels. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels_blocks.h"
#include "common/engine/kernels_grid.h"
#include "common/engine/weights_priv.h"

enum { STEP_BYTES = 8 * 1024 * 1024 };

/* Where row r of a slot lies, counted from the slot's first. Heads may have their rows as RoPE's
 * pairs: (0, half), (1, half + 1), ..., behind which come those that do not turn. */
static int row_in_file(const struct loader *l, const struct slot *s, int r) {
    const struct model_conf *c = l->c;
    const int dim = c->head_dim, half = c->rope_dim / 2, head = r / dim;
    const int at = r % s->head_rows - s->still_rows, g = c->n_heads / c->n_kv_heads;
    const int value = c->latent.value, both = c->latent.still + value;
    if (s->pairs && at >= 0 && at < 2 * half) r += (at < half ? 2 * at : 2 * (at - half) + 1) - at;
    switch (s->order) {
    case IN_ORDER:
    case HEADS: return r;
    case KEY_COLUMNS: return r / c->latent.rank * both; /* the first of its head */
    case VALUE_ROWS: return r / value * both + c->latent.still + r % value;
    case GROUPED_Q: return r + head / g * 2 * dim;
    case GROUPED_K: return r + (head * (g + 1) + g) * dim - s->part;
    case GROUPED_V: return r + (head * (g + 1) + g + 1) * dim - s->part;
    case FIRST_OF_TWO: return 2 * r;
    case SECOND_OF_TWO: return 2 * r + 1 - s->part;
    }
    return r;
}

static void change_rows(const struct slot *s, float *rows, int n) {
    const size_t k = (size_t)s->k;
    for (size_t i = 0; s->change == PLUS_ONE && i < (size_t)n * k; i++) rows[i] += 1;
    for (int i = 0; s->change == UNIT_ROWS && i < n; i++) {
        float *row = rows + (size_t)i * k;
        double sum = 0;
        for (size_t j = 0; j < k; j++) sum += (double)row[j] * (double)row[j];
        const double length = sqrt(sum) > 1e-12 ? sqrt(sum) : 1e-12;
        for (size_t j = 0; j < k; j++) row[j] = (float)((double)row[j] / length);
    }
}

/* Rows of the tensor; first counts from behind those that are another's. */
static void read_file_rows(const struct slot *s, float *dst, int first, int n) {
    const struct tensor_type *type = s->t.type;
    if (s->t.packed != NULL)
        packed_rows(s->t.packed, dst, (uint64_t)(s->from + first), (size_t)n);
    else
        type->to_f32(dst, s->t.data + (ptrdiff_t)first * (ptrdiff_t)tensor_row_bytes(type, s->k),
                     (size_t)n * (size_t)(s->k / type->elements));
}

/* The same of a tensor that has them as columns, up to PANEL_ROWS of them: of each of its rows the
 * part in which they all are. */
static void read_turned_rows(const struct loader *l, const struct slot *s, float *dst, int first,
                             int n) {
    float some[2 * PANEL_ROWS];
    const size_t k = (size_t)s->k, bytes = (size_t)s->t.type->bytes;
    const int at = s->part + row_in_file(l, s, first),
              end = s->part + row_in_file(l, s, first + n - 1) + 1;
    const uint8_t *whole = s->t.data - (size_t)s->part * k * bytes; /* [k][stack_rows] */
    for (size_t i = 0; i < k; i++) {
        s->t.type->to_f32(some, whole + (i * (size_t)s->stack_rows + (size_t)at) * bytes,
                          (size_t)(end - at));
        for (int r = 0; r < n; r++)
            dst[(size_t)r * k + i] = some[s->part + row_in_file(l, s, first + r) - at];
    }
}

/* Up to PANEL_ROWS columns of the rows of one head that make its key: as rows. */
static void read_key_columns(const struct loader *l, const struct slot *s, float *dst, int first,
                             int n) {
    float row[KEY_DIM_MAX]; /* or of a block, up to 256 values */
    const int rank = l->c->latent.rank, column = first % rank, at = row_in_file(l, s, first);
    const struct tensor_type *type = s->t.type;
    const int in_block = type != NULL ? type->elements : 1;
    const float *from = s->t.packed != NULL ? row + column : row + column % in_block;
    for (int i = 0; i < s->k; i++) {
        if (s->t.packed != NULL)
            packed_rows(s->t.packed, row, (uint64_t)(at + i), 1);
        else
            type->to_f32(row,
                         s->t.data + (size_t)(at + i) * tensor_row_bytes(type, rank) +
                             (size_t)(column / in_block) * (size_t)type->bytes,
                         in_block > 1 ? 1 : (size_t)n);
        for (int r = 0; r < n; r++) dst[(size_t)r * (size_t)s->k + (size_t)i] = from[r];
    }
}

/* Rows [first, first + n) of the matrix, or values of the vector, as f32. */
static void read_rows(const struct loader *l, const struct slot *s, float *dst, int first, int n) {
    const bool whole = !s->pairs && !s->turned && (s->order == IN_ORDER || s->order == HEADS);
    if (s->order == KEY_COLUMNS) {
        read_key_columns(l, s, dst, first, n);
        return;
    }
    if (s->turned) read_turned_rows(l, s, dst, first, n);
    if (whole) read_file_rows(s, dst, first, n);
    for (int i = 0; !whole && !s->turned && i < n; i++)
        read_file_rows(s, dst + (size_t)i * (size_t)s->k, row_in_file(l, s, first + i), 1);
    change_rows(s, dst, n);
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

/* All values of a block are finite where its scales are, but that those of MXFP4 may be as large as
 * f32 allows. */
static bool finite_block(const struct tensor_type *type, const struct block_parts *p,
                         const uint8_t *block) {
    enum { F16_EXPONENT = 0x7c00, E8M0_LARGE = 250 };
    float v[GROUP];
    if (type->own != DTYPE_MXFP4)
        return (p->d & F16_EXPONENT) != F16_EXPONENT && (p->least & F16_EXPONENT) != F16_EXPONENT;
    if (p->d < E8M0_LARGE) return true;
    type->to_f32(v, block, 1);
    return all_finite(v, GROUP);
}

/* n rows from `first` on. False: a value is not finite. */
static bool pack_blocks(const struct loader *l, const struct slot *s, void *panel, int first,
                        int n) {
    const struct tensor_type *type = s->t.type;
    bool finite = true;
    memset(panel, 0, panel_bytes(s->k, s->dtype));
    for (int r = 0; r < n; r++) {
        const uint8_t *row =
            s->t.data + (size_t)row_in_file(l, s, first + r) * tensor_row_bytes(type, s->k);
        for (int i = 0; i < s->k / type->elements; i++, row += type->bytes) {
            struct block_parts parts = {0};
            type->parts(&parts, row);
            finite = finite && finite_block(type, &parts, row);
            panel_put_block(panel, &parts, r, i, s->dtype);
        }
    }
    return finite;
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
    } else if (s->blocks) {
        finite = pack_blocks(l, s, panel, l->row_first + first, n);
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
                    s->t.file, s->file_name,
                    s->from + row_in_file(l, s, r) + (s->order == KEY_COLUMNS ? i : 0),
                    s->order == KEY_COLUMNS ? r % l->c->latent.rank : i,
                    row[i] != row[i] ? "NaN" : "infinite");
            free(row);
            return ERR_BAD_FILE;
        }
    }
    free(row);
    return ERR_INTERNAL;
}

/* Rows of one step: whole panels, and whole heads where rows change places. */
static int step_rows(const struct slot *s, size_t row_bytes) {
    const int unit = s->pairs ? PANEL_ROWS * s->head_rows : PANEL_ROWS;
    const int n = (int)(STEP_BYTES / row_bytes) / unit * unit;
    return n > unit ? n : unit;
}

/* Rows [first, first + n) of the slot are packed: the bytes among which they lie, others' rows too
 * where the order is not the file's, leave the resident set; of a matrix that is turned those of
 * the whole expert. */
static void let_go(const struct loader *l, const struct slot *s, int first, int n) {
    const int last = s->order == KEY_COLUMNS ? s->k : 1; /* rows that its last one comes of */
    const int low = s->turned ? -s->part : row_in_file(l, s, first),
              high = s->turned ? s->stack_rows - s->part : row_in_file(l, s, first + n - 1) + last;
    const uint64_t at = (uint64_t)(s->from + low), rows = (uint64_t)(high - low);
    if (s->t.packed != NULL) {
        tensor_source_drop_rows(l->files, s->t.packed, at, rows);
    } else {
        const uint64_t row_bytes = tensor_row_bytes(s->t.type, columns_in_file(l, s));
        tensor_source_drop(l->files, &s->t, at * row_bytes, rows * row_bytes);
    }
}

/* Some megabytes at a time: hashed, packed, let go. So the file is read once, and little of it is
 * resident. A quantised layer lies across its tensors, so these are hashed first. */
enum err weights_load_slot(struct loader *l, struct slot *s, struct errbuf *eb) {
    const bool by_parts = s->t.packed == NULL && !slot_by_heads(s);
    const size_t row_bytes = s->t.packed == NULL
                                 ? tensor_row_bytes(s->t.type, columns_in_file(l, s))
                                 : (size_t)(s->t.bytes / (uint64_t)s->n + 1);
    const int step = step_rows(s, row_bytes);
    const uint64_t before = l->done_bytes;
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    if (s->t.packed != NULL) weights_hash_parts(l, &hash, s);
    if (s->t.packed == NULL && !by_parts) XXH3_128bits_update(&hash, s->t.data, (size_t)s->t.bytes);
    l->slot = s;
    for (int first = 0; first < s->n && !cancelled(l); first += step) {
        const int n = s->n - first < step ? s->n - first : step;
        l->row_first = first;
        l->n_rows = n;
        if (by_parts)
            XXH3_128bits_update(&hash, s->t.data + (size_t)first * row_bytes,
                                (size_t)n * row_bytes);
        if (s->matrix != NULL) {
            pool_run(l->pool, pack_panel, l, (n + PANEL_ROWS - 1) / PANEL_ROWS);
        } else {
            read_rows(l, s, *s->vector + first, first, n);
            if (!all_finite(*s->vector + first, (size_t)n)) l->not_finite = true;
        }
        if (l->not_finite) return refuse_values(l, s, first, n, eb);
        if (s->t.packed == NULL && !s->turned) let_go(l, s, first, n);
        l->done_bytes = before + s->t.bytes * (uint64_t)(first + n) / (uint64_t)s->n;
        if (l->progress != NULL)
            l->progress(l->progress_arg, "weights", l->done_bytes, l->total_bytes);
    }
    /* What was hashed may be other rows than were packed with it. */
    if (s->t.packed != NULL || s->turned || s->order != IN_ORDER) let_go(l, s, 0, s->n);
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(s->digest, digest.digest, sizeof(s->digest));
    return ERR_OK;
}
