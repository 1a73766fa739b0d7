"""Goal: a GGUF file gives the numbers that its definition says: every block type, family, kind of RoPE, order of rows, split files.
Method: tiny random models written as GGUF (make_gguf.py) run by the engine in f32, against the reference forward pass (reference.py) on
the values that numpy reads from the same blocks. Files that are wrong are refused with their name, key and value."""
import os
import struct
import subprocess

import numpy as np
import pytest

import make_gguf
import make_model
import perplexity
import reference
from test_engine import KERNELS, LOGITS, prompt, run, worst

TOLERANCE = 1e-4
F32 = {"weights": "f32", "kv": "f32"}


def model(folder, family, kind, parts=1, **over):
    """(path of the GGUF, config, tensors as written)."""
    hf = os.path.join(str(folder), "hf")
    make_model.write_model(hf, make_model.make_config(family, over.pop("tied", False), **over), "f32", 1, seed=3)
    path = os.path.join(str(folder), "model.gguf")
    config, tensors = make_gguf.write_gguf(hf, path, kind, parts, seed=4)
    return path if parts == 1 else path.replace(".gguf", f"-00001-of-{parts:05}.gguf"), config, tensors


@pytest.mark.parametrize("family,tied", [("llama2", False), ("llama3", True), ("linear", False), ("yarn", False), ("llama_bias", False),
                                         ("mistral_full", True), ("qwen2", True), ("qwen3", False)])
def test_families_give_the_reference_logits(tmp_path, family, tied):
    path, config, tensors = model(tmp_path, family, "F32", tied=tied)
    ids = prompt(config, 40)
    got, tokens, _ = run(tmp_path, ids, 8, model=path, **F32)
    assert worst(got, reference.logits(config, tensors, ids)) < TOLERANCE
    assert tokens == reference.greedy(config, tensors, ids, 8, tokens)


@pytest.mark.parametrize("kind", sorted(make_gguf.TYPES))
def test_every_block_type_is_read_as_numpy_reads_it(tmp_path, kind):
    path, config, tensors = model(tmp_path, "llama2", kind, hidden_size=256, intermediate_size=512, num_hidden_layers=1)
    ids = prompt(config, 20)
    got, _, info = run(tmp_path, ids, model=path, **F32)
    assert worst(got, reference.logits(config, tensors, ids)) < TOLERANCE, info


# What a file's types are kept as when nobody asks for another.
OWN = {"Q4_K": "q4_k", "Q5_K": "q5_k", "Q6_K": "q6_k", "Q3_K": "q6_k", "IQ4_NL": "iq4_nl", "IQ4_XS": "iq4_xs", "MXFP4": "mxfp4"}


class Rounded:
    """A matrix that meets activations of 8 bits, groups of 32 with a scale, as reference.py uses one: x @ w.T and w[ids]."""
    __array_ufunc__ = None

    def __init__(self, a):
        self.a = a

    @property
    def T(self):
        return self

    def __getitem__(self, ids):
        return self.a[ids]

    def __rmatmul__(self, x):
        g = x.astype(np.float32).reshape(len(x), -1, 32)
        most = np.abs(g).max(-1)[..., None]
        step = np.where(most > 2.0 ** -100, most / np.float32(127), np.float32(1))
        return (np.rint(g * (np.float32(127) / np.where(most > 0, most, 1))) * step.astype(np.float64)).reshape(x.shape) @ self.a.T


@pytest.mark.parametrize("kind", OWN)
def test_blocks_are_computed_with_as_they_are(tmp_path, kind):
    path, config, tensors = model(tmp_path, "llama2", kind, hidden_size=256, intermediate_size=512, num_hidden_layers=1)
    ids = prompt(config, 20)
    got, tokens, info = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32")
    assert f"weights={OWN[kind]}" in info, info
    want = reference.logits(config, {name: a if a.ndim == 1 else Rounded(a) for name, a in tensors.items()}, ids)
    assert worst(got, want) < 2e-2, info  # a rounding of an activation may fall the other way: one step of 127
    assert worst(got, reference.logits(config, tensors, ids)) < 5e-2
    # one token at a time, in chunks, beside another sequence, on two threads, with every set: the same bits
    for options in [{"chunk": 1}, {"chunk": 7, "threads": 2}, {"beside": 5}] + [{"kernels": name} for name in KERNELS if name != "openblas"]:
        other, more, _ = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32", **options)
        assert np.array_equal(got, other) and tokens == more, options


MIXTURES = {
    # name: (type by tensor, what is kept)
    "as Q4_K_M": (lambda n: "Q6_K" if "v_proj" in n or "down_proj" in n or "lm_head" in n else "Q4_K", "q4_k"),
    "types whose activations differ": (lambda n: "Q8_0" if "v_proj" in n else "F16" if "k_proj" in n or "up_proj" in n else "Q5_0" if "o_proj" in n
                                       else "Q4_0" if "embed" in n else "Q4_K", "bf16"),
    "mostly others": (lambda n: "Q6_K" if "down" in n else "Q2_K" if "gate" in n or "up" in n else "Q4_0" if "q_proj" in n else "Q8_0", "bf16"),
}


@pytest.mark.parametrize("story", MIXTURES)
def test_mixtures_keep_each_type(tmp_path, story):
    kind, most = MIXTURES[story]
    path, config, tensors = model(tmp_path, "qwen3", kind, hidden_size=256, intermediate_size=512, num_hidden_layers=2)
    ids = prompt(config, 30)
    got, tokens, info = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32")
    assert f"weights={most}" in info, info
    assert worst(got, reference.logits(config, tensors, ids)) < 5e-2, info
    for options in ({"chunk": 1}, {"chunk": 11, "threads": 2, "beside": 3}):
        other, more, _ = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32", **options)
        assert np.array_equal(got, other) and tokens == more, options


@pytest.mark.parametrize("vocabulary", ["Q8_0", "BF16", "Q6_K"])
def test_the_layers_say_what_a_model_is_kept_as(tmp_path, vocabulary):
    """However large the matrices over the vocabulary are."""
    path, config, _ = model(tmp_path, "llama2", lambda n: vocabulary if "embed" in n or "lm_head" in n else "Q4_K", hidden_size=256, intermediate_size=256,
                            num_hidden_layers=1, vocab_size=4000)
    _, _, info = run(tmp_path, prompt(config, 3), model=path, weights="auto")
    assert "weights=q4_k" in info, info


# What the types may cost fable, of perplexity: at least and at most.
COSTS = {"Q8_0": (-0.006, 0.006), "Q6_K": (-0.006, 0.006), "Q4_K": (0, 0.05), "Q3_K": (0.01, 0.3)}


def test_perplexity_of_the_bundled_model_in_k_types(tmp_path):
    """Quantised for real, and read as somebody's file would be: the fewer bits, the worse, and none by more than its rounding explains."""
    rows = perplexity.windows(perplexity.STORIES, 3)

    def nats(model, weights):
        return float(np.concatenate([-perplexity.log_softmax(model, ids[:-1], weights)[np.arange(len(ids) - 1), ids[1:]] for ids in rows]).mean())

    plain, change = nats(perplexity.FABLE, "bf16"), {}
    for kind in COSTS:
        path = str(tmp_path / f"{kind}.gguf")
        make_gguf.write_gguf(perplexity.FABLE, path, kind, make=make_gguf.fitted)
        change[kind] = float(np.expm1(nats(path, "auto") - plain))
    assert all(low <= change[kind] <= high for kind, (low, high) in COSTS.items()), change
    assert change["Q6_K"] < change["Q4_K"] < change["Q3_K"], change


def test_split_files_and_folders_are_one_model(tmp_path):
    path, config, tensors = model(tmp_path, "qwen3", "F16", parts=3)
    ids = prompt(config, 20)
    want = reference.logits(config, tensors, ids)
    got, _, _ = run(tmp_path, ids, model=path, **F32)
    assert worst(got, want) < TOLERANCE
    folder = tmp_path / "alone"
    folder.mkdir()
    for part in tmp_path.glob("model-*.gguf"):
        part.rename(folder / part.name)
    again, _, _ = run(tmp_path, ids, model=str(folder), **F32)
    assert np.array_equal(got, again)


def refused(path):
    p = subprocess.run([LOGITS, str(path), "--ids", "1"], capture_output=True, text=True, timeout=120)
    assert p.returncode != 0, p.stdout
    return p.stderr


def rewritten(tmp_path, change):
    """A file whose pairs were changed by change(pairs)."""
    hf = os.path.join(str(tmp_path), "hf")
    make_model.write_model(hf, make_model.make_config("llama2"), "f32", 1, seed=3)
    config, tensors = reference.read_model(hf)
    _, pairs = make_gguf.metadata(config, hf)
    path = tmp_path / "changed.gguf"
    files = [(make_gguf.gguf_name(n), a.shape, "F32", a.astype(np.float32).tobytes()) for n, a in tensors.items()]
    pairs, files = change(pairs, files)
    make_gguf.write_file(str(path), pairs, files)
    return path


WRONG = {
    "another architecture": (lambda p, t: ([(k, f, "lama" if k == "general.architecture" else v) for k, f, v in p], t),
                             'general.architecture must be one of those in docs/models.md, the nearest is "llama", got "lama"'),
    "a hybrid": (lambda p, t: ([(k, f, "mamba" if k == "general.architecture" else v) for k, f, v in p], t),
                 'general.architecture "mamba" is not supported: it has state-space layers (Mamba)'),
    "a key that is missing": (lambda p, t: ([x for x in p if x[0] != "llama.block_count"], t), "key llama.block_count is missing"),
    "no layers": (lambda p, t: ([(k, f, 0 if k == "llama.block_count" else v) for k, f, v in p], t), "block_count must be an integer from 1"),
    "experts": (lambda p, t: (p + [("llama.expert_count", "u32", 8)], t), "key llama.expert_used_count is missing"),
    "an unknown rope": (lambda p, t: (p + [("llama.rope.scaling.type", "str", "longrope")], t), 'got "longrope"'),
    "a tensor too many": (lambda p, t: (p, t + [("blk.0.attn_q_norm.weight", (16,), "F32", b"\0" * 64)]),
                          "tensor blk.0.attn_q_norm.weight is not used by the family llama"),
    "a tensor too few": (lambda p, t: (p, [x for x in t if x[0] != "blk.1.ffn_up.weight"]), "tensor blk.1.ffn_up.weight"),
    "a shape": (lambda p, t: (p, [(n, s if n != "output_norm.weight" else (32,), k, d if n != "output_norm.weight" else d[:128])
                                  for n, s, k, d in t]), "tensor output_norm.weight must have shape [64] by the metadata, got [32]"),
    "a min_p above 1": (lambda p, t: (p + [("general.sampling.min_p", "f32", 1.5)], t), "general.sampling.min_p must be"),
    "a key twice": (lambda p, t: (p + [p[0]], t), "key general.architecture is there twice"),
    "an alignment of 0": (lambda p, t: ([(k, f, 0 if k == "general.alignment" else v) for k, f, v in p], t), "general.alignment must be a power of two"),
}


@pytest.mark.parametrize("story", WRONG)
def test_what_is_wrong_is_named(tmp_path, story):
    change, text = WRONG[story]
    said = refused(rewritten(tmp_path, change))
    assert "changed.gguf" in said and text in said, said
    assert len(said.strip().split("\n")) == 1, said


def test_the_second_part_alone_and_a_missing_one_are_named(tmp_path):
    path, _, _ = model(tmp_path, "llama2", "F32", parts=2)
    second = path.replace("-00001-", "-00002-")
    assert "name the first one" in refused(second)
    os.remove(second)
    assert "model-00002-of-00002.gguf" in refused(path)


def test_a_file_that_was_cut_or_is_none(tmp_path):
    path, _, _ = model(tmp_path, "llama2", "F32")
    raw = open(path, "rb").read()
    cut = tmp_path / "cut.gguf"
    for n in (3, 12, 24, 200, len(raw) // 2, len(raw) - 40):
        cut.write_bytes(raw[:n])
        assert "cut.gguf" in refused(cut), n
    cut.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git-lfs" in refused(cut)
    cut.write_bytes(struct.pack(">4sIQQ", b"GGUF", 3, 0, 0))
    assert "big-endian" in refused(cut)
