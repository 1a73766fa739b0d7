/* Goal: no config.json and no generation_config.json make their reader read outside them, accept a
 * shape that overflows later, or refuse without a text. Method: the input is u16 length of the
 * config, the config, the generation config (none: no file); both are written to a folder of this
 * process, since the reader takes a model's folder. What is accepted is looked through. */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/engine/model_conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Made at the first input and kept: libFuzzer has no other place for it. */
static char folder[64];

static void path_of(char path[128], const char *name) {
    snprintf(path, 128, "%s/%s", folder, name);
}

static void clean(void) {
    char path[128];
    path_of(path, "config.json");
    unlink(path);
    path_of(path, "generation_config.json");
    unlink(path);
    rmdir(folder);
}

static void write_file(const char *name, const uint8_t *data, size_t n) {
    char path[128];
    path_of(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) != 0) abort();
}

static bool in(int v, int min, int max) {
    return v >= min && v <= max;
}

static void look_through(const struct model_conf *c) {
    char line[MODEL_CONF_LINE_BYTES];
    int n = model_conf_line(c, line);
    if (n <= 0 || n >= MODEL_CONF_LINE_BYTES || line[n] != '\0') abort();
    if (!in(c->n_layers, 1, MODEL_LAYERS_MAX) || !in(c->vocab_size, 1, MODEL_VOCAB_MAX)) abort();
    if (!in(c->context_max, 1, MODEL_CONTEXT_MAX) || !in(c->n_eos, 0, EOS_IDS_MAX)) abort();
    if (c->n_heads < 1 || c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads != 0) abort();
    if (c->head_dim < 2 || c->head_dim % 2 != 0 || c->hidden < 1 || c->intermediate < 1) abort();
    if (!(c->norm_eps > 0) || !isfinite(c->rope.theta) || c->rope.theta <= 0) abort();
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos_ids[i] < 0) abort();
    for (int i = 0; i < c->n_layers; i++)
        if (c->window[i] < 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct errbuf eb = {0};
    static struct model_conf c;
    if (size < 2) return 0;
    if (folder[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(folder, sizeof(folder), "%.40s/fuzz-conf-XXXXXX", tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(folder) == NULL) abort();
        atexit(clean);
    }
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    write_file("config.json", data + 2, n);
    if (size - 2 - n > 0) {
        write_file("generation_config.json", data + 2 + n, size - 2 - n);
    } else {
        char path[128];
        path_of(path, "generation_config.json");
        unlink(path);
    }
    enum err e = model_conf_read(&c, folder, &eb);
    if (e == ERR_OK) {
        look_through(&c);
    } else if (eb.text[0] == '\0') {
        abort();
    }
    return 0;
}
