/* Goal: no bytes make the JSON reader crash, leak or contradict itself.
 * Property: a text that is taken has a literal that is taken too and has the same literal again. */
#include <stdlib.h>
#include <string.h>
#include "proto/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const exempt[] = {"tools", "g*", "m[].t", NULL};
    struct json_limits lim = {.depth_max = size % 7 + 1,
                              .exempt = exempt,
                              .depth_exempt_max = 20,
                              .unique_keys = size % 2};
    struct json_value *o = NULL, *again = NULL;
    struct errbuf eb;
    if (json_read(&o, (const char *)data, size, &lim, &eb) != ERR_OK) {
        if (o != NULL || eb.text[0] == '\0') abort();
        return 0;
    }
    size_t room = size * 6 + 16;
    char *first = malloc(room), *second = malloc(room);
    if (first == NULL || second == NULL) abort();
    size_t n = json_literal(first, room, o);
    if (json_read(&again, first, n, NULL, &eb) != ERR_OK) abort();
    if (json_literal(second, room, again) != n || memcmp(first, second, n) != 0) abort();
    free(first);
    free(second);
    json_put(again);
    json_put(o);
    return 0;
}
