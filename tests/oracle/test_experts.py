"""Goal: experts that a file keeps quantised have the values that their format says, and what is wrong in such a file is named.
Method: tiny random mixtures written in each format (make_quant.py, make_gguf_decoder.py), run by the engine in f32 against the reference
forward pass on those values in float64; the types that nobody asked for; bits that must not depend on chunks, threads or neighbours; then
files that lie."""
import json

import numpy as np
import pytest

import make_decoder
import make_gguf_decoder
import make_quant
import reference_decoder
from test_decoders import refused
from test_engine import ALIKE, prompt, run, worst
from test_quantised_files import read

TOLERANCE = 1e-4
F32 = {"weights": "f32", "kv": "f32"}


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory):
    """(folder in MXFP4, config, what its tensors mean, ids, wanted logits)"""
    folder = tmp_path_factory.mktemp("gpt_oss")
    make_decoder.write(str(folder / "plain"), "gpt_oss", seed=7, hidden_size=64, intermediate_size=96, swiglu_limit=7.0)
    config, tensors = make_quant.write_mxfp4(str(folder / "plain"), str(folder / "mxfp4"), seed=4)
    ids = prompt(config, 40)
    return folder, config, tensors, ids, reference_decoder.logits(config, tensors, ids)


def test_mxfp4_as_it_is_published(gpt_oss):
    folder, config, tensors, ids, want = gpt_oss
    got, tokens, info = run(folder / "mxfp4", ids, 64, **F32)
    assert worst(got, want) < TOLERANCE, info
    assert tokens == [int(t) for t in np.argmax(reference_decoder.logits(config, tensors, ids + tokens)[len(ids) - 1:-1], axis=1)]
    # Four bits of a value and powers of two are exact in bf16, and as integers with a scale.
    for weights in ("bf16", "auto"):
        got, _, info = run(folder / "mxfp4", ids, weights=weights, kv="f32")
        assert np.median(np.abs(got - want).max(axis=1)) / np.abs(want).max() < 0.05, info
    assert "weights=int8" in info


def test_mxfp4_of_gguf_is_the_same_model(gpt_oss):
    folder, config, tensors, ids, want = gpt_oss
    path = str(folder / "m.gguf")
    make_gguf_decoder.write(str(folder / "plain"), path, {"exps.weight": "MXFP4"}, tensors)
    got, _, info = run(folder, ids, model=path, **F32)
    assert worst(got, want) < TOLERANCE, info
    _, _, info = run(folder, ids, model=path, weights="auto")
    assert "weights=mxfp4" in info, info


FEW = dict(num_experts=6, num_experts_per_tok=2)
# Rows of whole blocks in every matrix: one that has none is kept in bf16, whose sums AMX's tiles take in another order than the other kernels.
WIDE = dict(hidden_size=256, moe_intermediate_size=256, **FEW)
HEADS = dict(WIDE, head_dim=64)
K_TYPES = {
    # name: (family, sizes, type by GGUF's name, what is kept)
    "Q4_K": ("qwen3_moe", HEADS, lambda n: "Q4_K", "q4_k"),
    "Q5_K": ("qwen3_moe", HEADS, lambda n: "Q5_K", "q5_k"),
    "Q6_K": ("qwen3_moe", HEADS, lambda n: "Q6_K", "q6_k"),
    "Q3_K": ("qwen3_moe", HEADS, lambda n: "Q3_K", "q6_k"),
    "MXFP4": ("qwen3_moe", dict(FEW, hidden_size=64, moe_intermediate_size=96), lambda n: "MXFP4", "mxfp4"),
    "as Q4_K_M, rows of q and k as pairs": ("mixtral", dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1),
                                            lambda n: "Q6_K" if "attn_v" in n or "ffn_down" in n or n == "output.weight" else "Q4_K", "q4_k"),
    "a stack that is cut, a shared expert that is too": ("granite_shared", dict(hidden_size=256, intermediate_size=256, shared_intermediate_size=512),
                                                         lambda n: "Q5_K" if "shexp" in n else "Q4_K", "q4_k"),
    "gate and up whose activations differ": ("qwen2_moe", dict(WIDE, shared_expert_intermediate_size=256),
                                             lambda n: "Q8_0" if "ffn_up" in n else "MXFP4" if "attn" in n else "Q4_K", "q4_k"),
    "Llama 4, dense layers between": ("llama4_turns", dict(hidden_size=256, head_dim=64, intermediate_size=256, intermediate_size_mlp=512, num_experts_per_tok=1),
                                      lambda n: "Q6_K" if "down" in n or "attn_v" in n else "Q5_K" if "shexp" in n else "Q4_K", "q4_k"),
    "groups of experts": ("glm4_moe", dict(hidden_size=256, head_dim=64, moe_intermediate_size=256, intermediate_size=256), lambda n: None if "nextn" in n else "Q6_K" if "down" in n else "Q4_K", "q4_k"),
}


@pytest.mark.parametrize("story", K_TYPES)
def test_experts_in_blocks(tmp_path, story):
    family, sizes, kind, kept = K_TYPES[story]
    make_decoder.write(str(tmp_path / "plain"), family, seed=7, **sizes)
    path = str(tmp_path / "m.gguf")
    config, tensors = make_gguf_decoder.write(str(tmp_path / "plain"), path, own=lambda n: None if "ffn_gate_inp" in n else kind(n))
    ids = prompt(config, 40)
    want = reference_decoder.logits(config, tensors, ids)
    got, _, info = run(tmp_path, ids, model=path, **F32)
    assert worst(got, want) < TOLERANCE, info
    # As the types are, with activations of eight bits: near the reference, and the same bits however it is cut.
    base, tokens, info = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32")
    assert f"weights={kept} " in info, info
    assert np.median(np.abs(base - want).max(axis=1)) / np.abs(want).max() < 0.05, info
    for options in ({"chunk": 1, "block": 1}, {"chunk": 7, "threads": 2, "beside": 5}):
        got, again, _ = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32", **options)
        assert got.tobytes() == base.tobytes() and again == tokens, options
    # The router is bf16, whose sums have another order on tiles; the sets without have the same bits.
    plain, tokens, _ = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32", kernels="ref", chunk=13)
    for kernels in ALIKE[:1]:
        got, again, _ = run(tmp_path, ids, 8, model=path, weights="auto", kv="f32", kernels=kernels)
        assert got.tobytes() == plain.tobytes() and again == tokens
    assert np.median(np.abs(plain - base).max(axis=1)) / np.abs(want).max() < 0.02


@pytest.mark.parametrize("weights", ["f32", "int8"])
def test_bits_of_mxfp4_do_not_depend_on_chunks_threads_or_neighbours(gpt_oss, weights):
    folder, _, _, ids, _ = gpt_oss
    base, tokens, _ = run(folder / "mxfp4", ids, 8, weights=weights, chunk=1, block=1)
    got, again, _ = run(folder / "mxfp4", ids, 8, weights=weights, chunk=16, block=7, threads=2, beside=5)
    assert got.tobytes() == base.tobytes() and again == tokens


@pytest.mark.parametrize("family", ["gpt_oss", "granite_moe"])
def test_stacks_leave_memory_as_they_are_packed(tmp_path, family):
    """gpt-oss' rows are columns, gate's and up's by turns; Granite's are one behind the other. What is read is not kept until all is."""
    make_decoder.write(str(tmp_path), family, seed=1, num_hidden_layers=1, hidden_size=512, intermediate_size=512, num_local_experts=40, num_experts_per_tok=2)
    file = (tmp_path / "model.safetensors").stat().st_size
    _, _, info = run(tmp_path, [1, 2], weights="int4")
    packed, peak = 19 << 20, int(info.split("peak_kib=")[1].split()[0]) << 10
    assert file > 115 << 20 and peak < packed + file // 4, info


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("plain"))
    make_decoder.write(folder, "qwen2_moe", seed=7, hidden_size=64, moe_intermediate_size=64, shared_expert_intermediate_size=128)
    return folder


@pytest.mark.parametrize("kind,dtype", [("awq-32", "int8"), ("awq-64", "int8"), ("gptq-32", "int8"), ("gptq-32-act", "int8"), ("gptq-64-v2", "int8"),
                                        ("ct-int4-32", "int8"), ("ct-w8a8", "int8"), ("ct-fp8-channel", "bf16"), ("fp8-block", "bf16")])
def test_experts_of_other_tools(plain, tmp_path, kind, dtype):
    config, tensors = make_quant.write_quantised(plain, str(tmp_path), kind, seed=4)
    ids = prompt(config, 20)
    want = reference_decoder.logits(config, tensors, ids)
    got, _, info = run(tmp_path, ids, **F32)
    assert worst(got, want) < TOLERANCE, info
    base, tokens, info = run(tmp_path, ids, 4, weights="auto", kv="f32", chunk=1)
    assert f"weights={dtype}" in info
    assert np.median(np.abs(base - want).max(axis=1)) / np.abs(want).max() < 0.05
    again, others, _ = run(tmp_path, ids, 4, weights="auto", kv="f32", chunk=16, threads=2, beside=5)
    assert again.tobytes() == base.tobytes() and others == tokens


def other_files(kind, tensors):
    """Tensors of a GGUF file as other converters have them: older ones each expert by itself, newer ones gate and up of all in one."""
    out, gates = [], {n: x for n, x in tensors if n.endswith("ffn_gate_exps.weight")}
    for name, x in tensors:
        if kind == "older" and name.endswith("_exps.weight"):
            out += [(name.replace("_exps.weight", f".{e}.weight"), x[e]) for e in range(len(x))]
        elif kind == "newer" and name.replace("_up_", "_gate_") in gates and name not in gates:
            out.append((name.replace("_up_", "_gate_up_"), np.concatenate([gates[name.replace("_up_", "_gate_")], x], axis=1)))
        elif kind == "older" or name not in gates or len(tensors) == 1:
            out.append((name, x))
    return out


@pytest.mark.parametrize("kind", ["older", "newer"])
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "llama4_turns"])
def test_experts_of_other_converters(tmp_path, family, kind, monkeypatch):
    plain = make_gguf_decoder.tensors_of
    monkeypatch.setattr(make_gguf_decoder, "tensors_of", lambda *a, **k: other_files(kind, plain(*a, **k)))
    sizes = dict(hidden_size=256, **{"qwen3_moe": "moe_intermediate_size"}.get(family) and {"moe_intermediate_size": 256} or {"intermediate_size": 256})
    make_decoder.write(str(tmp_path / "plain"), family, seed=7, **sizes)
    path = str(tmp_path / "m.gguf")
    for own, options in ((None, F32), (lambda n: None if "ffn_gate_inp" in n else "Q6_K" if "down" in n else "Q4_K", {"weights": "auto", "kv": "f32"})):
        config, tensors = make_gguf_decoder.write(str(tmp_path / "plain"), path, own=own)
        ids = prompt(config, 20)
        want = reference_decoder.logits(config, tensors, ids)
        got, _, info = run(tmp_path, ids, model=path, **options)
        far = np.median(np.abs(got - want).max(axis=1)) / np.abs(want).max()
        assert far < (0.05 if own else TOLERANCE), info
    cut = {"older": "ffn_up.3.weight", "newer": "ffn_down_exps.weight"}[kind]
    monkeypatch.setattr(make_gguf_decoder, "tensors_of", lambda *a, **k: [(n, x) for n, x in other_files(kind, plain(*a, **k)) if n != "blk.1." + cut])
    make_gguf_decoder.write(str(tmp_path / "plain"), path)
    assert f"tensor blk.1.{cut}, which the metadata asks for, is missing" in refused(path), refused(path)


def test_a_hybrid_in_gguf_is_named(tmp_path, monkeypatch):
    plain = make_gguf_decoder.metadata
    monkeypatch.setattr(make_gguf_decoder, "metadata", lambda *a: [("general.architecture", "str", "qwen3next")] + plain(*a)[1:])
    make_decoder.write(str(tmp_path / "plain"), "qwen3_moe")
    path = str(tmp_path / "m.gguf")
    make_gguf_decoder.write(str(tmp_path / "plain"), path)
    assert 'general.architecture "qwen3next" is not supported: it has layers of linear attention (gated delta net)' in refused(path), refused(path)


AT = "model.layers.0.mlp.experts."


def lie(tensors, name, dtype=None, shape=None, raw=None):
    d, s, r = tensors[name]
    tensors[name] = (dtype or d, shape or s, r if raw is None else raw)


LIES = [
    (lambda t: t.pop(AT + "down_proj_scales"), f"tensor {AT}down_proj_blocks has no _scales beside it"),
    (lambda t: lie(t, AT + "down_proj_blocks", shape=[6, 64, 6, 8]), f"tensor {AT}down_proj_blocks must have the sizes of experts, outputs, groups"),
    (lambda t: lie(t, AT + "down_proj_scales", shape=[6, 192]), f"tensor {AT}down_proj_scales must have the first three sizes of its _blocks"),
    (lambda t: lie(t, AT + "down_proj_scales", dtype="I8"), f"tensor {AT}down_proj_scales must have type U8, got I8"),
    (lambda t: lie(t, AT + "down_proj_scales", raw=b"\xff" * 1152), f"tensor {AT}down_proj: value [0, 0] is NaN"),
    (lambda t: lie(t, AT + "down_proj_blocks", shape=[3, 128, 3, 16]) or lie(t, AT + "down_proj_scales", shape=[3, 128, 3]),
     f"tensor {AT}down_proj must have shape [6, 64, 96] by config.json, got [3, 128, 96]"),
    (lambda t: lie(t, AT + "gate_up_proj_bias", shape=[192, 6]), f"tensor {AT}gate_up_proj_bias must have shape [6, 192] by config.json, got [192, 6]"),
    (lambda t: t.pop("model.layers.1.self_attn.sinks"), "tensor model.layers.1.self_attn.sinks, which config.json asks for, is missing"),
]


@pytest.mark.parametrize("change,says", LIES, ids=range(len(LIES)))
def test_files_that_lie_are_told(gpt_oss, tmp_path, change, says):
    folder, config, _, _, _ = gpt_oss
    tensors = read(folder / "mxfp4")
    change(tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = {"F32": 4, "U8": 1, "I8": 1}  # what a shape leaves over is cut
    make_quant.write_tensors(str(tmp_path / "model.safetensors"), {k: (d, s, r[:int(np.prod(s)) * sizes[d]]) for k, (d, s, r) in tensors.items()})
    assert says in refused(tmp_path), refused(tmp_path)
