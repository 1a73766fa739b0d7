"""Goal: Llama 4's chunks, the temperature of its layers without RoPE and the shares on its experts' inputs are the same numbers in prompts of
any length, however they are cut, in every kernel set and in files of other tools.
Method: tiny random models (make_decoder.py): prompts of 700 tokens whose chunks end before, at and behind those of the engine's own sums
against the float64 pass; 8,200 tokens over the published chunk of 8,192 against it in the last rows and against the engine itself, bit for
bit, KV in f32, bf16 and int8; routers whose sigmoids are all 1; checkpoints quantised as other tools do; GGUF files with other keys."""
import json
import os
import subprocess

import numpy as np
import pytest

import make_decoder
import make_gguf_decoder
import make_model
import make_quant
import reference
import reference_decoder
from test_decoders import CASES, Case, refused
from test_engine import KERNELS, LOGITS, TOLERANCE, prompt, run, worst

FAMILIES = ["llama4", "llama4_turns", "llama4_seeing"]
F32 = {"weights": "f32", "kv": "f32"}


@pytest.fixture(params=FAMILIES)
def case(request, tmp_path_factory):
    if request.param not in CASES:
        CASES[request.param] = Case(tmp_path_factory.mktemp("decoder"), request.param)
    return CASES[request.param]


@pytest.mark.parametrize("kernels", KERNELS)
def test_kernel_sets_agree(case, kernels):
    assert worst(case.run(kernels=kernels)[0], case.wanted[:len(case.ids)]) < TOLERANCE


def write(folder, family="llama4", **over):
    make_decoder.write(str(folder), family, seed=7, **{"max_position_embeddings": 16384, **over})
    config, tensors = reference.read_model(str(folder))
    return folder, config, tensors


@pytest.mark.parametrize("chunk", [1, 511, 512, 513, 640, 701])
def test_chunks_of_any_length(chunk, tmp_path):
    folder, config, tensors = write(tmp_path, attention_chunk_size=chunk, floor_scale=100)
    ids = prompt(config, 700, seed=9)
    base, tokens, _ = run(folder, ids, 4, chunk=700)
    assert worst(base, reference_decoder.logits(config, tensors, ids)) < TOLERANCE
    again, others, _ = run(folder, ids, 4, chunk=61, block=7, threads=2, beside=3)
    assert again.tobytes() == base.tobytes() and others == tokens


@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_bits_of_long_prompts(kv, tmp_path):
    folder, config, _ = write(tmp_path, **{k: ... for k in ("attention_chunk_size", "floor_scale", "attn_scale")})
    for n, chunks in ((700, (96, 700)), (8200, (512, 2048))):
        ids = prompt(config, n, seed=n)
        base, tokens, _ = run(folder, ids, 4, kv=kv, chunk=chunks[0], block=16)
        again, others, _ = run(folder, ids, 4, kv=kv, chunk=chunks[1], block=16, threads=2)
        assert again.tobytes() == base.tobytes() and others == tokens, n


def test_a_prompt_over_the_published_chunk(tmp_path):
    """What the config does not name is 8,192; the reference is slow there, so it takes one layer of each kind."""
    folder, config, tensors = write(tmp_path, num_hidden_layers=2, no_rope_layers=[1, 0],
                                    **{k: ... for k in ("attention_chunk_size", "floor_scale", "attn_scale")})
    ids = prompt(config, 8200, seed=3)
    got, tokens, _ = run(folder, ids, 2, chunk=2048)
    want = reference_decoder.logits(config, tensors, ids + tokens)
    assert worst(got[-40:], want[8160:8200]) < TOLERANCE
    assert tokens == [int(t) for t in np.argmax(want[8199:-1], axis=1)]
    for change in ({"attention_chunk_size": 8191}, {"floor_scale": 4096}):
        assert worst(got[-40:], reference_decoder.logits({**config, **change}, tensors, ids)[8160:]) > 10 * TOLERANCE, change


def test_sigmoids_that_are_all_one_still_choose_the_largest(tmp_path):
    config = make_decoder.make_config("llama4")
    shapes = [(name, shape, 60.0 if name.endswith("router.weight") else scale) for name, shape, scale in make_decoder.tensor_shapes("llama4", config)]
    make_model.write_model(str(tmp_path), config, seed=7, tensors=shapes)
    config, tensors = reference.read_model(str(tmp_path))
    ids = prompt(config, 40)
    got, _, _ = run(tmp_path, ids)
    assert worst(got, reference_decoder.logits(config, tensors, ids)) < TOLERANCE


@pytest.mark.parametrize("kind", ["awq-32", "gptq-32-act", "ct-int4-32", "ct-w8a8", "fp8-block"])
def test_checkpoints_of_other_tools(kind, tmp_path):
    """Such tools write experts one by one."""
    make_decoder.write(str(tmp_path / "plain"), "llama4_seeing", seed=7, hidden_size=64, intermediate_size=64, intermediate_size_mlp=128)
    config, tensors = make_quant.write_quantised(str(tmp_path / "plain"), str(tmp_path / "quantised"), kind, seed=4)
    ids = prompt(config["text_config"], 20)
    want = reference_decoder.logits(config, tensors, ids)
    got, _, info = run(tmp_path / "quantised", ids, **F32)
    assert worst(got, want) < TOLERANCE, info
    base, tokens, info = run(tmp_path / "quantised", ids, 4, weights="auto", kv="f32", chunk=1)
    assert np.median(np.abs(base - want).max(axis=1)) / np.abs(want).max() < 0.08, info
    again, others, _ = run(tmp_path / "quantised", ids, 4, weights="auto", kv="f32", chunk=16, threads=2, beside=5)
    assert again.tobytes() == base.tobytes() and others == tokens


def test_a_config_with_its_layers_named(tmp_path):
    """layer_types is the last word on chunks, no_rope_layers on RoPE; configs of transformers 5 have rope_parameters."""
    folder, config, tensors = write(tmp_path, layer_types=["full_attention", "chunked_attention", "chunked_attention", "full_attention"],
                                    no_rope_layers=[1, 0, 1, 1], moe_layers=[0, 1, 2, 3], rope_scaling=...,
                                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    ids = prompt(config, 40)
    got, _, _ = run(folder, ids)
    assert worst(got, reference_decoder.logits({**config, "rope_theta": 10000.0}, tensors, ids)) < TOLERANCE


def test_keys_of_gguf(tmp_path, monkeypatch):
    """Without keys of their own chunk and temperature are the published ones; a file that says it has none is another model."""
    plain = make_gguf_decoder.metadata
    make_decoder.write(str(tmp_path / "hf"), "llama4", seed=7, max_position_embeddings=16384,
                       **{k: ... for k in ("attention_chunk_size", "floor_scale", "attn_scale")})
    path = str(tmp_path / "m.gguf")
    ends = ("chunk_size", "temperature_length", "temperature_scale")
    whole = {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}
    monkeypatch.setattr(make_gguf_decoder, "metadata", lambda config, c, *a: [p for p in plain(config, {**whole, **c}, *a) if not p[0].endswith(ends)])
    config, tensors = make_gguf_decoder.write(str(tmp_path / "hf"), path)
    ids = prompt(config, 40)
    got, _, _ = run(tmp_path, ids, model=path)
    assert worst(got, reference_decoder.logits(config, tensors, ids)) < TOLERANCE
    for key, kind, value, says in (("attention.sliding_window", "u32", 0, "key llama4.attention.sliding_window must be absent for llama4, got 0"),
                                   ("expert_gating_func", "u32", 1, "key llama4.expert_gating_func must be absent or 2, got 1"),
                                   ("interleave_moe_layer_step", "u32", 0, "interleave_moe_layer_step must be an integer from 1 to 1024, got 0"),
                                   ("attention.chunk_size", "u32", 2 ** 31, "attention.chunk_size must be an integer from 1 to 2147483647")):
        monkeypatch.setattr(make_gguf_decoder, "metadata", lambda config, c, *a, k=key, t=kind, v=value: [
            p for p in plain(config, {**whole, **c}, *a) if p[0] != "llama4." + k] + [("llama4." + k, t, v)])
        make_gguf_decoder.write(str(tmp_path / "hf"), path)
        p = subprocess.run([LOGITS, path, "--ids", "1"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 1 and says in p.stderr, p.stderr


def test_ids_of_images_and_parts_that_see_are_left_out(tmp_path):
    folder, config, _ = write(tmp_path, "llama4_seeing")
    path = os.path.join(folder, "config.json")
    assert any("vision_model" in name for name in reference.read_model(str(folder))[1])
    with open(path, "w") as f:
        json.dump({**config, "text_config": {**config["text_config"], "model_type": "llama"}}, f)
    assert 'text_config.model_type must be "llama4_text", got "llama"' in refused(tmp_path)
