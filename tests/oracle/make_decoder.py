"""Tiny random models of the decoder families beyond make_model.py's: their config.json as published but for the shape, and the tensors their
checkpoints have. `write` puts one into a folder."""
import numpy as np

import make_model

TINY = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=151,
            max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", bos_token_id=1, eos_token_id=2,
            tie_word_embeddings=False)


def long_factors(n):
    return dict(short_factor=[1.0 + 0.05 * i for i in range(n)], long_factor=[1.5 + 0.4 * i for i in range(n)])


def drop(*names):
    return {name: ... for name in names}


GEMMA = dict(head_dim=24, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, sliding_window=19, query_pre_attn_scalar=20,
             **drop("hidden_act", "tie_word_embeddings"))
PHI3 = dict(model_type="phi3", architectures=["Phi3ForCausalLM"])
COHERE = dict(layer_norm_eps=1e-5, logit_scale=0.25, **drop("rms_norm_eps", "tie_word_embeddings"))
QWEN_VL = dict(rope_scaling=dict(type="mrope", mrope_section=[2, 2, 2]), use_sliding_window=False, vision_config=dict(depth=2))
BEHIND = dict(num_hidden_layers=4)
GLM_MOE = dict(model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], head_dim=16, partial_rotary_factor=0.5, attention_bias=True,
               n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True)
DEEPSEEK = dict(num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8,
                num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, attention_bias=False)
DEEPSEEK2 = dict(DEEPSEEK, model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"], scoring_func="softmax", norm_topk_prob=False)


def deepseek_yarn(mscale):
    return dict(type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1, mscale=mscale, mscale_all_dim=mscale)


LLAMA4 = dict(num_hidden_layers=4, head_dim=16, attention_chunk_size=13, floor_scale=9, attn_scale=0.4, num_local_experts=6, num_experts_per_tok=1,
              intermediate_size=40, intermediate_size_mlp=88, interleave_moe_layer_step=1, use_qk_norm=True, attn_temperature_tuning=True,
              rope_theta=500000.0, no_rope_layers=[],
              rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=64))
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=0.5)

# What a config.json has other than TINY; ... : it does not have the member.
FAMILIES = {
    "phi3": dict(PHI3, original_max_position_embeddings=256, rope_scaling=None, sliding_window=21, num_attention_heads=3, num_key_value_heads=3, hidden_size=288,
                 head_dim=...),
    "phi3_long": dict(PHI3, original_max_position_embeddings=64, sliding_window=None, rope_scaling=dict(type="su", **long_factors(6))),
    "phi4_mini": dict(PHI3, head_dim=16, original_max_position_embeddings=64, partial_rotary_factor=0.75, tie_word_embeddings=True,
                      rope_scaling=dict(rope_type="longrope", **long_factors(6))),
    "gemma2": dict(GEMMA, model_type="gemma2", architectures=["Gemma2ForCausalLM"], attn_logit_softcapping=5.0, final_logit_softcapping=9.0,
                   num_hidden_layers=3),
    "gemma3": dict(GEMMA, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], sliding_window_pattern=3, num_hidden_layers=4, rope_theta=1e6,
                   rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
    "granite": dict(model_type="granite", architectures=["GraniteForCausalLM"], embedding_multiplier=12.0, attention_multiplier=0.09, residual_multiplier=0.22,
                    logits_scaling=3.0, tie_word_embeddings=True),
    "granite4": dict(model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], embedding_multiplier=3.0, attention_multiplier=0.2,
                     residual_multiplier=0.5, logits_scaling=0.5, shared_intermediate_size=80, intermediate_size=999, num_local_experts=0,
                     layer_types=["attention"] * 2, position_embedding_type="rope"),
    "smollm3": dict(model_type="smollm3", architectures=["SmolLM3ForCausalLM"], num_hidden_layers=4, use_sliding_window=False, sliding_window=None,
                    **drop("tie_word_embeddings")),
    "olmo2": dict(model_type="olmo2", architectures=["Olmo2ForCausalLM"]),
    "olmo3": dict(BEHIND, model_type="olmo3", architectures=["Olmo3ForCausalLM"], sliding_window=17,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "exaone4": dict(BEHIND, model_type="exaone4", architectures=["Exaone4ForCausalLM"], sliding_window=17, sliding_window_pattern="LLLG"),
    "exaone4_full": dict(model_type="exaone4", architectures=["Exaone4ForCausalLM"], sliding_window=None, sliding_window_pattern=4, tie_word_embeddings=True),
    "glm4": dict(model_type="glm4", architectures=["Glm4ForCausalLM"], head_dim=16, partial_rotary_factor=0.5, attention_bias=True),
    "cohere": dict(COHERE, model_type="cohere", architectures=["CohereForCausalLM"], use_qk_norm=False),
    "cohere_plus": dict(COHERE, model_type="cohere", architectures=["CohereForCausalLM"], use_qk_norm=True),
    "cohere2": dict(COHERE, model_type="cohere2", architectures=["Cohere2ForCausalLM"], num_hidden_layers=4, sliding_window=17),
    "internlm2": dict(model_type="internlm2", architectures=["InternLM2ForCausalLM"], num_attention_heads=6, hidden_size=96, bias=True,
                      max_position_embeddings=64, rope_scaling=dict(type="dynamic", factor=4.0)),
    "exaone": dict(model_type="exaone", architectures=["ExaoneForCausalLM"], num_layers=2, activation_function="silu", layer_norm_epsilon=1e-5,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
                   **drop("num_hidden_layers", "rms_norm_eps", "hidden_act")),
    "baichuan2": dict(model_type="baichuan", architectures=["BaichuanForCausalLM"], num_attention_heads=3, vocab_size=125696, hidden_size=24,
                      intermediate_size=32, model_max_length=256, **drop("num_key_value_heads", "max_position_embeddings")),
    "baichuan_alibi": dict(model_type="baichuan", architectures=["BaiChuanForCausalLM"], num_attention_heads=6, num_hidden_layers=40, hidden_size=24,
                           intermediate_size=32, model_max_length=256, **drop("num_key_value_heads", "max_position_embeddings")),
    "mistral3": dict(model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"], head_dim=16, sliding_window=None, text="mistral"),
    "gemma3_seeing": dict(GEMMA, model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], sliding_window_pattern=2, num_hidden_layers=2,
                          rope_local_base_freq=100.0, text="gemma3_text", root="model.language_model."),
    "qwen2_5_vl": dict(QWEN_VL, model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"], qkv_bias=True),
    "mixtral": dict(model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
    "qwen2_moe": dict(model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"], num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
                      shared_expert_intermediate_size=88, norm_topk_prob=False, use_sliding_window=False, qkv_bias=True),
    "qwen3_moe": dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=16, num_experts_per_tok=4, moe_intermediate_size=40,
                      norm_topk_prob=True, head_dim=16),
    "qwen3_moe_mixed": dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=5, num_experts_per_tok=5, moe_intermediate_size=24,
                            norm_topk_prob=True, num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[3]),
    "olmoe": dict(model_type="olmoe", architectures=["OlmoeForCausalLM"], num_experts=8, num_experts_per_tok=3, intermediate_size=32, norm_topk_prob=False,
                  clip_qkv=None),
    "granite_moe": dict(GRANITE, model_type="granitemoe", architectures=["GraniteMoeForCausalLM"], num_local_experts=6, num_experts_per_tok=3,
                        intermediate_size=40),
    "granite_shared": dict(GRANITE, model_type="granitemoeshared", architectures=["GraniteMoeSharedForCausalLM"], num_local_experts=5,
                           num_experts_per_tok=2, intermediate_size=24, shared_intermediate_size=72, tie_word_embeddings=True),
    "granite4_moe": dict(GRANITE, model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], num_local_experts=6, num_experts_per_tok=2,
                         intermediate_size=24, shared_intermediate_size=56, layer_types=["attention"] * 2, position_embedding_type="rope"),
    "gpt_oss": dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], head_dim=16, num_local_experts=6, num_experts_per_tok=3, intermediate_size=40,
                    sliding_window=17, attention_bias=True, swiglu_limit=1.5, rope_theta=150000.0,
                    rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=64, truncate=False)),
    "glm4_moe": dict(GLM_MOE, n_shared_experts=2, first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=1.5, use_qk_norm=True,
                     num_nextn_predict_layers=1),
    "glm4_moe_air": dict(GLM_MOE, n_shared_experts=0, n_group=1, topk_group=1, norm_topk_prob=False, use_qk_norm=False, num_hidden_layers=1,
                         **drop("first_k_dense_replace")),
    "deepseek_v2": dict(DEEPSEEK2, q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1, routed_scaling_factor=1.0,
                        rope_scaling=deepseek_yarn(0.707)),
    "deepseek_v2_groups": dict(DEEPSEEK2, num_attention_heads=12, num_key_value_heads=12, q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=24,
                               qk_rope_head_dim=4, v_head_dim=32, topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=2.5,
                               first_k_dense_replace=0),
    "deepseek_v3": dict(DEEPSEEK, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], q_lora_rank=24, scoring_func="sigmoid",
                        topk_method="noaux_tc", n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
                        rope_scaling=deepseek_yarn(1.0)),
    "deepseek_v3_stacked": dict(DEEPSEEK, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], q_lora_rank=24, n_group=2, topk_group=1,
                                stacked=True),
    "qwen3_moe_stacked": dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=7, num_experts_per_tok=2, moe_intermediate_size=24,
                              norm_topk_prob=True, stacked=True),
    "llama4": dict(LLAMA4, model_type="llama4_text", architectures=["Llama4ForCausalLM"]),
    # as Maverick: layers by turns, q and k as they are, here two experts a token, each by itself as quantisers write them
    "llama4_turns": dict(LLAMA4, model_type="llama4_text", architectures=["Llama4ForCausalLM"], interleave_moe_layer_step=2, num_local_experts=128,
                         num_experts_per_tok=2, intermediate_size=24, use_qk_norm=False, attn_temperature_tuning=4, rope_scaling=None,
                         attention_chunk_size=31, no_rope_layers=[1, 1, 1, 0], stacked=False),
    "llama4_seeing": dict(LLAMA4, model_type="llama4", architectures=["Llama4ForConditionalGeneration"], text="llama4_text", stacked=False,
                          root="language_model.model.", num_hidden_layers=2, moe_layers=[0], no_rope_layers=[0, 1], **drop("interleave_moe_layer_step")),
    "dynamic": dict(model_type="llama", architectures=["LlamaForCausalLM"], max_position_embeddings=64, rope_scaling=dict(rope_type="dynamic", factor=4.0)),
}
OUTSIDE = ("model_type", "architectures", "eos_token_id", "bos_token_id", "vision_config")


def make_config(family, **over):
    c = {k: v for k, v in {**TINY, **FAMILIES[family], **over}.items() if v is not ... and k not in ("text", "root", "qkv_bias", "stacked")}
    text = FAMILIES[family].get("text")
    if text is None:
        return c
    inner = {k: v for k, v in c.items() if k not in OUTSIDE}
    return {**{k: v for k, v in c.items() if k in OUTSIDE}, "text_config": {"model_type": text, **inner}, "vision_config": {"hidden_size": 8}}


def has_experts(c, layer):
    n = c.get("num_experts", c.get("num_local_experts", 0))
    return n > 0 and (layer + 1) % c.get("decoder_sparse_step", 1) == 0 and layer not in c.get("mlp_only_layers", [])


def experts(prefix, c, matrix):
    """A router whose choices are clear, so that rounding does not change them, and the experts."""
    h, mixtral = c["hidden_size"], "num_local_experts" in c
    n = c["num_local_experts" if mixtral else "num_experts"]
    width, shared = c.get("moe_intermediate_size", c["intermediate_size"]), c.get("shared_expert_intermediate_size", 0)
    at, names = (prefix + "block_sparse_moe.", ("w1", "w3", "w2")) if mixtral else (prefix + "mlp.", ("gate_proj", "up_proj", "down_proj"))
    matrix(at + "gate", n, h, 2.0)
    for e in range(n):
        for name, rows, k in zip(names, (width, width, h), (h, h, width)):
            matrix(f"{at}experts.{e}.{name}", rows, k, 2.0)
    if shared:
        for name, rows, k in zip(names, (shared, shared, h), (h, h, shared)):
            matrix(f"{at}shared_expert.{name}", rows, k)
        matrix(at + "shared_expert_gate", 1, h)


def stacks(prefix, c, matrix, add):
    """The same in one tensor for all of a layer: Granite's, gpt-oss', Qwen's as newer tools write them."""
    h, kind = c["hidden_size"], c["model_type"]
    if kind == "qwen3_moe":
        n, width = c["num_experts"], c["moe_intermediate_size"]
        matrix(prefix + "mlp.gate", n, h, 2.0)
        add(prefix + "mlp.experts.gate_up_proj", (n, 2 * width, h), 2 / np.sqrt(h))
        add(prefix + "mlp.experts.down_proj", (n, h, width), 2 / np.sqrt(width))
        return
    n, width = c["num_local_experts"], c["intermediate_size"]
    if kind == "gpt_oss":  # with rows where columns are meant
        matrix(prefix + "mlp.router", n, h, 2.0, True)
        add(prefix + "mlp.experts.gate_up_proj", (n, h, 2 * width), 2 / np.sqrt(h))
        add(prefix + "mlp.experts.gate_up_proj_bias", (n, 2 * width), 0.5)
        add(prefix + "mlp.experts.down_proj", (n, width, h), 2 / np.sqrt(width))
        add(prefix + "mlp.experts.down_proj_bias", (n, h), 0.5)
        return
    shared = c.get("shared_intermediate_size", 0)
    matrix(prefix + "block_sparse_moe.router.layer", n, h, 2.0)
    add(prefix + "block_sparse_moe.input_linear.weight", (n, 2 * width, h), 2 / np.sqrt(h))
    add(prefix + "block_sparse_moe.output_linear.weight", (n, h, width), 2 / np.sqrt(width))
    if shared:
        matrix(prefix + "shared_mlp.input_linear", 2 * shared, h), matrix(prefix + "shared_mlp.output_linear", h, shared)


def llama4_half(at, c, layer, stacked, matrix, add):
    """The feed-forward half of a layer of Llama 4."""
    h, n, width, layers = c["hidden_size"], c["num_local_experts"], c["intermediate_size"], c.get("moe_layers")
    if not (layer in layers if layers is not None else (layer + 1) % c.get("interleave_moe_layer_step", 1) == 0):
        wide = c["intermediate_size_mlp"]
        matrix(at + "gate_proj", wide, h), matrix(at + "up_proj", wide, h), matrix(at + "down_proj", h, wide)
        return
    matrix(at + "router", n, h, 2.0)
    if stacked:  # with rows where columns are meant
        add(at + "experts.gate_up_proj", (n, h, 2 * width), 2 / np.sqrt(h)), add(at + "experts.down_proj", (n, width, h), 2 / np.sqrt(width))
        n = 0
    for name in [f"experts.{e}" for e in range(n)] + ["shared_expert"]:
        for part, rows, k in (("gate", width, h), ("up", width, h), ("down", h, width)):
            matrix(f"{at}{name}.{part}_proj", rows, k, 2.0)


def latent(at, c, matrix, norm):
    h, heads, rank, q_rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["q_lora_rank"]
    still, turning, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    if q_rank:
        matrix(at + "q_a_proj", q_rank, h), norm(at + "q_a_layernorm", q_rank), matrix(at + "q_b_proj", heads * (still + turning), q_rank, 2.0)
    else:
        matrix(at + "q_proj", heads * (still + turning), h, 2.0)
    matrix(at + "kv_a_proj_with_mqa", rank + turning, h, 2.0), norm(at + "kv_a_layernorm", rank)
    matrix(at + "kv_b_proj", heads * (still + value), rank, 1.5), matrix(at + "o_proj", h, heads * value)


def tensor_shapes(family, config):
    """[(name, shape, scale)]; see make_model.tensor_shapes."""
    c = config.get("text_config", config)
    kind = config["model_type"]
    h, heads = c["hidden_size"], c.get("num_attention_heads")
    inter = c.get("shared_intermediate_size", c["intermediate_size"])
    kv, vocab = c.get("num_key_value_heads", heads), c["vocab_size"]
    layers = c.get("num_hidden_layers", c.get("num_layers"))
    hd = c.get("head_dim") or h // heads
    q_dim, kv_dim = heads * hd, kv * hd
    gemma = kind.startswith("gemma")
    around_one = 0.2 if gemma else None
    root = FAMILIES[family].get("root", "language_model.model." if kind == "mistral3" else "transformer." if kind == "exaone" else "model.")
    out = []

    def add(name, shape, scale, bias=False):
        out.append((name + ".weight", shape, scale))
        if bias:
            out.append((name + ".bias", (shape[0],), 0.5))

    def norm(name, n=h):
        out.append((name + ".weight", (n,) if isinstance(n, int) else n, around_one))

    def matrix(name, n, k, f=1.0, bias=False):
        add(name, (n, k), f / np.sqrt(k), bias)

    embed = {"internlm2": "tok_embeddings", "exaone": "wte"}.get(kind, "embed_tokens")
    add(root + embed, (vocab, h), 1.0)
    qkv_bias, bias = FAMILIES[family].get("qkv_bias", False) or c.get("attention_bias", False), c.get("bias", False)
    for i in range(layers):
        p = f"{root}{'h' if kind == 'exaone' else 'layers'}.{i}."
        norms = {"internlm2": ["attention_norm", "ffn_norm"], "exaone": ["ln_1", "ln_2"], "cohere": ["input_layernorm"], "cohere2": ["input_layernorm"],
                 "olmo2": ["post_attention_layernorm", "post_feedforward_layernorm"],
                 "glm4": ["input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"]}
        norms["olmo3"] = norms["exaone4"] = norms["olmo2"]
        plain = ["input_layernorm", "post_attention_layernorm"]
        for name in norms.get(kind, plain + (["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else [])):
            norm(p + name)
        if kind.startswith("deepseek"):
            latent(p + "self_attn.", c, matrix, norm)
        elif kind in ("phi3", "baichuan", "internlm2"):
            name = {"phi3": "self_attn.qkv_proj", "baichuan": "self_attn.W_pack", "internlm2": "attention.wqkv"}[kind]
            matrix(p + name, q_dim + 2 * kv_dim, h, 1.6, bias)
        else:
            at = p + ("attn.attention." if kind == "exaone" else "self_attn.")
            for letter, n in (("q", q_dim), ("k", kv_dim), ("v", kv_dim)):
                matrix(f"{at}{letter}_proj", n, h, 1.0 if letter == "v" else 2.0, qkv_bias)
        if not kind.startswith("deepseek"):
            matrix(p + {"internlm2": "attention.wo", "exaone": "attn.attention.out_proj"}.get(kind, "self_attn.o_proj"), h, q_dim, 1.0,
                   bias or kind == "gpt_oss")
        if kind in ("gemma3", "gemma3_text", "exaone4", "qwen3_moe"):
            norm(p + "self_attn.q_norm", hd), norm(p + "self_attn.k_norm", hd)
        if kind in ("olmo2", "olmo3", "olmoe"):
            norm(p + "self_attn.q_norm", q_dim), norm(p + "self_attn.k_norm", kv_dim)
        if kind.startswith("llama4"):
            pass  # norms without weights
        elif c.get("use_qk_norm") and kind == "glm4_moe":
            norm(p + "self_attn.q_norm", hd), norm(p + "self_attn.k_norm", hd)
        elif c.get("use_qk_norm"):
            norm(p + "self_attn.q_norm", (heads, hd)), norm(p + "self_attn.k_norm", (kv, hd))
        if kind == "gpt_oss":
            out.append((p + "self_attn.sinks", (heads,), 2.0))
        stacked = kind == "qwen3_moe" and "stacked" in FAMILIES[family]
        if kind.startswith("llama4"):
            llama4_half(p + "feed_forward.", c, i, FAMILIES[family].get("stacked", True), matrix, lambda name, shape, scale: out.append((name, shape, scale)))
        elif kind == "gpt_oss" or stacked or (kind.startswith("granitemoe") and c["num_local_experts"] > 0):
            stacks(p, c, matrix, lambda name, shape, scale: out.append((name, shape, scale)))
        elif kind in ("phi3", "glm4"):
            matrix(p + "mlp.gate_up_proj", 2 * inter, h), matrix(p + "mlp.down_proj", h, inter)
        elif kind in ("glm4_moe", "deepseek_v2", "deepseek_v3") and i >= c.get("first_k_dense_replace", 0):
            n, width, shared = c["n_routed_experts"], c["moe_intermediate_size"], c["n_shared_experts"]
            matrix(p + "mlp.gate", n, h, 2.0)
            if c.get("topk_method", "noaux_tc") == "noaux_tc":
                out.append((p + "mlp.gate.e_score_correction_bias", (n,), 0.5))
            if "stacked" in FAMILIES[family]:
                out += [(p + "mlp.experts.gate_up_proj", (n, 2 * width, h), 2 / np.sqrt(h)), (p + "mlp.experts.down_proj", (n, h, width), 2 / np.sqrt(width))]
                n = 0
            for name, inner in [(f"experts.{e}", width) for e in range(n)] + ([("shared_experts", shared * width)] if shared else []):
                for part, rows, k in (("gate", inner, h), ("up", inner, h), ("down", h, inner)):
                    matrix(f"{p}mlp.{name}.{part}_proj", rows, k, 2.0)
        elif has_experts(c, i):
            experts(p, c, matrix)
        elif kind == "granitemoehybrid":
            matrix(p + "shared_mlp.input_linear", 2 * inter, h), matrix(p + "shared_mlp.output_linear", h, inter)
        else:
            three = {"internlm2": "feed_forward.w1 feed_forward.w3 feed_forward.w2", "exaone": "mlp.c_fc_0 mlp.c_fc_1 mlp.c_proj"}
            gate, up, down = three.get(kind, "mlp.gate_proj mlp.up_proj mlp.down_proj").split()
            matrix(p + gate, inter, h), matrix(p + up, inter, h), matrix(p + down, h, inter)
    for i in range(c.get("num_nextn_predict_layers", 0)):  # which nobody computes with
        matrix(f"{root}layers.{layers + i}.eh_proj", h, 2 * h), norm(f"{root}layers.{layers + i}.enorm")
    norm(root + ("ln_f" if kind == "exaone" else "norm"))
    if kind in ("gemma3", "mistral3", "qwen2_5_vl", "llama4"):
        for name in {"llama4": ["vision_model.patch_embedding.linear", "multi_modal_projector.linear_1"],
                     "gemma3": ["model.vision_tower.embed", "model.multi_modal_projector.mm"], "mistral3": ["vision_tower.conv", "multi_modal_projector.linear_1"],
                     "qwen2_5_vl": ["visual.patch_embed.proj"]}[kind]:
            matrix(name, 8, 8)
    tied = c.get("tie_word_embeddings", gemma or kind in ("cohere", "cohere2", "smollm3"))
    if not tied:
        matrix({"internlm2": "output", "mistral3": "language_model.lm_head", "llama4": "language_model.lm_head"}.get(kind, "lm_head"), vocab, h, 4.0)
    return out


def write(out, family, dtype="f32", seed=0, **over):
    config = make_config(family, **over)
    make_model.write_model(out, config, dtype, seed=seed, tensors=tensor_shapes(family, config))
