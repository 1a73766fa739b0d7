/* jinja_funcs: the functions a template finds without being given any. */
#include <string.h>
#include <time.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_call.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_print.h"

static bool g_raise_exception(struct jinja_call *c) {
    struct jv s;
    if (!jinja_to_str(c->r, &c->a[0], &s)) return false;
    return jinja_fail(c->r, "%.*s", (int)(s.n < ERR_TEXT_BYTES_MAX ? s.n : ERR_TEXT_BYTES_MAX),
                      s.s);
}

/* datetime.now().strftime(format): local time without a zone of its own, so %Z and %z give nothing.
 */
static bool g_strftime_now(struct jinja_call *c) {
    char fmt[512], text[2048];
    size_t n = 0;
    struct jv f;
    struct tm tm;
    time_t t = (time_t)c->r->now_unix_s;
    if (!jinja_param_str(c, 0, NULL, &f)) return false;
    for (size_t i = 0; i < f.n; i++) {
        bool pair = f.s[i] == '%' && i + 1 < f.n;
        if (n + 10 > sizeof(fmt) || f.s[i] == '\0')
            return jinja_fail(c->r, "strftime_now: format too long");
        if (pair && (f.s[i + 1] == 'Z' || f.s[i + 1] == 'z')) {
            i++;
        } else if (pair && f.s[i + 1] == 'f') {
            memcpy(fmt + n, "000000", 6);
            n += 6;
            i++;
        } else {
            fmt[n++] = f.s[i];
            if (pair) fmt[n++] = f.s[++i];
        }
    }
    fmt[n] = '\0';
    if (localtime_r(&t, &tm) == NULL)
        return jinja_fail(c->r, "strftime_now: the time is out of range");
    n = n == 0 ? 0 : strftime(text, sizeof(text), fmt, &tm);
    return jv_str_copy(c->r, text, n, c->out);
}

static bool g_range(struct jinja_call *c) {
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (!jinja_param_int(c, i, v[i], &v[i])) return false;
    }
    if (c->a[1].type == JV_ABSENT) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0) return jinja_fail(c->r, "range() arg 3 must not be zero");
    __int128 span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1];
    __int128 step = v[2] > 0 ? v[2] : -(__int128)v[2];
    __int128 n = span > 0 ? (span + step - 1) / step : 0;
    if (n > CHAT_TEMPLATE_RANGE_MAX) {
        return jinja_fail(c->r, "range() of more than %d items", CHAT_TEMPLATE_RANGE_MAX);
    }
    struct jv_range *g = jinja_alloc(c->r, sizeof(*g));
    if (g == NULL) return false;
    *g = (struct jv_range){.start = v[0], .stop = v[1], .step = v[2], .n = (size_t)n};
    *c->out = (struct jv){.type = JV_RANGE, .range = g};
    return true;
}

/* dict(mapping or pairs, name=value, ...) and namespace(...) alike */
static bool make_dict(struct jinja_call *c, enum jv_type type) {
    struct jv_dict *d;
    struct jv_list *l, *pair;
    if (c->args->n_pos > 1)
        return jinja_fail(c->r, "%s takes at most 1 positional argument", c->name);
    if (c->args->n_pos == 1 && c->args->pos[0].type == JV_UNDEF) {
        return jinja_fail_undef(c->r, &c->args->pos[0]);
    }
    if (!jv_dict_new(c->r, &d)) return false;
    if (c->args->n_pos == 1 && c->args->pos[0].type == JV_DICT) {
        const struct jv_dict *from = c->args->pos[0].dict;
        for (size_t i = 0; i < from->n; i++) {
            if (!jv_dict_set(c->r, d, &from->e[i].key, from->e[i].value)) return false;
        }
    } else if (c->args->n_pos == 1) {
        if (!jinja_iterate(c->r, &c->args->pos[0], &l)) return false;
        for (size_t i = 0; i < l->n; i++) {
            if (!jinja_iterate(c->r, &l->v[i], &pair)) return false;
            if (pair->n != 2)
                return jinja_fail(c->r, "%s needs pairs, item %zu has %zu", c->name, i, pair->n);
            if (!jv_dict_set(c->r, d, &pair->v[0], pair->v[1])) return false;
        }
    }
    for (size_t i = 0; i < c->args->n_kw; i++) {
        if (!jv_dict_set(c->r, d, &c->args->kw_names[i], c->args->kw[i])) return false;
    }
    *c->out = (struct jv){.type = (uint8_t)type, .dict = d};
    return true;
}

static bool g_dict(struct jinja_call *c) {
    return make_dict(c, JV_DICT);
}
static bool g_namespace(struct jinja_call *c) {
    return make_dict(c, JV_NAMESPACE);
}

static const struct jinja_def funcs[] = {
    {"raise_exception", g_raise_exception, "message", 1},
    {"strftime_now", g_strftime_now, "format", 1},
    {"range", g_range, "start stop step", 1},
    {"dict", g_dict, NULL, 0},
    {"namespace", g_namespace, NULL, 0},
};

const struct jinja_def *jinja_func_find(const char *name, size_t n) {
    return jinja_def_find(funcs, sizeof(funcs) / sizeof(*funcs), name, n);
}
