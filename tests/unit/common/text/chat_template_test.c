/* Goal: chat templates hold their bounds, name what is wrong and where, load from where models keep
 * them, and one parsed template serves many threads. What they render is compared with Jinja in
 * tests/oracle. Method: both sides of every bound; lists of bad templates with line and word of the
 * message; model directories written for the test; every prefix of a published template; two
 * threads on one template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/text/chat_template.h"
#include "proto/json.h"
#include "tests/unit/alloc_fault.h"

enum { NOW = 1753900245, OUT_MAX = 1 << 20 };

static struct json_value *json(const char *text) {
    struct json_value *o = NULL;
    struct errbuf eb = {0};
    if (json_read(&o, text, strlen(text), NULL, &eb) != ERR_OK) fail_msg("%s: %s", text, eb.text);
    return o;
}

/* Parses and renders; the text is the caller's. */
static enum err render(const char *src, const char *vars, size_t out_max, struct buf *out,
                       struct errbuf *eb) {
    struct chat_template *t;
    *eb = (struct errbuf){0};
    enum err e = chat_template_parse(&t, src, strlen(src), eb);
    if (e != ERR_OK) {
        assert_null(t);
        return e;
    }
    struct chat_vars v = {.vars = vars == NULL ? NULL : json(vars), .now_unix_s = NOW};
    e = chat_template_render(t, &v, out_max, out, eb);
    json_put(v.vars);
    chat_template_free(&t);
    assert_null(t);
    return e;
}

static void gives(const char *src, const char *vars, const char *want) {
    struct buf out = BUF_INIT;
    struct errbuf eb;
    if (render(src, vars, OUT_MAX, &out, &eb) != ERR_OK) fail_msg("%.80s: %s", src, eb.text);
    assert_string_equal(out.data == NULL ? "" : out.data, want);
    buf_free(&out);
}

static void fails(const char *src, enum err code, const char *text) {
    struct buf out = BUF_INIT;
    struct errbuf eb;
    enum err e = render(src, NULL, OUT_MAX, &out, &eb);
    if (e != code)
        fail_msg("%.80s: %s instead of %s: %s", src, err_name(e), err_name(code), eb.text);
    assert_int_equal(eb.code, code);
    if (strstr(eb.text, text) == NULL) fail_msg("%.80s: '%s' is not in '%s'", src, text, eb.text);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

/* n times a, then mid, then n times b */
static char *wrap(int n, const char *a, const char *mid, const char *b) {
    char *s = calloc(1, (size_t)n * (strlen(a) + strlen(b)) + strlen(mid) + 1);
    assert_non_null(s);
    char *p = s;
    for (int i = 0; i < n; i++) p = stpcpy(p, a);
    p = stpcpy(p, mid);
    for (int i = 0; i < n; i++) p = stpcpy(p, b);
    return s;
}

static void appends_text(void **state) {
    (void)state;
    struct buf out = BUF_INIT;
    struct errbuf eb;
    buf_puts(&out, "before ");
    assert_int_equal(
        render("{{ a }}{{ b.c[1] }}", "{\"a\": 1, \"b\": {\"c\": [0, \"x\"]}}", OUT_MAX, &out, &eb),
        ERR_OK);
    assert_string_equal(out.data, "before 1x");
    assert_int_equal(render("text {{ a.b }}", "{}", OUT_MAX, &out, &eb), ERR_INVALID);
    assert_string_equal(out.data, "before 1x"); /* nothing of a failed rendering */
    buf_free(&out);
    gives("", NULL, "");
    gives("{{ x }}{{ x is defined }}", NULL, "False");
    gives("{{ x is none }}", "{\"x\": null}", "True");
}

static void refuses_variables_that_are_no_object(void **state) {
    (void)state;
    struct buf out = BUF_INIT;
    struct errbuf eb;
    assert_int_equal(render("x", "[1]", OUT_MAX, &out, &eb), ERR_INVALID);
    assert_int_equal(render("x", "\"s\"", OUT_MAX, &out, &eb), ERR_INVALID);
    assert_non_null(strstr(eb.text, "object"));
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

static void names_line_and_cause(void **state) {
    (void)state;
    static const struct {
        const char *src, *text;
    } bad[] = {
        {"{{ raise_exception('roles must alternate') }}", "line 1: roles must alternate"},
        {"a\nb\n{{ x.y }}", "line 3: 'x' is undefined"},
        {"{% set d = {} %}\n{{ d.a.b }}", "line 2: 'dict object' has no attribute 'a'"},
        {"{{ [1][5].x }}", "line 1: list object has no element 5"},
        {"{% for i in [1] %}\n\n{{ i + 'a' }}{% endfor %}",
         "line 3: unsupported operand type(s) for +: 'int' and 'str'"},
        {"\n{{ 'x'|nope }}", "line 2: no filter named 'nope'"},
        {"{{ 'x' is nope }}", "no test named 'nope'"},
        {"\n\n{% nope %}", "line 3: unknown tag 'nope'"},
        {"{% include 'x' %}", "'include' is not supported"},
        {"{% if x %}\n", "line 1: the template ends where {% elif %} is expected"},
        {"{% for x in y recursive %}{% endfor %}", "recursive"},
        {"{{ 'abc }}", "a string does not end"},
        {"a\n{{ 1 +\n }}", "line 3: expected an expression, found '}}'"},
        {"{{ l.append(1) }}", "'l' is undefined"},
        {"{{ [1].append(1) }}", "access to attribute 'append' of 'list' object is unsafe"},
        {"{{ {}.update(a=1) }}", "access to attribute 'update' of 'dict' object is unsafe"},
        {"{% set x = 1 %}{% set x.y = 1 %}", "non-namespace"},
        {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
        {"{{ 1 / 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "does not fit 64 bits"},
        {"{{ 9223372036854775808 }}", "integer does not fit 64 bits"},
        {"{{ 'a'|tojson(nope=1) }}", "tojson takes no argument 'nope'"},
        {"{{ range(0, 1, 0) }}", "must not be zero"},
        {"{% break %}", "break outside of a for block"},
        {"{{ '\\ud800' }}", "lone surrogate"},
        {"{{ \xC3\xA4 @ }}", "unexpected character '@'"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        fails(bad[i].src, ERR_INVALID, bad[i].text);
}

static void long_message_is_cut(void **state) {
    (void)state;
    fails("{{ raise_exception('x' * 100000) }}", ERR_INVALID, "line 1: xxx");
    static const char *const letter[] = {"\xC3\xA4", "\xE4\xB8\x96", "\xF0\x9F\x99\x82"};
    for (int i = 0; i < 12; i++) { /* at every offset, so that some are cut in half */
        struct buf out = BUF_INIT;
        struct errbuf eb;
        char src[128];
        snprintf(src, sizeof(src), "{{ raise_exception('%.*s' ~ '%s' * 1000) }}", i / 3, "abcd",
                 letter[i % 3]);
        assert_int_equal(render(src, NULL, OUT_MAX, &out, &eb), ERR_INVALID);
        size_t n = strlen(eb.text), w = strlen(letter[i % 3]);
        assert_in_range(n, ERR_TEXT_BYTES_MAX - 1 - w, ERR_TEXT_BYTES_MAX - 1);
        assert_int_equal((n - strlen("line 1: ") - (size_t)(i / 3)) % w, 0);
        buf_free(&out);
    }
}

static void bounds_the_output(void **state) {
    (void)state;
    struct errbuf eb;
    for (size_t room = 8; room <= 12; room++) {
        struct buf out = BUF_INIT;
        enum err e =
            render("{{ 'x' * 7 }}{% for i in range(3) %}y{% endfor %}", NULL, room, &out, &eb);
        assert_int_equal(e, room >= 10 ? ERR_OK : ERR_TOO_LARGE);
        assert_int_equal(out.len, room >= 10 ? 10 : 0);
        buf_free(&out);
    }
}

static void bounds_the_template(void **state) {
    (void)state;
    struct chat_template *t;
    struct errbuf eb = {0};
    char *s = malloc(CHAT_TEMPLATE_BYTES_MAX + 1);
    assert_non_null(s);
    memset(s, 'a', CHAT_TEMPLATE_BYTES_MAX + 1);
    assert_int_equal(chat_template_parse(&t, s, CHAT_TEMPLATE_BYTES_MAX, &eb), ERR_OK);
    chat_template_free(&t);
    assert_int_equal(chat_template_parse(&t, s, CHAT_TEMPLATE_BYTES_MAX + 1, &eb), ERR_TOO_LARGE);
    assert_non_null(strstr(eb.text, "1048577"));
    assert_null(t);
    assert_int_equal(chat_template_parse(&t, "a\xFF", 2, &eb), ERR_INVALID);
    assert_non_null(strstr(eb.text, "UTF-8"));
    chat_template_free(&t); /* NULL is fine */
    free(s);
}

static void bounds_nesting(void **state) {
    (void)state;
    /* what stands in the tag itself takes levels, too */
    static const struct {
        const char *a, *b;
        int n_max;
    } nest[] = {
        {"{% if 1 %}", "{% endif %}", CHAT_TEMPLATE_PARSE_DEPTH_MAX},
        {"{% for x in [1] %}", "{% endfor %}", CHAT_TEMPLATE_PARSE_DEPTH_MAX - 1},
    };
    for (size_t i = 0; i < sizeof(nest) / sizeof(*nest); i++) {
        char *ok = wrap(nest[i].n_max, nest[i].a, "7", nest[i].b);
        char *deep = wrap(nest[i].n_max + 1, nest[i].a, "7", nest[i].b);
        gives(ok, NULL, "7");
        fails(deep, ERR_INVALID, "nested deeper than 100");
        free(ok);
        free(deep);
    }
}

static void bounds_brackets(void **state) {
    (void)state;
    for (int n = CHAT_TEMPLATE_PARSE_DEPTH_MAX - 1; n <= CHAT_TEMPLATE_PARSE_DEPTH_MAX; n++) {
        char *inner = wrap(n, "(", "7", ")"), src[512];
        snprintf(src, sizeof(src), "{{ %s }}", inner);
        if (n < CHAT_TEMPLATE_PARSE_DEPTH_MAX) gives(src, NULL, "7");
        if (n == CHAT_TEMPLATE_PARSE_DEPTH_MAX) fails(src, ERR_INVALID, "nested deeper than 100");
        free(inner);
    }
}

static void bounds_evaluation(void **state) {
    (void)state;
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ERR_INVALID, "nested deeper than 400");
    gives("{% macro f(n) %}{% if n %}{{ f(n - 1) }}x{% endif %}{% endmacro %}{{ f(20)|length }}",
          NULL, "20");
    char *ok = wrap(300, "1 + ", "1", ""), *deep = wrap(500, "1 + ", "1", ""), src[4096];
    snprintf(src, sizeof(src), "{{ %s }}", ok);
    gives(src, NULL, "301");
    snprintf(src, sizeof(src), "{{ %s }}", deep);
    fails(src, ERR_INVALID, "nested deeper than 400");
    free(ok);
    free(deep);
    /* values that a template nests deeper than any source could */
    static const char *const uses[] = {"{{ n.l }}", "{{ n.l|tojson }}", "{{ n.l == n.k }}",
                                       "{{ n.l < n.k }}"};
    for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
        snprintf(src, sizeof(src),
                 "{%% set n = namespace(l=[], k=[]) %%}{%% for i in range(500) %%}{%% set n.l = "
                 "[n.l] %%}"
                 "{%% set n.k = [n.k] %%}{%% endfor %%}%s",
                 uses[i]);
        fails(src, ERR_INVALID, "nested deeper than 400");
    }
}

static void bounds_steps_and_memory(void **state) {
    (void)state;
    fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          ERR_TOO_LARGE, "steps");
    fails("{% set n = namespace(l=[0]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% "
          "endfor %}",
          ERR_TOO_LARGE, "");
    gives("{{ ('a' * 67108864)|length }}", NULL, "67108864");
    fails("{{ ('a' * 67108865)|length }}", ERR_TOO_LARGE, "67108864");
    fails("{{ ('ab' * 9223372036854775807)|length }}", ERR_TOO_LARGE, "67108864");
    fails("{{ ([1, 2] * 9223372036854775807)|length }}", ERR_TOO_LARGE, "list too long");
    gives("{{ range(100000)|length }}", NULL, "100000");
    fails("{{ range(100001)|length }}", ERR_INVALID, "100000");
    gives("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list|length }}",
          NULL, "2");
    fails("{{ range(-9223372036854775807, 9223372036854775807) }}", ERR_INVALID, "100000");
    gives("{{ ('%1000d' % 1)|length }}", NULL, "1000");
    fails("{{ '%1001d' % 1 }}", ERR_INVALID, "above 1000");
    gives("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}", NULL, "a");
}

/* Strings grow in place where nobody else can see it: a string that others hold keeps its own end.
 */
static void concatenation_shares_nothing(void **state) {
    (void)state;
    gives("{% set a = 'x' + v %}{% set b = a + '1' %}{% set c = a + '2' %}{% set d = b + c %}{{ a "
          "}} {{ b }} {{ c }} {{ d }}",
          "{\"v\": \"y\"}", "xy xy1 xy2 xy1xy2");
    gives("{% set a = 'x' + v %}{% set b = a + a %}{% set c = b + b %}{{ a }} {{ b }} {{ c }}",
          "{\"v\": \"y\"}", "xy xyxy xyxyxyxy");
}

static void tells_the_time(void **state) {
    (void)state;
    char want[64], src[64];
    struct tm tm;
    time_t now = NOW;
    assert_non_null(localtime_r(&now, &tm));
    assert_true(strftime(want, sizeof(want), "%d %b %Y %H:%M", &tm) > 0);
    gives("{{ strftime_now('%d %b %Y %H:%M') }}", NULL, want);
    gives("{{ strftime_now('%Z%z%f%%Z') }}", NULL, "000000%Z");
    snprintf(src, sizeof(src), "{{ strftime_now('%%c' * %d) }}", 400);
    fails(src, ERR_INVALID, "strftime_now: format too long");
}

/* Whatever is cut off, there is a template or a reason. */
static void takes_every_prefix(void **state) {
    (void)state;
    char src[16384];
    FILE *f = fopen("tests/data/chat/qwen3.jinja", "rb");
    assert_non_null(f);
    size_t n = fread(src, 1, sizeof(src), f), n_parsed = 0;
    fclose(f);
    assert_in_range(n, 1000, sizeof(src) - 1);
    for (size_t cut = 0; cut <= n; cut++) {
        struct chat_template *t;
        struct errbuf eb = {0};
        char *exact = malloc(cut + 1);
        assert_non_null(exact);
        memcpy(exact + 1, src, cut); /* no terminator, nothing behind */
        enum err e = chat_template_parse(&t, exact + 1, cut, &eb);
        free(exact);
        if (e == ERR_OK) {
            n_parsed++;
            struct buf out = BUF_INIT;
            struct chat_vars v = {.vars = NULL};
            (void)chat_template_render(t, &v, OUT_MAX, &out, &eb);
            buf_free(&out);
        } else {
            assert_int_equal(e, ERR_INVALID);
            assert_true(strncmp(eb.text, "line ", 5) == 0);
        }
        chat_template_free(&t);
    }
    assert_true(n_parsed > 0 && n_parsed < n / 2);
}

/* ---- threads */

struct renderer {
    const struct chat_template *t;
    char name[16];
    int n_wrong;
};

static void *render_many(void *arg) {
    struct renderer *r = arg;
    char vars[64], want[128];
    snprintf(vars, sizeof(vars), "{\"who\": \"%s\", \"l\": [1, 2, 3]}", r->name);
    snprintf(want, sizeof(want), "%s:1,2,3|%s!", r->name, r->name);
    struct json_value *o = json(vars);
    for (int i = 0; i < 300; i++) {
        struct buf out = BUF_INIT;
        struct chat_vars v = {.vars = o, .now_unix_s = NOW};
        enum err e = chat_template_render(r->t, &v, OUT_MAX, &out, NULL);
        r->n_wrong += e != ERR_OK || strcmp(out.data, want) != 0;
        buf_free(&out);
    }
    json_put(o);
    return NULL;
}

static void serves_threads(void **state) {
    (void)state;
    static const char src[] =
        "{% macro m(x) %}{{ x }}!{% endmacro %}{% set ns = namespace(s=who ~ ':') %}"
        "{% for i in l %}{% set ns.s = ns.s ~ i ~ (',' if not loop.last else '') %}{% endfor %}"
        "{{ ns.s }}|{{ m(who) }}";
    struct chat_template *t;
    struct errbuf eb;
    struct renderer r[2] = {{.name = "ann"}, {.name = "robert"}};
    pthread_t id[2];
    assert_int_equal(chat_template_parse(&t, src, strlen(src), &eb), ERR_OK);
    for (int i = 0; i < 2; i++) {
        r[i].t = t;
        assert_int_equal(pthread_create(&id[i], NULL, render_many, &r[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(id[i], NULL), 0);
        assert_int_equal(r[i].n_wrong, 0);
    }
    chat_template_free(&t);
}

/* ---- model directories */

struct model_dir {
    char path[64];
};

static int dir_setup(void **state) {
    struct model_dir *d = calloc(1, sizeof(*d));
    if (d == NULL) return -1;
    strcpy(d->path, "/tmp/chat_template_test.XXXXXX");
    *state = d;
    return mkdtemp(d->path) == NULL ? -1 : 0;
}

static void path_in(const struct model_dir *d, const char *name, char path[128]) {
    snprintf(path, 128, "%s/%s", d->path, name);
}

static int dir_teardown(void **state) {
    struct model_dir *d = *state;
    char path[128];
    path_in(d, "tokenizer_config.json", path);
    unlink(path);
    path_in(d, "chat_template.jinja", path);
    unlink(path);
    int failed = rmdir(d->path);
    free(d);
    return failed;
}

/* text NULL: no such file */
static void put(const struct model_dir *d, const char *name, const char *text) {
    char path[128];
    path_in(d, name, path);
    unlink(path);
    if (text == NULL) return;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void loads(const struct model_dir *d, int tools, const char *want, const char *bos,
                  const char *eos) {
    struct chat_template *t;
    struct errbuf eb = {0};
    struct buf out = BUF_INIT;
    char *b, *e;
    if (chat_template_load(&t, d->path, tools, &b, &e, &eb) != ERR_OK) fail_msg("%s", eb.text);
    struct chat_vars v = {.vars = NULL};
    assert_int_equal(chat_template_render(t, &v, OUT_MAX, &out, &eb), ERR_OK);
    assert_string_equal(out.data, want);
    assert_string_equal(b, bos);
    assert_string_equal(e, eos);
    free(b);
    free(e);
    buf_free(&out);
    chat_template_free(&t);
}

static void load_fails(const struct model_dir *d, enum err code, const char *text) {
    struct chat_template *t;
    struct errbuf eb = {0};
    char *b, *e;
    enum err got = chat_template_load(&t, d->path, 0, &b, &e, &eb);
    if (got != code) fail_msg("%s instead of %s: %s", err_name(got), err_name(code), eb.text);
    assert_null(t);
    if (strstr(eb.text, text) == NULL) fail_msg("'%s' is not in '%s'", text, eb.text);
    assert_true((b != NULL) ==
                (code == ERR_NOT_FOUND)); /* the texts are there even without a template */
    assert_true((e != NULL) == (code == ERR_NOT_FOUND));
    free(b);
    free(e);
}

static void loads_a_string(void **state) {
    const struct model_dir *d = *state;
    put(d, "tokenizer_config.json",
        "{\"chat_template\": \"a{{ 1 + 1 }}\", \"bos_token\": \"<s>\", \"eos_token\": "
        "{\"content\": \"</s>\", "
        "\"lstrip\": false}}");
    loads(d, 0, "a2", "<s>", "</s>");
    loads(d, 1, "a2", "<s>", "</s>");
    put(d, "tokenizer_config.json",
        "{\"chat_template\": \"x\", \"bos_token\": null, \"eos_token\": 5}");
    loads(d, 0, "x", "", "");
}

static void loads_from_a_list(void **state) {
    const struct model_dir *d = *state;
    put(d, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"}, 7, {\"name\": "
        "\"rag\"}, "
        "{\"name\": \"default\", \"template\": \"plain\"}]}");
    loads(d, 0, "plain", "", "");
    loads(d, 1, "tools", "", "");
    put(d, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}]}");
    loads(d, 1, "plain", "", "");
    put(d, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"}]}");
    loads(d, 1, "tools", "", "");
    load_fails(d, ERR_BAD_FILE, "none of the 1 chat templates is called \"default\"");
    put(d, "tokenizer_config.json", "{\"chat_template\": []}");
    load_fails(d, ERR_BAD_FILE, "none of the 0 chat templates");
}

static void loads_a_file(void **state) {
    const struct model_dir *d = *state;
    put(d, "chat_template.jinja", "file {{ 1 }}\n");
    loads(d, 0, "file 1", "", ""); /* without any tokenizer_config.json */
    put(d, "tokenizer_config.json", "{\"chat_template\": \"conf\", \"eos_token\": \"E\"}");
    loads(d, 1, "file 1", "", "E"); /* the file wins */
    put(d, "chat_template.jinja", NULL);
    loads(d, 1, "conf", "", "E");
}

static void load_says_what_is_wrong(void **state) {
    const struct model_dir *d = *state;
    const struct model_dir nowhere = {"/nonexistent/model"};
    load_fails(d, ERR_NOT_FOUND, "no chat template");
    load_fails(&nowhere, ERR_NOT_FOUND, "no chat template");
    put(d, "tokenizer_config.json", "{\"eos_token\": \"E\"}");
    load_fails(d, ERR_NOT_FOUND, d->path);
    put(d, "tokenizer_config.json", "{\"chat_template\": null}");
    load_fails(d, ERR_NOT_FOUND, "no chat template");
    put(d, "tokenizer_config.json", "{\"chat_template\": 5}");
    load_fails(d, ERR_BAD_FILE, "chat_template must be a string or an array");
    put(d, "tokenizer_config.json", "[]");
    load_fails(d, ERR_BAD_FILE, "not an object");
    put(d, "tokenizer_config.json", "{");
    load_fails(d, ERR_BAD_JSON, "tokenizer_config.json");
    put(d, "tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
    load_fails(d, ERR_INVALID, "tokenizer_config.json: chat template: line 2");
    put(d, "chat_template.jinja", "{{ \xFF }}");
    load_fails(d, ERR_INVALID,
               "chat_template.jinja: chat template: the chat template is not UTF-8");
    char *big = wrap(CHAT_TEMPLATE_BYTES_MAX / 8 + 1, "12345678", "", "");
    put(d, "chat_template.jinja", big);
    load_fails(d, ERR_TOO_LARGE, "chat_template.jinja");
    free(big);
}

/* Every allocation of a parse and a rendering, and of a load, fails once: an error with a text, and
 * the next one works. Nothing leaks of the first two; json-c itself loses a piece when memory ends
 * inside it. */
static void survives_lack_of_memory(void **state) {
#if OWN_MALLOC
    static const char src[] = "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m(v) }}{{ 'x' * 70000 "
                              "}}{{ [1, 2]|tojson(indent=2) }}"
                              "{% for i in range(2000) %}{{ [i] }}{% endfor %}";
    const struct model_dir *d = *state;
    struct json_value *vars = json("{\"v\": \"abc\"}");
    int n_failed = 0;
    put(d, "tokenizer_config.json", "{\"chat_template\": \"{{ 1 }}\"}");
    for (int n = 0, done = 0; done < 2; n++) {
        struct chat_template *t = NULL;
        struct errbuf eb = {0};
        struct buf out = BUF_INIT;
        char *bos = NULL, *eos = NULL;
        struct chat_vars v = {.vars = vars};
        long live = alloc_fault.live;
        assert_in_range(n, 0, 10000);
        alloc_fault_after(n);
        enum err e = done == 0 ? chat_template_parse(&t, src, sizeof(src) - 1, &eb)
                               : chat_template_load(&t, d->path, 0, &bos, &eos, &eb);
        if (e == ERR_OK) e = chat_template_render(t, &v, OUT_MAX, &out, &eb);
        bool failed = alloc_fault_end();
        if (e == ERR_OK)
            assert_memory_equal(out.data, done == 0 ? "ABCxxx" : "1", done == 0 ? 6 : 2);
        if (e != ERR_OK && eb.text[0] == '\0')
            fail_msg("allocation %d: %s without a text", n, err_name(e));
        if (e != ERR_OK) assert_int_equal(out.len, 0);
        n_failed += e != ERR_OK;
        chat_template_free(&t);
        free(bos);
        free(eos);
        buf_free(&out);
        if (done == 0) assert_int_equal(alloc_fault.live, live);
        if (!failed) {
            assert_int_equal(e, ERR_OK);
            done++;
            n = -1;
        }
    }
    assert_true(n_failed > 15);
    json_put(vars);
#else
    (void)state;
    print_message("skipped: the sanitizer owns malloc\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_text),
        cmocka_unit_test(refuses_variables_that_are_no_object),
        cmocka_unit_test(names_line_and_cause),
        cmocka_unit_test(long_message_is_cut),
        cmocka_unit_test(bounds_the_output),
        cmocka_unit_test(bounds_the_template),
        cmocka_unit_test(bounds_nesting),
        cmocka_unit_test(bounds_brackets),
        cmocka_unit_test(bounds_evaluation),
        cmocka_unit_test(bounds_steps_and_memory),
        cmocka_unit_test(concatenation_shares_nothing),
        cmocka_unit_test(tells_the_time),
        cmocka_unit_test(takes_every_prefix),
        cmocka_unit_test(serves_threads),
        cmocka_unit_test_setup_teardown(loads_a_string, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(loads_from_a_list, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(loads_a_file, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(load_says_what_is_wrong, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(survives_lack_of_memory, dir_setup, dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
