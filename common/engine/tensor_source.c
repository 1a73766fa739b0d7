/* tensor_source: one of two kinds of files behind the same calls. */
#include "common/engine/tensor_source.h"

#include <stdlib.h>
#include "common/base/gguf.h"
#include "common/engine/safetensors.h"
#include "common/engine/tensor_packed.h"

enum { PATH_BYTES = 4096 };

struct tensor_source {
    struct st_model *st; /* one of the two */
    struct gguf *gguf;
    struct packed_set *packed; /* where it is quantised, over `files` */
    struct tensor *files;      /* all of st */
};

enum err tensor_source_open(struct tensor_source **out, const char *path, struct errbuf *eb) {
    char file[PATH_BYTES];
    struct errbuf why = {0};
    struct tensor_source *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the model's tensors");
    enum err e = gguf_locate(file, sizeof(file), path, &why);
    if (e == ERR_OK) {
        if ((e = gguf_open(&s->gguf, file, eb)) == ERR_OK) e = gguf_map_tensors(s->gguf, eb);
    } else if (e == ERR_NOT_FOUND) {
        e = st_model_open(&s->st, path, eb);
    } else {
        err_set(eb, e, "%s", why.text);
    }
    if (e != ERR_OK) tensor_source_close(&s);
    *out = s;
    return e;
}

void tensor_source_close(struct tensor_source **sp) {
    struct tensor_source *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    packed_close(&s->packed);
    free(s->files);
    st_model_close(&s->st);
    gguf_close(&s->gguf);
    free(s);
}

bool tensor_source_is_gguf(const struct tensor_source *s) {
    return s->gguf != NULL;
}

size_t tensor_source_count(const struct tensor_source *s) {
    if (s->packed != NULL) return packed_count(s->packed);
    return s->gguf != NULL ? gguf_n_tensors(s->gguf) : st_model_count(s->st);
}

static void fill_gguf(const struct tensor_source *s, const struct gguf_tensor *t,
                      struct tensor *out) {
    const char *type = gguf_type_name(t->type, NULL, NULL);
    *out = (struct tensor){.name = t->name,
                           .type_name = type,
                           .type = tensor_type_find(type),
                           .n_dims = t->n_dims,
                           .bytes = t->bytes,
                           .data = gguf_tensor_data(s->gguf, t),
                           .file = gguf_part(s->gguf, t->part)->name,
                           .own = t};
    /* Sizes of one at the end say nothing: writers add them. */
    while (out->n_dims > 1 && t->dims[out->n_dims - 1] == 1) out->n_dims--;
    for (int i = 0; i < out->n_dims; i++) out->dims[i] = t->dims[out->n_dims - 1 - i];
}

static void fill_st(const struct tensor_source *s, const struct st_tensor *t, struct tensor *out) {
    *out = (struct tensor){.name = t->name,
                           .type_name = t->dtype_text,
                           .type = t->dtype != DTYPE_NONE ? tensor_type_find(t->dtype_text) : NULL,
                           .n_dims = t->n_dims,
                           .bytes = t->end - t->begin,
                           .data = st_model_data(s->st, t),
                           .file = st_model_file(s->st, t),
                           .own = t};
    for (int i = 0; i < t->n_dims; i++) out->dims[i] = t->dims[i];
}

enum err tensor_source_unpack(struct tensor_source *s, const struct quant_conf *q,
                              struct errbuf *eb) {
    if (s->st == NULL || q->method == QUANT_NONE) return ERR_OK;
    const size_t n = st_model_count(s->st);
    struct tensor *all = calloc(n + 1, sizeof(*all));
    if (all == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the model's tensors");
    for (size_t i = 0; i < n; i++) fill_st(s, st_model_at(s->st, i), &all[i]);
    s->files = all;
    return packed_open(&s->packed, q, all, n, eb);
}

void tensor_source_at(const struct tensor_source *s, size_t idx, struct tensor *out) {
    if (s->packed != NULL)
        *out = *packed_at(s->packed, idx);
    else if (s->gguf != NULL)
        fill_gguf(s, gguf_tensor_at(s->gguf, idx), out);
    else
        fill_st(s, st_model_at(s->st, idx), out);
}

bool tensor_source_find(const struct tensor_source *s, const char *name, struct tensor *out) {
    if (s->gguf != NULL) {
        const struct gguf_tensor *t = gguf_tensor_find(s->gguf, name);
        if (t != NULL) fill_gguf(s, t, out);
        return t != NULL;
    }
    if (s->packed != NULL) {
        const struct tensor *t = packed_find(s->packed, name);
        if (t != NULL) *out = *t;
        return t != NULL;
    }
    const struct st_tensor *t = st_model_find(s->st, name);
    if (t != NULL) fill_st(s, t, out);
    return t != NULL;
}

void tensor_source_drop(const struct tensor_source *s, const struct tensor *t, uint64_t from,
                        uint64_t n) {
    if (s->gguf != NULL)
        gguf_tensor_drop(s->gguf, t->own, from, n);
    else
        st_model_drop(s->st, t->own, from, n);
}

void tensor_source_drop_rows(const struct tensor_source *s, const struct packed_linear *p,
                             uint64_t first, uint64_t n) {
    const struct tensor *part;
    for (int i = 0; (part = packed_part(p, i)) != NULL; i++) {
        uint64_t at, end;
        packed_span(p, i, first, n, &at, &end);
        st_model_drop(s->st, part->own, at, end - at);
    }
}

void tensor_source_drop_all(const struct tensor_source *s) {
    for (int i = 0; s->gguf != NULL && gguf_part(s->gguf, i) != NULL; i++) gguf_drop(s->gguf, i);
    const struct file_map *f;
    for (int i = 0; s->st != NULL && (f = st_model_shard(s->st, i)) != NULL; i++)
        file_map_drop(f, 0, f->mapped);
}

const struct file_map *tensor_source_file(const struct tensor_source *s, int idx) {
    return s->gguf != NULL ? gguf_part(s->gguf, idx) : st_model_shard(s->st, idx);
}
