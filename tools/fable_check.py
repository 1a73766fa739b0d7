#!/usr/bin/python3
"""Checks a fable model directory with a second implementation, in numpy, that shares no code with
the training: it reads safetensors and tokenizer.json itself, measures the loss and writes samples.

    tools/fable_check.py models/fable valid.txt [--tokens 200] [--prompt TEXT] [--chat TEXT]
                         [--checkpoint OUT_DIR/checkpoint.pt]

Loss: each story is BOS, its text and EOS; every token after BOS is predicted once. The windows are
of 1,024 tokens and overlap by half: a token has at least 512 tokens (or all of the story so far)
before it. Nats per token is the sum over all tokens by their number; bits per character is the same
sum in bits by the number of characters of the stories. With --checkpoint the same windows also go
through the unrounded weights in PyTorch, and a difference above 1% fails.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import numpy as np

import fable_bpe


def read_safetensors(path):
    """All tensors as f32; only BF16 is expected."""
    data = path.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + n_header]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit("%s: dtype %s is not BF16" % (name, entry["dtype"]))
        begin, end = (8 + n_header + at for at in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(entry["shape"])
    return tensors


class Model:
    """One sequence at a time, with its keys and values kept: logits(ids) goes on where it was."""

    def __init__(self, path):
        self.c = json.loads((path / "config.json").read_text())
        self.w = read_safetensors(path / "model.safetensors")
        dim = self.c["head_dim"]
        freq = self.c["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        self.turns = np.exp(1j * np.outer(np.arange(self.c["max_position_embeddings"]), freq))
        self.reset()

    def reset(self):
        self.past = [None] * self.c["num_hidden_layers"]
        self.n_past = 0

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * self.w[name]

    def heads(self, x, name, n_heads, turn):
        """x through a projection: f32 [n_heads][tokens][dim], each (i, i + dim/2) turned."""
        y = (x @ self.w[name].T).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
        if turn is None:
            return y
        half = y.shape[2] // 2
        z = (y[..., :half] + 1j * y[..., half:]) * turn
        return np.concatenate([z.real, z.imag], -1).astype(np.float32)

    def attention(self, layer, x):
        c, at = self.c, "model.layers.%d.self_attn." % layer
        turn = self.turns[self.n_past:self.n_past + len(x)]
        q = self.heads(x, at + "q_proj.weight", c["num_attention_heads"], turn)
        k = self.heads(x, at + "k_proj.weight", c["num_key_value_heads"], turn)
        v = self.heads(x, at + "v_proj.weight", c["num_key_value_heads"], None)
        if self.past[layer] is not None:
            k = np.concatenate([self.past[layer][0], k], 1)
            v = np.concatenate([self.past[layer][1], v], 1)
        self.past[layer] = k, v
        share = len(q) // len(k)
        unseen = np.arange(k.shape[1])[None] > self.n_past + np.arange(len(x))[:, None]
        out = []
        for h in range(len(q)):
            scores = q[h] @ k[h // share].T / np.float32(math.sqrt(c["head_dim"]))
            scores[unseen] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out.append(p / p.sum(-1, keepdims=True) @ v[h // share])
        return np.concatenate(out, -1) @ self.w[at + "o_proj.weight"].T

    def logits(self, ids):
        """f32 [len(ids)][vocab]: what may follow each of ids, which continue earlier calls."""
        x = self.w["model.embed_tokens.weight"][np.array(ids)]
        for layer in range(self.c["num_hidden_layers"]):
            at = "model.layers.%d." % layer
            x = x + self.attention(layer, self.norm(x, at + "input_layernorm.weight"))
            n = self.norm(x, at + "post_attention_layernorm.weight")
            gate = n @ self.w[at + "mlp.gate_proj.weight"].T
            up = n @ self.w[at + "mlp.up_proj.weight"].T
            x = x + gate / (1 + np.exp(-gate)) * up @ self.w[at + "mlp.down_proj.weight"].T
        self.n_past += len(ids)
        return self.norm(x, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T


def windows(ids, size):
    """(begin, end, first) of each window: tokens first..end-1 are those it scores."""
    first = 1
    while first < len(ids):
        begin = max(0, first - size // 2) if first > 1 else 0
        end = min(len(ids), begin + size + 1)
        yield begin, end, first
        first = end


def corpus_loss(logits_of, stories, size):
    """Sum of nats and number of tokens; logits_of(ids) starts afresh at each call."""
    nats, n_tokens = 0.0, 0
    for ids in stories:
        for begin, end, first in windows(ids, size):
            rows = logits_of(ids[begin:end - 1])[first - 1 - begin:].astype(np.float64)
            top = rows.max(-1)
            total = top + np.log(np.exp(rows - top[:, None]).sum(-1))
            nats += float((total - rows[np.arange(len(rows)), ids[first:end]]).sum())
            n_tokens += end - first
    return nats, n_tokens


def checkpoint_logits(path):
    """logits_of() of the unrounded weights, by the training's own PyTorch model."""
    import torch
    import fable_model
    model = fable_model.Fable()
    model.load_state_dict(torch.load(path, map_location="cpu")["model"])

    def logits_of(ids):
        with torch.no_grad():
            return model(torch.tensor([ids]))[0].numpy()
    return logits_of


def generate(model, bpe, ids, n_tokens, temperature, top_p, min_p, seed):
    rng = np.random.default_rng(seed)
    ends = model.c["eos_token_id"]
    model.reset()
    out, row = [], model.logits(ids)[-1]
    while len(out) < n_tokens:
        if temperature == 0:
            pick = int(row.argmax())
        else:
            p = np.exp((row - row.max()).astype(np.float64) / temperature)
            order = np.argsort(-p)
            total = np.cumsum(p[order] / p.sum())
            keep = order[:int((total < top_p).sum()) + 1]
            keep = keep[p[keep] >= min_p]  # p of the likeliest is 1
            pick = int(rng.choice(keep, p=p[keep] / p[keep].sum()))
        if pick in ends:
            return bpe.decode(out) + " [end]"
        out.append(pick)
        row = model.logits([pick])[-1]
    return bpe.decode(out)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("valid", type=pathlib.Path, nargs="?", help="valid.txt; left out: samples only")
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--prompt", default="Once upon a time there was a")
    p.add_argument("--chat", default="Tell me a story about a fox.")
    p.add_argument("--temperature", type=float, default=0.7)
    p.add_argument("--top-p", type=float, default=0.95)
    p.add_argument("--min-p", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--checkpoint", type=pathlib.Path)
    args = p.parse_args()
    model, bpe = Model(args.model), fable_bpe.load(args.model / "tokenizer.json")
    n_parameters = sum(t.size for t in model.w.values())
    print("%d parameters in %d tensors" % (n_parameters, len(model.w)))
    plain = [fable_bpe.BOS] + bpe.encode(args.prompt)
    chat = [fable_bpe.BOS, fable_bpe.USER] + bpe.encode(args.chat)
    chat += [fable_bpe.END, fable_bpe.ASSISTANT]
    for title, ids in (("plain: " + args.prompt, plain), ("chat: " + args.chat, chat)):
        for temperature in (0, args.temperature):
            print("\n--- %s (temperature %g)" % (title, temperature))
            print(generate(model, bpe, ids, args.tokens, temperature, args.top_p, args.min_p,
                           args.seed))
    if args.valid is None:
        return 0

    stories = [s.strip() for s in args.valid.read_text(encoding="utf-8").split("<|endoftext|>")]
    stories = [s for s in stories if s]
    n_chars = sum(map(len, stories))
    rows = [[fable_bpe.BOS] + bpe.encode(s) + [fable_bpe.EOS] for s in stories]

    def fresh(ids):
        model.reset()
        return model.logits(ids)

    size = model.c["max_position_embeddings"]
    nats, n_tokens = corpus_loss(fresh, rows, size)
    print("\nexported: %.4f nats per token, %.4f bits per character (%d tokens, %d characters)" %
          (nats / n_tokens, nats / math.log(2) / n_chars, n_tokens, n_chars))
    if args.checkpoint is None:
        return 0
    full, _ = corpus_loss(checkpoint_logits(args.checkpoint), rows, size)
    print("checkpoint: %.4f nats per token; difference %.3f%%" %
          (full / n_tokens, 100 * (nats / full - 1)))
    return 0 if abs(nats / full - 1) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
