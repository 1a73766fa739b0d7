/* conf_ranges: holds configuration tables against the reference's ranges
 * (tests/data/conf/ranges.tsv, facts of cluster-api 11): every key has a row, both sides of each
 * bound, every word, the default. Where a table differs, the file says how and why. Include after
 * cmocka.h. */
#ifndef BATON_TESTS_CONF_RANGES_H
#define BATON_TESTS_CONF_RANGES_H

#include "tests/unit/conf_table.h"

#define CR_FILE "tests/data/conf/ranges.tsv"
enum { CR_COLUMNS = 6, CR_LINE_BYTES = 512 };

/* One line: the columns, "" where the line ends early. */
struct cr_fact {
    const char *chapter, *key, *type, *range, *def, *differs;
};

struct cr_tables {
    struct conf_table settings, checked;
    const char *chapters; /* "11.2 11.3" */
};

static const struct conf_key *cr_find(const struct conf_table *t, const char *path) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->keys[i].path, path) == 0) return &t->keys[i];
    return NULL;
}

/* The value behind "min=" and the like; NULL: it does not differ there. */
static const char *cr_differs(const struct cr_fact *f, const char *what, char out[CR_LINE_BYTES]) {
    size_t n = strlen(what);
    if (strncmp(f->differs, what, n) != 0 || f->differs[n] != '=') return NULL;
    const char *why = strchr(f->differs, ';');
    if (why == NULL || why[1] == '\0') fail_msg("%s differs without a reason", f->key);
    snprintf(out, CR_LINE_BYTES, "%.*s", (int)(why - f->differs - (int)n - 1), f->differs + n + 1);
    return out;
}

static void cr_expect(const struct conf_table *t, void *dst, const struct conf_key *k,
                      const char *value, bool taken) {
    struct errbuf eb;
    enum err e = ct_read(t, dst, k, value, &eb);
    if (e != (taken ? ERR_OK : ERR_BAD_CONFIG))
        fail_msg("%s = %s: %s", k->path, value, e == ERR_OK ? "is taken" : eb.text);
    if (!taken && strncmp(eb.text, k->path, strlen(k->path)) != 0)
        fail_msg("%s = %s: the text names another key: %s", k->path, value, eb.text);
}

/* One end of "lo..hi": the bound is taken, one step beyond is not. */
static void cr_bound(const struct conf_table *t, void *dst, const struct conf_key *k,
                     const char *bound, double step) {
    char value[64];
    if (bound[0] == '\0') return;
    double v = strtod(bound, NULL);
    cr_expect(t, dst, k, bound, true);
    snprintf(value, sizeof(value), "%.10g", v + step);
    cr_expect(t, dst, k, value, false);
    snprintf(value, sizeof(value), "\"%.10g\"", v + step);
    cr_expect(t, dst, k, value, false);
}

static void cr_number(const struct conf_table *t, void *dst, const struct conf_key *k,
                      const struct cr_fact *f) {
    char lo[CR_LINE_BYTES], hi[CR_LINE_BYTES], other[CR_LINE_BYTES];
    double step = strcmp(f->type, "int") == 0 ? 1 : 0.001;
    const char *dots = strstr(f->range, "..");
    assert_non_null(dots);
    snprintf(lo, sizeof(lo), "%.*s", (int)(dots - f->range), f->range);
    snprintf(hi, sizeof(hi), "%s", dots + 2);
    if (cr_differs(f, "min", other) != NULL) strcpy(lo, other);
    if (cr_differs(f, "max", other) != NULL) strcpy(hi, other);
    cr_bound(t, dst, k, lo, -step);
    cr_bound(t, dst, k, hi, step);
    cr_expect(t, dst, k, "true", false);
}

static void cr_words(const struct conf_table *t, void *dst, const struct conf_key *k,
                     const struct cr_fact *f) {
    char refused[CR_LINE_BYTES], value[CR_LINE_BYTES];
    if (cr_differs(f, "refused", refused) == NULL) refused[0] = '\0';
    for (const char *w = f->range; *w != '\0';) {
        size_t n = strcspn(w, "|");
        snprintf(value, sizeof(value), "\"%.*s\"", (int)n, w);
        cr_expect(t, dst, k, value, strlen(refused) != n || strncmp(refused, w, n) != 0);
        snprintf(value, sizeof(value), "\"%.*s.0\"", (int)n, w);
        cr_expect(t, dst, k, value, false);
        w += n + (w[n] == '|');
    }
    cr_expect(t, dst, k, "\"ABC\"", false);
}

static void cr_characters(const struct conf_table *t, void *dst, const struct conf_key *k,
                          const struct cr_fact *f) {
    char value[CR_LINE_BYTES];
    int max = atoi(strstr(f->range, "..") + 2);
    for (int n = max; n <= max + 1; n++) {
        snprintf(value, sizeof(value), "\"%0*d\"", n, 0);
        for (char *c = value + 1; *c == '0'; c++) *c = 'a';
        cr_expect(t, dst, k, value, n == max);
    }
    cr_expect(t, dst, k, "\"\"", false);
    cr_expect(t, dst, k, "\"a b\"", false);
    if (strcmp(f->type, "lower") == 0) cr_expect(t, dst, k, "\"ABC\"", false);
}

static void cr_list(const struct conf_table *t, void *dst, const struct conf_key *k,
                    const struct cr_fact *f) {
    char value[CR_LINE_BYTES] = "[\"a\"";
    for (int n = 1; n <= atoi(f->range) + 1; n++) {
        strcat(value, "]");
        cr_expect(t, dst, k, value, n <= atoi(f->range));
        strcpy(value + strlen(value) - 1, ",\"a\"");
    }
}

static void cr_fact(const struct conf_table *t, void *dst, const struct conf_key *k,
                    const struct cr_fact *f) {
    char def[CR_LINE_BYTES];
    if (strcmp(f->type, "int") == 0 || strcmp(f->type, "num") == 0) {
        cr_number(t, dst, k, f);
    } else if (strcmp(f->type, "word") == 0) {
        cr_words(t, dst, k, f);
    } else if (strcmp(f->type, "lower") == 0 || strcmp(f->type, "name") == 0) {
        cr_characters(t, dst, k, f);
    } else if (strcmp(f->type, "list") == 0) {
        cr_list(t, dst, k, f);
    } else if (strcmp(f->type, "bool") == 0) {
        cr_expect(t, dst, k, "false", true);
        cr_expect(t, dst, k, "1", false);
    } else if (strcmp(f->type, "ip") == 0) {
        cr_expect(t, dst, k, "\"127.0.0.1\"", true);
        cr_expect(t, dst, k, "\"here\"", false);
    } else {
        assert_string_equal(f->type, "text");
        cr_expect(t, dst, k, "\"any\"", true);
        cr_expect(t, dst, k, "5", false);
    }
    const char *want = cr_differs(f, "default", def);
    if (want == NULL) want = f->def;
    if (strcmp(want, "-") != 0 && strcmp(k->def, want) != 0)
        fail_msg("%s: the default is \"%s\", not \"%s\"", k->path, k->def, want);
}

/* Splits a line at its tabs, in place. */
static struct cr_fact cr_split(char *line) {
    const char *column[CR_COLUMNS] = {"", "", "", "", "", ""};
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < CR_COLUMNS && line != NULL; i++) {
        column[i] = line;
        line = strchr(line, '\t');
        if (line != NULL) *line++ = '\0';
    }
    return (struct cr_fact){column[0], column[1], column[2], column[3], column[4], column[5]};
}

/* Tries every fact of these chapters; at least `least` of them, and every checked key among them.
 */
static void cr_tables(const struct cr_tables *tables, size_t least) {
    char line[CR_LINE_BYTES];
    size_t n = 0, n_checked = 0;
    size_t bytes = tables->settings.struct_bytes > tables->checked.struct_bytes
                       ? tables->settings.struct_bytes
                       : tables->checked.struct_bytes;
    void *dst = malloc(bytes);
    FILE *file = fopen(CR_FILE, "r");
    if (file == NULL) fail_msg("%s: run from the repository's root", CR_FILE);
    while (fgets(line, sizeof(line), file) != NULL) {
        struct cr_fact f = cr_split(line);
        if (line[0] == '#' || strstr(tables->chapters, f.chapter) == NULL) continue;
        const struct conf_table *t = &tables->settings;
        const struct conf_key *k = cr_find(t, f.key);
        if (k == NULL) {
            t = &tables->checked;
            k = cr_find(t, f.key);
            n_checked++;
        }
        if (k == NULL) fail_msg("%s has no row", f.key);
        cr_fact(t, dst, k, &f);
        n++;
    }
    fclose(file);
    free(dst);
    assert_true(n >= least);
    assert_int_equal(n_checked, tables->checked.n);
}

#endif
