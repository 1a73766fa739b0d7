/* emitted: generated tokens as an instance reports them to its coordinator: with the piece of the
 * answer in which their events go out, never before (docs/wire-replay.md). Pure.
 *
 * Text: items separated by commas, each [choice ":"] id ["!" finish]. choice: decimal, 0 when
 * absent, counted over all prompts of the request (part * sampling.n_choices + choice); finish: the
 * number of enum finish, when the choice ended with this token. "320,1:41,0:7!4". */
#ifndef BATON_PROTO_EMITTED_H
#define BATON_PROTO_EMITTED_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/infer_msg.h"

struct emitted {
    int32_t id;
    uint16_t choice; /* < SEQUENCES_MAX */
    uint8_t finish;  /* enum finish */
};

/* Of one item, its separator or end included: "1023:2147483647!6,". */
enum { EMITTED_BYTES_MAX = 19 };

/* Writes one item, terminated, without a separator; returns its length. */
size_t emitted_format(char out[EMITTED_BYTES_MAX], const struct emitted *e);
/* Reads the item at s[*at..n) and moves *at behind it and its comma. ERR_BAD_FRAME: no item there,
 * a number out of range, or a comma at the end. */
enum err emitted_parse(const char *s, size_t n, size_t *at, struct emitted *out);

#endif
