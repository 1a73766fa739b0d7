/* jinja_lex: template text to tokens, one at a time. The rules are Jinja's with trim_blocks and
 * lstrip_blocks on and keep_trailing_newline off: what white space is dropped is decided here. */
#ifndef BATON_TEXT_JINJA_LEX_H
#define BATON_TEXT_JINJA_LEX_H

#include "common/text/jinja_run.h"

enum jinja_tk {
    TK_EOF,
    TK_DATA,
    TK_PRINT_BEGIN, /* {{ */
    TK_PRINT_END,
    TK_BLOCK_BEGIN, /* {% */
    TK_BLOCK_END,
    TK_NAME,
    TK_STR,
    TK_NUMBER,
    /* operators */
    TK_ADD,
    TK_SUB,
    TK_MUL,
    TK_DIV,
    TK_FLOORDIV,
    TK_MOD,
    TK_POW,
    TK_TILDE,
    TK_LBRACKET,
    TK_RBRACKET,
    TK_LPAREN,
    TK_RPAREN,
    TK_LBRACE,
    TK_RBRACE,
    TK_EQ,
    TK_NE,
    TK_GT,
    TK_GE,
    TK_LT,
    TK_LE,
    TK_ASSIGN,
    TK_DOT,
    TK_COLON,
    TK_PIPE,
    TK_COMMA,
    TK_SEMICOLON,
};

struct jinja_token {
    enum jinja_tk type;
    uint32_t line;
    struct jv v; /* TK_DATA, TK_NAME, TK_STR: text. TK_NUMBER: the number. Operators: as written */
};

enum { LEX_BRACKETS_MAX = 256 };

struct jinja_lex {
    struct jinja_run *r; /* memory and errors; r->line follows the text */
    const char *s;
    size_t n, at;
    uint32_t line;
    enum { LEX_TEXT, LEX_PRINT, LEX_BLOCK } state;
    enum jinja_tk pending; /* a begin token that comes after its text */
    bool line_starting;
    char brackets[LEX_BRACKETS_MAX];
    int n_brackets;
};

/* src is UTF-8 with line ends as \n; it is borrowed while tokens are in use. */
void jinja_lex_init(struct jinja_lex *lx, struct jinja_run *r, const char *src, size_t n);
bool jinja_lex_next(struct jinja_lex *lx, struct jinja_token *t);

#endif
