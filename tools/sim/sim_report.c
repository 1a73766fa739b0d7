/* sim_report: a table for people, the same columns for scripts. */
#include "tools/sim/sim_report.h"

static double per_s(uint64_t n, double span_s) {
    return span_s > 0 ? (double)n / span_s : 0;
}

static double share(uint64_t n, uint64_t of) {
    return of > 0 ? 100.0 * (double)n / (double)of : 0;
}

void sim_report_head(FILE *to) {
    fprintf(to, "%-14s %9s %7s %9s %9s %9s %9s %9s %9s %6s %6s %8s %10s %7s %7s\n", "mode",
            "good/s", "good%", "ttft50ms", "ttft90ms", "ttft99ms", "gap50ms", "gap90ms", "gap99ms",
            "moves", "shares", "refused", "unfinished", "cached%", "fetched");
}

void sim_report_line(FILE *to, const char *name, const struct sim_result *r) {
    static const double quantiles[] = {0.5, 0.9, 0.99};
    fprintf(to, "%-14s %9.3f %7.2f", name, per_s(r->good, r->span_s), share(r->good, r->asked));
    for (int i = 0; i < 3; i++)
        fprintf(to, " %9.2f", load_hist_quantile(&r->ttft, quantiles[i]) * 1e-3);
    for (int i = 0; i < 3; i++)
        fprintf(to, " %9.2f", load_hist_quantile(&r->gaps, quantiles[i]) * 1e-3);
    fprintf(to, " %6llu %6llu %8llu %10llu %7.2f %7llu\n", (unsigned long long)r->moves,
            (unsigned long long)r->shares, (unsigned long long)r->refused,
            (unsigned long long)r->unfinished,
            r->prompt_tokens > 0 ? 100 * r->cached_tokens / r->prompt_tokens : 0,
            (unsigned long long)r->fetched);
}

void sim_report_good(FILE *to, const char *name, uint64_t good, uint64_t asked, double span_s) {
    fprintf(to, "%-14s %9.3f %7.2f\n", name, per_s(good, span_s), share(good, asked));
}
