/* load_source: numbers drawn one request at a time; a trace is an array of rows. */
#include "tools/load/load_source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "common/base/buf.h"
#include "proto/json.h"
#include "tools/load/load_random.h"

struct row {
    double at_s;
    uint32_t in, out;
    uint32_t n_blocks;
    size_t first_block;
};

struct load_source {
    struct load_shape shape;
    struct load_random random;
    uint64_t n_given;
    double at_s;
    uint64_t group; /* of the last request given */
    struct row *rows;
    uint64_t *blocks;
    size_t n_rows, cap_rows, n_blocks, cap_blocks;
};

/* A bursty arrival is one of a crowd of this many at once, in the mean; crowds come at random. */
static const double CROWD_MEAN = 8;

enum err load_source_create(struct load_source **out, const struct load_shape *shape) {
    struct load_source *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    s->shape = *shape;
    load_source_rewind(s);
    *out = s;
    return ERR_OK;
}

void load_source_free(struct load_source **s) {
    if (*s == NULL) return;
    free((*s)->rows);
    free((*s)->blocks);
    free(*s);
    *s = NULL;
}

void load_source_rewind(struct load_source *s) {
    s->random.state = s->shape.seed;
    s->n_given = 0;
    s->at_s = 0;
}

size_t load_source_rows(const struct load_source *s) {
    return s->n_rows;
}

/* ---- drawn */

static uint32_t draw(struct load_random *r, struct load_range range) {
    return range.from + (uint32_t)(load_random_u64(r) % (range.to - range.from + 1u));
}

static double wait_s(struct load_source *s) {
    const double mean = 1 / s->shape.rate;
    switch (s->shape.arrivals) {
    case LOAD_EVEN: return mean;
    case LOAD_BURSTY: /* the next one of the crowd, or a new crowd */
        if (load_random_unit(&s->random) > 1 / CROWD_MEAN) return 0;
        return mean * CROWD_MEAN * load_random_exp(&s->random);
    case LOAD_POISSON: break;
    }
    return mean * load_random_exp(&s->random);
}

static void draw_next(struct load_source *s, struct load_ask *out) {
    if (s->shape.rate > 0 && s->n_given > 0) s->at_s += wait_s(s);
    *out = (struct load_ask){.at_s = s->at_s,
                             .in = draw(&s->random, s->shape.in),
                             .out = draw(&s->random, s->shape.out)};
    if (s->shape.prefix_tokens == 0) return;
    s->group = load_random_u64(&s->random) % s->shape.n_groups;
    out->shared = &s->group;
    out->n_shared = 1;
    out->shared_tokens = s->shape.prefix_tokens;
}

static uint32_t scaled(uint32_t tokens, double by) {
    const double v = round(tokens * by);
    return v < 1 ? 1 : v > LOAD_TOKENS_MAX ? LOAD_TOKENS_MAX : (uint32_t)v;
}

bool load_source_next(struct load_source *s, struct load_ask *out) {
    if (s->rows == NULL) {
        draw_next(s, out);
    } else {
        if (s->n_given == s->n_rows) return false;
        const struct row *r = &s->rows[s->n_given];
        const double by = s->shape.length_scale;
        *out = (struct load_ask){.at_s = (r->at_s - s->rows[0].at_s) * s->shape.time_scale,
                                 .in = scaled(r->in, by),
                                 .out = scaled(r->out, by),
                                 .shared = s->blocks + r->first_block,
                                 .n_shared = r->n_blocks,
                                 .shared_tokens = scaled(LOAD_BLOCK_TOKENS, by)};
    }
    out->number = s->n_given++;
    return true;
}

/* ---- traces */

static bool grow(void **p, size_t *cap, size_t n, size_t each) {
    if (n < *cap) return true;
    const size_t cap2 = *cap < 64 ? 64 : *cap * 2;
    void *more = realloc(*p, cap2 * each);
    if (more == NULL) return false;
    *p = more;
    *cap = cap2;
    return true;
}

static bool tokens_ok(int64_t n) {
    return n >= 0 && n <= LOAD_TOKENS_MAX;
}

/* Seconds of "2023-11-16 18:17:03.9799600"; the day counts from a fixed one. */
static bool read_stamp(const char *text, double *s) {
    int y, mo, d, h, mi, used = 0;
    double sec;
    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%n", &y, &mo, &d, &h, &mi, &used) != 5 || used == 0)
        return false;
    char *rest;
    sec = strtod(text + used, &rest);
    if (rest == text + used || *rest != 0 || !(sec >= 0 && sec < 61)) return false;
    if (y < 1970 || mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || h < 0 || mi < 0)
        return false;
    /* Days by the civil calendar: months counted from March, so that the leap day is the last. */
    const int yy = y - (mo <= 2), m = (mo + 9) % 12;
    const double days = 365.0 * yy + yy / 4 - yy / 100 + yy / 400 + (153 * m + 2) / 5 + d;
    *s = days * 86400 + h * 3600.0 + mi * 60.0 + sec;
    return true;
}

static bool read_count(const char *text, uint32_t *n) {
    char *rest;
    errno = 0;
    const long long v = strtoll(text, &rest, 10);
    if (rest == text || *rest != 0 || errno != 0 || !tokens_ok(v)) return false;
    *n = (uint32_t)v;
    return true;
}

static enum err read_azure(struct row *r, char *line, size_t at, struct errbuf *eb) {
    char *in = strchr(line, ','), *out = in == NULL ? NULL : strchr(in + 1, ',');
    if (out == NULL)
        return err_set(eb, ERR_BAD_FILE, "line %zu: three columns are wanted, got \"%.60s\"", at,
                       line);
    *in++ = 0;
    *out++ = 0;
    if (!read_stamp(line, &r->at_s))
        return err_set(eb, ERR_BAD_FILE,
                       "line %zu: TIMESTAMP must be a time like 2023-11-16 18:17:03.97, got "
                       "\"%.60s\"",
                       at, line);
    if (!read_count(in, &r->in))
        return err_set(eb, ERR_BAD_FILE,
                       "line %zu: ContextTokens must be in [0, %d], got \"%.60s\"", at,
                       LOAD_TOKENS_MAX, in);
    if (!read_count(out, &r->out))
        return err_set(eb, ERR_BAD_FILE,
                       "line %zu: GeneratedTokens must be in [0, %d], got \"%.60s\"", at,
                       LOAD_TOKENS_MAX, out);
    return ERR_OK;
}

static enum err read_blocks(struct load_source *s, struct row *r, const struct json_value *v,
                            size_t at, struct errbuf *eb) {
    struct json_value *ids;
    const enum json_got got = json_get_arr(v, "hash_ids", &ids);
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || json_arr_len(ids) > LOAD_TRACE_BLOCKS_MAX)
        return err_set(eb, ERR_BAD_FILE, "line %zu: hash_ids must be a list of at most %d", at,
                       LOAD_TRACE_BLOCKS_MAX);
    for (size_t i = 0; i < json_arr_len(ids); i++) {
        uint64_t id;
        if (json_as_u64(json_arr_at(ids, i), &id) != JSON_OK)
            return err_set(eb, ERR_BAD_FILE, "line %zu: hash_ids[%zu] must be an integer from 0",
                           at, i);
        if (!grow((void **)&s->blocks, &s->cap_blocks, s->n_blocks, sizeof(*s->blocks)))
            return err_set(eb, ERR_NO_MEMORY, "out of memory");
        s->blocks[s->n_blocks++] = id;
        r->n_blocks++;
    }
    return ERR_OK;
}

static enum err read_mooncake(struct load_source *s, struct row *r, const char *line, size_t n,
                              size_t at, struct errbuf *eb) {
    struct json_value *v = NULL;
    struct errbuf why = {0};
    enum err e = json_read(&v, line, n, NULL, &why);
    if (e != ERR_OK) return err_set(eb, ERR_BAD_FILE, "line %zu: %s", at, why.text);
    double ms;
    int64_t in, out;
    if (json_get_f64(v, "timestamp", &ms) != JSON_OK || !(ms >= 0 && ms < 1e15))
        e = err_set(eb, ERR_BAD_FILE, "line %zu: timestamp must be milliseconds from 0", at);
    else if (json_get_i64(v, "input_length", &in) != JSON_OK || !tokens_ok(in))
        e = err_set(eb, ERR_BAD_FILE, "line %zu: input_length must be in [0, %d]", at,
                    LOAD_TOKENS_MAX);
    else if (json_get_i64(v, "output_length", &out) != JSON_OK || !tokens_ok(out))
        e = err_set(eb, ERR_BAD_FILE, "line %zu: output_length must be in [0, %d]", at,
                    LOAD_TOKENS_MAX);
    else
        e = read_blocks(s, r, v, at, eb);
    if (e == ERR_OK) {
        r->at_s = ms / 1000;
        r->in = (uint32_t)in;
        r->out = (uint32_t)out;
    }
    json_put(v);
    return e;
}

static int cmp_row(const void *a, const void *b) {
    const double x = ((const struct row *)a)->at_s, y = ((const struct row *)b)->at_s;
    return x < y ? -1 : x > y;
}

/* Each line is terminated where it ends, in a copy. */
static enum err read_lines(struct load_source *s, char *p, size_t n, struct errbuf *eb) {
    bool json = false;
    size_t at = 0;
    for (char *line = p, *end = p + n; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        char *next = stop == NULL ? end : stop + 1;
        if (stop == NULL) stop = end;
        if (stop > line && stop[-1] == '\r') stop--;
        *stop = 0;
        at++;
        if (at == 1) json = line[0] == '{';
        const bool header = at == 1 && !json && strncmp(line, "TIMESTAMP", 9) == 0;
        if (stop > line && !header) {
            struct row r = {.first_block = s->n_blocks};
            if (s->n_rows == LOAD_TRACE_ROWS_MAX)
                return err_set(eb, ERR_TOO_LARGE, "line %zu: over %d requests", at,
                               LOAD_TRACE_ROWS_MAX);
            const enum err e = json ? read_mooncake(s, &r, line, (size_t)(stop - line), at, eb)
                                    : read_azure(&r, line, at, eb);
            if (e != ERR_OK) return e;
            if (!grow((void **)&s->rows, &s->cap_rows, s->n_rows, sizeof(*s->rows)))
                return err_set(eb, ERR_NO_MEMORY, "out of memory");
            s->rows[s->n_rows++] = r;
        }
        line = next;
    }
    if (s->n_rows == 0) return err_set(eb, ERR_BAD_FILE, "no request in it");
    qsort(s->rows, s->n_rows, sizeof(*s->rows), cmp_row);
    return ERR_OK;
}

enum err load_source_create_trace(struct load_source **out, const struct load_shape *shape,
                                  const char *p, size_t n, struct errbuf *eb) {
    struct load_source *s = NULL;
    if (n > LOAD_TRACE_BYTES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "over %u bytes", LOAD_TRACE_BYTES_MAX);
    char *copy = malloc(n + 1);
    enum err e = copy == NULL ? ERR_NO_MEMORY : load_source_create(&s, shape);
    if (e == ERR_OK) {
        memcpy(copy, p, n);
        e = read_lines(s, copy, n, eb);
    } else {
        err_set(eb, e, "out of memory");
    }
    free(copy);
    if (e != ERR_OK)
        load_source_free(&s);
    else
        *out = s;
    return e;
}

enum err load_source_read_trace(struct load_source **out, const struct load_shape *shape,
                                const char *path, struct errbuf *eb) {
    struct buf text = BUF_INIT;
    gzFile f = gzopen(path, "rb"); /* reads what is not compressed as it is */
    if (f == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    int got = 1;
    while (got > 0 && text.len <= LOAD_TRACE_BYTES_MAX && buf_reserve(&text, 1 << 20)) {
        got = gzread(f, text.data + text.len, 1 << 20);
        if (got > 0) text.len += (size_t)got;
    }
    gzclose(f);
    enum err e = ERR_OK;
    struct errbuf why = {0};
    if (text.failed)
        e = err_set(eb, ERR_NO_MEMORY, "out of memory");
    else if (got < 0)
        e = err_set(eb, ERR_IO, "%s: cannot be read", path);
    else if ((e = load_source_create_trace(out, shape, text.data == NULL ? "" : text.data, text.len,
                                           &why)) != ERR_OK)
        err_set(eb, e, "%s: %s", path, why.text);
    buf_free(&text);
    return e;
}
