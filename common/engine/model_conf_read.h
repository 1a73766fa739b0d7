/* model_conf_read: what model_conf.c and its parts share; for nobody else. */
#ifndef BATON_ENGINE_MODEL_CONF_READ_H
#define BATON_ENGINE_MODEL_CONF_READ_H

#include "common/engine/model_conf.h"
#include "common/engine/model_families.h"
#include "proto/json.h"

/* One JSON object of one file; prefix ("rope_scaling.") stands before its members in error texts.
 */
struct conf_reader {
    struct json_value *obj;
    struct json_value *outer; /* what obj is a member of; NULL: of nothing */
    const char *file, *prefix;
    const char *(*key_of)(const char *member); /* what the file calls it; NULL: the same */
    const struct member_alias *aliases;        /* of the family */
    struct errbuf *eb;
};

/* An absent or null member takes *absent, and is an error where absent is NULL. */
enum err conf_int(struct conf_reader *r, const char *member, int64_t min, int64_t max,
                  const int64_t *absent, int64_t *out);
enum err conf_f64(struct conf_reader *r, const char *member, double min, double max,
                  const double *absent, double *out);
enum err conf_bool(struct conf_reader *r, const char *member, bool absent, bool *out);
/* What this config calls it. */
const char *conf_spelling(const struct conf_reader *r, const char *member);
/* "FILE: MEMBER must be ALLOWED, got VALUE". */
enum err conf_refuse(struct conf_reader *r, const char *member, const char *allowed);

/* rope_theta, rope_scaling or rope_parameters of config.json into c->rope; raises c->context_max
 * where the type does. After the shape. */
enum err conf_read_rope(struct conf_reader *r, const struct family *f, struct model_conf *c);

/* The shape of latent attention, instead of heads' sizes: after hidden_size and the number of
 * heads; and, after RoPE, what scores are multiplied with. */
enum err conf_read_latent(struct conf_reader *r, struct model_conf *c);
void conf_scale_latent(struct model_conf *c);

/* What decoders have: biases, windows, RoPE, the layers' numbers. After the shape. */
enum err conf_read_decoder(struct conf_reader *r, const struct family *f, struct model_conf *c);

/* Experts, where the family has them: after the shape. */
enum err conf_read_experts(struct conf_reader *r, const struct family *f, struct model_conf *c);

/* What encoders have: after the shape. */
enum err conf_read_encoder(struct conf_reader *r, const struct family *f, enum model_head head,
                           struct model_conf *c);

/* quantization_config; and quantize_config.json or quant_config.json of the folder, where that is
 * all there is. */
enum err conf_read_quant(struct conf_reader *r, struct quant_conf *q);
enum err conf_read_quant_beside(struct quant_conf *q, const char *dir, struct errbuf *eb);

/* matryoshka_dimensions and is_matryoshka. */
enum err conf_read_matryoshka(struct conf_reader *r, struct model_conf *c);
/* modules.json and what it names, where the folder has it. */
enum err conf_read_pooling(struct model_conf *c, const char *dir, struct errbuf *eb);

#endif
