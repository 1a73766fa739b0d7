#!/usr/bin/env python3
"""What quantised weights and KV cost, measured through the engine itself (the program $BUILD/tests/oracle/logits).

    perplexity.py [--text FILE] [--windows N] [--kernels NAME]       part of `make bench`

Lines of `name value ppl ...`: a perplexity, and behind `change` by how many percent it differs from that of bf16. Two models:
- models/fable on text it was not trained on. A window is BOS and the first tokens of a story, up to the context; every token
  after BOS is predicted once. `stderr` is the standard error of the change, from window to window.
- a teacher of random weights (512 wide, eight layers, 28 million weights): the bf16 model is taken for the truth, and the
  change of perplexity on text that it would write itself is exp(KL(bf16 || quantised)) - 1, exactly, with no text to be drawn.
  Its perplexity is that of its own text. `spread` is the standard deviation of its logits at a position, `noise` that of what
  the type adds to them, as a part of the spread."""
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
# Name, type of the weights, type of KV; the first is what the others are held against.
KINDS = [(t, t, "bf16") for t in TYPES] + [("kv_int8", "bf16", "int8")]
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


def token_nats(rows, weights, **options):
    """What fable's prediction of each token costs, nats: an array per window."""
    return [-log_softmax(FABLE, ids[:-1], weights, **options)[np.arange(len(ids) - 1), ids[1:]] for ids in rows]


def nats_per_token(rows, weights, **options):
    nats = np.concatenate(token_nats(rows, weights, **options))
    return float(nats.mean()), nats.size


def change_of(nats, base):
    """Relative change of perplexity, and its standard error over the windows."""
    n = sum(w.size for w in base)
    more = [float((a - b).sum()) for a, b in zip(nats, base)]
    return float(np.expm1(sum(more) / n)), float(np.std(more, ddof=1) * len(more) ** 0.5 / n)


def teacher_gap(truth, p):
    """exp(KL) - 1, and the noise in the logits over their spread. log_softmax moves all logits of a position alike."""
    noise = (p - truth).std(-1).mean() / truth.std(-1).mean()
    return float(np.expm1((np.exp(truth) * (truth - p)).sum(-1).mean())), float(noise)


def teacher_change(folder, ids, **options):
    """exp(KL) - 1 of each kind but the first, over the positions of ids."""
    truth = log_softmax(folder, ids, "bf16", **options)
    return {name: teacher_gap(truth, log_softmax(folder, ids, w, kv=kv, **options))[0] for name, w, kv in KINDS[1:]}


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


def told(what):
    print(f"perplexity: {what}", file=sys.stderr, flush=True)


def fable_lines(rows, **options):
    base = None
    for name, weights, kv in KINDS:
        told(f"fable, {name}, {len(rows)} windows")
        nats = token_nats(rows, weights, kv=kv, **options)
        ppl = np.exp(np.concatenate(nats).mean())
        if base is None:
            base = nats
            print(f"perplexity_fable_{name} {ppl:.4f} ppl tokens {sum(w.size for w in nats)}", flush=True)
            continue
        change, error = change_of(nats, base)
        print(f"perplexity_fable_{name} {ppl:.4f} ppl change {100 * change:.4f} stderr {100 * error:.4f}", flush=True)


def teacher_lines(**options):
    with tempfile.TemporaryDirectory() as folder:
        ids = make_teacher(folder)
        told("teacher, bf16")
        truth = log_softmax(folder, ids, "bf16", **options)
        own = float(np.exp(-(np.exp(truth) * truth).sum(-1).mean()))
        print(f"perplexity_teacher_bf16 {own:.2f} ppl spread {truth.std(-1).mean():.3f}", flush=True)
        for name, weights, kv in KINDS[1:]:
            told(f"teacher, {name}")
            change, noise = teacher_gap(truth, log_softmax(folder, ids, weights, kv=kv, **options))
            print(f"perplexity_teacher_{name} {own * (1 + change):.2f} ppl change {100 * change:.4f} noise {noise:.4f}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--text", default=STORIES)
    p.add_argument("--windows", type=int, default=1000)
    p.add_argument("--kernels", default="auto")
    args = p.parse_args()
    rows = windows(args.text, args.windows)
    if len(rows) < 2:
        p.error("--windows and the text must give two windows or more")
    fable_lines(rows, kernels=args.kernels)
    teacher_lines(kernels=args.kernels)


if __name__ == "__main__":
    main()
