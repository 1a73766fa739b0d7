/* near_text: see near_text.h. */
#include "common/base/near_text.h"

#include <ctype.h>

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t near_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t row[3][NEAR_TEXT_BYTES_MAX + 1];
    if (n_a > NEAR_TEXT_BYTES_MAX) n_a = NEAR_TEXT_BYTES_MAX;
    if (n_b > NEAR_TEXT_BYTES_MAX) n_b = NEAR_TEXT_BYTES_MAX;
    size_t *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= n_b; j++) last[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *turn = before;
        before = last;
        last = now;
        now = turn;
    }
    return last[n_b];
}
