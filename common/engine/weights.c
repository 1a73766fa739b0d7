/* weights: the list of tensors a config asks for, and where they go. */
#include "common/engine/weights.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/weights_priv.h"

enum { NAME_BYTES = TENSOR_NAME_BYTES, ALIGN_BYTES = WEIGHTS_ALIGN_BYTES };

/* ---- what a config asks for */

static struct slot *add_slot(struct loader *l, const struct tensor_row *r, char *field) {
    struct slot *s = &l->slots[l->n_slots++];
    *s = (struct slot){.n = tensor_extent(l->c, r->n),
                       .k = tensor_extent(l->c, r->k),
                       .kind = !r->is_matrix          ? SLOT_VECTOR
                               : r->as_f32            ? SLOT_F32
                               : r->place == IN_MODEL ? SLOT_VOCAB
                                                      : SLOT_LAYER,
                       .dtype = DTYPE_F32};
    if (r->is_matrix)
        s->matrix = (struct matrix *)(void *)field;
    else
        s->vector = (float **)(void *)field;
    return s;
}

/* The family's names begin with one of its roots: that under which there is an embedding. */
static const char *find_root(const struct loader *l, const struct tensor_names *names) {
    char name[NAME_BYTES];
    struct tensor t;
    for (int i = 0; i < TENSOR_ROOTS_MAX && names->roots[i] != NULL; i++) {
        snprintf(name, sizeof(name), "%s%s", names->roots[i], names->rows[0].name);
        if (tensor_source_find(l->files, name, &t)) return names->roots[i];
    }
    return names->roots[0];
}

static bool is_gate_or_up(const struct tensor_row *r) {
    return r->is_matrix && (r->offset == offsetof(struct expert_weights, gate) ||
                            r->offset == offsetof(struct expert_weights, up));
}

/* blk.N.ffn_gate_exps.weight is blk.N.ffn_gate.E.weight there. */
static void single_name(struct slot *s, const struct tensor_row *r, const char *layer, int expert) {
    static const char tail[] = "_exps";
    const char *gguf = r->gguf != NULL ? r->gguf : "none", *at = strstr(gguf, tail);
    const int stem = at != NULL ? (int)(at - gguf) : (int)strlen(gguf);
    snprintf(s->file_name, sizeof(s->file_name), "%.32s%.*s.%d%.16s", layer, stem < 40 ? stem : 40,
             gguf, expert, at != NULL ? at + sizeof(tail) - 1 : "");
}

static void name_slot(const struct loader *l, struct slot *s, const struct tensor_row *r, int layer,
                      int expert) {
    char prefix[NAME_BYTES] = "", gguf[NAME_BYTES] = "", row[NAME_BYTES];
    const struct tensor_names *names = tensor_names_of(l->c);
    if (tensor_row_in_layer(r)) {
        snprintf(prefix, sizeof(prefix), names->layer, layer);
        snprintf(gguf, sizeof(gguf), "blk.%d.", layer);
    }
    snprintf(row, sizeof(row), "%s", r->name);
    if (r->place == IN_EXPERTS) snprintf(row, sizeof(row), r->name, expert);
    static const char part[] = "language_model.";
    if (r->name[0] == '/') /* of a part the head is within it */
        snprintf(s->name, sizeof(s->name), "%s%s",
                 strncmp(l->root, part, sizeof(part) - 1) == 0 ? part : "", r->name + 1);
    else
        snprintf(s->name, sizeof(s->name), "%.24s%.32s%.48s", l->root, prefix, row);
    if (r->place == IN_EXPERTS && l->singles)
        single_name(s, r, gguf, expert);
    else if (r->place == IN_EXPERTS && l->fused && is_gate_or_up(r))
        snprintf(s->file_name, sizeof(s->file_name), "%.32sffn_gate_up_exps.weight", gguf);
    else if (tensor_source_is_gguf(l->files))
        snprintf(s->file_name, sizeof(s->file_name), "%.32s%.60s", gguf,
                 r->gguf != NULL ? r->gguf : "none");
    else
        snprintf(s->file_name, sizeof(s->file_name), "%s", s->name);
}

static char *field_of(const struct loader *l, const struct tensor_row *r, int layer, int expert) {
    struct weights *w = l->w;
    void *at = w;
    switch (r->place) {
    case IN_LAYER: at = &w->layers[layer]; break;
    case IN_EXPERTS: at = &w->layers[layer].experts[expert]; break;
    case IN_NORMS: at = &w->norms[2 * layer]; break;
    case IN_BRANCHES: at = &w->branch_norms[2 * layer]; break;
    case IN_FIRST_NORM: at = &w->norms[0]; break;
    case IN_LAST_NORM: at = &w->norms[2 * l->c->n_layers]; break;
    case IN_MODEL: break;
    }
    return (char *)at + r->offset;
}

/* Bits in which a matrix loses nothing that matters; 0: it is plain. */
static int bits_of(const struct tensor *t) {
    if (t->packed != NULL)
        return packed_grid_bits(t->packed) == 4 ? 4 : packed_bits(t->packed) > 0 ? 8 : 16;
    if (t->type == NULL || t->type->elements == 1) return 0;
    return t->type->grid_bits > 0 ? t->type->grid_bits : 16;
}

/* Whether RoPE turns what comes of the rows, or values, at that offset. */
static bool turns(const struct model_conf *c, size_t offset) {
    if (offset == offsetof(struct layer_weights, q_norm) ||
        offset == offsetof(struct layer_weights, k_norm))
        return c->qk_norm == QK_NORM_HEADS;
    return offset == offsetof(struct layer_weights, q) ||
           offset == offsetof(struct layer_weights, k) ||
           offset == offsetof(struct layer_weights, q_bias) ||
           offset == offsetof(struct layer_weights, k_bias);
}

/* Matrices whose activations may have 8 bits beside int8 weights: those behind a norm, and o. What
 * down and the output matrix meet keeps 16: docs/decisions/2026-11-23-int8-meets-8-bits.md. */
static bool is_narrow(const struct tensor_row *r) {
    static const size_t of_layer[] = {
        offsetof(struct layer_weights, q),    offsetof(struct layer_weights, k),
        offsetof(struct layer_weights, v),    offsetof(struct layer_weights, o),
        offsetof(struct layer_weights, gate), offsetof(struct layer_weights, up)};
    if (r->place == IN_EXPERTS)
        return r->offset == offsetof(struct expert_weights, gate) ||
               r->offset == offsetof(struct expert_weights, up);
    for (size_t i = 0; r->place == IN_LAYER && i < sizeof(of_layer) / sizeof(of_layer[0]); i++)
        if (r->offset == of_layer[i]) return true;
    return false;
}

/* Of experts: HuggingFace has one tensor for all. */
static bool is_stack(const struct tensor_row *r) {
    return r->place == IN_EXPERTS && strchr(r->name, '%') == NULL;
}

/* What one expert has of such a tensor. */
static int rows_of_all(const struct model_conf *c, const struct tensor_row *r) {
    const struct tensor_names *names = tensor_names_of(c);
    int n = 0;
    for (int i = 0; i < names->n_rows; i++) {
        const struct tensor_row *o = &names->rows[i];
        const int end = tensor_extent(c, o->from) + tensor_extent(c, o->n);
        if (strcmp(o->name, r->name) == 0 && end > n) n = end;
    }
    return n;
}

static void plan_part(struct loader *l, const struct tensor_row *r, int layer, int expert) {
    const struct model_conf *c = l->c;
    char *field = field_of(l, r, layer, expert);
    const bool gguf = tensor_source_is_gguf(l->files), own = gguf && r->cut;
    const int part = tensor_extent(c, r->from) + (is_stack(r) ? expert * rows_of_all(c, r) : 0);
    struct tensor t;
    struct slot *s = add_slot(l, r, field);
    s->expert = r->place == IN_EXPERTS;
    s->narrow = r->is_matrix && is_narrow(r);
    const bool fused = s->expert && l->fused && is_gate_or_up(r);
    s->stack = s->expert && !l->singles && (gguf || is_stack(r)) ? c->experts.n : 0;
    s->stack_rows = s->stack == 0 ? 0 : fused ? 2 * s->n : gguf ? s->n : rows_of_all(c, r);
    s->part = own || (gguf && s->expert) ? 0 : tensor_extent(c, r->from);
    if (fused && r->offset == offsetof(struct expert_weights, up)) s->part = s->n;
    s->from = expert * s->stack_rows + s->part;
    s->order = own ? IN_ORDER : r->order;
    s->turned = r->turned && !gguf;
    s->change = gguf && r->change == PLUS_ONE ? AS_IT_IS : r->change;
    if (s->change == UNIT_ROWS && !c->unit_head) s->change = AS_IT_IS;
    s->pairs = c->rope_pairs && r->place == IN_LAYER && turns(c, r->offset);
    s->head_rows = c->head_dim;
    if (c->latent.rank > 0) {
        const bool queries = r->n == LATENT_Q;
        s->still_rows = queries ? c->latent.still : c->latent.rank;
        s->head_rows = s->still_rows + c->rope_dim;
    }
    if (s->order == HEADS) {
        s->stack = c->n_heads;
        s->stack_rows = s->n / c->n_heads;
    }
    name_slot(l, s, r, layer, expert);
    if (part > 0) { /* also where GGUF's tensor is cut: names tell the parts of a model apart */
        const size_t at = strlen(s->name);
        snprintf(s->name + at, sizeof(s->name) - at, "#%d", part);
    }
    if (s->order == VALUE_ROWS) {
        const size_t at = strlen(s->name);
        snprintf(s->name + at, sizeof(s->name) - at, "#values");
    }
    if (r->when == UNTIED && c->is_embedder && !tensor_source_find(l->files, s->file_name, &t))
        l->n_slots--;
}

static void plan_row(struct loader *l, const struct tensor_row *r, int layer) {
    const int n = r->place == IN_EXPERTS ? l->c->experts.n : 1;
    if (r->place == IN_EXPERTS && is_stack(r) != l->stacks) return;
    for (int i = 0; i < n && tensor_row_present(l->c, r, layer); i++) plan_part(l, r, layer, i);
}

/* Some families' files have each expert by itself or all in one tensor, as the tool was that wrote
 * them. */
static bool finds_stacks(const struct loader *l, const struct tensor_names *names) {
    const struct tensor_row *stack = NULL, *single = NULL;
    char name[NAME_BYTES], prefix[NAME_BYTES];
    struct tensor t;
    for (int i = 0; i < names->n_rows; i++) {
        const struct tensor_row *r = &names->rows[i];
        if (r->place == IN_EXPERTS && is_stack(r) && stack == NULL) stack = r;
        if (r->place == IN_EXPERTS && !is_stack(r)) single = r;
    }
    if (stack == NULL || single == NULL) return stack != NULL;
    for (int layer = 0; layer < l->c->n_layers; layer++) {
        snprintf(prefix, sizeof(prefix), names->layer, layer);
        snprintf(name, sizeof(name), "%.24s%.32s%.48s", l->root, prefix, stack->name);
        if (l->c->mixed[layer] && tensor_source_find(l->files, name, &t)) return true;
    }
    return false;
}

/* Whether the first layer with experts has a tensor of that name. */
static bool in_first_mixed(const struct loader *l, const char *name) {
    char whole[NAME_BYTES];
    struct tensor t;
    int layer = 0;
    while (layer < l->c->n_layers && !l->c->mixed[layer]) layer++;
    snprintf(whole, sizeof(whole), "blk.%d.%s", layer, name);
    return tensor_source_is_gguf(l->files) && layer < l->c->n_layers &&
           tensor_source_find(l->files, whole, &t);
}

static void plan(struct loader *l) {
    const struct tensor_names *names = tensor_names_of(l->c);
    l->root = find_root(l, names);
    l->stacks = finds_stacks(l, names);
    l->singles = in_first_mixed(l, "ffn_gate.0.weight");
    l->fused = in_first_mixed(l, "ffn_gate_up_exps.weight");
    int first = 0;
    while (!tensor_row_in_layer(&names->rows[first])) plan_row(l, &names->rows[first++], 0);
    for (int layer = 0; layer < l->c->n_layers; layer++)
        for (int i = first; i < names->n_rows; i++)
            if (tensor_row_in_layer(&names->rows[i])) plan_row(l, &names->rows[i], layer);
    for (int i = first; i < names->n_rows; i++)
        if (!tensor_row_in_layer(&names->rows[i])) plan_row(l, &names->rows[i], 0);
}

/* ---- types */

/* Of a GGUF file each matrix by itself: in the type of its own where panels hold just its numbers,
 * as integers where it is such (kernels_grid.h), else as bf16. */
static enum dtype dtype_of_gguf(const struct slot *s) {
    const struct tensor_type *t = s->t.type;
    if (t == NULL || s->change != AS_IT_IS) return DTYPE_BF16;
    if (t->own != DTYPE_NONE) return t->own;
    return t->grid_bits == 4 ? DTYPE_INT4 : t->grid_bits == 8 ? DTYPE_INT8 : DTYPE_BF16;
}

/* Of safetensors all matrices of the layers alike: int4 where they are integers of four bits with a
 * scale for every 32 of a row, int8 where integers of eight bits hold them, else bf16. Plain ones
 * among quantised ones can be int8. */
static enum dtype dtype_of_layers(const struct loader *l) {
    bool has[17] = {false};
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].kind == SLOT_LAYER) has[bits_of(&l->slots[i].t)] = true;
    if (has[16] || !(has[8] || has[4])) return DTYPE_BF16;
    return has[8] || has[0] ? DTYPE_INT8 : DTYPE_INT4;
}

/* Those over the vocabulary keep eight bits (docs/decisions/2026-11-21-quantised-weights.md), and
 * bf16 where they are plain and nobody asked for less. */
static enum dtype dtype_of_vocab(const struct loader *l, const struct slot *s) {
    if (l->by_file && dtype_is_quant(l->w->dtype) && bits_of(&s->t) == 0) return DTYPE_BF16;
    return l->w->dtype == DTYPE_INT4 ? DTYPE_INT8 : l->w->dtype;
}

static size_t slot_bytes(const struct slot *s) {
    size_t n = s->matrix != NULL
                   ? ((size_t)s->n + PANEL_ROWS - 1) / PANEL_ROWS * panel_bytes(s->k, s->dtype)
                   : (size_t)s->n * sizeof(float);
    return (n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Of layers whose matrices have types of their own: the one of most bytes, of equals the first. */
static enum dtype most_of_layers(const struct loader *l) {
    uint64_t bytes[DTYPE_COUNT] = {0};
    enum dtype most = DTYPE_NONE;
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].kind == SLOT_LAYER) bytes[l->slots[i].dtype] += slot_bytes(&l->slots[i]);
    for (enum dtype t = DTYPE_NONE; t < DTYPE_COUNT; t++)
        if (bytes[t] > bytes[most]) most = t;
    return most;
}

/* What every matrix becomes, once its tensor is found: as somebody asked, or by the file. */
static void choose_types(struct loader *l) {
    const bool each = l->by_file && !l->kn->f32_only && tensor_source_is_gguf(l->files);
    if (l->by_file && !each) l->w->dtype = l->kn->f32_only ? DTYPE_F32 : dtype_of_layers(l);
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        const bool columns = l->by_file && !l->kn->f32_only && s->order == KEY_COLUMNS;
        if (s->kind == SLOT_LAYER || s->kind == SLOT_VOCAB)
            s->dtype = columns                 ? DTYPE_BF16 /* scales are of rows */
                       : each                  ? dtype_of_gguf(s)
                       : s->kind == SLOT_VOCAB ? dtype_of_vocab(l, s)
                                               : l->w->dtype;
        if (s->dtype == DTYPE_BF16) l->w->some_bf16 = true;
    }
    if (each) l->w->dtype = most_of_layers(l);
}

/* ---- checks and memory */

/* s->t; without a name where there is none. Checkpoints of TensorFlow times call a norm's weight
 * gamma and its bias beta. */
static void find_tensor(const struct loader *l, struct slot *s) {
    static const char *const tails[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    const size_t n = strlen(s->file_name);
    if (tensor_source_find(l->files, s->file_name, &s->t)) return;
    for (int i = 0; i < 2; i++) {
        const size_t tail = strlen(tails[i][0]);
        char name[NAME_BYTES];
        if (n < tail || strcmp(s->file_name + n - tail, tails[i][0]) != 0) continue;
        snprintf(name, sizeof(name), "%.*s%s", (int)(n - tail), s->file_name, tails[i][1]);
        if (!tensor_source_find(l->files, name, &s->t)) continue;
        snprintf(s->file_name, sizeof(s->file_name), "%s", name);
        return;
    }
}

/* Rows of a tensor of which each of some slots takes a part; those stand side by side. */
static int rows_in_file(const struct loader *l, const struct slot *s) {
    int rows = s->from + s->n;
    if (s->stack > 0) return s->stack * s->stack_rows;
    if (slot_by_heads(s)) return l->c->n_heads * (l->c->latent.still + l->c->latent.value);
    for (const struct slot *o = s - l->slots > 2 ? s - 2 : l->slots;
         o < l->slots + l->n_slots && o <= s + 2; o++)
        if (strcmp(o->file_name, s->file_name) == 0 && o->from + o->n > rows) rows = o->from + o->n;
    return rows;
}

/* Integers that fit the panels as they are. */
static bool keeps_grid(const struct loader *l, const struct slot *s) {
    const int bits = s->t.packed != NULL ? packed_grid_bits(s->t.packed) : s->t.type->grid_bits;
    if (s->matrix == NULL || l->kn->f32_only || bits == 0 || s->change != AS_IT_IS ||
        s->order == KEY_COLUMNS)
        return false;
    return s->dtype == DTYPE_INT8 || (s->dtype == DTYPE_INT4 && bits == 4);
}

static struct tensor flat(const struct tensor *t, int n) {
    struct tensor f = *t;
    f.n_dims = 1;
    f.dims[0] = (uint64_t)n;
    return f;
}

/* Matrices, or vectors, one behind the other as the rows of one; of turned ones as they are meant.
 */
static struct tensor stacked(const struct slot *s) {
    struct tensor f = s->t;
    f.n_dims = s->matrix != NULL ? 2 : 1;
    f.dims[0] = (uint64_t)s->stack * (uint64_t)s->stack_rows;
    f.dims[1] = (uint64_t)s->k;
    return f;
}

static bool is_stacked(const struct slot *s) {
    const struct tensor *t = &s->t;
    const uint64_t rows = (uint64_t)s->stack_rows, k = (uint64_t)s->k;
    if (t->n_dims != (s->matrix != NULL ? 3 : 2) || t->dims[0] != (uint64_t)s->stack) return false;
    if (s->matrix == NULL) return t->dims[1] == rows;
    return t->dims[1] == (s->turned ? k : rows) && t->dims[2] == (s->turned ? rows : k);
}

static struct tensor one_row(const struct tensor *t) {
    struct tensor f = *t;
    f.n_dims = 2;
    f.dims[0] = 1;
    f.dims[1] = t->dims[0];
    return f;
}

static enum err refuse_shape(const struct loader *l, const struct slot *s, const char *by,
                             struct errbuf *eb) {
    const struct tensor *t = &s->t;
    char got[TENSOR_DIMS_MAX * 21 + 1] = "", want[48];
    for (int i = 0; i < t->n_dims; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%llu", i > 0 ? ", " : "",
                 (unsigned long long)t->dims[i]);
    if (s->stack > 0 && s->matrix != NULL)
        snprintf(want, sizeof(want), "%d, %d, %d", s->stack, s->turned ? s->k : s->stack_rows,
                 s->turned ? s->stack_rows : s->k);
    else if (s->stack > 0)
        snprintf(want, sizeof(want), "%d, %d", s->stack, s->stack_rows);
    else
        snprintf(want, sizeof(want), s->matrix != NULL ? "%d, %d" : "%d", rows_in_file(l, s),
                 columns_in_file(l, s));
    return err_set(eb, ERR_BAD_FILE, "%s: tensor %s must have shape [%s] by %s, got [%s]", t->file,
                   s->file_name, want, by, got);
}

static enum err check_slot(struct loader *l, struct slot *s, struct errbuf *eb) {
    const char *by = tensor_source_is_gguf(l->files) ? "the metadata" : "config.json";
    const int rows = rows_in_file(l, s);
    struct tensor *t = &s->t;
    if (t->name == NULL)
        return err_set(eb, ERR_BAD_FILE, "%s: tensor %s, which %s asks for, is missing",
                       tensor_source_file(l->files, 0)->name, s->file_name, by);
    int dims = s->matrix != NULL ? 2 : 1;
    s->turned = s->turned && t->packed == NULL;
    if (s->stack > 0) {
        if (!is_stacked(s)) return refuse_shape(l, s, by, eb);
        *t = stacked(s);
        t->bytes = t->bytes / ((uint64_t)s->stack * (uint64_t)s->stack_rows) * (uint64_t)s->n;
    }
    if (dims == 2 && s->n == 1 && t->n_dims == 1 && s->dtype == DTYPE_F32) *t = one_row(t);
    if (dims == 1 && l->c->qk_norm == QK_NORM_HEADS && t->n_dims == 2 &&
        t->dims[1] == (uint64_t)l->c->head_dim && t->dims[0] == (uint64_t)(s->n / l->c->head_dim))
        *t = flat(t, s->n); /* weights of each head */
    if (t->n_dims != dims || t->dims[0] != (uint64_t)rows ||
        (dims == 2 && t->dims[1] != (uint64_t)columns_in_file(l, s)))
        return refuse_shape(l, s, by, eb);
    if (t->type == NULL && t->packed == NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has type %s, allowed are F32, F16, BF16, and of GGUF Q8_0, "
                       "Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4",
                       t->file, s->file_name, t->type_name);
    if ((s->matrix == NULL || s->turned) && (t->type == NULL || t->type->elements > 1))
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has type %s, a vector, or a matrix whose rows are columns, "
                       "may be F32, F16 or BF16",
                       t->file, s->file_name, t->type_name);
    if (s->order == VALUE_ROWS) {
        t->bytes = 0;
    } else if (t->packed == NULL && !slot_by_heads(s)) {
        const size_t row_bytes = tensor_row_bytes(t->type, s->k);
        t->data += (size_t)s->from * row_bytes;
        t->bytes = (size_t)s->n * row_bytes;
    }
    s->grid = keeps_grid(l, s);
    s->blocks = s->matrix != NULL && dtype_is_blocks(s->dtype);
    l->total_bytes += t->bytes;
    l->w->n_params += (uint64_t)s->n * (uint64_t)s->k;
    if (s->expert) l->w->n_expert_params += (uint64_t)s->n * (uint64_t)s->k;
    s->at = l->w->bytes;
    l->w->bytes += slot_bytes(s);
    size_t row = (size_t)s->k;
    if (s->matrix != NULL && row > l->rows_stride) l->rows_stride = row;
    return ERR_OK;
}

static int by_file_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of the layers behind the last, which guess tokens. */
static bool guesses(const struct loader *l, const char *name) {
    const bool gguf = tensor_source_is_gguf(l->files);
    const size_t root = gguf ? 0 : strlen(l->root);
    if (l->c->n_guess_layers == 0 || strncmp(name, l->root, root) != 0) return false;
    for (int i = 0; i < l->c->n_guess_layers; i++) {
        char prefix[NAME_BYTES];
        const int layer = l->c->n_layers + i;
        if (gguf)
            snprintf(prefix, sizeof(prefix), "blk.%d.", layer);
        else
            snprintf(prefix, sizeof(prefix), tensor_names_of(l->c)->layer, layer);
        if (strncmp(name + root, prefix, strlen(prefix)) == 0) return true;
    }
    return false;
}

/* What checkpoints carry beside what is computed with, and which changes nothing. */
static bool harmless(const struct loader *l, const char *name) {
    static const char *const tails[] = {".rotary_emb.inv_freq", ".attn.masked_bias",
                                        ".self_attn.rotary_emb.cos_cached"};
    const size_t n = strlen(name);
    if (guesses(l, name)) return true;
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        if (n > strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0) return true;
    for (const char *const *u = tensor_names_of(l->c)->unused; *u != NULL; u++) {
        const size_t root = strncmp(name, l->root, strlen(l->root)) == 0 ? strlen(l->root) : 0;
        if (strncmp(name, *u, strlen(*u)) == 0 || strncmp(name + root, *u, strlen(*u)) == 0)
            return true;
    }
    for (const char *const *u = tensor_unused_of_others(l->c); *u != NULL; u++)
        if (strncmp(name, *u, strlen(*u)) == 0) return true;
    if (strcmp(name, "lm_head.weight") == 0 || strcmp(name, "language_model.lm_head.weight") == 0)
        return l->c->tied || l->c->no_head;
    /* model_conf has read them */
    return strcmp(name, "rope_freqs.weight") == 0 ||
           (l->c->rope.type == ROPE_LONGROPE &&
            strncmp(name, "rope_factors_", strlen("rope_factors_")) == 0);
}

/* A tensor that nothing reads means that the model is not the one that would be computed. */
static enum err check_unused(const struct loader *l, struct errbuf *eb) {
    const char **names = malloc((size_t)l->n_slots * sizeof(*names));
    enum err e = ERR_OK;
    if (names == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the list of tensors");
    for (int i = 0; i < l->n_slots; i++) names[i] = l->slots[i].file_name;
    qsort(names, (size_t)l->n_slots, sizeof(*names), by_file_name);
    for (size_t i = 0; e == ERR_OK && i < tensor_source_count(l->files); i++) {
        struct tensor t;
        tensor_source_at(l->files, i, &t);
        if (bsearch(&t.name, names, (size_t)l->n_slots, sizeof(*names), by_file_name) == NULL &&
            !harmless(l, t.name))
            e = err_set(eb, ERR_BAD_FILE,
                        "%s: tensor %s is not used by the family %s: this is another model", t.file,
                        t.name, l->c->family);
    }
    free(names);
    return e;
}

static void lay_out(struct loader *l, uint8_t *base) {
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        if (s->matrix != NULL)
            *s->matrix = (struct matrix){
                .panels = base + s->at,
                .n = s->n,
                .k = s->k,
                .dtype = s->narrow && s->dtype == DTYPE_INT8 ? DTYPE_INT8_NARROW : s->dtype};
        else
            *s->vector = (float *)(void *)(base + s->at);
    }
    if (l->c->tied) l->w->head = l->w->embed;
}
/* ---- loading */

static enum err describe(struct loader *l, struct errbuf *eb) {
    enum err e = weights_describe_plan(l, eb);
    if (e != ERR_OK || (e = weights_describe_layout(l, eb)) != ERR_OK) return e;
    weights_describe_files(l);
    l->want.dtype = (uint32_t)l->w->dtype;
    l->want.data_bytes = l->w->bytes;
    return ERR_OK;
}

static enum err pack_all(struct loader *l, struct errbuf *eb) {
    uint8_t *base = l->cache.map != NULL ? l->cache.map + WC_HEADER_BYTES : NULL;
    if (base == NULL) {
        if (!mem_open(&l->w->memory, l->w->bytes, MEM_TRANSPARENT, false))
            return err_set(eb, ERR_NO_MEMORY, "no memory for %llu bytes of weights",
                           (unsigned long long)l->w->bytes);
        base = l->w->memory.p;
    }
    size_t n_floats = (size_t)pool_threads(l->pool) * PANEL_ROWS * l->rows_stride;
    if ((l->rows = malloc(n_floats * sizeof(float))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory to pack the weights");
    lay_out(l, base);
    for (int i = 0; i < l->n_slots; i++) {
        enum err e = weights_load_slot(l, &l->slots[i], eb);
        if (e != ERR_OK) return e;
    }
    return cancelled(l) ? ERR_STOPPING : weights_hash(l, eb);
}

/* The files are there, and hold what the config asks for and nothing else. */
static enum err open_checked(struct loader *l, const char *path, struct errbuf *eb) {
    enum err e = tensor_source_open(&l->files, path, eb);
    if (e != ERR_OK || (e = tensor_source_unpack(l->files, &l->c->quant, eb)) != ERR_OK) return e;
    plan(l);
    for (int i = 0; i < l->n_slots; i++) find_tensor(l, &l->slots[i]);
    choose_types(l);
    for (int i = 0; i < l->n_slots; i++) {
        if ((e = check_slot(l, &l->slots[i], eb)) != ERR_OK) return e;
    }
    return check_unused(l, eb);
}

static enum err load(struct loader *l, const char *path, struct errbuf *eb) {
    uint64_t start = clock_ms();
    uint8_t sample[WC_XXH_BYTES];
    enum err e = open_checked(l, path, eb);
    if (e != ERR_OK) return e;
    snprintf(l->w->file_type, sizeof(l->w->file_type), "%s", l->slots[0].t.type_name);
    if ((e = describe(l, eb)) != ERR_OK) return e;
    weights_sample(l, sample);
    if (wc_place(&l->cache, l->place.setting, path, &l->want, sample) && !weights_from_file(l) &&
        (l->cache.may_make || l->place.always) && !cancelled(l) && wc_lock(&l->cache, l->cancel) &&
        !weights_from_file(l))
        (void)wc_begin(&l->cache, l->w->bytes);
    if (l->w->from == WEIGHTS_FROM_CACHE) {
        lay_out(l, l->cache.map + WC_HEADER_BYTES);
    } else {
        if ((e = pack_all(l, eb)) == ERR_OK && l->cache.map != NULL) weights_to_file(l);
    }
    wc_end(&l->cache);
    if (e == ERR_OK && cancelled(l)) e = ERR_STOPPING;
    if (e == ERR_STOPPING) err_set(eb, e, "%s", err_text(e));
    l->w->file.map = l->cache.map;
    l->w->file.map_bytes = l->cache.map_bytes;
    if (e == ERR_OK)
        log_info("load", "event=weights from=\"%s\" dtype=%s bytes=%llu ms=%llu",
                 weights_from_name(l->w->from), dtype_name(l->w->dtype),
                 (unsigned long long)l->w->bytes, (unsigned long long)(clock_ms() - start));
    return e;
}

static enum err check_dtype(const struct kernels *kn, enum dtype dtype, struct errbuf *eb) {
    if (dtype == DTYPE_NONE) return ERR_OK;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && !dtype_is_quant(dtype))
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32, bf16, int8 or int4, got %s",
                       dtype_name(dtype));
    if (kn->f32_only && dtype != DTYPE_F32)
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32 with %s kernels, got %s",
                       kn->name, dtype_name(dtype));
    return ERR_OK;
}

/* Tensors, or parts of them, of one expert at most. */
static size_t expert_rows(const struct model_conf *c) {
    const struct tensor_names *names = tensor_names_of(c);
    size_t n = 0;
    for (int i = 0; i < names->n_rows; i++) n += names->rows[i].place == IN_EXPERTS;
    return n;
}

static size_t count_experts(const struct model_conf *c) {
    size_t n = 0;
    for (int i = 0; i < c->n_layers; i++) n += c->mixed[i] ? (size_t)c->experts.n : 0;
    return n;
}

static void share_experts(struct weights *w, const struct model_conf *c) {
    struct expert_weights *next = w->experts;
    for (int i = 0; i < c->n_layers; i++) {
        if (!c->mixed[i]) continue;
        w->layers[i].experts = next;
        next += c->experts.n;
    }
}

static enum err loader_open(struct loader *l, enum dtype dtype, struct errbuf *eb) {
    const struct model_conf *c = l->c;
    enum err e = check_dtype(l->kn, dtype, eb);
    l->cache.lock_fd = l->cache.tmp_fd = -1;
    l->by_file = dtype == DTYPE_NONE;
    if (e != ERR_OK) return e;
    if ((l->w = calloc(1, sizeof(*l->w))) != NULL) {
        l->w->dtype = dtype;
        l->w->layers = calloc((size_t)c->n_layers, sizeof(*l->w->layers));
        l->w->norms = calloc(2 * (size_t)c->n_layers + 1, sizeof(*l->w->norms));
        l->w->branch_norms = calloc(2 * (size_t)c->n_layers, sizeof(*l->w->branch_norms));
        const size_t n_experts = count_experts(c),
                     n_rows = (size_t)(c->n_layers + 1) * (size_t)tensor_names_of(c)->n_rows;
        l->w->experts = calloc(n_experts + 1, sizeof(*l->w->experts));
        if (l->w->layers != NULL && l->w->experts != NULL) share_experts(l->w, c);
        l->slots = calloc(n_rows + expert_rows(c) * n_experts, sizeof(*l->slots));
    }
    return l->w != NULL && l->w->layers != NULL && l->w->norms != NULL &&
                   l->w->branch_norms != NULL && l->w->experts != NULL && l->slots != NULL
               ? ERR_OK
               : err_set(eb, ERR_NO_MEMORY, "no memory for the list of tensors");
}

static void loader_close(struct loader *l) {
    tensor_source_close(&l->files);
    free(l->slots);
    free(l->rows);
}

enum err weights_open(struct weights **out, const struct model_conf *c, const char *path,
                      const struct kernels *kn, enum dtype dtype, const struct weights_place *place,
                      struct pool *pool,
                      void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total),
                      void *progress_arg, const atomic_bool *cancel, struct errbuf *eb) {
    struct loader l = {.c = c,
                       .kn = kn,
                       .pool = pool,
                       .progress = progress,
                       .progress_arg = progress_arg,
                       .cancel = cancel};
    if (place != NULL) l.place = *place;
    enum err e = loader_open(&l, dtype, eb);
    if (e == ERR_OK) e = load(&l, path, eb);
    loader_close(&l);
    if (e != ERR_OK) weights_close(&l.w);
    *out = l.w;
    return e;
}

/* ---- measuring */

/* How much of the files each type is, the most first. */
static void list_types(const struct loader *l, struct weights_size *out) {
    struct {
        const char *name;
        uint64_t bytes;
    } types[32];
    int n = 0;
    for (int i = 0; i < l->n_slots; i++) {
        const struct tensor *t = &l->slots[i].t;
        int k = 0;
        while (k < n && strcmp(types[k].name, t->type_name) != 0) k++;
        if (k == 32) continue;
        if (k == n) {
            types[n].name = t->type_name;
            types[n++].bytes = 0;
        }
        types[k].bytes += t->bytes;
        out->file_bytes += t->bytes;
    }
    for (size_t at = 0; n > 0 && at + 48 < sizeof(out->types); n--) {
        int most = 0;
        for (int k = 1; k < n; k++)
            if (types[k].bytes > types[most].bytes) most = k;
        at += (size_t)snprintf(out->types + at, sizeof(out->types) - at, "%s%.30s %.3g%%",
                               at > 0 ? ", " : "", types[most].name,
                               100.0 * (double)types[most].bytes / (double)out->file_bytes);
        types[most] = types[n - 1];
    }
}

enum err weights_measure(struct weights_size *out, const struct model_conf *c, const char *path,
                         const struct kernels *kn, enum dtype dtype, struct errbuf *eb) {
    struct loader l = {.c = c, .kn = kn};
    *out = (struct weights_size){0};
    enum err e = loader_open(&l, dtype, eb);
    if (e == ERR_OK) e = open_checked(&l, path, eb);
    if (e == ERR_OK) {
        out->dtype = l.w->dtype;
        out->is_gguf = tensor_source_is_gguf(l.files);
        out->n_params = l.w->n_params;
        out->n_expert_params = l.w->n_expert_params;
        out->bytes = l.w->bytes;
        list_types(&l, out);
    }
    loader_close(&l);
    weights_close(&l.w);
    return e;
}

void weights_close(struct weights **w) {
    if (*w == NULL) return;
    if ((*w)->file.map != NULL) munmap((*w)->file.map, (*w)->file.map_bytes);
    free((*w)->file.path);
    mem_close(&(*w)->memory);
    free((*w)->layers);
    free((*w)->experts);
    free((*w)->norms);
    free((*w)->branch_norms);
    free(*w);
    *w = NULL;
}

uint64_t weights_active(const struct model_conf *c, uint64_t n_params, uint64_t n_expert_params) {
    if (c->experts.n == 0) return n_params;
    return n_params - n_expert_params +
           n_expert_params / (uint64_t)c->experts.n * (uint64_t)c->experts.used;
}

const char *weights_from_name(enum weights_from f) {
    switch (f) {
    case WEIGHTS_PACKED: return "memory";
    case WEIGHTS_PACKED_TO_CACHE: return "packed to cache";
    case WEIGHTS_FROM_CACHE: break;
    }
    return "cache";
}
