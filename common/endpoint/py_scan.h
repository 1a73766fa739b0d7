/* py_scan: follows the arguments of a call as Python writes them, name="text", n=[1, None], byte by
 * byte, and gives them as the JSON object that means the same. Literals alone: text, numbers as
 * JSON has them, True, False, None, lists, tuples (as lists) and dicts with text as keys. Pure;
 * bytes of a character are taken for granted, the text is UTF-8 already. */
#ifndef BATON_ENDPOINT_PY_SCAN_H
#define BATON_ENDPOINT_PY_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"

enum {
    PY_SCAN_DEPTH_MAX = 64,  /* containers inside each other; deeper is PY_SCAN_BAD */
    PY_SCAN_WORD_BYTES = 64, /* of a number or a name of an argument */
    PY_SCAN_NAMES_MAX = 128, /* arguments; one more is PY_SCAN_BAD */
};

enum py_scan_step {
    PY_SCAN_MORE, /* the byte belongs to the arguments, which go on */
    PY_SCAN_DONE, /* the byte is their last: ")" */
    PY_SCAN_BAD,  /* no such arguments have this byte here */
};

struct py_scan {
    uint8_t state, depth;
    char open[PY_SCAN_DEPTH_MAX]; /* "(" of the call, then "[", "{", "(" or, once it has a comma,
                                     "," */
    bool some;                    /* the innermost container has an item */
    bool key;                     /* the string under way is one of a dict */
    char quote;
    char escape; /* x, u, U: of what kind */
    uint8_t hex_left;
    uint32_t code;
    char word[PY_SCAN_WORD_BYTES];
    uint8_t word_len;
    uint8_t n_names;
    uint64_t names[PY_SCAN_NAMES_MAX]; /* a hash of each: none may come twice */
    bool certain; /* a name and "=" were there, or the arguments are over: this is a call */
};

void py_scan_start(struct py_scan *s); /* behind the "(" */
/* Appends to json; on PY_SCAN_BAD what it has of it is half a text. */
enum py_scan_step py_scan_byte(struct py_scan *s, unsigned char c, struct buf *json);

#endif
