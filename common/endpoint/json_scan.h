/* json_scan: follows one JSON value (RFC 8259) byte by byte, without building it: for text that
 * arrives in pieces and goes on as it is. Pure; bytes of a character are taken for granted, the
 * text is UTF-8 already. */
#ifndef BATON_ENDPOINT_JSON_SCAN_H
#define BATON_ENDPOINT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 128 }; /* containers inside each other; deeper is JSON_SCAN_BAD */

enum json_scan_step {
    JSON_SCAN_MORE,  /* the byte belongs to the value, which goes on */
    JSON_SCAN_DONE,  /* the byte is the value's last */
    JSON_SCAN_AFTER, /* the value (a number) ended before this byte */
    JSON_SCAN_BAD,   /* no JSON has this byte here */
};

struct json_scan {
    uint8_t state, hex_left, depth;
    bool key;                                   /* the string under way is a member's name */
    const char *word;                           /* rest of true, false or null */
    uint8_t is_object[JSON_SCAN_DEPTH_MAX / 8]; /* a bit for each open container */
};

void json_scan_start(struct json_scan *s); /* before the value's first byte */
enum json_scan_step json_scan_byte(struct json_scan *s, unsigned char c);

#endif
