/* model_conf_gguf: the metadata of a GGUF file as the members of config.json and
 * generation_config.json that say the same, so that one reader checks both (model_conf.c). */
#ifndef BATON_ENGINE_MODEL_CONF_GGUF_H
#define BATON_ENGINE_MODEL_CONF_GGUF_H

#include "common/base/buf.h"
#include "common/base/gguf.h"
#include "common/engine/model_conf.h"

/* Appends JSON objects. ERR_BAD_FILE: an architecture that is none of ours, or a key that is
 * missing or of another kind: eb names key and value. */
enum err gguf_config(struct buf *config, struct buf *generation, const struct gguf *g,
                     struct errbuf *eb);

/* What config.json cannot say: the order of rows, factors of frequencies. */
enum err gguf_config_rest(struct model_conf *c, const struct gguf *g, struct errbuf *eb);

/* Whether an adapter of that architecture may be one of a model of that family; *pairs: the
 * converter has put rows of q and k as RoPE's pairs. */
bool gguf_adapter_fits(const char *arch, size_t n, const char *family, bool *pairs);

/* The key behind a member of config.json, for messages: "llama.block_count" for
 * num_hidden_layers; the member itself where there is none. */
const char *gguf_key_of(const char *member);

#endif
