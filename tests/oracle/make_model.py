#!/usr/bin/env python3
"""Writes a HuggingFace model directory with random weights: tiny ones for tests, real shapes for benchmarks.

    make_model.py OUT --family qwen2 [--dtype bf16] [--tied] [--shards 3] [--seed 1] [--tokenizer tokenizer.json]
    make_model.py OUT --preset tinyllama-1.1b

The safetensors writer is our own, so that tests depend on nothing but numpy. Weights are scaled so that a tiny model's
most likely token stands clear of the second: greedy continuations can be compared exactly.
"""
import argparse
import json
import os
import shutil
import struct

import numpy as np

DTYPES = {"f32": ("F32", 4), "f16": ("F16", 2), "bf16": ("BF16", 2)}

TINY = dict(hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=211, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
            bos_token_id=1, eos_token_id=2)

# What a family's config.json says beyond the shape.
FAMILIES = {
    "llama2": dict(model_type="llama", architectures=["LlamaForCausalLM"], num_key_value_heads=4),
    "llama_bias": dict(model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=True, mlp_bias=True),
    "llama3": dict(model_type="llama", architectures=["LlamaForCausalLM"], rope_theta=500000.0,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64)),
    "linear": dict(model_type="llama", architectures=["LlamaForCausalLM"], rope_scaling=dict(type="linear", factor=4.0)),
    "yarn": dict(model_type="llama", architectures=["LlamaForCausalLM"], max_position_embeddings=64,
                 rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64)),
    "yarn_mscale": dict(model_type="llama", architectures=["LlamaForCausalLM"], max_position_embeddings=256,
                        rope_parameters=dict(rope_type="yarn", rope_theta=50000.0, factor=4.0, mscale=1.2,
                                             mscale_all_dim=0.7, beta_fast=16, beta_slow=2, truncate=False,
                                             original_max_position_embeddings=64)),
    "mistral": dict(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=24, head_dim=24),
    "mistral_full": dict(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None),
    "qwen2": dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=False, sliding_window=16,
                  max_window_layers=1, rope_theta=1000000.0),
    "qwen2_window": dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=True,
                         sliding_window=16, max_window_layers=1, rope_theta=1000000.0),
    "qwen3": dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=40, num_attention_heads=6,
                  num_key_value_heads=2, rope_theta=1000000.0, attention_bias=False),
}

PRESETS = {
    "qwen2.5-0.5b": dict(family="qwen2", dtype="bf16", tied=True,
                         config=dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                                     num_attention_heads=14, num_key_value_heads=2, vocab_size=151936,
                                     max_position_embeddings=32768, rms_norm_eps=1e-6, bos_token_id=151643,
                                     eos_token_id=151645)),
    "tinyllama-1.1b": dict(family="llama2", dtype="bf16", tied=False,
                           config=dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                                       num_attention_heads=32, num_key_value_heads=4, vocab_size=32000,
                                       max_position_embeddings=2048, rms_norm_eps=1e-5)),
}


def make_config(family, tied=False, **over):
    config = dict(TINY)
    config.update(FAMILIES[family])
    config.update(over)
    config["tie_word_embeddings"] = tied
    return config


def tensor_shapes(c):
    """[(name, shape, scale)] in file order; scale is the standard deviation, None a norm's weight around 1."""
    h, inter, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    kv, vocab = c["num_key_value_heads"], c["vocab_size"]
    hd = c.get("head_dim") or h // heads
    qkv_bias = c["model_type"] == "qwen2" or c.get("attention_bias", False)
    o_bias = c["model_type"] != "qwen2" and c.get("attention_bias", False)
    out = [("model.embed_tokens.weight", (vocab, h), 1.0)]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out.append((p + "input_layernorm.weight", (h,), None))
        for name, n, k, bias in (("q", heads * hd, h, qkv_bias), ("k", kv * hd, h, qkv_bias), ("v", kv * hd, h, qkv_bias),
                                 ("o", h, heads * hd, o_bias)):
            out.append((p + f"self_attn.{name}_proj.weight", (n, k), (2.0 if name in "qk" else 1.0) / np.sqrt(k)))
            if bias:
                out.append((p + f"self_attn.{name}_proj.bias", (n,), 0.5))
        if c["model_type"] == "qwen3":
            out.append((p + "self_attn.q_norm.weight", (hd,), None))
            out.append((p + "self_attn.k_norm.weight", (hd,), None))
        out.append((p + "post_attention_layernorm.weight", (h,), None))
        for name, n, k in (("gate", inter, h), ("up", inter, h), ("down", h, inter)):
            out.append((p + f"mlp.{name}_proj.weight", (n, k), 1.0 / np.sqrt(k)))
            if c.get("mlp_bias"):
                out.append((p + f"mlp.{name}_proj.bias", (n,), 0.5))
    out.append(("model.norm.weight", (h,), None))
    if not c["tie_word_embeddings"]:
        out.append(("lm_head.weight", (vocab, h), 4.0 / np.sqrt(h)))
    return out


def to_bytes(a, dtype):
    a = np.ascontiguousarray(a, dtype=np.float32)
    if dtype == "f32":
        return a.tobytes()
    if dtype == "f16":
        return a.astype(np.float16).tobytes()
    u = a.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def random_values(rng, pool, n, scale):
    """n values; large tensors repeat a pool of normal numbers from a random place on, which is fast and good enough."""
    if n <= pool.size:
        values = rng.standard_normal(n, dtype=np.float32)
    else:
        values = np.resize(np.roll(pool, int(rng.integers(pool.size))), n)
    return 1.0 + 0.2 * values if scale is None else values * np.float32(scale)


def write_file(path, tensors, values, dtype):
    name, size = DTYPES[dtype]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for key, shape, _ in tensors:
        n = int(np.prod(shape)) * size
        header[key] = {"dtype": name, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for key, shape, scale in tensors:
            f.write(to_bytes(values(int(np.prod(shape)), scale), dtype))


def write_model(out, config, dtype="f32", shards=1, seed=0, tokenizer=None, generation=None, tensors=None):
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal(1 << 21, dtype=np.float32)
    tensors = tensors or tensor_shapes(config)

    def values(n, scale):
        return random_values(rng, pool, n, scale)

    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(dict(config, torch_dtype={"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[dtype]), f, indent=1)
    if generation is not None:
        with open(os.path.join(out, "generation_config.json"), "w") as f:
            json.dump(generation, f, indent=1)
    if shards == 1:
        write_file(os.path.join(out, "model.safetensors"), tensors, values, dtype)
    else:
        weight_map = {}
        per = -(-len(tensors) // shards)
        for i in range(shards):
            part, name = tensors[i * per:(i + 1) * per], f"model-{i + 1:05}-of-{shards:05}.safetensors"
            write_file(os.path.join(out, name), part, values, dtype)
            weight_map.update({key: name for key, _, _ in part})
        with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": weight_map}, f, indent=1)
    if tokenizer:
        shutil.copy(tokenizer, os.path.join(out, "tokenizer.json"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--family", choices=sorted(FAMILIES), default="llama2")
    p.add_argument("--preset", choices=sorted(PRESETS))
    p.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    p.add_argument("--tied", action="store_true")
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--tokenizer", help="a tokenizer.json to copy")
    p.add_argument("--set", action="append", default=[], metavar="MEMBER=JSON", help="a member of config.json")
    a = p.parse_args()
    over = {k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)}
    if a.preset:
        preset = PRESETS[a.preset]
        config = make_config(preset["family"], preset["tied"], **{**preset["config"], **over})
        write_model(a.out, config, preset["dtype"], a.shards, a.seed, a.tokenizer)
    else:
        write_model(a.out, make_config(a.family, a.tied, **over), a.dtype, a.shards, a.seed, a.tokenizer)


if __name__ == "__main__":
    main()
