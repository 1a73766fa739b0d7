/* ep_rows: the generation parameters as data (inference-api 4.2, 4.3): one row per parameter with
 * its type, its range in each family, its error text and what /docs says of it; and the order in
 * which each family reads them. No code: the reader (ep_fields.c) and the program that writes
 * openapi.json (tools/openapi_gen.c) walk the same rows, so a bound is written down once. */
#ifndef BATON_ENDPOINT_EP_ROWS_H
#define BATON_ENDPOINT_EP_ROWS_H

#include "common/endpoint/ep_fields.h"

enum ep_type {
    T_F32,
    T_I32,
    T_I64,
    T_U64, /* with a range below 0: negative integers too, as two's complement */
    T_BOOL,
    T_CHECK, /* a function of ep_fields.c reads it; `schema` says what it takes */
};

enum {
    R_ON = 1,
    R_LO_OPEN = 2,
    R_HI_OPEN = 4,
    R_OR_MINUS_1 = 8,  /* -1 as well, "off" */
    R_CONFIGURED = 16, /* keys of the server's configuration can lower hi */
};

struct ep_range {
    double lo, hi;
    unsigned how; /* 0: no range */
};

struct ep_row {
    const char *key; /* NULL: the check function looks for its members itself */
    enum ep_type type;
    size_t at; /* in struct ep_params */
    /* Outside the range; {hi}: the range's upper end, {got}: the client's literal. */
    const char *text;
    const char *type_text; /* NULL: "<key> must be <type> type." */
    struct ep_range range[FAM_COUNT];
    const char *help; /* one sentence for /docs */
    const char *def;  /* JSON of the default where it is the same for all; NULL: none */
    /* T_CHECK: JSON schema of the value, {hi} being the range's upper end. */
    const char *schema;
    /* In OpenAI's manner, for chat and completions: what stands in place of the above. */
    struct ep_range openai;
    const char *openai_text, *openai_type_text;
    /* Read where ep_rows_as_openai() is true; elsewhere ignored, whatever it is, as the reference
     * does. */
    bool openai_only;
};

extern const struct ep_row ep_rows[P_COUNT];
/* enum ep_param, each list ends with P_END: what is checked in its turn, and what is read before,
 * because the prompt's tokens depend on it (NULL: nothing). */
extern const uint8_t *const ep_orders[FAM_COUNT];
extern const uint8_t *const ep_early[FAM_COUNT];

/* Whether a family reads as OpenAI's manner has it: chat and completions where they are in that
 * manner, and all that the reference does not have. */
bool ep_rows_as_openai(enum fam fam, bool openai_manner);

/* The range of a parameter: how 0 when there is none. */
const struct ep_range *ep_row_range(const struct ep_row *row, enum fam fam, bool openai_manner);

#endif
