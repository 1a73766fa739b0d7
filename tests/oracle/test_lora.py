"""Goal: the engine with an adapter computes what the base model with the adapter's product merged into its weights does.
Method: tiny random models and PEFT adapters (make_adapter.py); the merged weights go through the independent float64
forward pass (reference.py). Logits agree within 1e-4 of the largest one, greedy tokens are equal; a merged model that
the engine itself loads agrees too. Where two runs must agree they agree bit for bit."""
import os
import re

import numpy as np
import pytest

import make_adapter
import make_model
import reference
from test_engine import KERNELS, PROMPT, TOLERANCE, prompt, run, worst

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


@pytest.mark.parametrize("kernels", ["avx2", "avx512"])
def test_own_sets_agree_bit_for_bit(case, kernels):
    want, _, _ = run(case.folder, case.ids, kernels="ref", adapter=case.adapter)
    got, _, _ = run(case.folder, case.ids, kernels=kernels, adapter=case.adapter)
    assert got.tobytes() == want.tobytes()


def test_hash_names_adapter_and_base(tmp_path):
    """The same files over the same base: one hash, whatever the packing. Another base, scale or bit: another."""
    config = make_model.make_config("llama2")
    for name, seed in (("one", 1), ("two", 2)):
        make_model.write_model(str(tmp_path / name), config, "f32", seed=seed)
    make_adapter.write_adapter(str(tmp_path / "a"), config, seed=3)

    def hash_of(base, adapter, **options):
        line = run(tmp_path / base, [1, 2], adapter=tmp_path / adapter, **options)[2]
        return re.search(r"adapter=(\w{64})$", line).group(1)

    first = hash_of("one", "a")
    assert hash_of("one", "a", weights="bf16", kernels="ref") == first
    hashes = {first, hash_of("two", "a")}
    make_adapter.write_adapter(str(tmp_path / "b"), config, seed=3, alpha=17)
    hashes.add(hash_of("one", "b"))
    path = tmp_path / "a" / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-2] ^= 1
    path.write_bytes(raw)
    hashes.add(hash_of("one", "a"))
    assert len(hashes) == 4
    os.remove(path)
