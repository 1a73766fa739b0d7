/* guide: guided decoding. A JSON text that says what the output may be becomes a byte-level
 * automaton, and the automaton becomes masks over a tokenizer's vocabulary. docs/guided.md tells
 * users what is understood; docs/decisions/ why it is built this way.
 *
 * The text (infer_req.guide) is one object:
 *   {"type":"json_object"}
 *   {"type":"json_schema","schema":{..}}
 *   {"type":"regex","value":".."}             the whole output matches
 *   {"type":"choice","value":["..",..]}
 *   {"type":"grammar","value":".."}           EBNF in the style of GBNF, rule `root`
 *   {"type":"literal","value":".."}           a special token written out in it is that token
 *   {"type":"sequence","items":[guide,..]}
 *   {"type":"any_of","items":[guide,..]}
 *   {"type":"repeat","item":guide,"min":0,"max":n,"separator":guide}   max, separator optional
 *   {"type":"after","text":"..","never":["..",..],"budget":k,"then":guide}   free text, in which
 * none of `never` may be, up to and with `text`, which is forced after k tokens; then the guide, or
 * free text. never, budget and then optional
 *
 * Thread: a vocabulary is read-only after creation. A compiled guide may be used by any number of
 * threads (a lock inside guards its caches). Compiling takes milliseconds to about a second: text
 * pool only. */
#ifndef BATON_GUIDE_GUIDE_H
#define BATON_GUIDE_GUIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/token_guide.h"
#include "common/text/tokenizer.h"
#include "proto/err.h"

enum {
    GUIDE_DEPTH_MAX = 100,      /* nesting of guides, schemas, regex groups, EBNF groups */
    GUIDE_STATES_MAX = 300000,  /* of one automaton */
    GUIDE_COMPILE_MS = 2000,    /* of processor time for compiling, guide_vocab_limits() */
    GUIDE_STEP_MS = 100,        /* of processor time for one mask or one token */
    GUIDE_POSITIONS_MAX = 4096, /* of one automaton at once */
    GUIDE_REPEAT_MAX = 65536,   /* of a quantifier, minItems, maxLength and the like */
};

/* The bytes of every token, in a trie. Borrows nothing after creation. */
struct guide_vocab;
enum err guide_vocab_create(struct guide_vocab **out, const struct tokenizer *tok, int vocab_size,
                            const int32_t *eos_ids, int n_eos);
/* Bounds in ms of processor time of guides made with it, before the first is: compiling; a mask, or
 * the way of one token. */
void guide_vocab_limits(struct guide_vocab *v, int compile_ms, int step_ms);
void guide_vocab_destroy(struct guide_vocab **v); /* after every guide made with it */

/* Reference counted; immutable to its users. */
struct guide;
/* ERR_INVALID: eb says what is wrong, naming keyword and path. ERR_TOO_LARGE: over a bound above.
 * ERR_TIMEOUT: compiling took too long. ERR_CANCELLED: by `cancelled`, which may be NULL. */
enum err guide_compile(struct guide **out, const struct guide_vocab *v, const char *text, size_t n,
                       const atomic_bool *cancelled, struct errbuf *eb);
struct guide *guide_ref(struct guide *g);
void guide_unref(struct guide **g);
/* A state at the beginning of the output; it holds a reference of its own. cut: the blanks that the
 * decoder takes from the start of this output, which are not of its text. */
enum err guide_start(struct guide *g, struct detok_cut cut, struct token_guide *out);

/* Compiled guides by their text, the last used ones kept. Any thread. */
struct guide_cache;
enum err guide_cache_create(struct guide_cache **out, const struct guide_vocab *v, int n_max);
void guide_cache_destroy(struct guide_cache **c);
/* As guide_compile, or the one at hand. Two threads that ask for the same new text may both
 * compile it. */
enum err guide_cache_get(struct guide_cache *c, const char *text, size_t n,
                         const atomic_bool *cancelled, struct guide **out, struct errbuf *eb);

/* Only the shape of the text: what guide_compile would say of a schema, without a vocabulary. For
 * tests and tools. True when the whole output p[0..n) is allowed. */
enum err guide_accepts(struct guide *g, const char *p, size_t n, bool *whole);

#endif
