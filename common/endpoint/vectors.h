/* vectors: bodies that ask for vectors or scores of texts, and their answers: OpenAI's and vLLM's
 * embeddings, pooling, score and rerank (kserve-runtimes 12.6, client-apis 5), Caikit's tasks
 * (kserve-runtimes 5). Forms are rows of one table (vectors_read.c). Knows no socket and no engine:
 * a body becomes texts as ids; what the model makes of them comes back as numbers.
 *
 * A model with a head for scores judges a pair of texts as one; without, scores are cosines of
 * vectors. Thread: pure over a read-only endpoint; any. */
#ifndef BATON_ENDPOINT_VECTORS_H
#define BATON_ENDPOINT_VECTORS_H

#include "common/endpoint/endpoint.h"

struct json_value;

struct vectors_text {
    struct id_list ids;
    size_t n_first; /* ids of the first text of a pair; 0: one text */
};

struct vectors_req {
    const struct api_path *path;
    bool score; /* the head's numbers are wanted, not the vector */
    struct vectors_text *texts;
    size_t n_texts;
    uint64_t n_tokens; /* of all texts */

    /* for the answer */
    struct buf wire;         /* backs the tree of a message of gRPC */
    struct json_value *body; /* its strings and documents are repeated; NULL: none of them is */
    size_t body_bytes;       /* of the tree, with what backs it */
    char *model;             /* as the client wrote it; NULL: it did not */
    uint64_t serial;         /* of the answer's id */
    int64_t created_unix_s;
    uint64_t arrival_us;    /* clock_us() */
    size_t n_left, n_right; /* texts compared with each other: sources or queries, and the others */
    bool each;              /* the i-th with the i-th, not each with each */
    int dimensions;         /* 0: all */
    bool base64, normalize;
    bool show_documents, show_texts, show_queries;
    bool tei, raw_scores; /* TEI's form of a rerank; its scores without a sigmoid */
    int64_t top_n;        /* < 1: all */
};

/* How much one body may ask for. */
struct vectors_limits {
    size_t texts_max;
    uint64_t tokens_max; /* of all texts */
};

/* body may be changed, with a byte behind it. True: *out is the caller's; while its body is not
 * NULL the body of ask must stay, the rest of ask always. False: *err holds status and body. */
bool vectors_read(const struct endpoint *ep, const struct endpoint_ask *ask,
                  const struct vectors_limits *limits, struct vectors_req **out,
                  struct api_answer *err);
void vectors_free(struct vectors_req **v);

/* Numbers of a text: the head's, or the vector. */
size_t vectors_row(const struct endpoint *ep, const struct vectors_req *v);
/* rows: f32 [n_texts][vectors_row()], changed. */
void vectors_answer(const struct endpoint *ep, const struct vectors_req *v, float *rows,
                    struct api_answer *out);

/* f32 [n] to length one; a vector of zeros stays. */
void vectors_normalize(float *v, size_t n);

#endif
