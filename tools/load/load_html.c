/* load_html: a page of a report: the figures as a table, shares and rates as SVG. */
#include <math.h>
#include <string.h>
#include "tools/load/load_report.h"

enum { W = 640, H = 240, LEFT = 48, BOTTOM = 36, TOP = 12, RIGHT = 12 };

static const char HEAD[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
    "<title>baton-bench</title><style>"
    ":root{color-scheme:light "
    "dark;--ink:#1c1f24;--soft:#69707d;--line:#dfe3ea;--paper:#fff;--a:#2458c9;--b:#c2571a}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e8eaee;--soft:#9aa3b2;--line:#333a45;--paper:#"
    "16191e;--a:#7ba7ff;--b:#ffa46b}}"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:720px;margin:2.5rem "
    "auto;padding:0 1rem}"
    "h1{font-size:1.4rem;margin:0 0 .3rem}h2{font-size:1rem;margin:2rem 0 "
    ".5rem}p{color:var(--soft);margin:.2rem 0}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:.28rem .5rem;border-bottom:1px solid "
    "var(--line);font-weight:400}"
    "th:first-child{text-align:left;color:var(--soft)}thead th{color:var(--soft)}"
    "svg{width:100%;height:auto;display:block}svg text{font:11px "
    "system-ui,sans-serif;fill:var(--soft)}"
    ".grid{stroke:var(--line)}.A{stroke:var(--a);fill:none;stroke-width:2}.B{stroke:var(--b);fill:"
    "none;stroke-width:2}"
    ".key b{display:inline-block;width:1.2em;height:3px;vertical-align:middle;margin-right:.4em}"
    ".key .A{background:var(--a)}.key .B{background:var(--b)}"
    "</style></head><body><h1>baton-bench</h1>";

static void put_escaped(struct buf *out, const char *s) {
    for (; *s != 0; s++) {
        switch (*s) {
        case '&': buf_puts(out, "&amp;"); break;
        case '<': buf_puts(out, "&lt;"); break;
        case '>': buf_puts(out, "&gt;"); break;
        case '"': buf_puts(out, "&quot;"); break;
        default: buf_putc(out, *s);
        }
    }
}

static void open_plot(struct buf *out, const char *title) {
    buf_printf(out, "<h2>%s</h2><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">", title,
               W, H, title);
}

static double x_of(double share) {
    return LEFT + share * (W - LEFT - RIGHT);
}
static double y_of(double share) {
    return H - BOTTOM - share * (H - TOP - BOTTOM);
}

static void put_y_line(struct buf *out, double share, const char *text) {
    buf_printf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
               W - RIGHT, y_of(share), y_of(share));
    buf_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 6,
               y_of(share) + 4, text);
}
static void put_x_label(struct buf *out, double share, const char *text) {
    buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", x_of(share),
               H - BOTTOM + 16, text);
}

/* ---- shares of durations, over a logarithmic axis */

static void merge(struct load_hist *out, const struct load_side *s, bool gaps) {
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < s->n_rounds; i++)
        load_hist_merge(out, gaps ? &s->rounds[i].gap : &s->rounds[i].ttft);
}

static void put_shares(struct buf *out, const struct load_report *r, const char *title, bool gaps) {
    struct load_hist h[LOAD_SIDES_MAX];
    double least = INFINITY, most = 0;
    for (size_t s = 0; s < r->n_sides; s++) {
        merge(&h[s], &r->sides[s], gaps);
        if (h[s].n == 0) continue;
        least = fmin(least, load_hist_quantile(&h[s], 0.001));
        most = fmax(most, h[s].max_us);
    }
    if (!(most > 0)) return;
    const double from = floor(log10(fmax(least, 1))), to = fmax(ceil(log10(most)), from + 1);
    open_plot(out, title);
    static const char *const shares[] = {"0", "50%", "90%", "100%"};
    static const double at[] = {0, 0.5, 0.9, 1};
    for (size_t i = 0; i < 4; i++) put_y_line(out, at[i], shares[i]);
    for (double d = from; d <= to; d++) {
        char label[32];
        snprintf(label, sizeof(label), "%g ms", pow(10, d) / 1000);
        put_x_label(out, (d - from) / (to - from), label);
    }
    for (size_t s = 0; s < r->n_sides; s++) {
        buf_printf(out, "<polyline class=\"%c\" points=\"", (char)('A' + s));
        for (int i = 0; h[s].n > 0 && i <= 200; i++) {
            const double us = pow(10, from + (to - from) * i / 200);
            buf_printf(out, "%.1f,%.1f ", x_of(i / 200.0), y_of(load_hist_share(&h[s], us)));
        }
        buf_puts(out, "\"/>");
    }
    buf_puts(out, "</svg>");
}

/* ---- tokens a second over time, of the first round */

static void put_rates(struct buf *out, const struct load_report *r) {
    uint32_t seconds = 0, most = 1;
    for (size_t s = 0; s < r->n_sides; s++) {
        const struct load_result *x = &r->sides[s].rounds[0];
        if (x->n_seconds > seconds) seconds = x->n_seconds;
        for (uint32_t i = 0; i < x->n_seconds; i++)
            if (x->tokens_in_second[i] > most) most = x->tokens_in_second[i];
    }
    if (seconds < 2) return;
    open_plot(out, "Events with text in each second, first round");
    for (int i = 0; i <= 2; i++) {
        char label[32];
        snprintf(label, sizeof(label), "%.0f", most * i / 2.0);
        put_y_line(out, i / 2.0, label);
        snprintf(label, sizeof(label), "%.0f s", (seconds - 1) * i / 2.0);
        put_x_label(out, i / 2.0, label);
    }
    for (size_t s = 0; s < r->n_sides; s++) {
        const struct load_result *x = &r->sides[s].rounds[0];
        buf_printf(out, "<polyline class=\"%c\" points=\"", (char)('A' + s));
        for (uint32_t i = 0; i < x->n_seconds; i++)
            buf_printf(out, "%.1f,%.1f ", x_of((double)i / (seconds - 1)),
                       y_of((double)x->tokens_in_second[i] / most));
        buf_puts(out, "\"/>");
    }
    buf_puts(out, "</svg>");
}

/* ---- the table */

static void put_table(struct buf *out, const struct load_report *r) {
    buf_puts(out, "<h2>Medians of the rounds</h2><table><thead><tr><th></th><th>A</th>");
    if (r->n_sides > 1) buf_puts(out, "<th>B</th><th>B over A</th>");
    buf_puts(out, "</tr></thead><tbody>");
    for (const struct load_figure *f = load_figures; f->name != NULL; f++) {
        if (!load_figure_shown(f, r->plan)) continue;
        buf_printf(out, "<tr><th scope=\"row\">%s%s%s</th>", f->label, f->unit[0] != 0 ? ", " : "",
                   f->unit);
        for (size_t s = 0; s < r->n_sides; s++)
            buf_printf(out, "<td>%.4g</td>", load_figure_median(f, &r->sides[s]));
        struct load_ratio q;
        if (r->n_sides > 1 && load_ratio(&q, f, &r->sides[0], &r->sides[1]))
            buf_printf(out, "<td>%.2f (%.2f to %.2f)</td>", q.median, q.least, q.most);
        else if (r->n_sides > 1)
            buf_puts(out, "<td></td>");
        buf_puts(out, "</tr>");
    }
    buf_puts(out, "</tbody></table>");
}

void load_report_html(struct buf *out, const struct load_report *r) {
    buf_puts(out, HEAD);
    buf_puts(out, "<p>");
    put_escaped(out, r->workload);
    buf_puts(out, "</p>");
    for (size_t s = 0; s < r->n_sides; s++) {
        buf_printf(out, "<p class=\"key\"><b class=\"%c\"></b>%c: ", (char)('A' + s),
                   (char)('A' + s));
        put_escaped(out, r->sides[s].target->base);
        buf_puts(out, ", model ");
        put_escaped(out, r->sides[s].target->model);
        buf_printf(out, ", %zu round%s</p>", r->sides[s].n_rounds,
                   r->sides[s].n_rounds == 1 ? "" : "s");
    }
    put_shares(out, r, "Share of first tokens within a time", false);
    put_shares(out, r, "Share of gaps between events within a time", true);
    put_rates(out, r);
    put_table(out, r);
    buf_puts(out, "</body></html>\n");
}
