#!/usr/bin/python3
"""Trains the fable-embed model from scratch on a corpus of stories, and writes it.

    tools/train_fable_embed.py CORPUS_DIR OUT_DIR [--minutes 12] [--seed 1]

CORPUS_DIR holds train.txt.gz and valid.txt as for train_fable.py; OUT_DIR becomes a model directory:
config.json, model.safetensors (bf16), tokenizer.json, modules.json, 1_Pooling/. A text's vector is
to be near those of other texts of the same story: a step draws two spans of a few sentences from
each of many stories, and each span has to find its partner among the others' (InfoNCE, both ways).

The model is a BERT encoder of one layer, read at [CLS]. Positions and the feed-forward part stay 0,
and the query of [CLS] is a constant, so all that a token does follows from its id: each head has a
weight and a value for it. Training therefore works on tables of the vocabulary, and a step costs
little more than looking its tokens up. Needs Debian's python3-numpy alone, one core.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import struct
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

import fable_data

VOCAB_SIZE = 8192
WIDTH, HEADS = 256, 8
POSITIONS = 512
FEED_FORWARD = 32           # of zeros: an encoder has one
TEXT_TOKENS = 64
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PAD, UNK, CLS, SEP = range(4)
TEMPERATURE = 0.05
EPS = 1e-12


# ---- texts

WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")     # what BertPreTokenizer makes of lower-case ASCII
SENTENCE = re.compile(r"(?<=[.!?])[\"']*\s+(?=[\"'A-Z])|\n\n+")


def sentences(story):
    """The sentences of a story that have at least four words."""
    found = (s.strip() for s in SENTENCE.split(story))
    return [s for s in found if s.count(" ") >= 3]


def make_vocabulary(texts):
    """SPECIALS, all ASCII characters, the most frequent words, and pieces of the others."""
    counts = collections.Counter()
    for text in texts:
        counts.update(WORD.findall(text.lower()))
    shown = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    tails = ["##" + c for c in shown if c.isalnum()]
    words = [w for w, _ in counts.most_common(VOCAB_SIZE) if len(w) > 1]
    n_words = (VOCAB_SIZE - len(SPECIALS) - len(shown) - len(tails)) * 7 // 8
    pieces = collections.Counter()
    for word in sorted(counts.keys() - set(words[:n_words])):
        for i in range(1, len(word)):
            for j in range(i + 2, min(i + 6, len(word)) + 1):
                pieces["##" + word[i:j]] += counts[word] * (j - i - 1)
    vocabulary = SPECIALS + shown + tails + words[:n_words]
    vocabulary += [p for p, _ in pieces.most_common(VOCAB_SIZE - len(vocabulary))]
    return {token: i for i, token in enumerate(vocabulary)}


class WordPiece:
    def __init__(self, vocabulary):
        self.vocabulary, self.known = vocabulary, {}

    def word(self, word):
        ids, at = [], 0
        while at < len(word):
            end = len(word)
            while end > at and ("##" if at else "") + word[at:end] not in self.vocabulary:
                end -= 1
            if end == at:
                return [UNK]
            ids.append(self.vocabulary[("##" if at else "") + word[at:end]])
            at = end
        return ids

    def encode(self, text):
        out = []
        for word in WORD.findall(text.lower()):
            if word not in self.known:
                self.known[word] = self.word(word)
            out += self.known[word]
        return out


def padded(texts):
    """[CLS] ids [SEP] of each, as [texts][longest] and a mask of what is there."""
    rows = [[CLS] + t[:TEXT_TOKENS - 2] + [SEP] for t in texts]
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for row, t in zip(ids, rows):
        row[:len(t)] = t
    return ids, ids != PAD


def draw_span(rng, story, start, end):
    """Ids of up to four neighbouring sentences of story[start:end]."""
    n = min(rng.choice((1, 1, 2, 3, 4)), end - start)
    at = rng.randrange(start, end - n + 1)
    return [i for s in story[at:at + n] for i in s]


def draw_pairs(rng, stories, n):
    """Two spans without a common sentence of each of n stories, and which stories."""
    chosen = rng.sample(range(len(stories)), n)
    left, right = [], []
    for i in chosen:
        cut = rng.randrange(1, len(stories[i]))
        pair = [draw_span(rng, stories[i], 0, cut), draw_span(rng, stories[i], cut, len(stories[i]))]
        rng.shuffle(pair)
        left.append(pair[0])
        right.append(pair[1])
    return left, right


# ---- the model: f32 arrays by name

def fresh(rng):
    def normal(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(np.float32)
    return {"tokens": normal(VOCAB_SIZE, WIDTH), "weights": normal(HEADS, WIDTH, scale=0.01),
            "values": normal(WIDTH, WIDTH, scale=WIDTH ** -0.5), "mix": normal(WIDTH, WIDTH, scale=WIDTH ** -0.5),
            "bias": np.zeros(WIDTH, np.float32)}


def normed(x):
    """Rows of mean 0 and variance 1, and what is divided by."""
    x = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x / scale, scale


def normed_back(grad, y, scale):
    return (grad - grad.mean(-1, keepdims=True) - y * (grad * y).mean(-1, keepdims=True)) / scale


def forward(m, ids, mask):
    """Vectors of length one, f32 [texts][WIDTH], and what backward() needs."""
    x, x_scale = normed(m["tokens"])
    scores = (x @ m["weights"].T)[ids]                                       # [texts][tokens][heads]
    scores -= np.where(mask[:, :, None], scores, -np.inf).max(1, keepdims=True)
    share = np.exp(scores) * mask[:, :, None]
    share /= share.sum(1, keepdims=True)
    value = (x @ m["values"].T)[ids].reshape(*ids.shape, HEADS, WIDTH // HEADS)
    pooled = np.einsum("blh,blhd->bhd", share, value, optimize=True).reshape(len(ids), WIDTH)
    y, y_scale = normed(x[CLS] + pooled @ m["mix"].T + m["bias"])
    y, y_scale = y / WIDTH ** 0.5, y_scale * WIDTH ** 0.5
    return y, (ids, x, x_scale, share, value, pooled, y, y_scale)


def backward(m, kept, grad):
    ids, x, x_scale, share, value, pooled, y, y_scale = kept
    unit = y * WIDTH ** 0.5
    d_sum = normed_back(grad, unit, y_scale)
    d_pooled = (d_sum @ m["mix"]).reshape(len(ids), 1, HEADS, WIDTH // HEADS)
    d_share = (value * d_pooled).sum(-1)
    d_scores = share * (d_share - (share * d_share).sum(1, keepdims=True))
    there = np.flatnonzero(ids != PAD)                                      # sums by token
    there = there[np.argsort(ids.reshape(-1)[there], kind="stable")]
    where, first = np.unique(ids.reshape(-1)[there], return_index=True)
    text = there // ids.shape[1]
    d_value = share.reshape(-1, HEADS, 1)[there] * d_pooled[text, 0]
    v_table = np.add.reduceat(d_value.reshape(len(there), WIDTH), first, axis=0)
    s_table = np.add.reduceat(d_scores.reshape(-1, HEADS)[there], first, axis=0)
    rows = x[where]
    d_x = np.zeros_like(x)
    d_x[where] = v_table @ m["values"] + s_table @ m["weights"]
    d_x[CLS] += d_sum.sum(0)
    return {"tokens": normed_back(d_x, x, x_scale), "weights": s_table.T @ rows, "values": v_table.T @ rows,
            "mix": d_sum.T @ pooled, "bias": d_sum.sum(0)}


def step_loss(a, b):
    """InfoNCE both ways of a[i] and b[i], f32 [n][WIDTH]: nats, and the gradients of both."""
    logits = a @ b.T / TEMPERATURE
    n, d = len(a), 0
    loss = 0.0
    for axis in (0, 1):
        e = np.exp(logits - logits.max(axis, keepdims=True))
        p = e / e.sum(axis, keepdims=True)
        loss -= np.log(p[np.arange(n), np.arange(n)]).mean() / 2
        d = d + p
    d = (d / 2 - np.eye(n, dtype=np.float32)) / (n * TEMPERATURE)
    return loss, d @ b, d.T @ a


# ---- training

class Adam:
    def __init__(self, m):
        self.m = {k: np.zeros_like(v) for k, v in m.items()}
        self.v = {k: np.zeros_like(v) for k, v in m.items()}
        self.t = 0

    def step(self, m, grads, rate):
        self.t += 1
        for k, g in grads.items():
            self.m[k] += 0.1 * (g - self.m[k])
            self.v[k] += 0.01 * (g * g - self.v[k])
            m[k] -= rate * (self.m[k] / (1 - 0.9 ** self.t)) / (np.sqrt(self.v[k] / (1 - 0.99 ** self.t)) + 1e-8)


def embed(m, texts):
    out = []
    for at in range(0, len(texts), 256):
        out.append(forward(m, *padded(texts[at:at + 256]))[0])
    return np.concatenate(out)


def train(m, stories, minutes, rng, n_pairs, dropout, report):
    adam, start, steps, mean = Adam(m), time.time(), 0, None
    while (share := (time.time() - start) / (60 * minutes)) < 1:
        left, right = draw_pairs(rng, stories, n_pairs)
        texts = [[i for i in t if rng.random() >= dropout] for t in left + right]
        y, kept = forward(m, *padded(texts))
        loss, d_left, d_right = step_loss(y[:n_pairs], y[n_pairs:])
        rate = 0.02 * min(1, steps / 50) * (1 - share)
        adam.step(m, backward(m, kept, np.concatenate([d_left, d_right])), rate)
        steps += 1
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        if steps % 100 == 0:
            report("step %d, %.0f s: loss %.3f" % (steps, time.time() - start, mean))
    return steps


# ---- the model directory

def tensors(m):
    """By the names of BertModel; bf16 holds 0 and the lone numbers exactly."""
    zeros = lambda *shape: np.zeros(shape, np.float32)
    head = WIDTH // HEADS
    query, key = zeros(WIDTH), zeros(WIDTH, WIDTH)
    query[::head] = 1
    key[::head] = m["weights"] * head ** 0.5          # attention divides by it
    out = {"embeddings.word_embeddings.weight": m["tokens"],
           "embeddings.position_embeddings.weight": zeros(POSITIONS, WIDTH),
           "embeddings.token_type_embeddings.weight": zeros(2, WIDTH)}
    layer = "encoder.layer.0."
    for name, weight, bias in (("attention.self.query", zeros(WIDTH, WIDTH), query),
                               ("attention.self.key", key, zeros(WIDTH)),
                               ("attention.self.value", m["values"], zeros(WIDTH)),
                               ("attention.output.dense", m["mix"], m["bias"]),
                               ("intermediate.dense", zeros(FEED_FORWARD, WIDTH), zeros(FEED_FORWARD)),
                               ("output.dense", zeros(WIDTH, FEED_FORWARD), zeros(WIDTH))):
        out[layer + name + ".weight"], out[layer + name + ".bias"] = weight, bias
    for name in ("embeddings.LayerNorm", layer + "attention.output.LayerNorm", layer + "output.LayerNorm"):
        out[name + ".weight"], out[name + ".bias"] = zeros(WIDTH) + 1, zeros(WIDTH)
    return out


def bf16(a):
    bits = a.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_safetensors(path, named):
    header, chunks, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, array in named.items():
        chunk = bf16(array).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + len(chunk)]}
        chunks.append(chunk)
        at += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def config():
    return {"architectures": ["BertModel"], "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0, "hidden_size": WIDTH, "initializer_range": 0.02, "intermediate_size": FEED_FORWARD,
            "layer_norm_eps": EPS, "max_position_embeddings": POSITIONS, "model_type": "bert",
            "num_attention_heads": HEADS, "num_hidden_layers": 1, "pad_token_id": PAD,
            "position_embedding_type": "absolute", "torch_dtype": "bfloat16", "type_vocab_size": 2,
            "vocab_size": VOCAB_SIZE}


def tokenizer_json(vocabulary):
    special = {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in ((CLS, "[CLS]"), (SEP, "[SEP]"))}
    cls, sep = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i, t in enumerate(SPECIALS)],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [cls, a, sep],
                               "pair": [cls, a, sep, b, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                               "special_tokens": special},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocabulary}}


def write_model(out, m, vocabulary):
    def write_json(path, value, indent=2):
        (out / path).write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "1_Pooling").mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "model.safetensors", tensors(m))
    write_json("config.json", config())
    write_json("tokenizer.json", tokenizer_json(vocabulary), None)
    write_json("tokenizer_config.json", {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
                                         "unk_token": "[UNK]", "do_lower_case": True, "model_max_length": POSITIONS,
                                         "tokenizer_class": "BertTokenizer"})
    write_json("modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
        for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))])
    write_json("1_Pooling/config.json", {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True,
                                         "pooling_mode_mean_tokens": False})


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("corpus", type=pathlib.Path, help="directory with train.txt.gz and valid.txt")
    p.add_argument("out", type=pathlib.Path, help="model directory to write")
    p.add_argument("--minutes", type=float, default=12, help="length of the training")
    p.add_argument("--pairs", type=int, default=512, help="pairs in one step")
    p.add_argument("--dropout", type=float, default=0.1, help="share of the tokens that a step leaves out")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    rng = random.Random(args.seed)
    texts = fable_data.read_stories(args.corpus / "train.txt.gz")
    vocabulary = make_vocabulary(texts)
    pieces = WordPiece(vocabulary)
    stories = [[pieces.encode(s) for s in sentences(t)] for t in texts]
    stories = [s for s in stories if len(s) >= 2]
    held = [sentences(t) for t in fable_data.read_stories(args.corpus / "valid.txt")]
    print("%d stories, %d sentences, %d tokens" % (len(stories), sum(map(len, stories)),
                                                   sum(len(s) for t in stories for s in t)), flush=True)
    m = fresh(np.random.default_rng(args.seed))

    def report(line):
        hits = fable_data.recall_at_1(held, lambda t: embed(m, [pieces.encode(s) for s in t]), draws=4)
        print("%s, recall at 1 of held-out sentences %.3f" % (line, hits), flush=True)
    steps = train(m, stories, args.minutes, rng, args.pairs, args.dropout, report)
    write_model(args.out, m, vocabulary)
    report("%d steps of %d pairs" % (steps, args.pairs))


if __name__ == "__main__":
    main()
