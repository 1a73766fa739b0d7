/* guide_number: numbers within bounds, digit by digit. While the digits so far equal those of a
 * bound, the next digit is held against the bound's; as soon as they differ it no longer matters.
 * So a state is (how many digits, equal to the lower bound?, equal to the upper one?). */
#include <stdlib.h>
#include <string.h>
#include "common/guide/guide_build.h"

enum { DIGITS_MAX = 64 };

bool decimal_read(struct decimal *d, const char *text) {
    uint8_t digits[DIGITS_MAX];
    int n = 0, point = -1, first = 0;
    long exp = 0;
    d->negative = *text == '-';
    if (*text == '-') text++;
    for (; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            point = n;
        } else {
            if (n == DIGITS_MAX) return false;
            digits[n++] = (uint8_t)(*text - '0');
        }
    }
    if (point < 0) point = n;
    if (*text != '\0') exp = strtol(text + 1, NULL, 10);
    if (exp < -DIGITS_MAX || exp > DIGITS_MAX) return false;
    point += (int)exp;
    while (n > 0 && digits[n - 1] == 0 && n > point) n--;
    while (first < n && digits[first] == 0 && first < point - 1) first++;
    /* Integer digits first..point, padded with zeros; fraction point..n. */
    int n_int = point > first ? point - first : 1, at = 0;
    int n_frac = n > point ? n - point : 0;
    if (n_int + n_frac > DIGITS_MAX / 2) return false;
    for (int i = point > first ? first : point - 1; at < n_int + n_frac; i++)
        d->digit[at++] = i >= 0 && i < n && i >= first ? digits[i] : 0;
    d->n_int = n_int;
    d->n_frac = n_frac;
    while (d->n_int > 1 && d->digit[0] == 0) {
        memmove(d->digit, d->digit + 1, (size_t)(d->n_int + d->n_frac - 1));
        d->n_int--;
    }
    d->given = true;
    return true;
}

static bool is_zero(const struct decimal *d) {
    for (int i = 0; i < d->n_int + d->n_frac; i++)
        if (d->digit[i] != 0) return false;
    return true;
}

/* Digit p of a number with n_int integer digits. */
static int digit_at(const struct decimal *d, int p) {
    return p < d->n_int + d->n_frac ? d->digit[p] : 0;
}

static bool rest_is_zero(const struct decimal *d, int p) {
    for (; p < d->n_int + d->n_frac; p++)
        if (d->digit[p] != 0) return false;
    return true;
}

struct range {
    struct nfa *a;
    const struct decimal *lo, *hi;
    int n_int, n_frac_max;
    int32_t to;
};

static bool may_end(const struct range *r, int p, bool lo, bool hi) {
    if (lo && (!rest_is_zero(r->lo, p) || r->lo->exclusive)) return false;
    return !hi || !rest_is_zero(r->hi, p) || !r->hi->exclusive;
}

/* Numbers of exactly n_int integer digits between bounds that are not below zero. */
static void emit_length(struct range *r, int32_t from, bool lo0, bool hi0) {
    int n = r->n_int + r->n_frac_max;
    int32_t now[4] = {-1, -1, -1, -1}, next[4];
    now[lo0 * 2 + hi0] = from;
    for (int p = 0; p <= n; p++) {
        for (int f = 0; f < 4; f++) next[f] = -1;
        for (int f = 0; f < 4; f++) {
            bool lo = f >> 1, hi = f & 1;
            int32_t q = now[f];
            if (q < 0) continue;
            if (p >= r->n_int && may_end(r, p, lo, hi)) nfa_eps(r->a, q, r->to);
            if (p == n) continue;
            if (p == r->n_int) {
                int32_t point = nfa_state(r->a);
                nfa_range(r->a, q, '.', '.', point);
                q = point;
            }
            int least = p == 0 && r->n_int > 1 ? 1 : 0, most = 9;
            if (lo && digit_at(r->lo, p) > least) least = digit_at(r->lo, p);
            if (hi && digit_at(r->hi, p) < most) most = digit_at(r->hi, p);
            for (int d = least; d <= most; d++) {
                int g = (lo && d == digit_at(r->lo, p)) * 2 + (hi && d == digit_at(r->hi, p));
                if (next[g] < 0) next[g] = nfa_state(r->a);
                nfa_range(r->a, q, (uint32_t)('0' + d), (uint32_t)('0' + d), next[g]);
            }
        }
        memcpy(now, next, sizeof(now));
    }
}

/* lo and hi: magnitudes; hi not given: no bound but the digits. */
static void emit_magnitudes(struct nfa *a, int32_t from, int32_t to, const struct decimal *lo,
                            const struct decimal *hi, bool integer) {
    struct range r = {.a = a, .lo = lo, .hi = hi, .to = to};
    int longest = hi->given ? hi->n_int : lo->n_int > INT_DIGITS_MAX ? lo->n_int : INT_DIGITS_MAX;
    if (!integer) {
        r.n_frac_max = INT_DIGITS_MAX;
        if (lo->n_frac >= r.n_frac_max) r.n_frac_max = lo->n_frac + 1;
        if (hi->given && hi->n_frac >= r.n_frac_max) r.n_frac_max = hi->n_frac + 1;
    }
    for (r.n_int = lo->n_int; r.n_int <= longest; r.n_int++) {
        int32_t q = nfa_state(a);
        nfa_eps(a, from, q);
        emit_length(&r, q, r.n_int == lo->n_int, hi->given && r.n_int == hi->n_int);
    }
}

void number_range_emit(struct nfa *a, int32_t from, int32_t to, const struct decimal *lo,
                       const struct decimal *hi, bool integer) {
    struct decimal zero = {.given = true, .n_int = 1}, none = {0}, mag;
    bool lo_negative = !lo->given || (lo->negative && !is_zero(lo));
    bool hi_negative = hi->given && hi->negative && !is_zero(hi);
    if (!hi_negative) {
        const struct decimal *least = lo_negative ? &zero : lo;
        emit_magnitudes(a, from, to, least, hi->given ? hi : &none, integer);
    }
    if (lo_negative) {
        int32_t minus = nfa_state(a);
        nfa_range(a, from, '-', '-', minus);
        if (hi_negative || (hi->given && is_zero(hi)))
            mag = *hi;
        else
            mag = zero;
        emit_magnitudes(a, minus, to, &mag, lo->given ? lo : &none, integer);
    }
}
