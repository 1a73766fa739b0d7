/* tokenizer_spm: SentencePiece's tokenizer.model (a protobuf ModelProto: sentencepiece_model.proto)
 * as a tokenizer: BPE and Unigram.
 *
 * What tokenizer_config.json and added_tokens.json beside it say is taken too: add_bos_token,
 * add_eos_token, legacy, and tokens with ids of their own. Without them BOS goes before a text and
 * nothing behind it. Words and characters as models, and blanks behind words, are refused. */
#ifndef BATON_TEXT_TOKENIZER_SPM_H
#define BATON_TEXT_TOKENIZER_SPM_H

#include "common/text/tokenizer.h"
#include "proto/json.h"

/* beside: texts of tokenizer_config.json and added_tokens.json; NULL: there is none. */
enum err tokenizer_from_spm(struct tokenizer **out, const uint8_t *p, size_t n, const char *name,
                            const struct json_value *config, const struct json_value *added,
                            struct errbuf *eb);

#endif
