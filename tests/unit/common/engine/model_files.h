/* Files for the engine's tests: a folder of its own under TMPDIR, and a safetensors file from a
 * JSON header and zeros or given bytes. */
#ifndef BATON_TESTS_MODEL_FILES_H
#define BATON_TESTS_MODEL_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct model_files {
    char dir[256];
    char names[16][64];
    int n;
};

static inline void files_make(struct model_files *m) {
    const char *tmp = getenv("TMPDIR");
    memset(m, 0, sizeof(*m));
    snprintf(m->dir, sizeof(m->dir), "%s/baton-engine-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(m->dir));
}

static inline void files_write(struct model_files *m, const char *name, const void *bytes,
                               size_t n) {
    char path[512];
    int i = 0;
    while (i < m->n && strcmp(m->names[i], name) != 0) i++;
    if (i == m->n) snprintf(m->names[m->n++], sizeof(m->names[0]), "%s", name);
    snprintf(path, sizeof(path), "%s/%s", m->dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void files_text(struct model_files *m, const char *name, const char *text) {
    files_write(m, name, text, strlen(text));
}

/* Header length, header, data. Returns the length; buf must hold 8 + strlen(header) + n_data. */
static inline size_t safetensors_bytes(uint8_t *buf, const char *header, const void *data,
                                       size_t n_data) {
    size_t len = strlen(header);
    for (int i = 0; i < 8; i++) buf[i] = (uint8_t)(len >> (8 * i));
    memcpy(buf + 8, header, len);
    if (n_data > 0 && data != NULL) memcpy(buf + 8 + len, data, n_data);
    if (n_data > 0 && data == NULL) memset(buf + 8 + len, 0, n_data);
    return 8 + len + n_data;
}

static inline void files_safetensors(struct model_files *m, const char *name, const char *header,
                                     const void *data, size_t n_data) {
    uint8_t *buf = malloc(8 + strlen(header) + n_data);
    assert_non_null(buf);
    files_write(m, name, buf, safetensors_bytes(buf, header, data, n_data));
    free(buf);
}

static inline void files_remove(struct model_files *m) {
    char path[512];
    for (int i = 0; i < m->n; i++) {
        snprintf(path, sizeof(path), "%s/%s", m->dir, m->names[i]);
        unlink(path);
    }
    rmdir(m->dir);
}

#endif
