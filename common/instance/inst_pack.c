/* inst_pack: arguments in, one file of packed weights out. */
#include "common/instance/inst_pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/cli.h"
#include "common/base/log.h"
#include "common/engine/weights.h"

struct args {
    const char *model, *dtype, *out, *kernels, *threads;
};

static int usage(void) {
    fprintf(stderr, "usage: --pack-weights MODEL_DIR --dtype auto|bf16|f32|int8|int4 [--out DIR] "
                    "[--kernels SET] [--threads N]\n");
    return 2;
}

static bool read_args(struct args *a, int argc, char **argv) {
    const struct cli_value options[] = {{"--dtype", &a->dtype},
                                        {"--out", &a->out},
                                        {"--kernels", &a->kernels},
                                        {"--threads", &a->threads}};
    return cli_read_values(options, sizeof(options) / sizeof(options[0]), &a->model, "MODEL", argc,
                           argv) &&
           a->model != NULL && a->dtype != NULL && (a->out == NULL || a->out[0] != 0);
}

/* 0 to POOL_THREADS_MAX; -1: no such number. */
static int read_threads(const char *text) {
    char *end;
    if (text == NULL) return 0;
    long v = strtol(text, &end, 10);
    return *text != 0 && *end == 0 && v >= 0 && v <= POOL_THREADS_MAX ? (int)v : -1;
}

static enum err pack(const struct args *a, enum dtype dtype, int threads, struct errbuf *eb) {
    struct model_conf *c = calloc(1, sizeof(*c));
    const struct weights_place place = {
        .setting = a->out != NULL ? a->out : "auto", .verify = true, .always = true};
    struct kernels kn;
    struct pool *pool = NULL;
    struct weights *w = NULL;
    enum err e = c != NULL ? model_conf_read(c, a->model, eb)
                           : err_set(eb, ERR_NO_MEMORY, "no memory for the model's config");
    if (e == ERR_OK) e = kernels_find(&kn, a->kernels, eb);
    if (e == ERR_OK) e = pool_create(&pool, threads, NULL, eb);
    if (e == ERR_OK)
        e = weights_open(&w, c, a->model, &kn, dtype, &place, pool, NULL, NULL, NULL, eb);
    if (e == ERR_OK && w->from == WEIGHTS_PACKED)
        e = err_set(eb, ERR_IO, "the file cannot be written, the log says why");
    if (e == ERR_OK)
        printf("%s: %llu parameters as %s for the kernels %s: %llu bytes, %s\n", a->model,
               (unsigned long long)w->n_params, dtype_name(w->dtype), kn.name,
               (unsigned long long)w->bytes,
               w->from == WEIGHTS_FROM_CACHE ? "there already" : "packed");
    weights_close(&w);
    pool_destroy(&pool);
    free(c);
    return e;
}

int inst_pack(int argc, char **argv) {
    struct args a = {0};
    struct errbuf eb = {0};
    log_init(LOG_INFO, STDERR_FILENO);
    if (!read_args(&a, argc, argv)) return usage();
    const bool by_file = strcmp(a.dtype, "auto") == 0;
    enum dtype dtype = dtype_of_name(a.dtype); /* NONE: what the file has decides */
    int threads = read_threads(a.threads);
    if (threads < 0) {
        fprintf(stderr, "--threads must be from 0 to %d, got %.32s\n", POOL_THREADS_MAX, a.threads);
        return 2;
    }
    if (dtype == DTYPE_NONE && !by_file) {
        fprintf(stderr, "--dtype must be auto, bf16, f32, int8 or int4, got %.32s\n", a.dtype);
        return 2;
    }
    if (pack(&a, dtype, threads, &eb) == ERR_OK) return 0;
    fprintf(stderr, "%s: %s\n", a.model, eb.text);
    return eb.code == ERR_BAD_CONFIG ? 2 : 1;
}
