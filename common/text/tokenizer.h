/* tokenizer: HuggingFace tokenizer.json, or the metadata of a GGUF file, to ids and back. BPE,
 * byte-level (GPT-2, Llama 3, Qwen2 patterns) and SentencePiece style (Llama 2, Mistral: metaspace,
 * byte fallback); WordPiece (BERT) and Unigram (XLM-RoBERTa, T5).
 *
 * Thread: a loaded tokenizer is read-only; any number of threads may encode and decode with it.
 * Text:   UTF-8. Input that is not valid UTF-8 is refused with ERR_INVALID. */
#ifndef BATON_TEXT_TOKENIZER_H
#define BATON_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

struct tokenizer;

/* path: a model folder, whose tokenizer.json is read (add_bos/add_eos hints of
 * tokenizer_config.json are NOT applied: the post-processor decides, as in the HuggingFace
 * library), without one its tokenizer.model (tokenizer_spm.h), or a GGUF file (gguf_locate()): the
 * tokenizer.json beside it, else its metadata. eb names the file, the member and what is wrong or
 * unsupported. */
enum err tokenizer_load(struct tokenizer **out, const char *path, struct errbuf *eb);
/* The same from bytes; name is used in messages. */
enum err tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *name,
                         struct errbuf *eb);
/* From the metadata of a GGUF file: models "gpt2", "llama", "t5" and "bert". g may be closed after.
 */
struct gguf;
enum err tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errbuf *eb);
void tokenizer_free(struct tokenizer **t);

/* Appends ids to a growing array the caller frees. Special tokens written out in the text become
 * their ids (as in the HuggingFace library). add_special: run the post-processor (BOS and so on).
 * ERR_TOO_LARGE: more than n_ids_max ids; *ids holds what was made so far. n_ids_max counts the ids
 * of this call, not those that were in the list before. ERR_INTERNAL: a pattern of the file needs
 * too many steps on this text. */
struct id_list {
    int32_t *ids;
    size_t n, cap;
};
void id_list_free(struct id_list *l);
enum err id_list_push(struct id_list *l, int32_t id);
enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                          size_t n_ids_max, struct id_list *out);

/* What the post-processor makes of ids that were encoded without it: of one text, and of a pair,
 * where *n_first gets how many of them are the first text's (token type 0). Appends; ids of the
 * lists are not looked at. tokenizer_has_pairs() false: this tokenizer has no form for a pair. */
size_t tokenizer_special_count(const struct tokenizer *t, bool pair); /* ids it adds */
enum err tokenizer_wrap(const struct tokenizer *t, const struct id_list *a, struct id_list *out);
bool tokenizer_has_pairs(const struct tokenizer *t);
enum err tokenizer_wrap_pair(const struct tokenizer *t, const struct id_list *a,
                             const struct id_list *b, struct id_list *out, size_t *n_first);

/* Text of a stranger in which special tokens are to be text. A mark (U+FDD0, a noncharacter) goes
 * behind the first character of each special token that s holds or at its end begins; the mark
 * travels with the text through templates, no added token matches across one, and
 * tokenizer_encode_marked() takes all marks out before the text is cut. False: there is nothing to
 * mark, and nothing was appended. */
#define TOK_MARK "\xEF\xB7\x90"
enum { TOK_MARK_BYTES = 3 };
bool tokenizer_mark(const struct tokenizer *t, const char *s, size_t n, struct buf *out);
enum err tokenizer_encode_marked(const struct tokenizer *t, const char *text, size_t n,
                                 bool add_special, size_t n_ids_max, struct id_list *out);

/* Whole ids to text, as the HuggingFace decoder gives it (leading space stripped where the decoder
 * says so; incomplete UTF-8 becomes U+FFFD). Ids outside the vocabulary are left out. A run of
 * byte-fallback tokens is text only if all of it is UTF-8, else one U+FFFD a byte: so the streaming
 * form holds such a run until it ends. */
enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                          bool skip_special, struct buf *out);

/* The kind of vocabulary, as files of llama.cpp name and number it: "gpt2" 2 (byte-level BPE),
 * "llama" 1 (BPE with bytes as fallback), "bert" 3, "t5" 4. */
struct tokenizer_kind {
    const char *name;
    int number;
};
struct tokenizer_kind tokenizer_kind(const struct tokenizer *t);
int32_t tokenizer_vocab_size(const struct tokenizer *t); /* highest id + 1, added tokens included */
int32_t tokenizer_token_id(const struct tokenizer *t,
                           const char *token); /* by its written form; -1 unknown */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The token's text alone, for logprobs and the like: raw bytes of the token (byte-level decoded,
 * metaspace as space); may be half a character; a special token as written. Returns its length; *p
 * lives as long as t. Unknown id: 0. */
size_t tokenizer_token_bytes(const struct tokenizer *t, int32_t id, const char **p);
/* The token as the vocabulary writes it ("\u0120the"); the same rules. */
size_t tokenizer_token_piece(const struct tokenizer *t, int32_t id, const char **p);
const uint8_t *tokenizer_hash(
    const struct tokenizer *t); /* 32 bytes: SHA-256 of tokenizer.json, for the KV link's hello */

/* Streaming detokeniser: feed ids one by one, get the new text. Never emits half a character, and
 * the pieces together equal tokenizer_decode() of all ids (text that a byte-level half character
 * would make is held back; detok_flush gives what is left as U+FFFD). One user at a time. */
struct detok;
enum err detok_create(struct detok **out, const struct tokenizer *t, bool skip_special);
void detok_destroy(struct detok **d);
enum err detok_feed(struct detok *d, int32_t id, struct buf *out);
enum err detok_flush(struct detok *d, struct buf *out);
/* Before anything is fed: what is fed reads as the continuation of these ids, so that all it gives
 * is the text of both less the text of these. skip_special: of these ids alone. */
enum err detok_prompt(struct detok *d, const int32_t *ids, size_t n, bool skip_special);
/* One that stands where `from` stands. */
enum err detok_copy(struct detok **out, const struct detok *from);

/* Blanks that the decoder cuts from the start of a text: the next so many, or with of_token all at
 * the start of the next token. */
struct detok_cut {
    uint32_t n; /* 0: none; the text has begun, or the decoder does not cut */
    bool of_token;
};
struct detok_cut detok_cut(const struct detok *d);
/* How many bytes of the token `id` that would cut. */
size_t detok_cut_bytes(const struct tokenizer *t, struct detok_cut cut, int32_t id);

#endif
