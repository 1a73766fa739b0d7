"""What peer.py compares beside speed of decoders: answers of the bundled model, and embeddings."""
import json
import os
import subprocess
import sys

import numpy as np

from peer_engines import Refused, our_server, their_server, told

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "oracle")]
import make_encoder  # noqa: E402
import make_gguf  # noqa: E402
import perplexity  # noqa: E402
import reference  # noqa: E402
from cluster_times import quantile  # noqa: E402

NEW, PROMPT, TOP = 32, 40, 20


# ---- answers of models/fable
def fable_file(mix, path):
    """The bundled model quantised; rows whose length is no whole number of blocks become Q8_0. Its tensors as the file means them."""
    whole = make_gguf.TYPES[mix][1]

    def kind(name):
        return mix if "down_proj" not in name or 704 % whole == 0 else "Q8_0"

    return make_gguf.write_gguf(perplexity.FABLE, path, kind, make=make_gguf.fitted)


def our_greedy(path, ids):
    p = subprocess.run([perplexity.LOGITS, path, "--ids", ",".join(map(str, ids)), "--greedy", str(NEW), "--weights", "auto", "--kv", "bf16"],
                       capture_output=True, text=True, timeout=120)
    if p.returncode != 0:
        raise RuntimeError(p.stderr)
    return next([int(w) for w in line.split()[1:]] for line in p.stdout.splitlines() if line.startswith("greedy "))


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def answers(folder, mix, tmp, n_prompts, say):
    """Greedy texts of both, and of the forward pass in float64; then log-probabilities of what is likeliest after the peer's text, beside that pass.
    Where two greedy texts part, `gap` tells how far apart that pass sees the two tokens: less than the errors add up to is a tie."""
    path = os.path.join(tmp, f"fable-{mix}.gguf")
    config, tensors = fable_file(mix, path)
    equal, true, gaps, off = 0, {"ours": 0, "theirs": 0}, [0.0], {"ours": [], "theirs": [], "between": []}
    prompts = [ids[:PROMPT] for ids in perplexity.windows(perplexity.STORIES, n_prompts)]
    with their_server(folder, path, 1, "-c", "1024", "-np", "1") as server:
        for i, ids in enumerate(prompts):
            told(f"answers of fable in {mix}, {i + 1} of {len(prompts)}")
            body = {"prompt": ids, "n_predict": NEW, "temperature": 0, "n_probs": TOP, "cache_prompt": False, "ignore_eos": False}
            steps = server.post("/completion", body)[0]["completion_probabilities"]
            text = [s["id"] for s in steps]
            mine = our_greedy(path, ids)
            equal += mine[:len(text)] == text
            exact = reference.greedy(config, tensors, ids, len(text), mine[:len(text)])
            true["ours"] += mine[:len(text)] == exact
            true["theirs"] += text == exact
            likeliest = np.array([[t["id"] for t in s["top_logprobs"]] for s in steps])
            theirs = np.array([[t["logprob"] for t in s["top_logprobs"]] for s in steps])
            whole, rows = ids + text[:-1], slice(len(ids) - 1, None)
            exact = log_softmax(reference.logits(config, tensors, whole))[rows]
            parts = next((j for j, (a, b) in enumerate(zip(mine, text)) if a != b), None)
            if parts is not None:
                gaps.append(abs(float(exact[parts][mine[parts]] - exact[parts][text[parts]])))
            truth = np.take_along_axis(exact, likeliest, -1)
            ours = np.take_along_axis(perplexity.log_softmax(path, whole, "auto", kv="bf16")[rows], likeliest, -1)
            for name, gap in (("ours", ours - truth), ("theirs", theirs - truth), ("between", ours - theirs)):
                off[name].append(gap.ravel())
    root = {name: float(np.sqrt(np.mean(np.concatenate(v) ** 2))) for name, v in off.items()}
    most = {name: float(np.abs(np.concatenate(v)).max()) for name, v in off.items()}
    n = len(prompts)
    say(f"peer_answers_{mix.lower()}_equal", equal / n, "part", words=f"texts {n} tokens {NEW} as_float64 {true['ours']} theirs_as_float64 {true['theirs']}")
    say(f"peer_answers_{mix.lower()}_gap", max(gaps), "nats", max(gaps) / (most["ours"] + most["theirs"]), "both_errors")
    say(f"peer_answers_{mix.lower()}_error", root["ours"], "nats", root["ours"] / root["theirs"], "llama.cpp",
        f"theirs {root['theirs']:.4f} between {root['between']:.4f} most {most['ours']:.3f} their_most {most['theirs']:.3f}")


# ---- embeddings
TEXTS, TOKENS = 64, 128
THEIR_WAYS = (("-np", "1", "-b", "512", "-ub", "512", "-c", "512"), ("-np", "4", "-b", "512", "-ub", "512", "-c", "2048"),
              ("-np", "16", "-b", "2048", "-ub", "2048", "-c", "8192"))


def bge_file(tmp, kind):
    folder, path = os.path.join(tmp, "bge"), os.path.join(tmp, f"bge-{kind}.gguf")
    if not os.path.exists(folder):
        family, dtype, shape = make_encoder.PRESETS["bge-small"]
        make_encoder.write_encoder(folder, dict(make_encoder.FAMILIES[family], **shape), dtype=dtype)
    n = make_encoder.PRESETS["bge-small"][2]["vocab_size"]
    over = {"tokenizer.ggml.pre": ("str", "gpt-2"), "tokenizer.ggml.tokens": ("strs", ["a", "b", "ab"] + [f"t{i}" for i in range(3, n)]),
            "tokenizer.ggml.merges": ("strs", ["a b"]), "tokenizer.ggml.token_type_count": ("u32", 2)}
    make_encoder.write_gguf(folder, path, "cls", kind, over)
    return path


def texts_of(round_):
    return [[1000 + (i * 131 + j * 7 + round_ * 17) % 20000 for j in range(TOKENS)] for i in range(TEXTS)]


def ask(server, round_):
    answer, seconds = server.post("/v1/embeddings", {"model": "fable", "input": texts_of(round_), "encoding_format": "float"})
    return np.array([d["embedding"] for d in answer["data"]]), seconds


def embeddings(folder, kind, threads, tmp, rounds, say):
    path, best = bge_file(tmp, kind), None
    for way in THEIR_WAYS:
        told(f"embeddings in {kind}, threads {threads}: llama-server {' '.join(way)}")
        with their_server(folder, path, threads, "--embedding", "--pooling", "cls", *way) as theirs:
            ask(theirs, 0)
            seconds = ask(theirs, 1)[1]
        if best is None or seconds < best[0]:
            best = seconds, way
    times, near = [], 1.0
    with their_server(folder, path, threads, "--embedding", "--pooling", "cls", *best[1]) as theirs, our_server(path, threads) as ours:
        for i in range(rounds + 1):
            told(f"embeddings in {kind}, threads {threads}, round {i} of {rounds}")
            (a, mine), (b, other) = ask(ours, i), ask(theirs, i)
            near = min(near, float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min()))
            if i > 0:  # the first one warms up
                times.append((mine, other))
    ratios = [b / a for a, b in times]
    say(f"peer_embed_{kind.lower()}_threads_{threads}", TEXTS / quantile([a for a, _ in times], 0.5), "texts/s", quantile(ratios, 0.5), "llama.cpp",
        f"theirs {TEXTS / quantile([b for _, b in times], 0.5):.1f} least {min(ratios):.2f} most {max(ratios):.2f} cosine {near:.5f} their_parallel {best[1][1]}")
