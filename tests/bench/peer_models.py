"""GGUF files that two engines read alike: random weights of real shapes, each matrix in the type that llama.cpp's quantiser gives it.

    peer_models.py SHAPE TYPE OUT.gguf       SHAPE: dense, moe; TYPE: Q4_K_M, Q8_0, Q4_0, MXFP4, BF16

dense has TinyLlama-1.1B's shape. moe has the proportions of Qwen3-30B-A3B (hidden 2,048, 32 heads of 128, 4 of them with K and V, 128 experts
768 wide of which 8 are chosen, a vocabulary of half a layer's bytes), with 8 of its 48 layers, as Mixtral is written in GGUF."""
import json
import math
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "oracle")]
import make_gguf  # noqa: E402

SHAPES = {
    "dense": dict(hidden=2048, inter=5632, layers=22, heads=32, kv_heads=4, dim=64, vocab=32000, experts=0, used=0),
    "moe": dict(hidden=2048, inter=768, layers=8, heads=32, kv_heads=4, dim=128, vocab=25600, experts=128, used=8),
}
SERVED = dict(hidden=1024, inter=2816, layers=12, heads=16, kv_heads=4, dim=64, experts=0, used=0)
FABLE = os.path.join(HERE, "..", "..", "models", "fable")
POOL_BLOCKS = 1 << 16  # different random blocks of a type; matrices take turns in them


def more_bits(layer, layers):
    """The layers whose v and down llama.cpp's Q4_K_M gives two bits more."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def type_of(name, mix, layer, layers):
    if name.endswith("_norm") or name.endswith("gate_inp"):
        return "F32"
    if mix == "MXFP4":  # as gpt-oss has it: experts alone
        return "MXFP4" if name.endswith("_exps") else "Q8_0"
    if mix == "Q4_0":
        return "Q6_K" if name == "output" else "Q4_0"
    if mix == "Q4_K_M":
        six = name == "output" or (name.rsplit(".")[-1] in ("attn_v", "ffn_down", "ffn_down_exps") and more_bits(layer, layers))
        return "Q6_K" if six else "Q4_K"
    return mix


def tensors_of(s):
    """(name without .weight, shape, layer)"""
    h, kv = s["hidden"], s["kv_heads"] * s["dim"]
    yield "token_embd", (s["vocab"], h), 0
    for i in range(s["layers"]):
        p = f"blk.{i}."
        yield from ((p + "attn_norm", (h,), i), (p + "attn_q", (s["heads"] * s["dim"], h), i), (p + "attn_k", (kv, h), i), (p + "attn_v", (kv, h), i),
                    (p + "attn_output", (h, s["heads"] * s["dim"]), i), (p + "ffn_norm", (h,), i))
        if s["experts"]:
            yield from ((p + "ffn_gate_inp", (s["experts"], h), i), (p + "ffn_gate_exps", (s["experts"], s["inter"], h), i),
                        (p + "ffn_up_exps", (s["experts"], s["inter"], h), i), (p + "ffn_down_exps", (s["experts"], h, s["inter"]), i))
        else:
            yield from ((p + "ffn_gate", (s["inter"], h), i), (p + "ffn_up", (s["inter"], h), i), (p + "ffn_down", (h, s["inter"]), i))
    yield "output_norm", (h,), 0
    yield "output", (s["vocab"], h), 0


class Source:
    """Bytes of matrices, cut from a pool of random blocks of each type and size of weights."""

    def __init__(self):
        self.rng, self.pools = np.random.default_rng(7), {}

    def pool(self, kind, spread):
        at = kind, spread
        if at not in self.pools:
            n = POOL_BLOCKS * 256 // make_gguf.TYPES[kind][1]
            if kind in ("F32", "BF16"):
                values = self.rng.standard_normal(POOL_BLOCKS * 64) * spread
                self.pools[at] = make_gguf.blocks_of(kind, values, self.rng)[0]
            else:
                self.pools[at] = make_gguf.random_blocks(kind, n, spread, self.rng).tobytes()
        return self.pools[at]

    def data(self, name, shape, kind):
        if name.endswith("_norm"):
            return np.ones(shape, np.float32).tobytes()
        size = make_gguf.tensor_size(shape, kind)
        pool = self.pool(kind, 1 / math.sqrt(shape[-1]))
        step = make_gguf.TYPES[kind][2]
        first = int(self.rng.integers(0, len(pool) // step // 2)) * step
        out, left = [pool[first:first + size]], size - min(size, len(pool) - first)
        while left > 0:
            out.append(pool[:left])
            left -= len(out[-1])
        return b"".join(out)


def pairs_of(s):
    pairs = [("general.architecture", "str", "llama"), ("llama.context_length", "u32", 4096), ("llama.embedding_length", "u32", s["hidden"]),
             ("llama.block_count", "u32", s["layers"]), ("llama.feed_forward_length", "u32", s["inter"]),
             ("llama.attention.head_count", "u32", s["heads"]), ("llama.attention.head_count_kv", "u32", s["kv_heads"]),
             ("llama.attention.key_length", "u32", s["dim"]), ("llama.attention.value_length", "u32", s["dim"]),
             ("llama.rope.dimension_count", "u32", s["dim"]), ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5),
             ("llama.rope.freq_base", "f32", 10000.0), ("llama.vocab_size", "u32", s["vocab"])]
    if s["experts"]:
        pairs += [("llama.expert_count", "u32", s["experts"]), ("llama.expert_used_count", "u32", s["used"])]
    return pairs + vocabulary(s["vocab"])


def vocabulary(n):
    """Names that no text becomes: both engines are sent ids."""
    return [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", "gpt-2"),
            ("tokenizer.ggml.tokens", "strs", ["a", "b", "ab"] + [f"t{i}" for i in range(3, n)]), ("tokenizer.ggml.merges", "strs", ["a b"]),
            ("tokenizer.ggml.bos_token_id", "u32", 1), ("tokenizer.ggml.eos_token_id", "u32", 2)]


def write(shape, mix, path):
    s, source = SHAPES[shape], Source()
    files = []
    for name, dims, layer in tensors_of(s):
        kind = type_of(name, mix, layer, s["layers"])
        files.append((name + ".weight", dims, kind, lambda name=name, dims=dims, kind=kind: source.data(name, dims, kind)))
    make_gguf.write_file(path, pairs_of(s), files)


def write_served(mix, path):
    """A model to be asked by text: the bundled model's tokenizer, and random weights of the shape SERVED."""
    s, source = SERVED, Source()
    with open(os.path.join(FABLE, "config.json")) as f:
        config = json.load(f)
    config.update(hidden_size=s["hidden"], intermediate_size=s["inter"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                  num_key_value_heads=s["kv_heads"], head_dim=s["dim"], max_position_embeddings=4096)
    files = []
    for name, dims, layer in tensors_of({**s, "vocab": config["vocab_size"]}):
        kind = type_of(name, mix, layer, s["layers"])
        files.append((name + ".weight", dims, kind, lambda name=name, dims=dims, kind=kind: source.data(name, dims, kind)))
    make_gguf.write_file(path, make_gguf.metadata(config, FABLE)[1], files)


def step_bytes(shape, mix):
    """Of the matrices that one token of a decode reads: of experts the chosen, and no embedding."""
    s, sum_ = SHAPES[shape], 0
    for name, dims, layer in tensors_of(s):
        size = make_gguf.tensor_size(dims, type_of(name, mix, layer, s["layers"]))
        sum_ += 0 if name == "token_embd" else size * s["used"] // s["experts"] if name.endswith("_exps") else size
    return sum_


def layer_operations(shape, n):
    """Of a prefill of n tokens: those of the layers' matrices, of experts the chosen, and of attention."""
    s, weights = SHAPES[shape], 0
    for name, dims, _ in tensors_of(s):
        if len(dims) > 1 and name not in ("token_embd", "output"):
            weights += math.prod(dims) * (s["used"] / s["experts"] if name.endswith("_exps") else 1)
    return 2 * weights * n + 4 * s["heads"] * s["dim"] * s["layers"] * n * (n + 1) / 2


if __name__ == "__main__":
    write(*sys.argv[1:4])
