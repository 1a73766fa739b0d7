/* ep_inform: the functions behind the rows of api_paths that are no requests of the engine. */
#include "common/endpoint/endpoint.h"

typedef void inform_fn(const struct endpoint *ep, struct api_answer *out);
typedef void inform_model_fn(const struct endpoint *ep, const char *name, struct api_answer *out);
typedef void inform_text_fn(const struct endpoint *ep, char *body, size_t n,
                            const atomic_bool *cancelled, struct api_answer *out);

typedef void inform_ask_fn(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out);

/* One of each row: what it wants to know. */
static const struct {
    inform_fn *plain;
    inform_model_fn *model;
    inform_text_fn *text;
    inform_ask_fn *ask;
} infos[INFO_COUNT] = {
    [INFO_MODELS] = {.ask = endpoint_models},
    [INFO_MODEL] = {.ask = endpoint_model},
    [INFO_VERSION] = {.plain = endpoint_version},
    [INFO_TRITON_SERVER] = {.plain = endpoint_triton_server},
    [INFO_TRITON_MODEL] = {.model = endpoint_triton_model},
    [INFO_TRITON_CONFIG] = {.model = endpoint_triton_config},
    [INFO_TRITON_INDEX] = {.plain = endpoint_triton_index},
    [INFO_TRITON_LOAD] = {.model = endpoint_triton_load},
    [INFO_TRITON_UNLOAD] = {.model = endpoint_triton_unload},
    [INFO_TRITON_REGIONS] = {.plain = endpoint_triton_regions},
    [INFO_TOKENIZER] = {.text = endpoint_tokenizer},
    [INFO_TOKENIZE] = {.text = endpoint_tokenize_compat},
    [INFO_DETOKENIZE] = {.text = endpoint_detokenize},
    [INFO_TOKENIZER_INFO] = {.plain = endpoint_tokenizer_info},
    [INFO_RENDER] = {.ask = endpoint_render},
    [INFO_LLAMACPP_PROPS] = {.plain = endpoint_llamacpp_props},
    [INFO_LLAMACPP_LORAS] = {.plain = endpoint_llamacpp_loras},
    [INFO_LLAMACPP_TEMPLATE] = {.ask = endpoint_apply_template},
    [INFO_UNSUPPORTED] = {.ask = endpoint_unsupported},
    [INFO_OLLAMA_RUNNING] = {.plain = endpoint_ollama_running},
    [INFO_OLLAMA_TAGS] = {.plain = endpoint_ollama_tags},
    [INFO_OLLAMA_PS] = {.plain = endpoint_ollama_ps},
    [INFO_OLLAMA_VERSION] = {.plain = endpoint_ollama_version},
    [INFO_OLLAMA_SHOW] = {.ask = endpoint_ollama_show},
    [INFO_OLLAMA_PULL] = {.ask = endpoint_ollama_pull},
    [INFO_OLLAMA_REFUSED] = {.plain = endpoint_ollama_refused},
    [INFO_ANTHROPIC_TOKENS] = {.ask = endpoint_anthropic_tokens},
    [INFO_RESPONSES_TOKENS] = {.ask = endpoint_responses_tokens},
    [INFO_CHAT_TOKENS] = {.ask = endpoint_chat_tokens},
    [INFO_TGIS_TOKENIZE] = {.ask = endpoint_tgis_tokenize},
    [INFO_OVMS_TOKENIZE] = {.ask = endpoint_ovms_tokenize},
    [INFO_TGIS_MODEL] = {.ask = endpoint_tgis_model},
    [INFO_CAIKIT_TOKENIZE] = {.ask = endpoint_caikit_tokenize},
    [INFO_CAIKIT_RUNTIME] = {.ask = endpoint_caikit_runtime},
    [INFO_CAIKIT_MODELS] = {.ask = endpoint_caikit_models},
    [INFO_INFER_SERVER] = {.ask = endpoint_infer_server},
    [INFO_INFER_MODEL] = {.ask = endpoint_infer_about},
    [INFO_INFER_CONFIG] = {.ask = endpoint_infer_config},
    [INFO_INFER_INDEX] = {.ask = endpoint_infer_index},
    [INFO_INFER_LOAD] = {.ask = endpoint_infer_load},
    [INFO_INFER_UNLOAD] = {.ask = endpoint_infer_unload},
    [INFO_INFER_EMPTY] = {.ask = endpoint_infer_empty},
};

void endpoint_inform(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out) {
    enum api_info i = ask->path->info;
    if (infos[i].plain != NULL)
        infos[i].plain(ep, out);
    else if (infos[i].model != NULL)
        infos[i].model(ep, ask->name, out);
    else if (infos[i].ask != NULL)
        infos[i].ask(ep, ask, out);
    else
        infos[i].text(ep, ask->body, ask->n, ask->cancelled, out);
}
