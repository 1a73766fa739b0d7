/* lora_file: see the header. */
#include "common/engine/lora_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/model_conf_gguf.h"

enum { PREFIX_BYTES = 8, HEAD_BYTES_MAX = 64 << 20, HEAD_BYTES_FIRST = 1 << 20 };
static const double ALPHA_MAX = 1e6;

/* ---- names */

static const char *const gguf_modules[LORA_MODULES] = {
    [LORA_Q] = "attn_q",      [LORA_K] = "attn_k",      [LORA_V] = "attn_v",
    [LORA_O] = "attn_output", [LORA_GATE] = "ffn_gate", [LORA_UP] = "ffn_up",
    [LORA_DOWN] = "ffn_down",
};

/* Around "N.MODULE". */
static const char *prefix_of(const struct lora_file *f) {
    return f->is_gguf ? "blk." : "base_model.model.model.layers.";
}

static const char *tail_of(const struct lora_file *f, int half) {
    static const char *const tails[2][2] = {{".lora_A.weight", ".lora_B.weight"},
                                            {".weight.lora_a", ".weight.lora_b"}};
    return tails[f->is_gguf][half];
}

static enum lora_module module_find(const struct lora_file *f, const char *name, size_t n) {
    int m = 0;
    if (!f->is_gguf) return lora_module_find(name, n);
    while (m < LORA_MODULES &&
           (strlen(gguf_modules[m]) != n || memcmp(gguf_modules[m], name, n) != 0))
        m++;
    return (enum lora_module)m;
}

void lora_file_name_of(const struct lora_file *f, int layer, enum lora_module m, int half,
                       char *name, size_t n) {
    snprintf(name, n, "%s%d.%s%s", prefix_of(f), layer,
             f->is_gguf ? gguf_modules[m] : lora_module_name(m), tail_of(f, half));
}

static bool parse_name(const struct lora_file *f, struct lora_tensor *t, int n_layers) {
    const char *prefix = prefix_of(f);
    if (strncmp(t->name, prefix, strlen(prefix)) != 0) return false;
    const char *p = t->name + strlen(prefix);
    const size_t digits = strspn(p, "0123456789");
    if (digits < 1 || digits > 5 || (digits > 1 && p[0] == '0') || p[digits] != '.') return false;
    t->layer = atoi(p);
    if (t->layer >= n_layers) return false;
    p += digits + 1;
    const size_t n = strlen(p), end = strlen(tail_of(f, 0));
    if (n <= end) return false;
    for (t->half = 0; t->half < 2; t->half++) {
        if (strcmp(p + n - end, tail_of(f, t->half)) != 0) continue;
        t->module = module_find(f, p, n - end);
        return t->module < LORA_MODULES;
    }
    return false;
}

/* Beyond attention. */
static bool is_feed_forward(const struct lora_file *f, const char *name) {
    if (f->is_gguf) return strstr(name, ".ffn_") != NULL;
    return strstr(name, ".mlp.") != NULL || strstr(name, ".block_sparse_moe.") != NULL;
}

static enum err name_tensors(struct lora_file *f, const struct model_info *base,
                             struct errbuf *eb) {
    for (size_t i = 0; i < f->n; i++) {
        struct lora_tensor *t = &f->tensors[i];
        if (base->n_experts > 0 && is_feed_forward(f, t->name))
            return err_set(eb, ERR_BAD_FILE,
                           "%s: tensor %.200s: in a model with experts adapters may change the "
                           "attention only",
                           f->name, t->name);
        if (!parse_name(f, t, base->n_layers))
            return err_set(eb, ERR_BAD_FILE,
                           "%s: tensor %.200s is no adapter of a linear layer of this model (%d "
                           "layers)",
                           f->name, t->name, base->n_layers);
    }
    return ERR_OK;
}

static enum err make_list(struct lora_file *f, size_t n, struct errbuf *eb) {
    f->n = n;
    f->tensors = calloc(n + 1, sizeof(*f->tensors));
    return f->tensors != NULL ? ERR_OK : err_set(eb, ERR_NO_MEMORY, "no memory for an adapter");
}

/* ---- safetensors */

static enum err open_st(struct lora_file *f, const struct lora_source *s, struct errbuf *eb) {
    uint8_t prefix[PREFIX_BYTES];
    uint64_t n = 0;
    if (s->bytes < PREFIX_BYTES || !s->read(s->arg, 0, prefix, PREFIX_BYTES))
        return err_set(eb, ERR_BAD_FILE, "%s: shorter than %d bytes", f->name, PREFIX_BYTES);
    for (int i = 0; i < PREFIX_BYTES; i++) n |= (uint64_t)prefix[i] << (8 * i);
    if (n > HEAD_BYTES_MAX || n > s->bytes - PREFIX_BYTES)
        return err_set(
            eb, ERR_BAD_FILE, "%s: header of %llu bytes in a file of %llu, at most %d are allowed",
            f->name, (unsigned long long)n, (unsigned long long)s->bytes, HEAD_BYTES_MAX);
    const size_t whole = (size_t)n + PREFIX_BYTES;
    uint8_t *bytes = malloc(whole);
    struct errbuf why = {0};
    if (bytes == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for %zu bytes", whole);
    enum err e = s->read(s->arg, 0, bytes, whole)
                     ? st_header_parse(&f->st, bytes, whole, s->bytes, &why)
                     : err_set(&why, ERR_BAD_FILE, "cannot be read");
    free(bytes);
    if (e != ERR_OK) return err_set(eb, e, "%s: %s", f->name, why.text);
    if ((e = make_list(f, f->st.n_tensors, eb)) != ERR_OK) return e;
    for (size_t i = 0; i < f->n; i++) {
        const struct st_tensor *t = &f->st.tensors[i];
        f->tensors[i] = (struct lora_tensor){
            .name = t->name,
            .type_name = t->dtype_text,
            .type = t->dtype != DTYPE_NONE ? tensor_type_find(t->dtype_text) : NULL,
            .n_dims = t->n_dims,
            .begin = t->begin};
        for (int d = 0; d < t->n_dims; d++) f->tensors[i].dims[d] = t->dims[d];
    }
    return ERR_OK;
}

/* ---- GGUF */

/* How long a header is, it does not say: more and more of the file, until it can be parsed. */
static enum err read_head(struct lora_file *f, const struct lora_source *s, struct errbuf *eb) {
    const size_t most = s->bytes < HEAD_BYTES_MAX ? (size_t)s->bytes : HEAD_BYTES_MAX;
    enum err e = ERR_BAD_FILE;
    for (size_t n = most < HEAD_BYTES_FIRST ? most : HEAD_BYTES_FIRST;;
         n = most / 4 < n ? most : 4 * n) {
        free(f->head);
        if ((f->head = malloc(n + 1)) == NULL)
            return err_set(eb, ERR_NO_MEMORY, "no memory for %zu bytes", n);
        if (!s->read(s->arg, 0, f->head, n))
            return err_set(eb, ERR_BAD_FILE, "%s: cannot be read", f->name);
        e = gguf_open_head(&f->gguf, f->head, n, s->bytes, f->name, eb);
        if (e != ERR_BAD_FILE || n == most) return e;
    }
}

/* A text that must be this one. */
static enum err must_be(const struct lora_file *f, const char *key, const char *want,
                        struct errbuf *eb) {
    const char *s = "";
    size_t n = 0;
    (void)gguf_str(f->gguf, key, &s, &n);
    if (n == strlen(want) && memcmp(s, want, n) == 0) return ERR_OK;
    return err_set(eb, ERR_BAD_FILE, "%s: key %s must be \"%s\", got \"%.*s\"", f->name, key, want,
                   n < 60 ? (int)n : 60, s);
}

static enum err read_pairs(struct lora_file *f, const struct model_info *base, struct errbuf *eb) {
    static const char arch[] = "general.architecture", alpha[] = "adapter.lora.alpha",
                      words[] = "adapter.alora.invocation_tokens";
    const char *s = "";
    size_t n = 0;
    uint64_t parts = 0;
    enum err e = must_be(f, "general.type", "adapter", eb);
    if (e == ERR_OK) e = must_be(f, "adapter.type", "lora", eb);
    if (e != ERR_OK) return e;
    (void)gguf_str(f->gguf, arch, &s, &n);
    if (!gguf_adapter_fits(s, n, base->family, &f->pairs))
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s must be that of the base model, whose family is %s, got "
                       "\"%.*s\"",
                       f->name, arch, base->family, n < 60 ? (int)n : 60, s);
    f->pairs = f->pairs || base->adapter_pairs;
    if (gguf_find(f->gguf, alpha) != NULL &&
        (!gguf_f64(f->gguf, alpha, &f->alpha) || !(fabs(f->alpha) <= ALPHA_MAX)))
        return err_set(eb, ERR_BAD_FILE, "%s: key %s must be a number from -1000000 to 1000000",
                       f->name, alpha);
    if (gguf_find(f->gguf, words) != NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s must be absent: adapters that words switch on are not supported",
                       f->name, words);
    if (gguf_u64(f->gguf, "split.count", &parts) && parts > 1)
        return err_set(eb, ERR_BAD_FILE, "%s: key split.count must be 1, got %llu", f->name,
                       (unsigned long long)parts);
    return ERR_OK;
}

static enum err open_gguf(struct lora_file *f, const struct lora_source *s,
                          const struct model_info *base, struct errbuf *eb) {
    enum err e = read_head(f, s, eb);
    if (e == ERR_OK) e = read_pairs(f, base, eb);
    if (e == ERR_OK) e = make_list(f, gguf_n_tensors(f->gguf), eb);
    for (size_t i = 0; e == ERR_OK && i < f->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->gguf, i);
        const char *type = gguf_type_name(t->type, NULL, NULL);
        struct lora_tensor *to = &f->tensors[i];
        *to = (struct lora_tensor){.name = t->name,
                                   .type_name = type,
                                   .type = tensor_type_find(type),
                                   .n_dims = t->n_dims,
                                   .begin = t->begin};
        while (to->n_dims > 2 && t->dims[to->n_dims - 1] == 1) to->n_dims--;
        if (to->n_dims < 2) to->n_dims = 2; /* a row; sizes beyond are 1 */
        for (int d = 0; d < to->n_dims; d++) to->dims[d] = t->dims[to->n_dims - 1 - d];
    }
    return e;
}

enum err lora_file_open(struct lora_file *f, const struct lora_source *source, bool is_gguf,
                        const struct model_info *base, struct errbuf *eb) {
    *f = (struct lora_file){
        .name = source->name, .is_gguf = is_gguf, .pairs = !is_gguf && base->adapter_pairs};
    enum err e = is_gguf ? open_gguf(f, source, base, eb) : open_st(f, source, eb);
    if (e == ERR_OK) e = name_tensors(f, base, eb);
    if (e != ERR_OK) lora_file_close(f);
    return e;
}

void lora_file_close(struct lora_file *f) {
    free(f->tensors);
    st_header_free(&f->st);
    gguf_close(&f->gguf);
    free(f->head);
    *f = (struct lora_file){0};
}
