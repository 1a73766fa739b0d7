/* inst_inspect: headers, config and tokenizer are read and checked as a start does; no weights. */
#include "common/instance/inst_inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/cli.h"
#include "common/base/log.h"
#include "common/engine/kernels.h"
#include "common/engine/weights.h"
#include "common/text/tokenizer.h"

enum { SLOTS_ABSENT = 8, SLOTS_MAX = 5000, DOES_NOT_FIT = 3 };

struct args {
    const char *model, *context, *slots, *dtype, *kv, *kernels;
};

static int usage(void) {
    fprintf(stderr, "usage: --inspect MODEL [--context TOKENS] [--slots N] [--dtype "
                    "auto|bf16|f32|int8|int4] [--kv bf16|f32|int8] [--kernels SET]\n");
    return 2;
}

static bool read_args(struct args *a, int argc, char **argv) {
    const struct cli_value options[] = {{"--context", &a->context},
                                        {"--slots", &a->slots},
                                        {"--dtype", &a->dtype},
                                        {"--kv", &a->kv},
                                        {"--kernels", &a->kernels}};
    return cli_read_values(options, sizeof(options) / sizeof(options[0]), &a->model, "MODEL", argc,
                           argv) &&
           a->model != NULL;
}

/* Absent: what is absent. False: told on stderr. */
static bool read_number(const char *flag, const char *text, int max, int absent, int *out) {
    char *end = NULL;
    const long v = text != NULL ? strtol(text, &end, 10) : absent;
    *out = (int)v;
    if (text == NULL || (*text != 0 && *end == 0 && v >= 1 && v <= max)) return true;
    fprintf(stderr, "%s must be an integer from 1 to %d, got %.32s\n", flag, max, text);
    return false;
}

static const char *size_text(char dst[24], uint64_t bytes) {
    const double mib = (double)bytes / 1048576;
    if (mib < 1)
        snprintf(dst, 24, "%.1f KiB", mib * 1024);
    else
        snprintf(dst, 24, mib < 1024 ? "%.1f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
    return dst;
}

struct found {
    struct model_conf conf;
    struct kernels kn;
    struct weights_size size;
    int32_t n_ids; /* of the tokenizer */
    enum dtype kv;
    int context, slots;
};

static uint64_t kv_token_bytes(const struct found *f) {
    return (f->conf.latent.rank > 0 ? 1 : 2) * (uint64_t)f->conf.n_layers *
           (uint64_t)f->conf.n_kv_heads * kv_row_bytes(f->conf.head_dim, f->kv);
}

static int print(const struct args *a, const struct found *f) {
    const struct model_conf *c = &f->conf;
    const bool encoder = c->encoder;
    const uint64_t token = encoder ? 0 : kv_token_bytes(f),
                   kv = token * (uint64_t)f->context * (uint64_t)f->slots,
                   need = f->size.bytes + kv, left = engine_free_memory();
    char s[5][24];
    char heads[64];
    if (c->latent.rank > 0)
        snprintf(heads, sizeof(heads), "%d heads over latents of %d", c->n_heads, c->head_dim);
    else
        snprintf(heads, sizeof(heads), "%d heads of %d (%d of KV)", c->n_heads, c->head_dim,
                 c->n_kv_heads);
    printf("model      %s: %d layers, hidden %d, %s, vocabulary %d, context %d\n", c->family,
           c->n_layers, c->hidden, heads, c->vocab_size, c->context_max);
    printf("files      %s, %s: %s\n", f->size.is_gguf ? "GGUF" : "safetensors",
           size_text(s[0], f->size.file_bytes), f->size.types);
    printf("tokenizer  %d ids\n", f->n_ids);
    printf("kernels    %s\n", f->kn.name);
    printf("weights    %.3g million parameters as %s: %s\n", (double)f->size.n_params / 1e6,
           dtype_name(f->size.dtype), size_text(s[1], f->size.bytes));
    if (c->experts.n > 0)
        printf("experts    %d of %d in a layer for each token%s: %.3g million parameters active\n",
               c->experts.used, c->experts.n, c->experts.shared > 0 ? " and a shared one" : "",
               (double)weights_active(c, f->size.n_params, f->size.n_expert_params) / 1e6);
    if (encoder)
        printf("kv         none: it embeds\n");
    else
        printf("kv         %s: %s for each token, %s for %d slots of %d tokens\n",
               dtype_name(f->kv), size_text(s[2], token), size_text(s[3], kv), f->slots,
               f->context);
    printf("memory     %s needed", size_text(s[4], need));
    if (left == 0) {
        printf("\n");
        return 0;
    }
    printf(", %s free: %s\n", size_text(s[0], left), need <= left ? "it fits" : "it does not fit");
    if (need <= left) return 0;
    if (f->size.bytes < left && token > 0)
        printf("           %s has room for %" PRIu64 " tokens in all slots together\n", a->model,
               (left - f->size.bytes) / token);
    return DOES_NOT_FIT;
}

static enum err look(const struct args *a, struct found *f, struct errbuf *eb) {
    struct tokenizer *t = NULL;
    enum dtype dtype = DTYPE_NONE;
    if (a->dtype != NULL && strcmp(a->dtype, "auto") != 0 &&
        (dtype = dtype_of_name(a->dtype)) == DTYPE_NONE)
        return err_set(eb, ERR_BAD_CONFIG,
                       "--dtype must be auto, bf16, f32, int8 or int4, got %.32s", a->dtype);
    f->kv = dtype_of_name(a->kv != NULL ? a->kv : "bf16");
    if (kv_row_bytes(1, f->kv) == 0)
        return err_set(eb, ERR_BAD_CONFIG, "--kv must be bf16, f32 or int8, got %.32s", a->kv);
    enum err e = kernels_find(&f->kn, a->kernels, eb);
    if (e == ERR_OK) e = model_conf_read(&f->conf, a->model, eb);
    if (e == ERR_OK) e = weights_measure(&f->size, &f->conf, a->model, &f->kn, dtype, eb);
    if (e == ERR_OK) e = tokenizer_load(&t, a->model, eb);
    if (e == ERR_OK) f->n_ids = tokenizer_vocab_size(t);
    tokenizer_free(&t);
    return e;
}

int inst_inspect(int argc, char **argv) {
    struct args a = {0};
    struct errbuf eb = {0};
    int context, slots;
    log_init(LOG_WARN, STDERR_FILENO);
    if (!read_args(&a, argc, argv)) return usage();
    if (!read_number("--context", a.context, MODEL_CONTEXT_MAX, 0, &context) ||
        !read_number("--slots", a.slots, SLOTS_MAX, SLOTS_ABSENT, &slots))
        return 2;
    struct found *f = calloc(1, sizeof(*f));
    if (f == NULL) return 1;
    enum err e = look(&a, f, &eb);
    f->slots = slots;
    f->context = context > 0 && context < f->conf.context_max ? context : f->conf.context_max;
    int status = eb.code == ERR_BAD_CONFIG ? 2 : 1;
    if (e == ERR_OK)
        status = print(&a, f);
    else
        fprintf(stderr, "%s: %s\n", a.model, eb.text);
    free(f);
    return status;
}
