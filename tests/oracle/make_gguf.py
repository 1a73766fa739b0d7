#!/usr/bin/env python3
"""Writes a HuggingFace model directory as GGUF, with tensors of any block type, and reads the values of such blocks: the definition
of the formats a second time, in numpy and float64.

    make_gguf.py MODEL OUT.gguf [--type Q4_K] [--parts 2]

Blocks of quantised types hold random bits under scales that fit the tensor: what is tested is reading, not quantising. `values` says what
was written, so that the reference forward pass can run on it.
"""
import argparse
import json
import math
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference  # noqa: E402

ALIGN = 32
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float64)

# Where f16 scales (and minima) stand in a block, with how large its codes are: a scale of 1 / size gives values about 1.
SCALES = {"Q8_0": ([0], 127), "Q4_0": ([0], 8), "Q4_1": ([0, 2], 15), "Q5_0": ([0], 16), "Q5_1": ([0, 2], 31), "IQ4_NL": ([0], 127),
          "Q2_K": ([80, 82], 45), "Q3_K": ([108], 128), "Q4_K": ([0, 2], 945), "Q5_K": ([0, 2], 1953), "Q6_K": ([208], 4096),
          "IQ4_XS": ([0], 4064)}


# ---- reading blocks: b is uint8 [blocks][bytes]
def f16(b, at):
    return b[:, at:at + 2].copy().view(np.float16).astype(np.float64)


def nibbles(b):
    """[blocks][16] bytes to [blocks][32]: the lower halves first."""
    return np.concatenate([b & 15, b >> 4], axis=1).astype(np.float64)


def bits(b, n):
    return np.stack([(b[:, i // 8] >> (i % 8)) & 1 for i in range(n)], axis=1).astype(np.float64)


def k_scales(s):
    """Twelve bytes: eight scales and eight minima of six bits."""
    scale, least = [], []
    for j in range(8):
        if j < 4:
            scale.append(s[:, j] & 63)
            least.append(s[:, j + 4] & 63)
        else:
            scale.append((s[:, j + 4] & 15) | (s[:, j - 4] >> 6) << 4)
            least.append((s[:, j + 4] >> 4) | (s[:, j] >> 6) << 4)
    return np.stack(scale, 1).astype(np.float64), np.stack(least, 1).astype(np.float64)


def read_blocks(kind, b):
    if kind == "Q8_0":
        return f16(b, 0) * b[:, 2:].view(np.int8)
    if kind == "Q4_0":
        return f16(b, 0) * (nibbles(b[:, 2:]) - 8)
    if kind == "Q4_1":
        return f16(b, 0) * nibbles(b[:, 4:]) + f16(b, 2)
    if kind == "Q5_0":
        return f16(b, 0) * (nibbles(b[:, 6:]) + 16 * bits(b[:, 2:6], 32) - 16)
    if kind == "Q5_1":
        return f16(b, 0) * (nibbles(b[:, 8:]) + 16 * bits(b[:, 4:8], 32)) + f16(b, 2)
    if kind == "IQ4_NL":
        return f16(b, 0) * IQ4[nibbles(b[:, 2:]).astype(int)]
    if kind == "MXFP4":
        return 2.0 ** (b[:, :1].astype(np.float64) - 127) * FP4[nibbles(b[:, 1:]).astype(int)]
    out = np.zeros((len(b), 256))
    for k in range(256):
        half, j, lane, run = k // 128, k // 32 % 4, k % 32, k // 32
        if kind == "Q2_K":
            s = b[:, k // 16]
            q = b[:, 16 + 32 * half + lane] >> (2 * j) & 3
            out[:, k] = f16(b, 80)[:, 0] * (s & 15) * q - f16(b, 82)[:, 0] * (s >> 4)
        elif kind == "Q3_K":
            i = k // 16
            low = b[:, 96 + i] & 15 if i < 8 else b[:, 96 + i - 8] >> 4
            s = (low | (b[:, 104 + i % 4] >> (2 * (i // 4)) & 3) << 4).astype(np.float64) - 32
            q = (b[:, 32 + 32 * half + lane] >> (2 * j) & 3) + 4.0 * (b[:, lane] >> (4 * half + j) & 1) - 4
            out[:, k] = f16(b, 108)[:, 0] * s * q
        elif kind in ("Q4_K", "Q5_K"):
            scale, least = k_scales(b[:, 4:16])
            qs = b[:, (16 if kind == "Q4_K" else 48) + 32 * (run // 2) + lane]
            q = (qs >> 4 if run % 2 else qs & 15).astype(np.float64)
            if kind == "Q5_K":
                q += 16.0 * (b[:, 16 + lane] >> run & 1)
            out[:, k] = f16(b, 0)[:, 0] * scale[:, run] * q - f16(b, 2)[:, 0] * least[:, run]
        elif kind == "Q6_K":
            low = b[:, 64 * half + 32 * (j & 1) + lane]
            q = (low >> 4 if j & 2 else low & 15).astype(np.float64) + 16.0 * (b[:, 128 + 32 * half + lane] >> (2 * j) & 3) - 32
            out[:, k] = f16(b, 208)[:, 0] * b[:, 192 + k // 16].view(np.int8) * q
        elif kind == "IQ4_XS":
            high = b[:, 2].astype(int) | b[:, 3].astype(int) << 8
            s = (b[:, 4 + run // 2] >> (4 * (run % 2)) & 15) | (high >> (2 * run) & 3) << 4
            nib = b[:, 8 + 16 * run + lane % 16]
            out[:, k] = f16(b, 0)[:, 0] * (s - 32.0) * IQ4[nib & 15 if lane < 16 else nib >> 4]
    return out


# ---- writing
def blocks_of(kind, values, rng):
    """(bytes, values as read back) of a matrix."""
    elements = TYPES[kind][1]
    if kind == "F32":
        a = values.astype(np.float32)
        return a.tobytes(), a.astype(np.float64)
    if kind == "F16":
        a = values.astype(np.float16)
        return a.tobytes(), a.astype(np.float64)
    if kind == "BF16":
        u = values.astype(np.float32).view(np.uint32)
        u = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
        return u.tobytes(), (u.astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(values.shape)
    b = random_blocks(kind, values.size // elements, float(np.std(values)), rng)
    return b.tobytes(), read_blocks(kind, b).reshape(values.shape)


def random_blocks(kind, n, spread, rng):
    """n blocks of a quantised type, uint8 [n][bytes]: random bits under scales that make values about as large as spread."""
    b = rng.integers(0, 256, (n, TYPES[kind][2]), dtype=np.uint8)
    if kind == "MXFP4":
        b[:, 0] = 127 + round(math.log2(spread / 3)) + rng.integers(-1, 2, n)
        return b
    places, top = SCALES[kind]
    for at in places:
        scale = (spread * 2 / top * (0.5 + rng.random(n))).astype(np.float16)
        if at != places[0] and kind in ("Q4_1", "Q5_1"):
            scale = (-spread * (0.5 + rng.random(n))).astype(np.float16)
        b[:, at:at + 2] = scale.view(np.uint8).reshape(n, 2)
    return b


# ---- quantising: to the nearest, with the scale that the largest value of a group asks for
def put_f16(b, at, values):
    b[:, at:at + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def signed_groups(x, top, most):
    """Groups of 16 as d * s * q, q from -top to top - 1, s from -most to most: (d as f16 has it, s, q)."""
    g = x.reshape(-1, 16, 16)
    scale = -np.take_along_axis(g, np.abs(g).argmax(-1)[..., None], -1)[..., 0] / top
    d = (np.abs(scale).max(1) / most).astype(np.float16)
    s = np.rint(scale / np.maximum(d.astype(np.float64), 1e-30)[:, None]).clip(-most, most).astype(int)
    step = d.astype(np.float64)[:, None] * s
    q = np.rint(g / np.where(step == 0, 1, step)[..., None]).clip(-top, top - 1).astype(int)
    return d, s, q.reshape(-1, 256)


def fit_q6_k(x):
    d, s, q = signed_groups(x, 32, 127)
    b, q = np.zeros((len(x), 210), np.uint8), (q + 32).astype(np.uint8)
    for half in range(2):
        for j in range(4):
            part = q[:, 128 * half + 32 * j:128 * half + 32 * j + 32]
            at = 64 * half + 32 * (j & 1)
            b[:, at:at + 32] |= (part & 15) << (4 if j & 2 else 0)
            b[:, 128 + 32 * half:160 + 32 * half] |= (part >> 4) << (2 * j)
    b[:, 192:208] = s.astype(np.int8).view(np.uint8)
    put_f16(b, 208, d)
    return b


def fit_q3_k(x):
    d, s, q = signed_groups(x, 4, 31)
    b, q, s = np.zeros((len(x), 110), np.uint8), (q + 4).astype(np.uint8), (s + 32).astype(np.uint8)
    for run in range(8):
        part = q[:, 32 * run:32 * run + 32]
        b[:, 32 + 32 * (run // 4):64 + 32 * (run // 4)] |= (part & 3) << (2 * (run % 4))
        b[:, :32] |= (part >> 2) << run
    for i in range(16):
        b[:, 96 + i % 8] |= (s[:, i] & 15) << (4 * (i // 8))
        b[:, 104 + i % 4] |= (s[:, i] >> 4) << (2 * (i // 4))
    put_f16(b, 108, d)
    return b


def fit_q4_k(x):
    g = x.reshape(-1, 8, 32)
    low = np.minimum(g.min(-1), 0)
    scale, least = (g.max(-1) - low) / 15, -low
    d, dm = [np.maximum(v.max(1) / 63, 1e-7).astype(np.float16).astype(np.float64)[:, None] for v in (scale, least)]
    s, m = [np.rint(v / u).clip(0, 63).astype(np.uint8) for v, u in ((scale, d), (least, dm))]
    q = np.rint((g + (dm * m)[..., None]) / np.maximum(d * s, 1e-30)[..., None]).clip(0, 15).astype(np.uint8)
    b = np.zeros((len(x), 144), np.uint8)
    put_f16(b, 0, d)
    put_f16(b, 2, dm)
    for j in range(4):
        b[:, 4 + j] = s[:, j] | (s[:, j + 4] >> 4) << 6
        b[:, 8 + j] = m[:, j] | (m[:, j + 4] >> 4) << 6
        b[:, 12 + j] = (s[:, j + 4] & 15) | (m[:, j + 4] & 15) << 4
    for run in range(8):
        b[:, 16 + 32 * (run // 2):48 + 32 * (run // 2)] |= q[:, run] << (4 * (run % 2))
    return b


def fit_q8_0(x):
    g = x.reshape(-1, 32)
    d = (np.abs(g).max(1) / 127).astype(np.float16)
    b = np.zeros((len(g), 34), np.uint8)
    put_f16(b, 0, d)
    b[:, 2:] = np.rint(g / np.maximum(d.astype(np.float64), 1e-30)[:, None]).clip(-127, 127).astype(np.int8).view(np.uint8)
    return b


FITS = {"Q3_K": fit_q3_k, "Q4_K": fit_q4_k, "Q6_K": fit_q6_k, "Q8_0": fit_q8_0}


def fitted(kind, values, rng):
    """As blocks_of(), but near the values given; types that FITS lacks as there."""
    if kind not in FITS:
        return blocks_of(kind, values, rng)
    b = FITS[kind](values.astype(np.float64).reshape(-1, TYPES[kind][1]))
    return b.tobytes(), read_blocks(kind, b).reshape(values.shape)


def packed_string(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


KINDS = {"u16": (2, "<H"), "u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q")}


def packed_pair(key, kind, value):
    out = packed_string(key)
    if kind == "str":
        return out + struct.pack("<I", 8) + packed_string(value)
    if kind == "strs":
        return out + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(packed_string(v) for v in value)
    if kind.endswith("s") and kind[:-1] in KINDS:
        number, form = KINDS[kind[:-1]]
        return out + struct.pack("<IIQ", 9, number, len(value)) + b"".join(struct.pack(form, v) for v in value)
    number, form = KINDS[kind]
    return out + struct.pack("<I", number) + struct.pack(form, value)


def tensor_size(shape, kind):
    _, elements, size = TYPES[kind]
    return math.prod(shape) // elements * size


def write_file(path, pairs, tensors):
    """pairs: [(key, kind, value)]; tensors: [(name, shape slowest first, type, bytes or what returns them)]."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs)) + b"".join(packed_pair(*p) for p in pairs)
    at = 0
    for name, shape, kind, data in tensors:
        head += packed_string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", TYPES[kind][0], at)
        at += -(-(tensor_size(shape, kind) if callable(data) else len(data)) // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN))
        for _, shape, kind, data in tensors:
            if callable(data):
                data = data()
                assert len(data) == tensor_size(shape, kind)
            f.write(data + b"\0" * (-len(data) % ALIGN))


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]
    layer, rest = name[len("model.layers."):].split(".", 1)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def as_pairs(a, heads):
    """Rows of each head from halves to RoPE's pairs."""
    rows = a.reshape(heads, 2, -1, *a.shape[1:])
    return np.ascontiguousarray(np.swapaxes(rows, 1, 2)).reshape(a.shape)


def as_halves(a, heads):
    rows = a.reshape(heads, -1, 2, *a.shape[1:])
    return np.ascontiguousarray(np.swapaxes(rows, 1, 2)).reshape(a.shape)


def llama3_divisors(config, dim):
    plain, _ = reference.rope_frequencies({**config, "rope_scaling": None, "rope_parameters": None}, dim)
    scaled, _ = reference.rope_frequencies(config, dim)
    return plain / scaled


def metadata(config, folder):
    arch = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}[config["model_type"]]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    pairs = [("general.architecture", "str", arch), ("general.alignment", "u32", ALIGN), (f"{arch}.context_length", "u32", config["max_position_embeddings"]),
             (f"{arch}.embedding_length", "u32", config["hidden_size"]), (f"{arch}.block_count", "u32", config["num_hidden_layers"]),
             (f"{arch}.feed_forward_length", "u32", config["intermediate_size"]), (f"{arch}.attention.head_count", "u32", heads),
             (f"{arch}.attention.head_count_kv", "u32", config["num_key_value_heads"]), (f"{arch}.attention.key_length", "u32", dim),
             (f"{arch}.attention.value_length", "u32", dim), (f"{arch}.attention.layer_norm_rms_epsilon", "f32", config["rms_norm_eps"]),
             (f"{arch}.rope.freq_base", "f32", config.get("rope_theta", 10000.0)), (f"{arch}.rope.dimension_count", "u32", dim)]
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        pairs += [(f"{arch}.rope.scaling.type", "str", kind), (f"{arch}.rope.scaling.factor", "f32", scaling["factor"])]
    if kind == "yarn":
        pairs.append((f"{arch}.rope.scaling.original_context_length", "u32", scaling["original_max_position_embeddings"]))
    eos = config["eos_token_id"]
    pairs += [("tokenizer.ggml.bos_token_id", "u32", config["bos_token_id"]), ("tokenizer.ggml.eos_token_id", "u32", eos[0] if isinstance(eos, list) else eos)]
    return arch, pairs + tokenizer_pairs(config, folder)


def tokenizer_pairs(config, folder):
    """A byte-level tokenizer.json of the folder, with the pattern of Llama 3; without one a list of names."""
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        return [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.tokens", "strs", [f"t{i}" for i in range(config["vocab_size"])])]
    with open(path) as f:
        t = json.load(f)
    tokens, types = [f"[unused{i}]" for i in range(config["vocab_size"])], [5] * config["vocab_size"]
    for text, i in t["model"]["vocab"].items():
        tokens[i], types[i] = text, 1
    for a in t["added_tokens"]:
        tokens[a["id"]], types[a["id"]] = a["content"], 3 if a["special"] else 4
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    pairs = [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", "smaug-bpe"), ("tokenizer.ggml.tokens", "strs", tokens),
             ("tokenizer.ggml.token_type", "i32s", types), ("tokenizer.ggml.merges", "strs", merges),
             ("tokenizer.ggml.add_bos_token", "bool", t.get("post_processor") is not None)]
    conf = os.path.join(folder, "tokenizer_config.json")
    if os.path.exists(conf):
        with open(conf) as f:
            template = json.load(f).get("chat_template")
        if template:
            pairs.append(("tokenizer.chat_template", "str", template))
    return pairs


def write_gguf(folder, out, kind="F32", parts=1, seed=0, scales=None, make=blocks_of):
    """make: blocks_of() or fitted(). Returns (config, tensors) of what was written, for reference.py: HuggingFace's names and order of rows. kind: a type, or what says the
    type of a name. scales[name] gets the f16 at the beginning of each value's block of 32."""
    config, tensors = reference.read_model(folder)
    arch, pairs = metadata(config, folder)
    rng = np.random.default_rng(seed)
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    file_tensors, back = [], {}
    for name, a in tensors.items():
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}.get(name.split("self_attn.")[-1][0]) \
            if ".q_proj" in name or ".k_proj" in name else None
        turn = arch == "llama" and heads is not None
        own = kind(name) if callable(kind) else kind
        own = own if a.ndim == 2 and a.shape[1] % TYPES[own][1] == 0 else "F32"
        data, values = make(own, as_pairs(a, heads) if turn else a, rng)
        back[name] = as_halves(values, heads) if turn else values
        if scales is not None and TYPES[own][1] == 32:
            scale = np.repeat(f16(np.frombuffer(data, np.uint8).reshape(-1, TYPES[own][2]), 0), 32, 1).reshape(a.shape)
            scales[name] = as_halves(scale, heads) if turn else scale
        file_tensors.append((gguf_name(name), a.shape, own, data))
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        file_tensors.append(("rope_freqs.weight", (dim // 2,), "F32", llama3_divisors(config, dim).astype(np.float32).tobytes()))
    if parts == 1:
        write_file(out, pairs, file_tensors)
        return config, back
    per = -(-len(file_tensors) // parts)
    for i in range(parts):
        split = [("split.no", "u16", i), ("split.count", "u16", parts), ("split.tensors.count", "i32", len(file_tensors))]
        write_file(f"{out[:-len('.gguf')]}-{i + 1:05}-of-{parts:05}.gguf", (pairs if i == 0 else []) + split, file_tensors[per * i:per * (i + 1)])
    return config, back


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--type", choices=sorted(TYPES), default="F32")
    p.add_argument("--parts", type=int, default=1)
    a = p.parse_args()
    write_gguf(a.model, a.out, a.type, a.parts)


if __name__ == "__main__":
    main()
