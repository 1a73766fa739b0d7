"""Goal: latent attention is the same model in every file, whatever its tensors are quantised to, and its rows' bits depend on nothing
but the row, in prompts longer than a chunk of attention too.
Method: tiny random DeepSeek models (make_decoder.py) written as newer and as older GGUF converters do, with the matrix that keys and values are
made by in each type, and as other tools quantise checkpoints; the engine in f32 against the float64 pass in expanded form on those values; the
engine against itself, bit for bit, with prompts of 700 and 8,200 tokens, KV in bf16 and int8."""
import subprocess

import numpy as np
import pytest

import make_adapter
import make_decoder
import make_gguf
import make_gguf_decoder
import make_quant
import reference
import reference_decoder
from test_decoders import CASES, Case
from test_engine import KERNELS, LOGITS, TOLERANCE, prompt, run, worst

FAMILIES = ["deepseek_v2", "deepseek_v2_groups", "deepseek_v3"]
F32 = {"weights": "f32", "kv": "f32"}


def near(got, want):
    """Of the row in the middle: what rounds may send a row to another expert."""
    return np.median(np.abs(got - want).max(axis=1)) / np.abs(want).max()


@pytest.fixture(params=FAMILIES)
def case(request, tmp_path_factory):
    if request.param not in CASES:
        CASES[request.param] = Case(tmp_path_factory.mktemp("decoder"), request.param)
    return CASES[request.param]


@pytest.mark.parametrize("kernels", KERNELS)
def test_kernel_sets_agree(case, kernels):
    assert worst(case.run(kernels=kernels)[0], case.wanted[:len(case.ids)]) < TOLERANCE


def test_files_of_older_converters(case, tmp_path):
    path = str(tmp_path / "old.gguf")
    make_gguf_decoder.write(str(case.folder), path, whole_latents=True)
    got, tokens, _ = run(tmp_path, case.ids, 8, model=path, **F32)
    assert worst(got, case.wanted[:len(case.ids)]) < TOLERANCE
    assert tokens == case.tokens[:8]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "IQ4_XS"])
def test_keys_and_values_of_any_type(kind, tmp_path):
    make_decoder.write(str(tmp_path / "hf"), "deepseek_v2", seed=7, kv_lora_rank=256)
    config, tensors = reference.read_model(str(tmp_path / "hf"))
    rng, raw = np.random.default_rng(3), {}
    for name in [n for n in tensors if n.endswith("kv_b_proj.weight")]:
        data, tensors[name] = make_gguf.blocks_of(kind, tensors[name], rng)
        raw[f"blk.{name.split('.')[2]}.attn_kv_b.weight"] = kind, data
    path = str(tmp_path / "m.gguf")
    make_gguf_decoder.write(str(tmp_path / "hf"), path, tensors=tensors, whole_latents=True, raw=raw)
    ids = prompt(config, 40)
    want = reference_decoder.logits(config, tensors, ids)
    got, _, info = run(tmp_path, ids, model=path, **F32)
    assert worst(got, want) < TOLERANCE, info
    got, tokens, info = run(tmp_path, ids, 4, model=path, weights="auto", kv="f32", chunk=1)
    assert near(got, want) < 0.08, info
    again, others, _ = run(tmp_path, ids, 4, model=path, weights="auto", kv="f32", chunk=16, threads=2, beside=5)
    assert again.tobytes() == got.tobytes() and others == tokens


@pytest.mark.parametrize("kind", ["awq-32", "gptq-32-act", "ct-int4-32", "ct-w8a8", "fp8-block"])
def test_checkpoints_of_other_tools(kind, tmp_path):
    make_decoder.write(str(tmp_path / "plain"), "deepseek_v3", seed=7, hidden_size=64, moe_intermediate_size=64, intermediate_size=128, kv_lora_rank=64,
                       q_lora_rank=64, qk_nope_head_dim=24, num_nextn_predict_layers=0)
    config, tensors = make_quant.write_quantised(str(tmp_path / "plain"), str(tmp_path / "quantised"), kind, seed=4)
    ids = prompt(config, 20)
    want = reference_decoder.logits(config, tensors, ids)
    got, _, info = run(tmp_path / "quantised", ids, **F32)
    assert worst(got, want) < TOLERANCE, info
    base, tokens, info = run(tmp_path / "quantised", ids, 4, weights="auto", kv="f32", chunk=1)
    assert near(base, want) < 0.08, info
    again, others, _ = run(tmp_path / "quantised", ids, 4, weights="auto", kv="f32", chunk=16, threads=2, beside=5)
    assert again.tobytes() == base.tobytes() and others == tokens


def test_a_prompt_longer_than_a_chunk(case):
    ids = prompt(case.config, 700, seed=9)
    base, tokens, _ = run_long(case, ids, 4, chunk=700)
    assert worst(base, case.reference(ids)) < TOLERANCE
    again, others, _ = run_long(case, ids, 4, chunk=64, block=7, threads=2)
    assert again.tobytes() == base.tobytes() and others == tokens


def run_long(case, ids, greedy, **options):
    """The same model with a context that has room; what RoPE turns by must not follow it."""
    folder = case.folder.parent / f"{case.folder.name}-long"
    if not folder.exists():
        scaling = case.config.get("rope_scaling")
        make_decoder.write(str(folder), case.family, seed=7, max_position_embeddings=16384, rope_scaling=scaling if scaling else ...)
    return run(folder, ids, greedy, **options)


@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_bits_of_long_prompts(kv, tmp_path_factory):
    if "deepseek_v2_groups" not in CASES:
        CASES["deepseek_v2_groups"] = Case(tmp_path_factory.mktemp("decoder"), "deepseek_v2_groups")
    case = CASES["deepseek_v2_groups"]
    for n, chunks in ((700, (96, 700)), (8200, (512, 2048))):
        ids = prompt(case.config, n, seed=n)
        base, tokens, _ = run_long(case, ids, 4, kv=kv, chunk=chunks[0], block=16)
        again, others, _ = run_long(case, ids, 4, kv=kv, chunk=chunks[1], block=16, threads=2)
        assert again.tobytes() == base.tobytes() and others == tokens, n


def test_adapters_are_refused(case, tmp_path):
    make_adapter.write_adapter(str(tmp_path), {**case.config, "head_dim": 16}, r=4, alpha=8, targets=("q_proj",), scale=0.3)
    p = subprocess.run([LOGITS, str(case.folder), "--ids", "1", "--adapter", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "models with latent attention take no adapters" in p.stderr, p.stderr


def test_gguf_files_that_lie_are_told(tmp_path, monkeypatch):
    make_decoder.write(str(tmp_path / "hf"), "deepseek_v3", seed=7)
    path = str(tmp_path / "m.gguf")
    plain, cut = make_gguf_decoder.metadata, make_gguf_decoder.tensors_of
    for key, value, says in (("expert_gating_func", 3, "deepseek2.expert_gating_func must be absent, 1 or 2, got 3"),
                             ("attention.kv_lora_rank", 24, "attention.kv_lora_rank must be a multiple of 16 up to 576, got 24"),
                             ("attention.key_length_mla", 6, "qk_nope_head_dim must be an integer from 1 to 512, got -2"),
                             ("attention.value_length_mla", 32, "attn_v_b.weight must have shape [4, 32, 32] by the metadata, got [4, 16, 32]")):
        monkeypatch.setattr(make_gguf_decoder, "metadata", lambda *a, k=key, v=value: [
            (name, kind, v if name == "deepseek2." + k else x) for name, kind, x in plain(*a)])
        make_gguf_decoder.write(str(tmp_path / "hf"), path)
        p = subprocess.run([LOGITS, path, "--ids", "1"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 1 and says in p.stderr, p.stderr
    monkeypatch.setattr(make_gguf_decoder, "metadata", plain)
    monkeypatch.setattr(make_gguf_decoder, "tensors_of", lambda *a: [(n, x) for n, x in cut(*a) if n != "blk.1.attn_v_b.weight"])
    make_gguf_decoder.write(str(tmp_path / "hf"), path)
    p = subprocess.run([LOGITS, path, "--ids", "1"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "tensor blk.1.attn_v_b.weight, which the metadata asks for, is missing" in p.stderr, p.stderr
