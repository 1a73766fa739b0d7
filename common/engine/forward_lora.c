/* forward_lora: the adapters' share of a matrix product. The rows that have one are taken together
 * by adapter, a tile at a time, whatever sequences they belong to; a row's numbers depend on the
 * row and its adapter alone, because the kernels' product promises so for any tile. A and B are f32
 * and so is their input, also where the base model's product rounds to bf16. */
#include <string.h>
#include "common/engine/forward_priv.h"

/* The adapter of the pass that comes next in the order of addresses; NULL: that was the last. */
static const struct lora *next_lora(const struct lora *last, const struct fwd_seq *seqs,
                                    int n_seqs) {
    const struct lora *next = NULL;
    for (int i = 0; i < n_seqs; i++) {
        const struct lora *l = seqs[i].lora;
        if ((uintptr_t)l > (uintptr_t)last && (next == NULL || (uintptr_t)l < (uintptr_t)next))
            next = l;
    }
    return next;
}

void forward_lora_map(struct forward *f, const struct fwd_seq *seqs, int n_seqs) {
    struct lora_rows *l = &f->lora;
    int n_rows = 0;
    l->n_chunks = 0;
    if (l->rank_max == 0) return;
    for (const struct lora *lora = NULL; (lora = next_lora(lora, seqs, n_seqs)) != NULL;) {
        struct lora_chunk *c = NULL;
        for (int i = 0; i < n_seqs; i++) {
            for (int r = 0; seqs[i].lora == lora && r < seqs[i].n_rows; r++) {
                if (c == NULL || c->n == TILE_ROWS) {
                    c = &l->chunks[l->n_chunks++];
                    *c = (struct lora_chunk){.lora = lora, .first = n_rows};
                }
                l->rows[n_rows++] = seqs[i].first_row + r;
                c->n++;
            }
        }
    }
}

/* Packed A x of a chunk for the slot-th product of a region. */
static float *down_at(const struct forward *f, int slot, const struct lora_chunk *c) {
    const struct lora_rows *l = &f->lora;
    return l->down + ((size_t)slot * (size_t)f->rows_max + (size_t)c->first) * l->stride;
}

void forward_lora_down(const struct forward *f, int layer, const enum lora_module *modules,
                       int item, const float *x, int k, int thread) {
    const struct lora_rows *l = &f->lora;
    const int slot = item / l->n_chunks;
    const struct lora_chunk *c = &l->chunks[item % l->n_chunks];
    const struct lora_pair *p = lora_pair(c->lora, layer, modules[slot]);
    if (p->rank == 0) return;
    float *gathered = l->scratch + (size_t)thread * l->scratch_stride,
          *packed = gathered + l->gathered, *y = packed + l->packed;
    for (int i = 0; i < c->n; i++)
        memcpy(gathered + (size_t)i * (size_t)k, x + (size_t)l->rows[c->first + i] * (size_t)k,
               (size_t)k * sizeof(float));
    f->kn.x_pack(packed, gathered, (size_t)k, 0, c->n, k, DTYPE_F32);
    f->kn.gemm(y, l->stride, packed, p->a, c->n, k, p->rank, DTYPE_F32);
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < p->rank; j++) y[(size_t)i * l->stride + (size_t)j] *= p->scale;
    f->kn.x_pack(down_at(f, slot, c), y, l->stride, 0, c->n, p->rank, DTYPE_F32);
}

void forward_lora_up(const struct forward *f, int layer, enum lora_module m, int slot, float *y,
                     size_t stride, int first, int n, int thread) {
    const struct lora_rows *l = &f->lora;
    float *sum = l->scratch + (size_t)thread * l->scratch_stride + l->gathered + l->packed;
    for (int i = 0; i < l->n_chunks; i++) {
        const struct lora_chunk *c = &l->chunks[i];
        const struct lora_pair *p = lora_pair(c->lora, layer, m);
        if (p->rank == 0) continue;
        f->kn.gemm(sum, (size_t)n, down_at(f, slot, c),
                   p->b + (size_t)(first / PANEL_ROWS) * panel_bytes(p->rank, DTYPE_F32), c->n,
                   p->rank, n, DTYPE_F32);
        for (int r = 0; r < c->n; r++)
            f->kn.add(y + (size_t)l->rows[c->first + r] * stride, sum + (size_t)r * (size_t)n, n);
    }
}
