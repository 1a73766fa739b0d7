"""Writes a folder of make_decoder.py as GGUF, as the converters of llama.cpp do: names, keys, 1 added to Gemma's norms, rows of q and k as
pairs where the architecture has them so, fused tensors as they are or cut."""
import math

import numpy as np

import make_gguf
import reference

ARCHS = {"llama4_text": "llama4", "llama4": "llama4", "phi3": "phi3", "gemma2": "gemma2", "gemma3_text": "gemma3", "gemma3": "gemma3", "granite": "granite", "granitemoehybrid": "granite", "smollm3": "smollm3",
         "olmo2": "olmo2", "olmo3": "olmo2", "glm4": "glm4", "cohere": "command-r", "cohere2": "cohere2", "internlm2": "internlm2", "exaone": "exaone",
         "exaone4": "exaone4", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmoe": "olmoe", "granitemoe": "granitemoe", "granitemoeshared": "granitemoe", "gpt_oss": "gpt-oss", "glm4_moe": "glm4moe", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "baichuan": "baichuan", "mistral3": "mistral3", "qwen2_5_vl": "qwen2vl"}
PAIRS = ("llama", "granite", "granitemoe", "smollm3", "internlm2", "baichuan", "mistral3")
NAMES = {**make_gguf.NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "attention_norm": "attn_norm", "ffn_norm": "ffn_norm",
         "attention.wo": "attn_output", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "ln_1": "attn_norm",
         "ln_2": "ffn_norm", "attn.attention.q_proj": "attn_q", "attn.attention.k_proj": "attn_k", "attn.attention.v_proj": "attn_v",
         "attn.attention.out_proj": "attn_output", "mlp.c_fc_0": "ffn_gate", "mlp.c_fc_1": "ffn_up", "mlp.c_proj": "ffn_down",
         "shared_mlp.output_linear": "ffn_down", "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
         **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}, "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm",
         "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "block_sparse_moe.router.layer": "ffn_gate_inp",
         "block_sparse_moe.output_linear": "ffn_down_exps", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
         "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
         **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}, "feed_forward.router": "ffn_gate_inp",
         **{f"feed_forward.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
TOP = {"embed_tokens": "token_embd", "tok_embeddings": "token_embd", "wte": "token_embd", "norm": "output_norm", "ln_f": "output_norm", "lm_head": "output",
       "output": "output"}
EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps", "w1": "ffn_gate_exps", "w3": "ffn_up_exps",
           "w2": "ffn_down_exps"}
ROOTS = ("model.language_model.", "language_model.model.", "language_model.", "transformer.", "model.")


def cut(stem, a, c, dim):
    """(name, rows) of a tensor that the converter cuts."""
    heads, kv = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    if stem == "attention.wqkv":
        rows = a.reshape(kv, heads // kv + 2, dim, *a.shape[1:])
        parts = rows[:, :-2], rows[:, -2], rows[:, -1]
        return [(name, p.reshape(-1, *a.shape[1:])) for name, p in zip(("attn_q", "attn_k", "attn_v"), parts)]
    if stem == "self_attn.W_pack":
        return list(zip(("attn_q", "attn_k", "attn_v"), np.split(a, 3)))
    if stem == "block_sparse_moe.input_linear":
        return list(zip(("ffn_gate_exps", "ffn_up_exps"), np.split(a, 2, axis=1)))
    if stem == "self_attn.kv_b_proj":
        rows = a.reshape(heads, -1, a.shape[1])
        still = c["qk_nope_head_dim"]
        return [("attn_k_b", np.ascontiguousarray(np.swapaxes(rows[:, :still], 1, 2))), ("attn_v_b", np.ascontiguousarray(rows[:, still:]))]
    tail = "_shexp" if c.get("num_local_experts") else ""
    return list(zip(("ffn_gate" + tail, "ffn_up" + tail), np.split(a, 2)))


def gpt_oss(name, a):
    """(name, tensor) of what gpt-oss has no ".weight" for."""
    if name == "sinks":
        return [("attn_sinks.weight", a)]
    tail, swap = ("bias", lambda x: x) if name.endswith("_bias") else ("weight", lambda x: np.swapaxes(x, 1, 2))
    if name.startswith("down_proj"):
        return [(f"ffn_down_exps.{tail}", swap(a))]
    return [(f"ffn_gate_exps.{tail}", swap(a[..., 0::2])), (f"ffn_up_exps.{tail}", swap(a[..., 1::2]))]


def llama4(name, a):
    """(name, tensor) of its stacks: rows where columns are meant, gate before up."""
    whole = np.ascontiguousarray(np.swapaxes(a, 1, 2))
    if name == "down_proj":
        return [("ffn_down_exps.weight", whole)]
    return list(zip(("ffn_gate_exps.weight", "ffn_up_exps.weight"), np.split(whole, 2, axis=1)))


def tensors_of(config, c, tensors, arch, dim, whole_latents=False):
    heads, kv = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    kind = config["model_type"]
    out, stacks = [], {}
    for name, a in tensors.items():
        if any(part in name for part in ("vision", "visual", "multi_modal")):
            continue
        for root in ROOTS:
            if name.startswith(root):
                name = name[len(root):]
                break
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            a = a + 1
        if name.endswith("e_score_correction_bias"):
            out.append((f"blk.{name.split('.')[1]}.exp_probs_b.bias", a))
            continue
        if kind in ("gpt_oss", "llama4", "llama4_text") and not name.endswith((".weight", ".bias")):
            as_files = gpt_oss if kind == "gpt_oss" else llama4
            out += [(f"blk.{name.split('.')[1]}.{part}", x) for part, x in as_files(name.rsplit(".", 1)[1], a)]
            continue
        stem, tail = name.rsplit(".", 1)
        if stem in TOP:
            out.append((f"{TOP[stem]}.{tail}", a))
            continue
        _, layer, stem = stem.split(".", 2)
        if ".experts." in stem:
            number, part = stem.split(".experts.")[1].split(".")
            stacks.setdefault(f"blk.{layer}.{EXPERTS[part]}.weight", {})[int(number)] = a
            continue
        if stem == "mlp.shared_expert_gate":
            a = a[0]
        names = NAMES
        if stem == "shared_mlp.output_linear" and c.get("num_local_experts"):
            names = {stem: "ffn_down_shexp"}
        if kind in ("glm4", "glm4_moe", "gpt_oss", "gemma2", "gemma3", "gemma3_text", "olmo2", "olmo3", "exaone4") and stem == "post_attention_layernorm":
            names = {stem: "ffn_norm" if kind == "glm4" else "post_attention_norm"}
        parts = cut(stem, a, c, dim) if (stem == "self_attn.kv_b_proj" and not whole_latents) or stem in (
            "attention.wqkv", "self_attn.W_pack", "shared_mlp.input_linear", "block_sparse_moe.input_linear") else [(names[stem], a)]
        for part, rows in parts:
            if arch in PAIRS and part in ("attn_q", "attn_k"):
                rows = make_gguf.as_pairs(rows, heads if part == "attn_q" else kv)
            out.append((f"blk.{layer}.{part}.{tail}", rows))
    return out + [(name, np.stack([a[e] for e in sorted(a)])) for name, a in stacks.items()]


def deepseek2(c, key, whole_latents):
    still, turning, rank, value = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank", "v_head_dim"))
    key("attention.head_count_kv", "u32", c["num_key_value_heads"] if whole_latents else 1)
    key("attention.key_length", "u32", still + turning if whole_latents else rank + turning)
    key("attention.value_length", "u32", value if whole_latents else rank)
    if not whole_latents:
        key("attention.key_length_mla", "u32", still + turning)
        key("attention.value_length_mla", "u32", value)
    key("attention.q_lora_rank", "u32", c["q_lora_rank"])
    key("attention.kv_lora_rank", "u32", rank)
    key("rope.dimension_count", "u32", turning)
    key("rope.scaling.yarn_log_multiplier", "f32", 0.1 * c["rope_scaling"]["mscale_all_dim"] if c["rope_scaling"] else None)
    if c["scoring_func"] == "sigmoid":  # older files of the others do not have the key
        key("expert_gating_func", "u32", 2)


def metadata(config, c, arch, dim, layers, whole_latents=False):
    scaling, pairs = c.get("rope_scaling") or {}, [("general.architecture", "str", arch)]
    gemma = arch.startswith("gemma")

    def key(name, kind, value):
        if value is not None:
            pairs.append((f"{arch}.{name}", kind, value))

    key("context_length", "u32", c.get("model_max_length", c.get("max_position_embeddings", 131072)))
    key("embedding_length", "u32", c["hidden_size"])
    key("block_count", "u32", layers + c.get("num_nextn_predict_layers", 0))
    mixture = c.get("num_local_experts", 0) > 0
    if arch == "llama4":
        key("interleave_moe_layer_step", "u32", c["interleave_moe_layer_step"])
        key("expert_feed_forward_length", "u32", c["intermediate_size"])
        key("attention.chunk_size", "u32", c["attention_chunk_size"])
        key("attention.temperature_length", "u32", c["floor_scale"])
        key("attention.temperature_scale", "f32", c["attn_scale"])
    key("feed_forward_length", "u32", c["intermediate_size_mlp"] if arch == "llama4" else c["intermediate_size"] if mixture else c.get("shared_intermediate_size", c["intermediate_size"]))
    key("attention.head_count", "u32", c["num_attention_heads"])
    if arch != "deepseek2":
        key("attention.head_count_kv", "u32", c.get("num_key_value_heads"))
    key("expert_count", "u32", c.get("num_experts", c.get("num_local_experts", c.get("n_routed_experts"))))
    if arch == "deepseek2":
        deepseek2({"rope_scaling": None, **c}, key, whole_latents)
    if arch == "glm4moe":
        key("expert_gating_func", "u32", 2)
    if arch in ("glm4moe", "deepseek2"):
        key("expert_weights_norm", "bool", c["norm_topk_prob"])
        for name, kind, member in (("expert_shared_count", "u32", "n_shared_experts"), ("expert_group_count", "u32", "n_group"),
                                   ("expert_group_used_count", "u32", "topk_group"), ("expert_weights_scale", "f32", "routed_scaling_factor"),
                                   ("leading_dense_block_count", "u32", "first_k_dense_replace"),
                                   ("nextn_predict_layers", "u32", "num_nextn_predict_layers")):
            key(name, kind, c.get(member))
    key("expert_used_count", "u32", c.get("num_experts_per_tok"))
    key("expert_feed_forward_length", "u32", c.get("moe_intermediate_size"))
    key("expert_shared_feed_forward_length", "u32", c.get("shared_expert_intermediate_size", c.get("shared_intermediate_size") if mixture else None))
    if "head_dim" in c:
        key("attention.key_length", "u32", dim)
        key("attention.value_length", "u32", dim)
    if arch in ("command-r", "cohere2"):
        key("attention.layer_norm_epsilon", "f32", c["layer_norm_eps"])
    else:
        key("attention.layer_norm_rms_epsilon", "f32", c.get("rms_norm_eps", c.get("layer_norm_epsilon")))
    key("rope.freq_base", "f32", c["rope_theta"])
    partial = c.get("partial_rotary_factor", 1.0)
    if arch != "deepseek2":
        key("rope.dimension_count", "u32", int(dim * partial))
    key("attention.sliding_window", "u32", c.get("sliding_window") or None)
    pattern = c.get("sliding_window_pattern")
    if isinstance(pattern, int) and c.get("sliding_window"):
        key("attention.sliding_window_pattern", "u32", pattern)
    if isinstance(pattern, str):
        key("attention.sliding_window_pattern", "bools", [pattern[i % len(pattern)] == "L" for i in range(layers)])
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        key("rope.scaling.type", "str", kind)
        key("rope.scaling.factor", "f32", scaling["factor"])
        key("rope.scaling.original_context_length", "u32", scaling.get("original_max_position_embeddings"))
    if kind in ("su", "longrope"):
        old, new = c["original_max_position_embeddings"], c["max_position_embeddings"]
        key("rope.scaling.original_context_length", "u32", old)
        key("rope.scaling.attn_factor", "f32", math.sqrt(1 + math.log(new / old) / math.log(old)))
    if gemma:
        key("attn_logit_softcapping", "f32", c.get("attn_logit_softcapping"))
        key("final_logit_softcapping", "f32", c.get("final_logit_softcapping"))
        key("rope.freq_base_swa", "f32", c.get("rope_local_base_freq"))
    if arch.startswith("granite"):
        for name, member in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                             ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            key(name, "f32", c[member])
    if arch in ("command-r", "cohere2"):
        key("logit_scale", "f32", c["logit_scale"])
    pairs += [("tokenizer.ggml.bos_token_id", "u32", 1), ("tokenizer.ggml.eos_token_id", "u32", 2), ("tokenizer.ggml.model", "str", "gpt2"),
              ("tokenizer.ggml.tokens", "strs", [f"t{i}" for i in range(c["vocab_size"])])]
    return pairs


def mxfp4_blocks(a):
    """Of values that fit: a scale, then sixteen bytes, element j below element j + 16."""
    groups = a.reshape(-1, 32)
    exponent = np.full(len(groups), -127)
    for e in range(-30, 10):  # the smallest scale by which all are doubled values of E2M1
        fits = np.isin(np.abs(groups) / 2.0 ** e, [0, 0.5, 1, 1.5, 2, 3, 4, 6]).all(1)
        exponent = np.where(fits & (exponent == -127), e, exponent)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -9, -0.5, -1, -1.5, -2, -3, -4, -6])
    code = np.abs((groups / 2.0 ** exponent[:, None])[..., None] - values).argmin(-1)
    assert np.array_equal(values[code] * 2.0 ** exponent[:, None], groups)
    return np.concatenate([(exponent + 127)[:, None], code[:, :16] | code[:, 16:] << 4], 1).astype(np.uint8).tobytes()


def as_blocks(tensors, kind_of, names_of, seed):
    """(tensors with u8 rows of blocks in the place of those that have a type, what all of them mean). Rows are cut and stacked as numbers are."""
    rng, raw, back = np.random.default_rng(seed), {}, dict(tensors)
    for name, a in tensors.items():
        kind = kind_of(names_of(name, a)) if a.ndim >= 2 else None
        if kind and a.shape[-1] % make_gguf.TYPES[kind][1] == 0:
            data, back[name] = make_gguf.blocks_of(kind, a, rng)
            raw[name] = np.frombuffer(data, np.uint8).reshape(*a.shape[:-1], -1)
    return {**tensors, **raw}, back


def write(folder, out, kinds=None, tensors=None, whole_latents=False, raw=None, own=None, seed=4):
    """Returns (config, tensors) for reference_decoder.py. kinds: {end of a tensor's name: its type}, F32 otherwise; tensors: what to take
    instead of the folder's; whole_latents: as older converters, attn_kv_b;
    raw: {name in the file: (type, bytes)}; own(name): the type of a matrix by its name in GGUF, or None: random blocks that fit, and tensors say
    what they mean."""
    config, found = reference.read_model(folder)
    tensors = tensors or found
    c = {**config, **config.get("text_config", {})}
    arch = ARCHS[config["model_type"]]
    layers = c.get("num_hidden_layers", c.get("num_layers"))
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    # arguments that tests replace these functions by know nothing of
    extra = {"whole_latents": True} if whole_latents else {}
    stored = tensors
    if own:
        stored, tensors = as_blocks(tensors, own, lambda name, a: (tensors_of(config, c, {name: a}, arch, dim, **extra) or [(name, a)])[0][0], seed)
    files = tensors_of(config, c, stored, arch, dim, **extra)
    scaling = c.get("rope_scaling") or {}
    if "short_factor" in scaling:
        files += [(f"rope_factors_{length}.weight", np.array(scaling[f"{length}_factor"])) for length in ("short", "long")]
    if scaling.get("rope_type") == "llama3":
        files.append(("rope_freqs.weight", make_gguf.llama3_divisors(c, dim)))
    data = []
    for name, a in files:
        kind = next((kind for end, kind in (kinds or {}).items() if name.endswith(end)), "F32")
        if name in (raw or {}):
            data.append((name, a.shape, *raw[name]))
            continue
        if a.dtype == np.uint8:
            kind = own(name)
            _, elements, size = make_gguf.TYPES[kind]
            data.append((name, (*a.shape[:-1], a.shape[-1] // size * elements), kind, np.ascontiguousarray(a).tobytes()))
            continue
        data.append((name, a.shape, kind, mxfp4_blocks(a) if kind == "MXFP4" else a.astype(np.float32).tobytes()))
    make_gguf.write_file(out, metadata(config, c, arch, dim, layers, **extra), data)
    return config, tensors
