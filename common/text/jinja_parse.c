/* jinja_parse: statements. */
#include "common/text/jinja_parse.h"

#include <string.h>
#include "common/text/chat_template.h"

/* ---- tokens */

bool jp_next(struct jinja_parser *p) {
    if (p->has_ahead) {
        p->tok = p->ahead;
        p->has_ahead = false;
    } else if (!jinja_lex_next(&p->lex, &p->tok)) {
        return false;
    }
    p->r->line = p->tok.line;
    return true;
}

bool jp_look(struct jinja_parser *p) {
    if (p->has_ahead) return true;
    p->has_ahead = jinja_lex_next(&p->lex, &p->ahead);
    return p->has_ahead;
}

bool jp_is_name(const struct jinja_token *t, const char *word) {
    return t->type == TK_NAME && jv_is_str(&t->v, word);
}

bool jp_unexpected(struct jinja_parser *p, const char *wanted) {
    p->r->line = p->tok.line;
    if (p->tok.type == TK_EOF)
        return jinja_fail(p->r, "the template ends where %s is expected", wanted);
    if (p->tok.type == TK_NUMBER) return jinja_fail(p->r, "expected %s, found a number", wanted);
    if (p->tok.type == TK_STR) return jinja_fail(p->r, "expected %s, found a string", wanted);
    int n = (int)(p->tok.v.n < 60 ? p->tok.v.n : 60);
    return jinja_fail(p->r, "expected %s, found '%.*s'", wanted, n, p->tok.v.s);
}

bool jp_expect(struct jinja_parser *p, enum jinja_tk type, const char *what) {
    return p->tok.type == type ? jp_next(p) : jp_unexpected(p, what);
}

bool jp_skip_if(struct jinja_parser *p, enum jinja_tk type, bool *did) {
    *did = p->tok.type == type;
    return !*did || jp_next(p);
}

bool jp_skip_word(struct jinja_parser *p, const char *word, bool *did) {
    *did = jp_is_name(&p->tok, word);
    return !*did || jp_next(p);
}

bool jp_enter(struct jinja_parser *p) {
    if (p->r->depth >= CHAT_TEMPLATE_PARSE_DEPTH_MAX) {
        return jinja_fail(p->r, "nested deeper than %d", CHAT_TEMPLATE_PARSE_DEPTH_MAX);
    }
    p->r->depth++;
    return true;
}

void jp_leave(struct jinja_parser *p) {
    p->r->depth--;
}

/* ---- bodies */

static struct jinja_stmt *new_stmt(struct jinja_parser *p, enum jinja_stmt_kind kind,
                                   uint32_t line) {
    struct jinja_stmt *s = jinja_alloc(p->r, sizeof(*s));
    if (s == NULL) return NULL;
    memset(s, 0, sizeof(*s));
    s->kind = (uint8_t)kind;
    s->line = line;
    return s;
}

static bool parse_statement(struct jinja_parser *p, struct jinja_stmt **out);

static bool is_end_word(const struct jinja_parser *p, const char *const *ends) {
    for (; ends != NULL && *ends != NULL; ends++) {
        if (jp_is_name(&p->tok, *ends)) return true;
    }
    return false;
}

/* Statements up to a tag whose word is in ends (it becomes the token at hand), or, with ends NULL,
 * to the end of the template. */
static bool parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_stmt **out) {
    struct jinja_stmt **tail = out;
    *out = NULL;
    for (;; tail = *tail == NULL ? tail : &(*tail)->next) {
        uint32_t line = p->tok.line;
        switch (p->tok.type) {
        case TK_DATA:
            if ((*tail = new_stmt(p, ST_TEXT, line)) == NULL) return false;
            (*tail)->text = p->tok.v;
            if (!jp_next(p)) return false;
            break;
        case TK_PRINT_BEGIN:
            if ((*tail = new_stmt(p, ST_PRINT, line)) == NULL || !jp_next(p)) return false;
            if (!jp_tuple(p, true, NULL, &(*tail)->expr)) return false;
            if (!jp_expect(p, TK_PRINT_END, "'}}'")) return false;
            break;
        case TK_BLOCK_BEGIN:
            if (!jp_next(p)) return false;
            if (is_end_word(p, ends)) return true;
            if (!parse_statement(p, tail) || !jp_expect(p, TK_BLOCK_END, "'%}'")) return false;
            break;
        case TK_EOF:
            if (ends == NULL) return true;
            return jinja_fail(p->r, "the template ends where {%% %s %%} is expected", ends[0]);
        default: return jp_unexpected(p, "text");
        }
    }
}

/* The rest of an opening tag, then a body; the end word is at hand afterwards. */
static bool parse_block(struct jinja_parser *p, const char *const *ends, struct jinja_stmt **out) {
    bool colon;
    return jp_skip_if(p, TK_COLON, &colon) && jp_expect(p, TK_BLOCK_END, "'%}'") && jp_enter(p) &&
           parse_body(p, ends, out) && (jp_leave(p), true);
}

/* As parse_block with one end word, which is skipped. */
static bool parse_block_to(struct jinja_parser *p, const char *end, struct jinja_stmt **out) {
    const char *const ends[] = {end, NULL};
    return parse_block(p, ends, out) && jp_next(p);
}

/* ---- statements; the token at hand is the word behind {% */

static bool parse_for(struct jinja_parser *p, struct jinja_stmt *s) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jinja_body_names names = {.outer = p->names};
    bool did;
    p->fors++;
    if (!jp_next(p) || !jp_target(p, true, false, "in", &s->loop.target)) return false;
    if (!jp_is_name(&p->tok, "in")) return jp_unexpected(p, "'in'");
    if (!jp_next(p) || !jp_tuple(p, false, "recursive", &s->loop.iter)) return false;
    if (!jp_skip_word(p, "if", &did)) return false;
    if (did && !jp_expression(p, true, &s->loop.test)) return false;
    if (jp_is_name(&p->tok, "recursive"))
        return jinja_fail(p->r, "recursive for blocks are not supported");
    p->names = &names;
    p->loops++;
    if (!parse_block(p, ends, &s->loop.body)) return false;
    p->loops--;
    p->names = names.outer;
    s->loop.uses_loop = names.loop;
    bool has_else = jp_is_name(&p->tok, "else");
    if (!jp_next(p)) return false;
    if (has_else && !parse_block_to(p, "endfor", &s->loop.otherwise)) return false;
    p->fors--;
    return true;
}

static bool parse_if(struct jinja_parser *p, struct jinja_stmt *s) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_if_part **tail = &s->parts;
    for (bool more = true; more;) {
        struct jinja_if_part *part = jinja_alloc(p->r, sizeof(*part));
        if (part == NULL) return false;
        *part = (struct jinja_if_part){0};
        *tail = part;
        tail = &part->next;
        if (jp_is_name(&p->tok, "else")) {
            return jp_next(p) && parse_block_to(p, "endif", &part->body);
        }
        if (!jp_next(p) || !jp_tuple(p, false, NULL, &part->test) ||
            !parse_block(p, ends, &part->body))
            return false;
        more = !jp_is_name(&p->tok, "endif");
    }
    return jp_next(p);
}

static bool parse_set(struct jinja_parser *p, struct jinja_stmt *s) {
    bool assign;
    if (!jp_next(p) || !jp_target(p, true, true, NULL, &s->set.target)) return false;
    if (!jp_skip_if(p, TK_ASSIGN, &assign)) return false;
    if (assign) return jp_tuple(p, true, NULL, &s->set.value);
    s->kind = ST_SET_BLOCK;
    return jp_filters(p, NULL, false, &s->set.value) && parse_block_to(p, "endset", &s->set.body);
}

/* (a, b=1) of a macro or call block */
static bool parse_signature(struct jinja_parser *p, struct jinja_macro_def *m) {
    size_t cap = 0;
    if (!jp_expect(p, TK_LPAREN, "'('")) return false;
    while (p->tok.type != TK_RPAREN) {
        struct jinja_expr *name, *value = NULL;
        bool did;
        if (m->n_params > 0 && !jp_expect(p, TK_COMMA, "','")) return false;
        if (p->tok.type != TK_NAME) return jp_unexpected(p, "the name of a parameter");
        if (!jp_target(p, false, false, NULL, &name) || !jp_skip_if(p, TK_ASSIGN, &did))
            return false;
        if (did && !jp_expression(p, true, &value)) return false;
        if (!did && m->n_params > 0 && m->defaults[m->n_params - 1] != NULL) {
            return jinja_fail(p->r, "a parameter without default follows one that has it");
        }
        if (m->n_params == cap) {
            cap = cap == 0 ? 4 : cap * 2;
            struct jv *params = jinja_alloc(p->r, cap * sizeof(*params));
            struct jinja_expr **defaults = jinja_alloc(p->r, cap * sizeof(struct jinja_expr *));
            if (params == NULL || defaults == NULL) return false;
            for (size_t i = 0; i < m->n_params; i++) {
                params[i] = m->params[i];
                defaults[i] = m->defaults[i];
            }
            m->params = params;
            m->defaults = defaults;
        }
        m->params[m->n_params] = name->value;
        m->defaults[m->n_params++] = value;
    }
    return jp_next(p);
}

/* The body of a macro or call block: loops around it end here, and it has names of its own. */
static bool parse_macro_body(struct jinja_parser *p, const char *end, struct jinja_macro_def *m) {
    struct jinja_body_names names = {.outer = p->names};
    int loops = p->loops;
    p->names = &names;
    p->loops = 0;
    if (!parse_block_to(p, end, &m->body)) return false;
    p->loops = loops;
    p->names = names.outer;
    m->takes_varargs = names.varargs;
    m->takes_kwargs = names.kwargs;
    m->takes_caller = names.caller;
    return true;
}

static bool parse_macro(struct jinja_parser *p, struct jinja_stmt *s) {
    if (!jp_next(p)) return false;
    if (p->tok.type != TK_NAME) return jp_unexpected(p, "the name of the macro");
    s->macro.name = p->tok.v;
    return jp_next(p) && parse_signature(p, &s->macro) &&
           parse_macro_body(p, "endmacro", &s->macro);
}

static bool parse_call_block(struct jinja_parser *p, struct jinja_stmt *s) {
    struct jinja_macro_def *m = jinja_alloc(p->r, sizeof(*m));
    if (m == NULL || !jp_next(p)) return false;
    *m = (struct jinja_macro_def){.name = jv_cstr("caller")};
    s->call.def = m;
    if (p->tok.type == TK_LPAREN && !parse_signature(p, m)) return false;
    if (!jp_expression(p, true, &s->call.call)) return false;
    if (s->call.call->kind != EX_CALL) return jinja_fail(p->r, "a call block needs a call");
    return parse_macro_body(p, "endcall", m);
}

static bool parse_filter_block(struct jinja_parser *p, struct jinja_stmt *s) {
    return jp_next(p) && jp_filters(p, NULL, true, &s->set.value) &&
           parse_block_to(p, "endfilter", &s->set.body);
}

static bool parse_with(struct jinja_parser *p, struct jinja_stmt *s) {
    struct jinja_expr *targets[64], *values[64];
    size_t n = 0;
    if (!jp_next(p)) return false;
    while (p->tok.type != TK_BLOCK_END && p->tok.type != TK_COLON) {
        if (n > 0 && !jp_expect(p, TK_COMMA, "','")) return false;
        if (n == 64) return jinja_fail(p->r, "more than 64 names in a with block");
        if (!jp_target(p, false, false, NULL, &targets[n]) || !jp_expect(p, TK_ASSIGN, "'='"))
            return false;
        if (!jp_expression(p, true, &values[n])) return false;
        n++;
    }
    s->with.targets.e = jinja_alloc(p->r, n * sizeof(*targets));
    s->with.values.e = jinja_alloc(p->r, n * sizeof(*values));
    if (s->with.targets.e == NULL || s->with.values.e == NULL) return false;
    memcpy(s->with.targets.e, targets, n * sizeof(*targets));
    memcpy(s->with.values.e, values, n * sizeof(*values));
    s->with.targets.n = s->with.values.n = n;
    return parse_block_to(p, "endwith", &s->with.body);
}

/* {% generation %}: HuggingFace's mark around the assistant's text; its names stay inside. */
static bool parse_generation(struct jinja_parser *p, struct jinja_stmt *s) {
    int loops = p->loops;
    p->loops = 0;
    if (!jp_next(p) || !parse_block_to(p, "endgeneration", &s->with.body)) return false;
    p->loops = loops;
    return true;
}

static bool parse_leave(struct jinja_parser *p, struct jinja_stmt *s) {
    if (p->loops == 0) {
        return jinja_fail(p->r, "%s outside of a for block",
                          s->kind == ST_BREAK ? "break" : "continue");
    }
    return jp_next(p);
}

static const struct {
    const char *word;
    enum jinja_stmt_kind kind;
    bool (*parse)(struct jinja_parser *p, struct jinja_stmt *s);
} statements[] = {
    {"for", ST_FOR, parse_for},          {"if", ST_IF, parse_if},
    {"set", ST_SET, parse_set},          {"macro", ST_MACRO, parse_macro},
    {"call", ST_CALL, parse_call_block}, {"filter", ST_FILTER, parse_filter_block},
    {"with", ST_WITH, parse_with},       {"generation", ST_SCOPE, parse_generation},
    {"break", ST_BREAK, parse_leave},    {"continue", ST_CONTINUE, parse_leave},
};

static bool parse_statement(struct jinja_parser *p, struct jinja_stmt **out) {
    static const char *const foreign[] = {"block", "extends", "include",   "import",
                                          "from",  "print",   "autoescape"};
    if (p->tok.type != TK_NAME) return jp_unexpected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++) {
        if (!jp_is_name(&p->tok, statements[i].word)) continue;
        struct jinja_stmt *s = new_stmt(p, statements[i].kind, p->tok.line);
        if (s == NULL || !statements[i].parse(p, s)) return false;
        *out = s;
        return true;
    }
    int n = (int)(p->tok.v.n < 60 ? p->tok.v.n : 60);
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
        if (jp_is_name(&p->tok, foreign[i])) {
            return jinja_fail(p->r, "the tag '%.*s' is not supported in chat templates", n,
                              p->tok.v.s);
        }
    }
    return jinja_fail(p->r, "unknown tag '%.*s'", n, p->tok.v.s);
}

bool jinja_parse(struct jinja_parser *p, struct jinja_stmt **out) {
    return jp_next(p) && parse_body(p, NULL, out);
}
