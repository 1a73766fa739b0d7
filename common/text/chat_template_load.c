/* chat_template_load: the chat template of a model directory, where HuggingFace's libraries put it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/gguf.h"
#include "common/text/chat_template.h"
#include "proto/json.h"

enum { CONFIG_BYTES_MAX = 64 * 1024 * 1024, PATH_BYTES_MAX = 4096 };

static enum err join_path(char *path, const char *dir, const char *name, struct errbuf *eb) {
    if (snprintf(path, PATH_BYTES_MAX, "%s/%s", dir, name) < PATH_BYTES_MAX) return ERR_OK;
    return err_set(eb, ERR_INVALID, "model directory: the path is longer than %d bytes",
                   PATH_BYTES_MAX - 1);
}

/* ERR_NOT_FOUND: there is no such file. */
static enum err read_text(const char *path, struct buf *b, struct errbuf *eb) {
    char piece[16384];
    size_t n;
    FILE *f = fopen(path, "rbe");
    if (f == NULL) {
        return err_set(eb, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
                       strerror(errno));
    }
    while (b->len <= CHAT_TEMPLATE_BYTES_MAX && (n = fread(piece, 1, sizeof(piece), f)) > 0)
        buf_append(b, piece, n);
    bool bad = ferror(f) != 0;
    fclose(f);
    if (bad) return err_set(eb, ERR_IO, "%s: cannot be read", path);
    if (b->failed) return err_set(eb, ERR_NO_MEMORY, "%s: no memory to read it", path);
    return ERR_OK;
}

/* A token of tokenizer_config.json: text, {"content": text}, or absent. */
static enum err token_text(const struct json_value *conf, const char *key, char **out,
                           struct errbuf *eb) {
    struct json_value *obj = NULL;
    const char *s = "";
    size_t n = 0;
    if (json_get_str(conf, key, &s, &n) == JSON_WRONG_TYPE &&
        json_get_obj(conf, key, &obj) == JSON_OK) {
        json_get_str(obj, "content", &s, &n);
    }
    *out = strndup(s, n);
    return *out != NULL ? ERR_OK : err_set(eb, ERR_NO_MEMORY, "no memory for %s", key);
}

/* "chat_template" itself, or the one of a list of {name, template} that fits. *s stays NULL when
 * the configuration has none. */
static enum err pick(const struct json_value *conf, int with_tools, const char **s, size_t *n,
                     struct errbuf *eb) {
    struct json_value *list = NULL;
    enum json_got got = json_get_str(conf, "chat_template", s, n);
    if (got == JSON_OK || got == JSON_ABSENT || got == JSON_NULL) return ERR_OK;
    if (json_get_arr(conf, "chat_template", &list) != JSON_OK) {
        return err_set(eb, ERR_BAD_FILE,
                       "tokenizer_config.json: chat_template must be a string or an array");
    }
    for (int want_tools = with_tools ? 1 : 0; want_tools >= 0 && *s == NULL; want_tools--) {
        for (size_t i = 0; i < json_arr_len(list) && *s == NULL; i++) {
            const struct json_value *row = json_arr_at(list, i);
            const char *name = NULL;
            size_t n_name = 0;
            if (json_get_str(row, "name", &name, &n_name) != JSON_OK) continue;
            if (strcmp(name, want_tools ? "tool_use" : "default") == 0)
                json_get_str(row, "template", s, n);
        }
    }
    if (*s != NULL) return ERR_OK;
    return err_set(eb, ERR_BAD_FILE,
                   "tokenizer_config.json: none of the %zu chat templates is called \"default\"",
                   json_arr_len(list));
}

/* s NULL: there is none. from: where it is. */
static enum err parse(struct chat_template **out, const char *model, const char *from,
                      const char *s, size_t n, struct errbuf *eb) {
    struct errbuf why = {0};
    if (s == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: the model has no chat template", model);
    enum err e = chat_template_parse(out, s, n, &why);
    return e == ERR_OK ? e : err_set(eb, e, "%s/%s: chat template: %s", model, from, why.text);
}

/* The text of the token whose id a key names, "" without one. */
static enum err gguf_token(const struct gguf *g, const char *key, char **out, struct errbuf *eb) {
    const struct gguf_pair *p = gguf_find(g, "tokenizer.ggml.tokens");
    struct gguf_cursor at = {0};
    const char *s = "";
    size_t n = 0;
    uint64_t id;
    bool found = false;
    if (p != NULL && gguf_u64(g, key, &id) && id < p->n)
        while (gguf_next_str(p, &at, &s, &n) && !(found = at.idx - 1 == id)) continue;
    *out = strndup(s, found ? n : 0);
    return *out != NULL ? ERR_OK : err_set(eb, ERR_NO_MEMORY, "no memory for %s", key);
}

static enum err load_gguf(struct chat_template **out, const char *file, int with_tools, char **bos,
                          char **eos, struct buf *text, struct errbuf *eb) {
    static const char key[] = "tokenizer.chat_template",
                      tools[] = "tokenizer.chat_template.tool_use";
    char path[PATH_BYTES_MAX];
    struct gguf *g = NULL;
    const char *s = NULL, *slash = strrchr(file, '/');
    size_t n = 0;
    enum err e = gguf_open(&g, file, eb);
    if (e != ERR_OK) return e == ERR_NOT_FOUND ? ERR_BAD_FILE : e;
    e = gguf_token(g, "tokenizer.ggml.bos_token_id", bos, eb);
    if (e == ERR_OK) e = gguf_token(g, "tokenizer.ggml.eos_token_id", eos, eb);
    const int dir_bytes = slash != NULL ? (int)(slash - file) : 0;
    snprintf(path, sizeof(path), "%.*s%s/chat_template.jinja",
             dir_bytes < PATH_BYTES_MAX - 32 ? dir_bytes : 0, file, dir_bytes == 0 ? "." : "");
    const char *from = gguf_name(g);
    if (e == ERR_OK) e = read_text(path, text, eb);
    if (e == ERR_OK) {
        s = text->data == NULL ? "" : text->data;
        n = text->len;
        from = "chat_template.jinja";
    } else if (e == ERR_NOT_FOUND) {
        e = ERR_OK;
        if (!with_tools || !gguf_str(g, tools, &s, &n)) gguf_str(g, key, &s, &n);
    }
    if (e == ERR_OK) e = parse(out, file, from, s, n, eb);
    gguf_close(&g);
    return e;
}

static enum err load(struct chat_template **out, const char *dir, int with_tools, char **bos,
                     char **eos, struct json_value **conf, struct buf *text, struct errbuf *eb) {
    char path[PATH_BYTES_MAX];
    const char *s = NULL, *from = "tokenizer_config.json";
    size_t n = 0;
    enum err e = join_path(path, dir, from, eb);
    if (e != ERR_OK) return e;
    e = json_read_file(conf, path, CONFIG_BYTES_MAX, NULL, eb);
    if (e != ERR_OK && e != ERR_NOT_FOUND) return e;
    if (e == ERR_OK && !json_is(*conf, json_type_object)) {
        return err_set(eb, ERR_BAD_FILE, "%s: not an object", path);
    }
    if ((e = token_text(*conf, "bos_token", bos, eb)) != ERR_OK) return e;
    if ((e = token_text(*conf, "eos_token", eos, eb)) != ERR_OK) return e;
    /* The file of its own wins over the configuration, as in HuggingFace's libraries. */
    if ((e = join_path(path, dir, "chat_template.jinja", eb)) != ERR_OK) return e;
    e = read_text(path, text, eb);
    if (e == ERR_OK) {
        s = text->data == NULL ? "" : text->data;
        n = text->len;
        from = "chat_template.jinja";
    } else if (e == ERR_NOT_FOUND) {
        e = pick(*conf, with_tools, &s, &n, eb);
    }
    if (e != ERR_OK) return e;
    return parse(out, dir, from, s, n, eb);
}

enum err chat_template_load(struct chat_template **out, const char *path, int with_tools,
                            char **bos, char **eos, struct errbuf *eb) {
    struct json_value *conf = NULL;
    struct buf text = BUF_INIT;
    *out = NULL;
    *bos = *eos = NULL;
    char file[PATH_BYTES_MAX];
    struct errbuf why = {0};
    enum err e = gguf_locate(file, sizeof(file), path, &why);
    if (e == ERR_OK)
        e = load_gguf(out, file, with_tools, bos, eos, &text, eb);
    else if (e == ERR_NOT_FOUND)
        e = load(out, path, with_tools, bos, eos, &conf, &text, eb);
    else
        err_set(eb, e, "%s", why.text);
    if (e != ERR_OK && e != ERR_NOT_FOUND) {
        free(*bos);
        free(*eos);
        *bos = *eos = NULL;
    }
    json_put(conf);
    buf_free(&text);
    return e;
}
