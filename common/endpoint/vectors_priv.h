/* vectors_priv: what the two files that read bodies of vectors share: rows of forms and of the
 * dialects that forms are spoken in, and a body under way. vectors_read.c has the rows, the body
 * and its parameters; vectors_texts.c makes ids of the texts. Not for others: they use vectors.h.
 */
#ifndef BATON_ENDPOINT_VECTORS_PRIV_H
#define BATON_ENDPOINT_VECTORS_PRIV_H

#include "common/endpoint/ep.h"
#include "common/endpoint/vectors.h"

enum { VECTORS_NAMES_MAX = 4 };

struct reading;

/* A side of a form as a list: a single string counts as one of one. */
struct side {
    const char *name;
    struct json_value *given;      /* what stands there; NULL: nothing, or null */
    struct json_value *one, *list; /* one of them, or neither */
    size_t n;
    bool ids;      /* a list of ids: one text */
    bool one_only; /* a single string is wanted */
    bool is_left;
};

/* How a family of servers says its things; what is common to all has no row. */
struct dialect {
    const char *model, *model_unknown; /* the member; %.*s is the name */
    const char *model_needed;          /* NULL: without a name the server's model is meant */
    bool (*same_model)(const char *said, const char *ours); /* NULL: letter by letter */
    const char *no_body;                                    /* of a body of no bytes */
    const char *too_long;                                   /* NULL: vLLM's words and numbers */
    bool (*read_truncation)(struct reading *r);
    int dimensions_min;
    bool kinds;        /* what is wrong in kind is told from what is not allowed */
    bool payload;      /* texts lie in `inputs`, parameters in `parameters`, nothing else may */
    bool shows_more;   /* an answer repeats queries, and texts of documents */
    bool no_bare;      /* documents are objects */
    bool no_empty;     /* where a single text is wanted, "" is none */
    bool one_for_list; /* a single text may stand for a list of one */
    /* What stands there is no text. */
    bool (*bad_side)(const struct reading *r, const struct side *s);
    /* Nothing stands there, or an empty list: true where that is no error. */
    bool (*no_texts)(const struct reading *r, const struct side *s);
};

/* Where a body has its texts: one list, or two whose members are compared. The first name that is
 * there counts. */
struct form {
    const struct dialect *dialect;
    const char *left[VECTORS_NAMES_MAX], *right[VECTORS_NAMES_MAX];
    bool left_one;  /* a single string, no list */
    bool documents; /* those on the right are strings or objects with a text */
    bool token_ids; /* a text may be a list of ids */
    bool chat;      /* `messages` may stand in place of the left */
    bool bare;      /* of a payload: `inputs` is the left itself */
    bool no_empty;  /* "" is no text */
    bool each;      /* two lists of one length go pair by pair */
    bool normalize;
    bool documents_shown; /* documents are repeated unless the body says no */
};

struct reading {
    const struct endpoint *ep;
    const struct endpoint_ask *ask;
    const struct vectors_limits *limits;
    const struct form *form;
    struct vectors_req *v;
    struct json_value *in, *params; /* where texts and parameters lie; borrowed of v->body */
    size_t room;                    /* tokens of a text, specials included */
    bool cut;                       /* too long a text loses its end */
    bool content;                   /* `keep` counts no specials (Caikit) */
    bool plain;                     /* texts get no specials */
    size_t keep;                    /* with cut: tokens that stay */
    struct api_answer *err;
};

/* All return false, with *err filled. */
bool vectors_fail(const struct reading *r, int status, const char *param, const char *text);
bool vectors_fail_code(const struct reading *r, int status, const char *param, const char *code,
                       const char *text);
bool vectors_fail_memory(const struct reading *r);
/* Caikit tells what is wrong in kind (kserve-runtimes 3.1) from what is not allowed. */
bool vectors_wrong_kind(const struct reading *r, const char *param, const char *kind,
                        const char *text);

/* The sides to r->v->texts. */
bool vectors_read_texts(const struct reading *r);
/* Absent, null, an empty list. */
bool vectors_is_nothing(const struct json_value *given);

#endif
