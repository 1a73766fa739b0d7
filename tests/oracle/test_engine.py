"""Goal: the engine computes what the model's definition says, for every family, file type and kernel set.
Method: tiny random models (make_model.py) run by the program $BUILD/tests/oracle/logits and by an independent float64
forward pass (reference.py). Logits agree within 1e-4 of the largest one, 64 greedy tokens are equal. Where two runs of
the engine must agree they agree bit for bit.

BUILD names the build folder (default: build), as in the Makefile."""
import os
import re
import subprocess
import sys

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import make_model  # noqa: E402
import reference  # noqa: E402

LOGITS = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "oracle", "logits")
SECONDS = 600  # of one run: under an emulator too
TOLERANCE = 1e-4  # of the largest logit, f32 weights and KV
PROMPT = 70
NEW = 64


def kernel_sets():
    """(the sets that run here, slowest first and openblas last; those of them that promise the bits of ref)"""
    rows = [line.split() for line in subprocess.run([LOGITS, "--sets"], check=True, capture_output=True, text=True, timeout=SECONDS).stdout.splitlines()]
    return [name for name, _ in rows], [name for name, bits in rows if bits == "common" and name != "ref"]


KERNELS, ALIKE = kernel_sets()


def run(folder, ids, greedy=0, **options):
    """(logits [len(ids)][vocab], greedy ids, the line about the model) of the engine."""
    out = os.path.join(str(folder), "logits.bin")
    cmd = [LOGITS, str(options.pop("model", folder)), "--ids", ",".join(map(str, ids)), "--out", out, "--greedy", str(greedy)]
    for k, v in options.items():
        cmd += ["--" + k, str(v)]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 0, p.stderr
    lines = p.stdout.splitlines()
    model = lines[0]
    vocab = int(re.search(r"vocab=(\d+)", model).group(1))
    values = np.fromfile(out, np.float32).reshape(len(ids), vocab)
    tokens = [int(t) for t in lines[1].split()[1:]] if greedy else []
    return values, tokens, model


def prompt(config, n=PROMPT, seed=5):
    return [int(t) for t in np.random.default_rng(seed).integers(0, config["vocab_size"], n)]


def worst(got, want):
    return float(np.max(np.abs(got - want)) / np.max(np.abs(want)))


class Case:
    """One model on disk with its reference answers; made once, shared by all kernel sets."""

    def __init__(self, folder, family, dtype, tied, shards):
        self.folder = folder
        make_model.write_model(str(folder), make_model.make_config(family, tied), dtype, shards, seed=7)
        self.config, self.tensors = reference.read_model(str(folder))
        self.ids = prompt(self.config)
        self.tokens = reference.greedy(self.config, self.tensors, self.ids, NEW, run(folder, self.ids, NEW)[1])
        self.logits = reference.logits(self.config, self.tensors, self.ids)


CASES = [(family, dtype, tied, shards)
         for (family, dtype, tied, shards) in [
             ("llama2", "f32", False, 1), ("llama2", "bf16", True, 1), ("llama2", "f16", False, 3),
             ("llama_bias", "f32", False, 1), ("llama3", "bf16", True, 1), ("linear", "f32", False, 1),
             ("yarn", "f16", False, 1), ("yarn_mscale", "f32", False, 2), ("mistral", "bf16", False, 2),
             ("mistral_full", "f32", False, 1), ("qwen2", "bf16", True, 1), ("qwen2_window", "f32", False, 1),
             ("qwen3", "f32", True, 1), ("qwen3", "bf16", False, 3)]]


@pytest.fixture(scope="module", params=CASES, ids=["-".join(map(str, c)) for c in CASES])
def case(request, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("model"), *request.param)


@pytest.mark.parametrize("kernels", KERNELS)
def test_logits_and_greedy(case, kernels):
    got, tokens, _ = run(case.folder, case.ids, NEW, kernels=kernels, chunk=16, block=8, threads=2)
    assert worst(got, case.logits) < TOLERANCE
    assert tokens == case.tokens


def test_bf16_weights_and_kv_stay_close(case):
    """bf16 keeps eight bits: the logits move, but by per cents and not by a mistake."""
    got, _, _ = run(case.folder, case.ids, weights="bf16", kv="bf16")
    assert worst(got, case.logits) < 0.06


@pytest.mark.parametrize("weights,kv", [("f32", "f32"), ("bf16", "bf16")])
def test_bits_do_not_depend_on_chunks_blocks_or_threads(case, weights, kv):
    base, tokens, _ = run(case.folder, case.ids, 16, weights=weights, kv=kv, chunk=1, block=1, threads=1)
    for chunk, block, threads in ((PROMPT, 16, 1), (7, 3, 2), (16, 128, 2), (64, 5, 3)):
        got, again, _ = run(case.folder, case.ids, 16, weights=weights, kv=kv, chunk=chunk, block=block, threads=threads)
        assert got.tobytes() == base.tobytes(), (chunk, block, threads)
        assert again == tokens


@pytest.mark.parametrize("weights", ["f32", "bf16"])
def test_own_sets_agree_bit_for_bit(case, weights):
    want, _, _ = run(case.folder, case.ids, kernels="ref", weights=weights, kv=weights)
    for kernels in ALIKE:
        got, _, _ = run(case.folder, case.ids, kernels=kernels, weights=weights, kv=weights)
        assert got.tobytes() == want.tobytes(), kernels


@pytest.mark.parametrize("weights,kv", [("f32", "f32"), ("bf16", "bf16"), ("int8", "int8"), ("int4", "bf16")])
def test_bits_do_not_depend_on_how_many_threads_part_the_rows(tmp_path, weights, kv):
    """With many threads a pass of a prompt ends in parts of a few rows, of products and of attention."""
    config = make_model.make_config("llama2", hidden_size=256, intermediate_size=512, num_hidden_layers=1)
    make_model.write_model(str(tmp_path), config, "f32", seed=3)
    ids = prompt(config, 200)
    base, _, _ = run(tmp_path, ids, weights=weights, kv=kv, chunk=200, threads=1)
    for threads, chunk in ((13, 200), (48, 128)):
        got, _, _ = run(tmp_path, ids, weights=weights, kv=kv, chunk=chunk, threads=threads)
        assert got.tobytes() == base.tobytes(), (threads, chunk)


def test_hash_names_the_model_not_its_packing(tmp_path):
    """The same tensors in one file or in shards, packed in any type by any set: one hash. One bit changed: another."""
    config = make_model.make_config("llama2")
    hashes = []
    for i, shards in enumerate((1, 3)):
        make_model.write_model(str(tmp_path / str(i)), config, "f32", shards, seed=3)
        for options in (dict(weights="f32"), dict(weights="bf16", kernels="ref")):
            hashes.append(re.search(r"hash=(\w+)", run(tmp_path / str(i), [1, 2], **options)[2]).group(1))
    assert len(set(hashes)) == 1
    path = tmp_path / "0" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert re.search(r"hash=(\w+)", run(tmp_path / "0", [1, 2])[2]).group(1) != hashes[0]


def test_bundled_model(tmp_path):
    """The trained model: real weights have outliers that random ones lack."""
    folder = os.path.join(ROOT, "models", "fable")
    config, tensors = reference.read_model(folder)
    ids = prompt(config, 100)
    out = tmp_path / "logits.bin"
    p = subprocess.run([LOGITS, folder, "--ids", ",".join(map(str, ids)), "--out", str(out)], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    got = np.fromfile(out, np.float32).reshape(len(ids), config["vocab_size"])
    assert worst(got, reference.logits(config, tensors, ids)) < TOLERANCE


def test_far_positions(tmp_path):
    """RoPE at positions beyond 2,000 with theta 10,000: angles in single precision would be off by 1e-4 there."""
    config = make_model.make_config("llama2", num_hidden_layers=1, max_position_embeddings=4096)
    make_model.write_model(str(tmp_path), config, "f32", seed=11)
    config, tensors = reference.read_model(str(tmp_path))
    ids = prompt(config, 2300)
    got, _, _ = run(tmp_path, ids, chunk=512)
    assert worst(got, reference.logits(config, tensors, ids)) < TOLERANCE


def edit(folder, name, old, new):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("old,new,says", [
    ('"model_type": "llama"', '"model_type": "gemma"', 'config.json: model_type must be one of'),
    ('"hidden_act": "silu"', '"hidden_act": "gelu"', 'config.json: hidden_act must be "silu", got "gelu"'),
    ('"vocab_size": 211', '"vocab_size": 212', 'model.embed_tokens.weight must have shape [212, 64]'),
    ('"num_hidden_layers": 2', '"num_hidden_layers": 3', 'tensor model.layers.2.input_layernorm.weight'),
    ('"hidden_size": 64', '"hidden_size": 0', 'config.json: hidden_size must be an integer from 1 to'),
])
def test_refused_models_say_what_is_wrong(tmp_path, old, new, says):
    make_model.write_model(str(tmp_path), make_model.make_config("llama2"), "f32")
    edit(tmp_path, "config.json", old, new)
    p = subprocess.run([LOGITS, str(tmp_path), "--ids", "1"], capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 1
    assert says in p.stderr, p.stderr
