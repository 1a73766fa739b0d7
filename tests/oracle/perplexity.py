#!/usr/bin/env python3
"""What quantised weights cost, measured through the engine itself (the program $BUILD/tests/oracle/logits).

    perplexity.py [--text FILE] [--windows N] [--kernels NAME]

Lines of `name value unit ratio`. Two models:
- models/fable on text it was not trained on: the perplexity of each type of weights, and its change against bf16. A window
  is BOS and the first tokens of a story, up to the context; every token after BOS is predicted once.
- a teacher of random weights (512 wide, eight layers): the bf16 model is taken for the truth, and the change of perplexity
  on text that it would write itself is exp(KL(bf16 || quantised)) - 1, exactly, with no text to be drawn."""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(ROOT, "tools"))
import fable_bpe  # noqa: E402
import make_model  # noqa: E402

LOGITS = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "oracle", "logits")
FABLE = os.path.join(ROOT, "models", "fable")
STORIES = os.path.join(ROOT, "tests", "data", "stories", "valid.txt")
TYPES = ("bf16", "int8", "int4")
CONTEXT = 1024
TEACHER = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
               vocab_size=4096, max_position_embeddings=1024)


def log_softmax(folder, ids, weights, kernels="auto", kv="bf16"):
    """float64 [len(ids)][vocab] of the engine."""
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "logits.bin")
        p = subprocess.run([LOGITS, str(folder), "--ids", ",".join(map(str, ids)), "--out", out, "--weights", weights,
                            "--kv", kv, "--kernels", kernels, "--chunk", "256"], capture_output=True, text=True, timeout=300)
        if p.returncode != 0:
            raise RuntimeError(p.stderr)
        x = np.fromfile(out, np.float32).reshape(len(ids), -1).astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def windows(path, most):
    bpe = fable_bpe.load(os.path.join(FABLE, "tokenizer.json"))
    with open(path, encoding="utf-8") as f:
        stories = [s.strip() for s in f.read().split("<|endoftext|>")]
    # Beyond eight characters a token the rest of a long story is not looked at: encoding it is what takes time.
    return [([fable_bpe.BOS] + bpe.encode(s[:8 * CONTEXT]) + [fable_bpe.EOS])[:CONTEXT] for s in stories[:most] if s]


def nats_per_token(rows, weights, **options):
    nats = count = 0
    for ids in rows:
        p = log_softmax(FABLE, ids[:-1], weights, **options)
        nats -= float(p[np.arange(len(ids) - 1), ids[1:]].sum())
        count += len(ids) - 1
    return nats / count, count


def teacher_change(folder, ids, **options):
    """exp(KL) - 1 of each quantised type, over the positions of ids."""
    truth = log_softmax(folder, ids, "bf16", **options)
    change = {}
    for t in TYPES[1:]:
        p = log_softmax(folder, ids, t, **options)
        change[t] = float(np.expm1((np.exp(truth) * (truth - p)).sum(-1).mean()))
    return change


def make_teacher(folder):
    """Scaled as models are before training: what a layer adds is small beside the stream, logits are of size one. The models
    of make_model.py are made so that a mistake shows: rounding shows there too, many times enlarged."""
    shapes = make_model.tensor_shapes

    def calm(config):
        scale = {"lm_head": 0.25, "q_proj": 0.5, "k_proj": 0.5, "o_proj": 0.5, "down_proj": 0.5}
        return [(name, shape, s * next((f for part, f in scale.items() if part in name), 1) if s else s)
                for name, shape, s in shapes(config)]

    make_model.tensor_shapes = calm
    try:
        make_model.write_model(folder, make_model.make_config("llama2", **TEACHER), "bf16", seed=17)
    finally:
        make_model.tensor_shapes = shapes
    return [int(t) for t in np.random.default_rng(23).integers(0, TEACHER["vocab_size"], 512)]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--text", default=STORIES)
    p.add_argument("--windows", type=int, default=1000)
    p.add_argument("--kernels", default="auto")
    args = p.parse_args()
    rows = windows(args.text, args.windows)
    base = None
    for t in TYPES:
        nats, count = nats_per_token(rows, t, kernels=args.kernels)
        base = nats if base is None else base
        print("perplexity_fable_%s %.4f over_%d_tokens %+.4f %% of bf16" %
              (t, np.exp(nats), count, 100 * np.expm1(nats - base)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ids = make_teacher(folder)
        for t, change in teacher_change(folder, ids, kernels=args.kernels).items():
            print("perplexity_teacher_%s %+.4f %% of bf16" % (t, 100 * change), flush=True)


if __name__ == "__main__":
    main()
