#include "tools/load/load_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUANTILE(name, hist, q)                                                                    \
    static double name(const struct load_result *r) {                                              \
        return load_hist_quantile(&r->hist, q) / 1000;                                             \
    }
QUANTILE(ttft_p50, ttft, 0.5)
QUANTILE(ttft_p90, ttft, 0.9)
QUANTILE(ttft_p99, ttft, 0.99)
QUANTILE(gap_p50, gap, 0.5)
QUANTILE(gap_p90, gap, 0.9)
QUANTILE(gap_p99, gap, 0.99)
QUANTILE(mean_gap_p50, mean_gap, 0.5)
QUANTILE(mean_gap_p99, mean_gap, 0.99)
QUANTILE(whole_p50, whole, 0.5)
QUANTILE(whole_p99, whole, 0.99)
QUANTILE(calm_p50, gap_calm, 0.5)
QUANTILE(calm_p99, gap_calm, 0.99)
QUANTILE(beside_p50, gap_beside, 0.5)
QUANTILE(beside_p99, gap_beside, 0.99)
QUANTILE(long_p50, long_ttft, 0.5)

static double gap_most(const struct load_result *r) {
    return r->gap.max_us / 1000;
}
static double n_failed(const struct load_result *r) {
    return (double)(r->n_failed + r->n_held);
}
static double answers_s(const struct load_result *r) {
    return load_result_rate(r, (double)r->ttft.n);
}
static double good_s(const struct load_result *r) {
    return load_result_rate(r, (double)r->n_good);
}
static double good_share(const struct load_result *r) {
    return r->n_ended == 0 ? 0 : (double)r->n_good / (double)r->n_ended;
}
static double out_s(const struct load_result *r) {
    return load_result_rate(r, (double)r->out_tokens);
}
static double in_s(const struct load_result *r) {
    return load_result_rate(r, (double)r->in_tokens);
}

const struct load_figure load_figures[] = {
    {"ttft_p50_ms", "first token, median", "ms", .of = ttft_p50},
    {"ttft_p90_ms", "first token, p90", "ms", .of = ttft_p90},
    {"ttft_p99_ms", "first token, p99", "ms", .of = ttft_p99},
    {"gap_p50_ms", "gap between events, median", "ms", .of = gap_p50},
    {"gap_p90_ms", "gap between events, p90", "ms", .of = gap_p90},
    {"gap_p99_ms", "gap between events, p99", "ms", .of = gap_p99},
    {"gap_max_ms", "gap between events, longest", "ms", .of = gap_most},
    {"token_p50_ms", "time per token of an answer, median", "ms", .of = mean_gap_p50},
    {"token_p99_ms", "time per token of an answer, p99", "ms", .of = mean_gap_p99},
    {"answer_p50_ms", "whole answer, median", "ms", .of = whole_p50},
    {"answer_p99_ms", "whole answer, p99", "ms", .of = whole_p99},
    {"output_tokens_s", "tokens of answers", "/s", .more_is_better = true, .of = out_s},
    {"input_tokens_s", "tokens of prompts", "/s", .more_is_better = true, .of = in_s},
    {"answers_s", "answers", "/s", .more_is_better = true, .of = answers_s},
    {"goodput_s", "answers within the goals", "/s", .more_is_better = true, .with_goals = true,
     .of = good_s},
    {"good_share", "share within the goals", "", .more_is_better = true, .with_goals = true,
     .of = good_share},
    {"calm_gap_p50_ms", "gap without a long prompt, median", "ms", .with_long = true,
     .of = calm_p50},
    {"calm_gap_p99_ms", "gap without a long prompt, p99", "ms", .with_long = true, .of = calm_p99},
    {"beside_gap_p50_ms", "gap beside a long prompt, median", "ms", .with_long = true,
     .of = beside_p50},
    {"beside_gap_p99_ms", "gap beside a long prompt, p99", "ms", .with_long = true,
     .of = beside_p99},
    {"long_ttft_p50_ms", "the long prompt itself, median", "ms", .with_long = true, .of = long_p50},
    {"failed", "failed or not sent", "", .of = n_failed},
    {0},
};

bool load_figure_shown(const struct load_figure *f, const struct load_plan *plan) {
    return (!f->with_goals || plan->ttft_goal_ms > 0 || plan->gap_goal_ms > 0) &&
           (!f->with_long || plan->long_tokens > 0);
}

/* ---- of several rounds */

static int cmp_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(double *v, size_t n) {
    qsort(v, n, sizeof(*v), cmp_double);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double load_figure_median(const struct load_figure *f, const struct load_side *s) {
    double v[LOAD_ROUNDS_MAX] = {0};
    for (size_t i = 0; i < s->n_rounds; i++) v[i] = f->of(&s->rounds[i]);
    return median_of(v, s->n_rounds);
}

bool load_ratio(struct load_ratio *out, const struct load_figure *f, const struct load_side *first,
                const struct load_side *second) {
    double v[LOAD_ROUNDS_MAX] = {0};
    for (size_t i = 0; i < first->n_rounds; i++) {
        const double base = f->of(&first->rounds[i]);
        if (!(base > 0)) return false;
        v[i] = f->of(&second->rounds[i]) / base;
    }
    out->median = median_of(v, first->n_rounds); /* sorts */
    out->least = v[0];
    out->most = v[first->n_rounds - 1];
    return true;
}

/* ---- text */

static void put_number(char *dst, size_t n, double v) {
    snprintf(dst, n, v == 0 ? "0" : v >= 1000 ? "%.0f" : v >= 10 ? "%.1f" : "%.3g", v);
}

/* Which one is better is said when every round says it. */
static const char *verdict(const struct load_figure *f, const struct load_ratio *q) {
    if (f->of == n_failed || (q->least <= 1 && q->most >= 1)) return "";
    return (q->least > 1) == f->more_is_better ? " B is better" : " A is better";
}

void load_report_text(FILE *to, const struct load_report *r) {
    char number[32];
    fprintf(to, "%s\n", r->workload);
    for (size_t s = 0; s < r->n_sides; s++) {
        uint64_t sent = 0, tokens = 0, ended = 0;
        for (size_t i = 0; i < r->sides[s].n_rounds; i++) {
            const struct load_result *x = &r->sides[s].rounds[i];
            sent += x->n_sent;
            ended += x->ttft.n;
            tokens += x->in_tokens;
        }
        fprintf(to, "%c: %s, model %s, %llu requests, prompts of %.0f tokens in the mean%s\n",
                (char)('A' + s), r->sides[s].target->base, r->sides[s].target->model,
                (unsigned long long)sent, ended == 0 ? 0 : (double)tokens / (double)ended,
                r->sides[s].target->measured ? "" : " (a guess: the server tells no usage)");
    }
    fprintf(to, "%-38s %12s%s\n", "", "A",
            r->n_sides > 1 ? "            B    B over A (spread)" : "");
    for (const struct load_figure *f = load_figures; f->name != NULL; f++) {
        if (!load_figure_shown(f, r->plan)) continue;
        char label[64];
        snprintf(label, sizeof(label), "%s%s%s", f->label, f->unit[0] != 0 ? ", " : "", f->unit);
        put_number(number, sizeof(number), load_figure_median(f, &r->sides[0]));
        fprintf(to, "%-38s %12s", label, number);
        if (r->n_sides > 1) {
            struct load_ratio q;
            put_number(number, sizeof(number), load_figure_median(f, &r->sides[1]));
            fprintf(to, " %12s", number);
            if (load_ratio(&q, f, &r->sides[0], &r->sides[1]))
                fprintf(to, "    %.2f (%.2f to %.2f)%s", q.median, q.least, q.most, verdict(f, &q));
        }
        fputc('\n', to);
    }
    for (size_t s = 0; s < r->n_sides; s++) {
        for (size_t i = 0; i < r->sides[s].n_rounds; i++) {
            const struct load_result *x = &r->sides[s].rounds[i];
            if (x->first_failure[0] != 0)
                fprintf(to, "%c, round %zu: the first failure: %s\n", (char)('A' + s), i + 1,
                        x->first_failure);
            if (x->late_us > 100000)
                fprintf(to,
                        "%c, round %zu: requests were sent up to %.0f ms late: this program had "
                        "too little processor time\n",
                        (char)('A' + s), i + 1, x->late_us / 1000);
        }
    }
}

/* ---- JSON */

static void put_hist(struct buf *out, const struct load_hist *h) {
    static const double qs[] = {0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
    buf_printf(out, "{\"n\":%llu,\"mean_us\":", (unsigned long long)h->n);
    buf_json_double(out, load_hist_mean(h));
    buf_puts(out, ",\"quantiles_us\":{");
    for (size_t i = 0; i < sizeof(qs) / sizeof(qs[0]); i++) {
        buf_printf(out, "%s\"%g\":", i > 0 ? "," : "", qs[i]);
        buf_json_double(out, load_hist_quantile(h, qs[i]));
    }
    buf_puts(out, "}}");
}

static void put_result(struct buf *out, const struct load_result *x, const struct load_plan *plan) {
    buf_printf(out,
               "{\"seconds\":%.3f,\"sent\":%llu,\"ended\":%llu,\"failed\":%llu,\"held\":%llu,"
               "\"good\":%llu,\"input_tokens\":%llu,\"output_tokens\":%llu,\"late_us\":%.0f,"
               "\"figures\":{",
               x->seconds, (unsigned long long)x->n_sent, (unsigned long long)x->n_ended,
               (unsigned long long)x->n_failed, (unsigned long long)x->n_held,
               (unsigned long long)x->n_good, (unsigned long long)x->in_tokens,
               (unsigned long long)x->out_tokens, x->late_us);
    const char *comma = "";
    for (const struct load_figure *f = load_figures; f->name != NULL; f++) {
        if (!load_figure_shown(f, plan)) continue;
        buf_printf(out, "%s\"%s\":", comma, f->name);
        buf_json_double(out, f->of(x));
        comma = ",";
    }
    buf_puts(out, "},\"ttft\":");
    put_hist(out, &x->ttft);
    buf_puts(out, ",\"gap\":");
    put_hist(out, &x->gap);
    if (plan->long_tokens > 0) {
        buf_puts(out, ",\"long_ttft\":");
        put_hist(out, &x->long_ttft);
    }
    buf_puts(out, ",\"tokens_in_second\":[");
    for (uint32_t i = 0; i < x->n_seconds; i++)
        buf_printf(out, "%s%u", i > 0 ? "," : "", x->tokens_in_second[i]);
    buf_puts(out, "],\"first_failure\":");
    buf_json_str(out, x->first_failure, strlen(x->first_failure));
    buf_putc(out, '}');
}

void load_report_json(struct buf *out, const struct load_report *r) {
    buf_puts(out, "{\"workload\":");
    buf_json_str(out, r->workload, strlen(r->workload));
    buf_puts(out, ",\"targets\":[");
    for (size_t s = 0; s < r->n_sides; s++) {
        const struct load_target *t = r->sides[s].target;
        buf_puts(out, s > 0 ? ",{\"url\":" : "{\"url\":");
        buf_json_str(out, t->base, strlen(t->base));
        buf_puts(out, ",\"model\":");
        buf_json_str(out, t->model, strlen(t->model));
        buf_printf(out, ",\"usage_told\":%s,\"rounds\":[", t->measured ? "true" : "false");
        for (size_t i = 0; i < r->sides[s].n_rounds; i++) {
            if (i > 0) buf_putc(out, ',');
            put_result(out, &r->sides[s].rounds[i], r->plan);
        }
        buf_puts(out, "]}");
    }
    buf_puts(out, "],\"ratios\":{");
    const char *comma = "";
    for (const struct load_figure *f = load_figures; r->n_sides > 1 && f->name != NULL; f++) {
        struct load_ratio q;
        if (!load_figure_shown(f, r->plan) || !load_ratio(&q, f, &r->sides[0], &r->sides[1]))
            continue;
        buf_printf(out, "%s\"%s\":{\"median\":", comma, f->name);
        buf_json_double(out, q.median);
        buf_puts(out, ",\"least\":");
        buf_json_double(out, q.least);
        buf_puts(out, ",\"most\":");
        buf_json_double(out, q.most);
        buf_putc(out, '}');
        comma = ",";
    }
    buf_puts(out, "}}\n");
}
