/* model_conf_latent: what config.json says of latent attention. Source: the published configs and
 * reference code of DeepSeek-V2 and V3. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/engine/kernels.h"
#include "common/engine/model_conf_read.h"

/* Parts of a matrix begin with a panel each. */
static enum err read_whole_panels(struct conf_reader *r, const char *member, int max, int *out) {
    char allowed[64];
    int64_t v = 0;
    enum err e = conf_int(r, member, PANEL_ROWS, max, NULL, &v);
    *out = (int)v;
    if (e != ERR_OK || v % PANEL_ROWS == 0) return e;
    snprintf(allowed, sizeof(allowed), "a multiple of %d up to %d", PANEL_ROWS, max);
    return conf_refuse(r, member, allowed);
}

/* The reference class takes a rank where the member is absent; null says that there is none. */
static enum err read_q_rank(struct conf_reader *r, int *out) {
    const int64_t absent = 1536;
    int64_t v = 0;
    if (json_get(r->obj, "q_lora_rank", &(struct json_value *){NULL}) == JSON_NULL) {
        *out = 0;
        return ERR_OK;
    }
    enum err e = conf_int(r, "q_lora_rank", 1, MODEL_HIDDEN_MAX, &absent, &v);
    *out = (int)v;
    return e;
}

enum err conf_read_latent(struct conf_reader *r, struct model_conf *c) {
    struct latent_conf *l = &c->latent;
    const int head_max = 2 * MODEL_HEAD_DIM_MAX;
    int64_t v = 0;
    enum err e;
    if ((e = read_whole_panels(r, "kv_lora_rank", KEY_DIM_MAX, &l->rank)) != ERR_OK) return e;
    if ((e = read_q_rank(r, &l->q_rank)) != ERR_OK) return e;
    if ((e = conf_int(r, "qk_nope_head_dim", 1, head_max, NULL, &v)) != ERR_OK) return e;
    l->still = (int)v;
    if ((e = read_whole_panels(r, "v_head_dim", head_max, &l->value)) != ERR_OK) return e;
    if ((e = conf_int(r, "qk_rope_head_dim", 2, MODEL_HEAD_DIM_MAX, NULL, &v)) != ERR_OK) return e;
    if (v % 2 != 0 || l->rank + v > KEY_DIM_MAX) {
        char allowed[96];
        snprintf(allowed, sizeof(allowed), "even, and with kv_lora_rank = %d at most %d", l->rank,
                 KEY_DIM_MAX);
        return conf_refuse(r, "qk_rope_head_dim", allowed);
    }
    c->rope_dim = (int)v;
    c->head_dim = l->rank + c->rope_dim;
    c->n_kv_heads = 1;
    return ERR_OK;
}

void conf_scale_latent(struct model_conf *c) {
    const double m = c->rope.score_factor;
    c->score_scale = (float)(m * m / sqrt(c->latent.still + c->rope_dim));
}
