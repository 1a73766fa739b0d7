"""An independent forward pass in float64 with numpy: the oracle of the engine's logits. Plain and slow on purpose: whole
sequences, full score matrices, no cache. Shares no code with the engine and none with make_model.py."""
import json
import math
import os
import struct

import numpy as np


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + x for x in t["data_offsets"])
        data = raw[begin:end]
        if t["dtype"] == "BF16":
            a = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            a = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[t["dtype"]])
        tensors[name] = a.astype(np.float64).reshape(t["shape"])
    return tensors


def read_model(folder):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(read_safetensors(os.path.join(folder, name)))
    return config, tensors


def rope_frequencies(config, dim):
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    freq = 1.0 / base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
    if kind == "default":
        return freq, 1.0
    factor = scaling["factor"]
    if kind == "linear":
        return freq / factor, 1.0
    old = scaling.get("original_max_position_embeddings", config["max_position_embeddings"])
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wave = 2 * math.pi / freq
        smooth = (old / wave - low) / (high - low or 1.0)  # Llama 4: nothing is between them
        blend = (1 - smooth) * freq / factor + smooth * freq
        return np.where(wave > old / low, freq / factor, np.where(wave < old / high, freq, blend)), 1.0
    assert kind == "yarn"

    def mscale(m):
        return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0

    if "attention_factor" in scaling:
        attention = scaling["attention_factor"]
    elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
        attention = mscale(scaling["mscale"]) / mscale(scaling["mscale_all_dim"])
    else:
        attention = mscale(1.0)

    def dim_of(rotations):
        return dim * math.log(old / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = dim_of(scaling.get("beta_fast", 32)), dim_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return freq / factor * ramp + freq * (1 - ramp), attention


def windows(config):
    """Per layer: the number of positions seen, or None."""
    n = config["num_hidden_layers"]
    if config["model_type"] == "mistral":
        return [config.get("sliding_window", 4096)] * n
    if config["model_type"] in ("qwen2", "qwen3") and config.get("use_sliding_window"):
        return [config["sliding_window"] if i >= config.get("max_window_layers", 28) else None for i in range(n)]
    return [None] * n


def logits(config, w, ids, kept=lambda rows: rows):
    """float64 [len(ids)][vocab_size]. kept: what the KV cache makes of keys and values, [n][kv_heads][dim]."""
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    dim = config.get("head_dim") or config["hidden_size"] // heads
    eps = config.get("rms_norm_eps", 1e-6)
    n = len(ids)
    freq, attention = rope_frequencies(config, dim)
    angle = np.arange(n)[:, None] * freq[None, :]
    cos, sin = np.cos(angle) * attention, np.sin(angle) * attention

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w[name]

    def linear(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if has_bias(config, name) else y

    def rotate(x):  # [n][heads][dim]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        c, s = cos[:, None, :], sin[:, None, :]
        return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)

    x = w["model.embed_tokens.weight"][np.asarray(ids)]
    for i, window in enumerate(windows(config)):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm.weight")
        q = linear(h, p + "self_attn.q_proj").reshape(n, heads, dim)
        k = linear(h, p + "self_attn.k_proj").reshape(n, kv_heads, dim)
        v = linear(h, p + "self_attn.v_proj").reshape(n, kv_heads, dim)
        if config["model_type"] == "qwen3":
            q, k = norm(q, p + "self_attn.q_norm.weight"), norm(k, p + "self_attn.k_norm.weight")
        q, k, v = rotate(q), kept(rotate(k)), kept(v)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        score = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim)
        row, col = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = col <= row if window is None else (col <= row) & (row - col < window)
        score = np.where(seen[None], score, -np.inf)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        o = np.einsum("hij,jhd->ihd", weight, v).reshape(n, heads * dim)
        x = x + linear(o, p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm.weight")
        gate = linear(h, p + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    head = w["model.embed_tokens.weight"] if config.get("tie_word_embeddings") else w["lm_head.weight"]
    return norm(x, "model.norm.weight") @ head.T


def has_bias(config, name):
    kind = name.rsplit(".", 1)[1]
    if config["model_type"] == "qwen2":
        return kind in ("q_proj", "k_proj", "v_proj")
    if kind in ("q_proj", "k_proj", "v_proj", "o_proj"):
        return bool(config.get("attention_bias"))
    return bool(config.get("mlp_bias"))


def greedy(config, w, ids, n, guess):
    """The n likeliest tokens behind ids, each after those before it. guess: n ids that they may be; right ones save passes, and none changes the
    result: after each pass the tokens up to the first wrong one are known, and that one too."""
    out = list(guess)
    known = 0
    while known < n:
        rows = logits(config, w, list(ids) + out[:n - 1])[len(ids) - 1:]
        likeliest = [int(t) for t in np.argmax(rows, axis=-1)]
        while known < n and out[known] == likeliest[known]:
            known += 1
        if known < n:
            out[known] = likeliest[known]
            known += 1
    return out
