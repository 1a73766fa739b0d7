#!/usr/bin/env python3
"""Writes encoders with random weights, in the spelling of their published checkpoints: tiny ones for tests, real shapes
for benchmarks.

    make_encoder.py OUT --family bert [--dtype bf16] [--seed 1] [--set MEMBER=JSON ...]
    make_encoder.py OUT --preset bge-small
"""
import argparse
import json
import os

import numpy as np

import make_gguf
import make_model
import reference

TINY = dict(hidden_size=64, intermediate_size=176, num_hidden_layers=4, num_attention_heads=4, vocab_size=211,
            max_position_embeddings=160)
BERT = dict(TINY, model_type="bert", architectures=["BertModel"], hidden_act="gelu", layer_norm_eps=1e-12, pad_token_id=0,
            type_vocab_size=2, position_embedding_type="absolute")
ROBERTA = dict(BERT, model_type="xlm-roberta", architectures=["XLMRobertaModel"], layer_norm_eps=1e-5, pad_token_id=1,
               type_vocab_size=1)
NOMIC = dict(model_type="nomic_bert", architectures=["NomicBertModel"], n_embd=64, n_layer=4, n_head=4, n_inner=170,
             vocab_size=211, n_positions=512, layer_norm_epsilon=1e-12, activation_function="swiglu", rotary_emb_base=1000,
             rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_scaling_factor=None, max_trained_positions=2048,
             qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, causal=False, type_vocab_size=2)
MODERN = dict(TINY, model_type="modernbert", architectures=["ModernBertModel"], hidden_activation="gelu", norm_eps=1e-5,
              local_attention=24, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0,
              classifier_pooling="cls")
ONE_LABEL = {"0": "LABEL_0"}

FAMILIES = {
    "bert": BERT,
    "bert_score": dict(BERT, architectures=["BertForSequenceClassification"], id2label=ONE_LABEL),
    "roberta": dict(ROBERTA, model_type="roberta", architectures=["RobertaModel"]),
    "xlm_roberta": ROBERTA,
    "xlm_roberta_score": dict(ROBERTA, architectures=["XLMRobertaForSequenceClassification"], id2label=ONE_LABEL),
    "nomic": NOMIC,
    "nomic_long": dict(NOMIC, rotary_scaling_factor=2.0, max_trained_positions=32),
    "modernbert": MODERN,
    "modernbert_score": dict(MODERN, architectures=["ModernBertForSequenceClassification"],
                             id2label={"0": "a", "1": "b", "2": "c"}, classifier_pooling="mean"),
}

PRESETS = {"bge-small": ("bert", "bf16", dict(hidden_size=384, intermediate_size=1536, num_hidden_layers=12,
                                              num_attention_heads=12, vocab_size=30522, max_position_embeddings=512))}


def bert_shapes(c, root):
    h, inter = c["hidden_size"], c["intermediate_size"]

    def linear(name, n, k, scale=1.0):
        return [(name + ".weight", (n, k), scale / np.sqrt(k)), (name + ".bias", (n,), 0.3)]

    def norm(name):
        return [(name + ".weight", (h,), None), (name + ".bias", (h,), 0.3)]

    out = [(root + "embeddings.word_embeddings.weight", (c["vocab_size"], h), 1.0),
           (root + "embeddings.position_embeddings.weight", (c["max_position_embeddings"], h), 1.0),
           (root + "embeddings.token_type_embeddings.weight", (c["type_vocab_size"], h), 1.0)]
    out += norm(root + "embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        p = f"{root}encoder.layer.{i}."
        for name in ("query", "key"):
            out += linear(p + "attention.self." + name, h, h, 2.0)
        out += linear(p + "attention.self.value", h, h) + linear(p + "attention.output.dense", h, h)
        out += norm(p + "attention.output.LayerNorm")
        out += linear(p + "intermediate.dense", inter, h) + linear(p + "output.dense", h, inter)
        out += norm(p + "output.LayerNorm")
    labels = len(c.get("id2label", ()))
    if c["model_type"] == "bert":
        out += linear(root + "pooler.dense", h, h)
        return out + (linear("classifier", labels, h) if labels else [])
    return out + (linear("classifier.dense", h, h) + linear("classifier.out_proj", labels, h) if labels else [])


def nomic_shapes(c):
    h, inter = c["n_embd"], -(-c["n_inner"] // 256) * 256
    out = [("embeddings.word_embeddings.weight", (c["vocab_size"], h), 1.0),
           ("embeddings.token_type_embeddings.weight", (c["type_vocab_size"], h), 1.0),
           ("emb_ln.weight", (h,), None), ("emb_ln.bias", (h,), 0.3)]
    for i in range(c["n_layer"]):
        p = f"encoder.layers.{i}."
        out += [(p + "attn.Wqkv.weight", (3 * h, h), 1.5 / np.sqrt(h)), (p + "attn.out_proj.weight", (h, h), 1 / np.sqrt(h)),
                (p + "mlp.fc11.weight", (inter, h), 1 / np.sqrt(h)), (p + "mlp.fc12.weight", (inter, h), 1 / np.sqrt(h)),
                (p + "mlp.fc2.weight", (h, inter), 1 / np.sqrt(inter))]
        for norm in ("norm1", "norm2"):
            out += [(p + norm + ".weight", (h,), None), (p + norm + ".bias", (h,), 0.3)]
    return out


def modern_shapes(c):
    h, inter = c["hidden_size"], c["intermediate_size"]
    out = [("model.embeddings.tok_embeddings.weight", (c["vocab_size"], h), 1.0), ("model.embeddings.norm.weight", (h,), None)]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if i > 0:
            out.append((p + "attn_norm.weight", (h,), None))
        out += [(p + "attn.Wqkv.weight", (3 * h, h), 1.5 / np.sqrt(h)), (p + "attn.Wo.weight", (h, h), 1 / np.sqrt(h)),
                (p + "mlp_norm.weight", (h,), None), (p + "mlp.Wi.weight", (2 * inter, h), 1 / np.sqrt(h)),
                (p + "mlp.Wo.weight", (h, inter), 1 / np.sqrt(inter))]
    out.append(("model.final_norm.weight", (h,), None))
    labels = len(c.get("id2label", ()))
    if labels:
        out += [("head.dense.weight", (h, h), 1 / np.sqrt(h)), ("head.norm.weight", (h,), None),
                ("classifier.weight", (labels, h), 1 / np.sqrt(h)), ("classifier.bias", (labels,), 0.3)]
    return out


def shapes(c, rooted):
    if c["model_type"] == "nomic_bert":
        return nomic_shapes(c)
    if c["model_type"] == "modernbert":
        return modern_shapes(c)
    return bert_shapes(c, {"bert": "bert."}.get(c["model_type"], "roberta.") if rooted else "")


def write_encoder(out, config, dtype="f32", seed=0, rooted=False, pooling=None):
    """rooted: tensors are called bert.* as in checkpoints with a head. pooling: a modules.json that says so."""
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal(1 << 20, dtype=np.float32)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    make_model.write_file(os.path.join(out, "model.safetensors"), shapes(config, rooted),
                          lambda n, scale: make_model.random_values(rng, pool, n, scale), dtype)
    if pooling:
        write_pooling(out, pooling)


def write_pooling(out, pooling):
    modules = [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
               for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])]
    with open(os.path.join(out, "modules.json"), "w") as f:
        json.dump(modules, f)
    os.makedirs(os.path.join(out, "1_Pooling"), exist_ok=True)
    flag = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "last": "pooling_mode_lasttoken"}
    with open(os.path.join(out, "1_Pooling", "config.json"), "w") as f:
        json.dump({v: k == pooling for k, v in flag.items()}, f)


GGUF_NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
              "embeddings.LayerNorm": "token_embd_norm", "emb_ln": "token_embd_norm", "attention.self.query": "attn_q", "attention.self.key": "attn_k",
              "attention.self.value": "attn_v", "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
              "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm", "attn.Wqkv": "attn_qkv",
              "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "norm2": "layer_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate",
              "mlp.fc2": "ffn_down"}
POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


def write_gguf(folder, path, pooling="mean", kind="F32", over=()):
    """A folder of write_encoder() as llama.cpp's converter writes it: no pooler, RoBERTa's positions without those of the padding. over: pairs of
    metadata beside or in the place of those."""
    c, tensors = reference.read_model(folder)
    arch = "nomic-bert" if c["model_type"] == "nomic_bert" else "bert"
    before = 0 if c["model_type"] in ("bert", "nomic_bert") else c["pad_token_id"] + 1
    get = lambda *names: next(c[n] for n in names if n in c)  # noqa: E731
    meta = {"general.architecture": ("str", arch)}
    for key, form, value in (("context_length", "u32", get("max_position_embeddings", "n_positions") - before), ("embedding_length", "u32", get("hidden_size", "n_embd")),
                             ("block_count", "u32", get("num_hidden_layers", "n_layer")), ("feed_forward_length", "u32", get("intermediate_size", "n_inner")),
                             ("attention.head_count", "u32", get("num_attention_heads", "n_head")), ("attention.causal", "bool", False),
                             ("attention.layer_norm_epsilon", "f32", get("layer_norm_eps", "layer_norm_epsilon")), ("pooling_type", "u32", POOLINGS[pooling]),
                             ("rope.freq_base", "f32", c.get("rotary_emb_base"))):
        if value is not None:
            meta[f"{arch}.{key}"] = (form, value)
    meta.update(make_gguf_tokens(c["vocab_size"]))
    meta.update(over)
    rng, files = np.random.default_rng(3), []
    for name, a in tensors.items():
        name = name.removeprefix("bert.").removeprefix("roberta.")
        if name.startswith(("pooler.", "classifier.", "cls.")):
            continue
        stem, tail = name.rsplit(".", 1)
        prefix = ""
        if stem.startswith("encoder.layer"):
            _, _, layer, stem = stem.split(".", 3)
            prefix = f"blk.{layer}."
        if stem == "embeddings.position_embeddings":
            a = a[before:]
        own = kind if a.ndim == 2 and prefix and a.shape[1] % make_gguf.TYPES[kind][1] == 0 else "F32"
        data, _ = make_gguf.blocks_of(own, a, rng)
        files.append((f"{prefix}{GGUF_NAMES[stem]}.{tail}", a.shape, own, data))
    make_gguf.write_file(path, [(k, *v) for k, v in meta.items()], files)


def make_gguf_tokens(n):
    return {"tokenizer.ggml.model": ("str", "gpt2"), "tokenizer.ggml.tokens": ("strs", [f"t{i}" for i in range(n)])}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--family", choices=sorted(FAMILIES), default="bert")
    p.add_argument("--preset", choices=sorted(PRESETS))
    p.add_argument("--dtype", choices=sorted(make_model.DTYPES), default="f32")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--pooling", choices=("cls", "mean", "last"))
    p.add_argument("--set", action="append", default=[], metavar="MEMBER=JSON", help="a member of config.json")
    a = p.parse_args()
    family, dtype, over = PRESETS[a.preset] if a.preset else (a.family, a.dtype, {})
    over = {**over, **{k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)}}
    write_encoder(a.out, {**FAMILIES[family], **over}, dtype, a.seed, pooling=a.pooling)


if __name__ == "__main__":
    main()
