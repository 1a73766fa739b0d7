/* load_source: which requests come when: by clients that wait for their answers (closed loop), by
 * arrivals that do not (open loop), or as a trace has them. The same seed gives the same requests.
 *
 * Traces: lines of Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or of Mooncake's JSONL
 *   ({"timestamp": ms, "input_length", "output_length", "hash_ids"}), told by the first line. At
 *   most LOAD_TRACE_BYTES_MAX bytes and LOAD_TRACE_ROWS_MAX rows; what is wrong is refused with
 *   the number of its line.
 * Memory: a trace is kept whole; other sources keep nothing of what they gave.
 * Thread: one. Pure but for load_source_read_trace(), which reads a file. */
#ifndef BATON_TOOLS_LOAD_SOURCE_H
#define BATON_TOOLS_LOAD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

enum {
    LOAD_TOKENS_MAX = 1 << 20,
    LOAD_TRACE_ROWS_MAX = 1000000,
    LOAD_TRACE_BLOCKS_MAX = 4096, /* of one request */
    LOAD_BLOCK_TOKENS = 512,      /* of a block that Mooncake's hash_ids name */
};
#define LOAD_TRACE_BYTES_MAX (256u << 20)

enum load_arrivals { LOAD_POISSON, LOAD_EVEN, LOAD_BURSTY };

struct load_range {
    uint32_t from, to; /* both counted */
};

/* What a user asks for. */
struct load_shape {
    uint64_t seed;
    double rate; /* requests a second; 0: closed loop, every request is due at once */
    enum load_arrivals arrivals;
    struct load_range in, out; /* tokens */
    uint32_t prefix_tokens;    /* the first ones of a prompt, shared by a group */
    uint32_t n_groups;         /* at least 1 where prefix_tokens are */
    double time_scale;         /* of a trace: its times are multiplied by it */
    double length_scale;       /* of a trace: its lengths are */
};

struct load_ask {
    uint64_t number;
    double at_s; /* after the beginning */
    uint32_t in, out;
    /* Where its text begins like that of others: [n_shared], and tokens of each. */
    const uint64_t *shared;
    size_t n_shared;
    uint32_t shared_tokens;
};

struct load_source;

enum err load_source_create(struct load_source **out, const struct load_shape *shape);
/* p[0..n): the text of a trace. ERR_BAD_FILE: eb says which line, and what is wrong there. */
enum err load_source_create_trace(struct load_source **out, const struct load_shape *shape,
                                  const char *p, size_t n, struct errbuf *eb);
/* From a file, which may be compressed by gzip. ERR_NOT_FOUND, ERR_TOO_LARGE, ERR_IO as well. */
enum err load_source_read_trace(struct load_source **out, const struct load_shape *shape,
                                const char *path, struct errbuf *eb);
void load_source_free(struct load_source **s);

/* The next one; what it points to lives as long as the source, or until the next call. false: a
 * trace has ended. */
bool load_source_next(struct load_source *s, struct load_ask *out);
void load_source_rewind(struct load_source *s);
size_t load_source_rows(const struct load_source *s); /* of a trace; 0: without an end */

#endif
