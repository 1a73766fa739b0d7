"""Goal: the engine with an adapter computes what the base model with the adapter's product merged into its weights does.
Method: tiny random models and PEFT adapters (make_adapter.py); the merged weights go through the independent float64
forward pass (reference.py). Logits agree within 1e-4 of the largest one, greedy tokens are equal; a merged model that
the engine itself loads agrees too. Where two runs must agree they agree bit for bit."""
import os
import re
import subprocess

import numpy as np
import pytest

import make_adapter
import make_gguf
import make_model
import reference
from test_engine import ALIKE, KERNELS, LOGITS, PROMPT, TOLERANCE, prompt, run, worst

NEW = 32
ALL = tuple(make_adapter.MODULES)


def rounded(x, dtype):
    raw = make_model.to_bytes(x, dtype)
    if dtype == "f32":
        return np.frombuffer(raw, np.float32).reshape(x.shape).astype(np.float64)
    if dtype == "f16":
        return np.frombuffer(raw, np.float16).reshape(x.shape).astype(np.float64)
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(x.shape).astype(np.float64)


def merged(tensors, pairs, dtype, scale_of):
    out = dict(tensors)
    for (layer, module), (a, b, rank) in pairs.items():
        name = f"model.layers.{layer}.{make_adapter.MODULES[module]}.{module}.weight"
        out[name] = out[name] + scale_of(module, rank) * (rounded(b, dtype) @ rounded(a, dtype))
    return out


CASES = {
    "every module": ("llama2", "f32", dict(r=8, alpha=16), lambda m, r: 2.0),
    "rank 1": ("qwen2", "bf16", dict(r=1, alpha=0.5), lambda m, r: 0.5),
    "rank 64 rslora": ("llama3", "f16", dict(r=64, alpha=4, use_rslora=True), lambda m, r: 4 / np.sqrt(r)),
    "attention only": ("mistral", "f32", dict(r=5, alpha=5, targets=("q_proj", "v_proj")), lambda m, r: 1.0),
    "odd rank, one layer": ("qwen3", "f32", dict(r=7, alpha=14, layers=[1], targets=("o_proj", "up_proj")),
                            lambda m, r: 2.0),
    "patterns": ("llama_bias", "bf16", dict(r=4, alpha=8, ranks={"down_proj": 12, "k_proj": 2},
                                            alpha_pattern={"mlp.gate_proj": 2}),
                 lambda m, r: (2 if m == "gate_proj" else 8) / r),
}


class Case:
    def __init__(self, folder, family, dtype, options, scale_of):
        self.folder, self.adapter = folder / "base", folder / "adapter"
        make_model.write_model(str(self.folder), make_model.make_config(family), "f32", seed=11)
        self.config, self.tensors = reference.read_model(str(self.folder))
        pairs = make_adapter.write_adapter(str(self.adapter), self.config, dtype=dtype, seed=12, scale=0.3, **options)
        self.ids = prompt(self.config)
        self.merged = merged(self.tensors, pairs, dtype, scale_of)
        self.logits = reference.logits(self.config, self.merged, self.ids)
        self.tokens = reference.greedy(self.config, self.merged, self.ids, NEW, run(self.folder, self.ids, NEW, adapter=self.adapter)[1])


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("lora"), *CASES[request.param])


@pytest.mark.parametrize("kernels", KERNELS)
def test_adapter_is_the_merged_model(case, kernels):
    got, tokens, _ = run(case.folder, case.ids, NEW, kernels=kernels, chunk=16, block=8, threads=2, adapter=case.adapter)
    assert worst(got, case.logits) < TOLERANCE
    assert tokens == case.tokens


def test_adapter_changes_what_the_base_says(case):
    """Or the test above would hold for an engine that ignores adapters."""
    base, _, _ = run(case.folder, case.ids)
    assert worst(base, case.logits) > 100 * TOLERANCE


def test_bf16_weights_stay_close(case):
    got, _, _ = run(case.folder, case.ids, weights="bf16", kv="bf16", adapter=case.adapter)
    assert worst(got, case.logits) < 0.06


@pytest.mark.parametrize("weights", ["f32", "bf16"])
def test_bits_do_not_depend_on_chunks_or_threads(case, weights):
    options = dict(weights=weights, kv=weights, adapter=case.adapter)
    base, tokens, _ = run(case.folder, case.ids, 16, chunk=1, block=1, threads=1, **options)
    for chunk, block, threads in ((PROMPT, 16, 1), (7, 3, 2), (64, 5, 3)):
        got, again, _ = run(case.folder, case.ids, 16, chunk=chunk, block=block, threads=threads, **options)
        assert got.tobytes() == base.tobytes(), (chunk, block, threads)
        assert again == tokens


def test_own_sets_agree_bit_for_bit(case):
    want, _, _ = run(case.folder, case.ids, kernels="ref", adapter=case.adapter)
    for kernels in ALIKE:
        got, _, _ = run(case.folder, case.ids, kernels=kernels, adapter=case.adapter)
        assert got.tobytes() == want.tobytes(), kernels


def test_hash_names_adapter_and_base(tmp_path):
    """The same files over the same base: one hash, whatever the packing and the base's weights. A base of another configuration, another scale or
    bit: another."""
    config = make_model.make_config("llama2")
    for name, seed, more in (("one", 1, {}), ("two", 2, {}), ("turned", 1, {"rope_theta": 7777.0})):
        make_model.write_model(str(tmp_path / name), {**config, **more}, "f32", seed=seed)
    make_adapter.write_adapter(str(tmp_path / "a"), config, seed=3)

    def hash_of(base, adapter, **options):
        line = run(tmp_path / base, [1, 2], adapter=tmp_path / adapter, **options)[2]
        return re.search(r"adapter=(\w{64})$", line).group(1)

    first = hash_of("one", "a")
    assert hash_of("one", "a", weights="bf16", kernels="ref") == first
    assert hash_of("two", "a") == first
    hashes = {first, hash_of("turned", "a")}
    make_adapter.write_adapter(str(tmp_path / "b"), config, seed=3, alpha=17)
    hashes.add(hash_of("one", "b"))
    path = tmp_path / "a" / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-2] ^= 1
    path.write_bytes(raw)
    hashes.add(hash_of("one", "a"))
    assert len(hashes) == 4
    os.remove(path)


# ---- adapters in GGUF

BASES = {"llama2": 16, "llama3": 3, "mistral": 8, "qwen2": 5, "qwen3": 6}


@pytest.fixture(scope="module", params=sorted(BASES))
def both(request, tmp_path_factory):
    """(folder, config, what write_adapter() returned, alpha): a model in both formats, an adapter of every module in PEFT's."""
    folder, alpha = tmp_path_factory.mktemp("both"), BASES[request.param]
    make_model.write_model(str(folder / "hf"), make_model.make_config(request.param), "f32", seed=11)
    config, _ = make_gguf.write_gguf(str(folder / "hf"), str(folder / "model.gguf"), "F32")
    return folder, config, make_adapter.write_adapter(str(folder / "peft"), config, r=6, alpha=alpha, seed=12, scale=0.3), alpha


def test_an_adapter_in_gguf_is_the_same_adapter(both):
    folder, config, pairs, alpha = both
    make_adapter.write_gguf(str(folder / "adapter.gguf"), config, pairs, alpha)
    ids = prompt(config, 30)
    for model in ("hf", "model.gguf"):
        want, tokens, _ = run(folder, ids, 8, model=folder / model, adapter=folder / "peft")
        base, _, _ = run(folder, ids, model=folder / model)
        assert worst(base, want) > 100 * TOLERANCE
        got, same, _ = run(folder, ids, 8, model=folder / model, adapter=folder / "adapter.gguf")
        assert np.array_equal(got, want) and same == tokens, model


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make_model.write_model(str(folder / "hf"), make_model.make_config("llama2", hidden_size=64, intermediate_size=96), "f32", seed=11)
    config, tensors = reference.read_model(str(folder / "hf"))
    return folder, config, tensors


@pytest.mark.parametrize("kind,dtype", [("F16", "f16"), ("BF16", "bf16")])
def test_halves_of_numbers_in_gguf(llama, tmp_path, kind, dtype):
    folder, config, _ = llama
    pairs = make_adapter.write_adapter(str(tmp_path / "peft"), config, r=3, alpha=7, seed=2, dtype=dtype, targets=("k_proj", "down_proj"), layers=[1])
    make_adapter.write_gguf(str(tmp_path / "a.gguf"), config, pairs, 7, kind)
    ids = prompt(config, 20)
    want, _, _ = run(tmp_path, ids, model=folder / "hf", adapter=tmp_path / "peft")
    got, _, _ = run(tmp_path, ids, model=folder / "hf", adapter=tmp_path / "a.gguf")
    assert np.array_equal(got, want)


def test_blocks_and_an_alpha_of_zero(llama, tmp_path):
    """A in Q8_0, whose rows are whole blocks; without an alpha the product is added as it is. A folder with the one file is the file."""
    folder, config, tensors = llama
    pairs = make_adapter.write_adapter(str(tmp_path / "peft"), config, r=5, alpha=7, seed=2, targets=("o_proj", "up_proj"))
    kept = {}

    def change(written):
        for name, shape, kind, data in written:
            raw = np.frombuffer(data, np.uint8 if kind == "Q8_0" else np.float32)
            kept[name] = make_gguf.read_blocks(kind, raw.reshape(-1, 34)).reshape(shape) if kind == "Q8_0" else raw.reshape(shape).astype(np.float64)
        return written

    (tmp_path / "only").mkdir()
    make_adapter.write_gguf(str(tmp_path / "only" / "a.gguf"), config, pairs, 0, {"lora_a": "Q8_0"}, {"adapter.lora.alpha": None}, change)
    want = dict(tensors)
    for layer, module in pairs:
        stem = f"blk.{layer}.{make_gguf.NAMES[make_adapter.MODULES[module] + '.' + module]}.weight.lora_"
        name = f"model.layers.{layer}.{make_adapter.MODULES[module]}.{module}.weight"
        want[name] = want[name] + kept[stem + "b"] @ kept[stem + "a"]
    ids = prompt(config, 20)
    got, _, _ = run(tmp_path, ids, model=folder / "hf", adapter=tmp_path / "only")
    assert worst(got, reference.logits(config, want, ids)) < TOLERANCE


def first(tensors, **what):
    name, shape, kind, data = tensors[0]
    return [(what.get("name", name), what.get("shape", shape), kind, what.get("data", data))] + tensors[1:]


REFUSED = {
    "a model": ({"general.type": ("str", "model")}, None, 'key general.type must be "adapter", got "model"'),
    "a control vector": ({"adapter.type": ("str", "cvec")}, None, 'key adapter.type must be "lora", got "cvec"'),
    "another architecture": ({"general.architecture": ("str", "qwen2")}, None,
                             'key general.architecture must be that of the base model, whose family is llama, got "qwen2"'),
    "an alpha beyond all": ({"adapter.lora.alpha": ("f32", 1e9)}, None, "key adapter.lora.alpha must be a number from -1000000 to 1000000"),
    "an alpha that is none": ({"adapter.lora.alpha": ("f32", float("nan"))}, None, "key adapter.lora.alpha must be a number"),
    "words that switch it on": ({"adapter.alora.invocation_tokens": ("u32s", [1, 2])}, None, "key adapter.alora.invocation_tokens must be absent"),
    "a part of several": ({"split.count": ("u16", 2)}, None, "key split.count must be 1, got 2"),
    "a half alone": ({}, lambda t: t[1:], "tensor blk.0.attn_q.weight.lora_a is missing"),
    "no tensor": ({}, lambda t: [], "holds no tensor"),
    "a layer too many": ({}, lambda t: first(t, name="blk.9.attn_q.weight.lora_a"), "tensor blk.9.attn_q.weight.lora_a is no adapter of a linear layer"),
    "the embedding": ({}, lambda t: t + [("token_embd.weight.lora_a", (64, 4), "F32", bytes(1024))], "tensor token_embd.weight.lora_a is no adapter"),
    "another width": ({}, lambda t: first(t, shape=(4, 32), data=bytes(512)),
                      "tensor blk.0.attn_q.weight.lora_a must have shape [4, 64] by its rank and the base model, got [4, 32]"),
    "ranks that differ": ({}, lambda t: first(t, shape=(3, 64), data=bytes(768)), "tensor blk.0.attn_q.weight.lora_b must have shape [64, 3]"),
    "a rank beyond all": ({}, lambda t: first(t, shape=(65, 64), data=bytes(65 * 256)), "rank must be from 1 to 64, got 65"),
    "no number": ({}, lambda t: first(t, data=b"\0\0\xc0\x7f" * 256), "tensor blk.0.attn_q.weight.lora_a holds a value that is not finite"),
}


def refused_adapter(model, adapter):
    p = subprocess.run([LOGITS, str(model), "--ids", "1", "--adapter", str(adapter)], capture_output=True, text=True, timeout=120)
    assert p.returncode == 1 and len([x for x in p.stderr.splitlines() if "info load" not in x]) == 1, p.stderr
    return p.stderr


@pytest.mark.parametrize("story", REFUSED)
def test_what_is_wrong_in_a_gguf_adapter_is_named(llama, tmp_path, story):
    folder, config, _ = llama
    over, change, text = REFUSED[story]
    pairs = make_adapter.write_adapter(str(tmp_path / "peft"), config, r=4, alpha=7, seed=2, targets=("q_proj", "v_proj"))
    make_adapter.write_gguf(str(tmp_path / "bad.gguf"), config, pairs, 7, over=over, change=change)
    said = refused_adapter(folder / "hf", tmp_path / "bad.gguf")
    assert "bad.gguf: " + text in said or text.startswith("rank") and text in said, said


def test_files_that_are_no_gguf_adapter(llama, tmp_path):
    folder, config, _ = llama
    pairs = make_adapter.write_adapter(str(tmp_path / "peft"), config, r=4, alpha=7, seed=2, targets=("q_proj", "v_proj"))
    make_adapter.write_gguf(str(tmp_path / "good.gguf"), config, pairs, 7)
    raw = (tmp_path / "good.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for n in (0, 3, 24, 200, len(raw) // 2, len(raw) - 200):
        cut.write_bytes(raw[:n])
        assert "cut.gguf" in refused_adapter(folder / "hf", cut), n
    assert "none.gguf: No such file" in refused_adapter(folder / "hf", tmp_path / "none.gguf")
    assert "the folder has several .gguf files: name one of them" in refused_adapter(folder / "hf", tmp_path)
