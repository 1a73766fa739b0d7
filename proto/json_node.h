/* json_node: how values lie in memory. Private to json_tree.c, json_make.c and json_print.c. */
#ifndef BATON_PROTO_JSON_NODE_H
#define BATON_PROTO_JSON_NODE_H

#include <string.h>
#include "proto/json_tree.h"

enum kind { K_NULL, K_FALSE, K_TRUE, K_INT, K_REAL, K_STRING, K_ARRAY, K_OBJECT };

/* Every value begins with a tag: kind in bits 0 to 2, then MADE, MOVED, and a length above. */
enum { TAG_KIND = 7, TAG_MADE = 8, TAG_MOVED = 16, TAG_BITS = 5 };
enum { JSON_TEXT_BYTES_MAX = (1 << (32 - TAG_BITS)) - 1 };

/* A node of a parsed tree: three of the block's words. */
struct json_value {
    uint32_t tag;  /* length: bytes of a string, items, members */
    uint32_t at;   /* of the literal in the text, of the first child in the block (a member is two
                      nodes: name, value), or, moved, the number of its made container */
    uint32_t self; /* where this node is in the block, in words */
};

enum { NODE_WORDS = 3 };

struct json_doc {
    uint32_t refs;
    uint32_t n_moved;
    char *text; /* behind the words, or where the reader left it */
    size_t text_n;
    size_t n_words;
    size_t mapped; /* bytes of the block when it is a mapping of its own, else 0 */
    char *printed;
    struct json_made **moved; /* containers that were changed */
    uint32_t words[]; /* the root is at 0; a table of members is behind its object's nodes */
};

struct json_member {
    char *name; /* in the text of the container's home, or its own */
    size_t name_len;
    struct json_value *v;
};

/* A value that the program made, or a changed container of a parsed tree. */
struct json_made {
    uint32_t tag;
    uint32_t refs;
    uint32_t born;         /* json_failures() when it was made */
    struct json_doc *home; /* whose parts this container holds without counting; NULL: none */
    char *printed;
    bool above; /* an integer over INT64_MAX: i has its bits */
    union {
        int64_t i;
        double d;
        struct json_value **items;
        struct json_member *members;
    };
    char *text; /* of a string (n bytes); how a double is written, or NULL */
    size_t n, cap;
    uint32_t *slots; /* an object with many members: 0, or a member's number + 1 */
    size_t n_slots;
};

static inline enum kind json_kind(const struct json_value *v) {
    return v == NULL ? K_NULL : (enum kind)(v->tag & TAG_KIND);
}

static inline struct json_doc *json_doc_of(const struct json_value *v) {
    const uint32_t *block = (const uint32_t *)(const void *)v - v->self;
    return (struct json_doc *)(void *)((char *)(uintptr_t)block - offsetof(struct json_doc, words));
}

/* The made form of v, NULL when it has none. */
static inline struct json_made *json_made_of(const struct json_value *v) {
    if ((v->tag & TAG_MADE) != 0) return (struct json_made *)(uintptr_t)v;
    return (v->tag & TAG_MOVED) != 0 ? json_doc_of(v)->moved[v->at] : NULL;
}

static inline struct json_value *json_node_at(const struct json_doc *d, size_t word) {
    return (struct json_value *)(void *)(uintptr_t)&d->words[word];
}

/* null lies in the block and is NULL outside. */
static inline struct json_value *json_lend(struct json_value *node) {
    return json_kind(node) == K_NULL ? NULL : node;
}

/* Text of a node that has one: string, number. */
static inline const char *json_text_of(const struct json_value *v) {
    return json_doc_of(v)->text + v->at;
}

/* Hash of a name, under a key that strangers do not know; a table's slot for it. */
uint64_t json_name_hash(const char *name, size_t n);
static inline size_t json_slot(uint64_t hash, size_t n_slots) {
    return (size_t)(((hash >> 32) * n_slots) >> 32);
}

/* Counts a failure (json_failures()). NULL. */
void *json_missing(void);
/* Frees what a changed container holds. */
void json_made_free(struct json_made *m);
struct json_value *json_made_find(const struct json_made *m, const char *name, size_t n, size_t *i);

#endif
