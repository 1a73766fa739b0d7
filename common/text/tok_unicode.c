/* tok_unicode: the table, and the names that select rows of it. */
#include "common/text/tok_unicode.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* Ascending and disjoint. Names are written as plain() leaves them. */
static const struct row {
    uint32_t from, to;
    const char *category; /* "": had it before */
    const char *script, *script_short;
    /* A: Alphabetic, L: Lowercase, I: Ideographic and Unified_Ideograph, E: Emoji and
     * Emoji_Presentation */
    const char *more;
} rows[] = {
    {0x00C04, 0x00C04, "", "", "", "A"},
    {0x00CF3, 0x00CF3, "mc", "kannada", "knda", "A"},
    {0x00ECE, 0x00ECE, "mn", "lao", "laoo", ""},
    {0x00F82, 0x00F83, "", "", "", "A"},
    {0x010FC, 0x010FC, "", "", "", "L"},
    {0x0A7F2, 0x0A7F4, "", "", "", "L"},
    {0x0AB69, 0x0AB69, "", "", "", "L"},
    {0x10EFD, 0x10EFF, "mn", "arabic", "arab", ""},
    {0x11080, 0x11081, "", "", "", "A"},
    {0x1123F, 0x11240, "lo", "khojki", "khoj", "A"},
    {0x11241, 0x11241, "mn", "khojki", "khoj", "A"},
    {0x11B00, 0x11B09, "po", "devanagari", "deva", ""},
    {0x11F00, 0x11F01, "mn", "kawi", "kawi", "A"},
    {0x11F02, 0x11F02, "lo", "kawi", "kawi", "A"},
    {0x11F03, 0x11F03, "mc", "kawi", "kawi", "A"},
    {0x11F04, 0x11F10, "lo", "kawi", "kawi", "A"},
    {0x11F12, 0x11F33, "lo", "kawi", "kawi", "A"},
    {0x11F34, 0x11F35, "mc", "kawi", "kawi", "A"},
    {0x11F36, 0x11F3A, "mn", "kawi", "kawi", "A"},
    {0x11F3E, 0x11F3F, "mc", "kawi", "kawi", "A"},
    {0x11F40, 0x11F40, "mn", "kawi", "kawi", "A"},
    {0x11F41, 0x11F41, "mc", "kawi", "kawi", ""},
    {0x11F42, 0x11F42, "mn", "kawi", "kawi", ""},
    {0x11F43, 0x11F4F, "po", "kawi", "kawi", ""},
    {0x11F50, 0x11F59, "nd", "kawi", "kawi", ""},
    {0x1342F, 0x1342F, "lo", "egyptianhieroglyphs", "egyp", "A"},
    {0x13439, 0x1343F, "cf", "egyptianhieroglyphs", "egyp", ""},
    {0x13440, 0x13440, "mn", "egyptianhieroglyphs", "egyp", ""},
    {0x13441, 0x13446, "lo", "egyptianhieroglyphs", "egyp", "A"},
    {0x13447, 0x13455, "mn", "egyptianhieroglyphs", "egyp", ""},
    {0x1B132, 0x1B132, "lo", "hiragana", "hira", "A"},
    {0x1B155, 0x1B155, "lo", "katakana", "kana", "A"},
    {0x1D2C0, 0x1D2D3, "no", "common", "zyyy", ""},
    {0x1DF25, 0x1DF2A, "ll", "latin", "latn", "AL"},
    {0x1E030, 0x1E06D, "lm", "cyrillic", "cyrl", "AL"},
    {0x1E08F, 0x1E08F, "mn", "cyrillic", "cyrl", "A"},
    {0x1E4D0, 0x1E4EA, "lo", "nagmundari", "nagm", "A"},
    {0x1E4EB, 0x1E4EB, "lm", "nagmundari", "nagm", "A"},
    {0x1E4EC, 0x1E4EF, "mn", "nagmundari", "nagm", ""},
    {0x1E4F0, 0x1E4F9, "nd", "nagmundari", "nagm", ""},
    {0x1F6DC, 0x1F6DC, "so", "common", "zyyy", "E"},
    {0x1F774, 0x1F776, "so", "common", "zyyy", ""},
    {0x1F77B, 0x1F77F, "so", "common", "zyyy", ""},
    {0x1F7D9, 0x1F7D9, "so", "common", "zyyy", ""},
    {0x1FA75, 0x1FA77, "so", "common", "zyyy", "E"},
    {0x1FA87, 0x1FA88, "so", "common", "zyyy", "E"},
    {0x1FAAD, 0x1FAAF, "so", "common", "zyyy", "E"},
    {0x1FABB, 0x1FABD, "so", "common", "zyyy", "E"},
    {0x1FABF, 0x1FABF, "so", "common", "zyyy", "E"},
    {0x1FACE, 0x1FACF, "so", "common", "zyyy", "E"},
    {0x1FADA, 0x1FADB, "so", "common", "zyyy", "E"},
    {0x1FAE8, 0x1FAE8, "so", "common", "zyyy", "E"},
    {0x1FAF7, 0x1FAF8, "so", "common", "zyyy", "E"},
    {0x2B739, 0x2B739, "lo", "han", "hani", "AI"},
    {0x31350, 0x323AF, "lo", "han", "hani", "AI"},
};

static const struct {
    const char *name;
    char more;
} binary[] = {
    {"alphabetic", 'A'},
    {"alpha", 'A'},
    {"lowercase", 'L'},
    {"lower", 'L'},
    {"ideographic", 'I'},
    {"ideo", 'I'},
    {"unifiedideograph", 'I'},
    {"uideo", 'I'},
    {"emoji", 'E'},
    {"emojipresentation", 'E'},
    {"epres", 'E'},
};

enum { NAME_MAX_BYTES = 48 };

/* The name as names are compared; "" for one that is too long. */
static void plain(char out[NAME_MAX_BYTES], const char *name, size_t n) {
    size_t len = 0;
    for (size_t i = 0; i < n && len < NAME_MAX_BYTES; i++) {
        if (strchr(" _-", name[i]) == NULL) out[len++] = (char)tolower((unsigned char)name[i]);
    }
    out[len < NAME_MAX_BYTES ? len : 0] = '\0';
}

static bool in_category(const char *category, const char *name) {
    if (category[0] == '\0') return false;
    if (strcmp(name, "cn") == 0) return true; /* all of them left it */
    if (strcmp(name, "c") == 0) return category[0] != 'c';
    if (strcmp(name, "l&") == 0 || strcmp(name, "lc") == 0)
        return category[0] == 'l' && strchr("ult", category[1]) != NULL;
    return name[0] == category[0] && (name[1] == '\0' || strcmp(name, category) == 0);
}

static bool in_property(const struct row *r, const char *name) {
    if (name[0] == '\0') return false;
    if (in_category(r->category, name)) return true;
    if (strcmp(name, r->script) == 0 || strcmp(name, r->script_short) == 0) return true;
    for (size_t i = 0; i < sizeof binary / sizeof binary[0]; i++) {
        if (strcmp(name, binary[i].name) == 0) return strchr(r->more, binary[i].more) != NULL;
    }
    return false;
}

static bool in_any(const struct row *r, const char *props, size_t n) {
    for (size_t i = 0; i <= n;) {
        const char *semicolon = memchr(props + i, ';', n - i);
        size_t len = semicolon != NULL ? (size_t)(semicolon - props) - i : n - i;
        char name[NAME_MAX_BYTES];
        plain(name, props + i, len);
        if (in_property(r, name)) return true;
        i += len + 1;
    }
    return false;
}

bool tok_unicode_added(struct buf *out, const char *props, size_t n) {
    const size_t n_rows = sizeof rows / sizeof rows[0];
    bool any = false;
    for (size_t i = 0; i < n_rows; i++) {
        size_t last = i;
        if (!in_any(&rows[i], props, n)) continue;
        while (last + 1 < n_rows && rows[last + 1].from == rows[last].to + 1 &&
               in_any(&rows[last + 1], props, n)) {
            last++;
        }
        /* one character is a range too, or a hyphen behind it would make one */
        buf_printf(out, "\\x{%X}-\\x{%X}", (unsigned)rows[i].from, (unsigned)rows[last].to);
        any = true;
        i = last;
    }
    return any;
}

bool tok_unicode_shrinks(const char *prop, size_t n) {
    char name[NAME_MAX_BYTES];
    plain(name, prop, n);
    return strcmp(name, "c") == 0 || strcmp(name, "cn") == 0;
}
