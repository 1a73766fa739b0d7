"""Goal: checkpoints that other tools have quantised (AWQ, GPTQ, compressed-tensors, FP8) give the numbers that their definitions say, and
what is wrong in one is named. Method: tiny random models written in each format (make_quant.py), run by the engine in f32 against the
reference forward pass on (q - zero) * scale in float64; then files that lie."""
import json
import os
import shutil
import struct
import subprocess

import numpy as np
import pytest

import make_decoder
import make_gguf
import make_model
import make_quant
import reference
import test_quant
from test_engine import LOGITS, prompt, run, worst

TOLERANCE = 1e-4
F32 = {"weights": "f32", "kv": "f32"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The model before it is quantised; 176 is no multiple of a block of FP8."""
    folders = {}
    for inter in (256, 176):
        folders[inter] = str(tmp_path_factory.mktemp(f"plain{inter}"))
        make_model.write_model(folders[inter], make_model.make_config("llama2", hidden_size=128, intermediate_size=inter, num_hidden_layers=1,
                                                                      num_attention_heads=4), "f32", seed=3)
    return folders


@pytest.mark.parametrize("kind", make_quant.KINDS)
def test_every_format_is_read_as_numpy_reads_it(plain, tmp_path, kind):
    config, tensors = make_quant.write_quantised(plain[176 if "fp8" in kind or "w8a8" in kind else 256], str(tmp_path), kind, seed=4)
    ids = prompt(config, 20)
    want = reference.logits(config, tensors, ids)
    got, tokens, info = run(tmp_path, ids, 6, **F32)
    assert worst(got, want) < TOLERANCE, info
    assert tokens == reference.greedy(config, tensors, ids, 6, tokens)


@pytest.mark.parametrize("kind,dtype,loss", [("awq-128", "int8", 0.02), ("awq-128-sym", "int4", 0.05), ("gptq-128-sym", "int4", 0.05),
                                             ("gptq-32-act", "int8", 0.03), ("ct-w8a8", "int8", 0.02), ("fp8-block", "bf16", 0.02)])
def test_nobody_asks_for_a_type(plain, tmp_path, kind, dtype, loss):
    config, tensors = make_quant.write_quantised(plain[256], str(tmp_path), kind, seed=4)
    ids = prompt(config, 20)
    got, _, info = run(tmp_path, ids, weights="auto", kv="f32")
    assert f"weights={dtype}" in info, info
    assert worst(got, reference.logits(config, tensors, ids)) < loss


class Kept(test_quant.Quantised):
    """Integers as they were, their scale rounded to bf16."""

    def __init__(self, values, scale, kind, name):
        rounded = test_quant.bf16(scale.astype(np.float32)).astype(np.float64)
        self.a = np.rint(values / scale) * rounded
        self.most = test_quant.most_of(kind, name)


def kept(tensors, scales, dtype):
    return {name: Kept(a, scales[name], dtype, name) if name in scales else a if a.ndim == 1 else test_quant.Quantised(a, "int8", name)
            for name, a in tensors.items()}


@pytest.mark.parametrize("kind,dtype", [("awq-64", "int8"), ("awq-128-sym", "int4"), ("gptq-64", "int8"), ("gptq-64-v2", "int8"), ("gptq-128-sym", "int4"),
                                        ("gptq-128-sym", "int8"), ("ct-int4-32", "int8"), ("ct-int4-all", "int4"), ("ct-int8-64-sym", "int8"),
                                        ("ct-w8a8", "int8"), ("ct-w8a8-tensor", "int8")])
def test_integers_stay(plain, tmp_path, kind, dtype):
    scales = {}
    config, tensors = make_quant.write_quantised(plain[256], str(tmp_path), kind, seed=4, scales=scales)
    ids = prompt(config, 20)
    got, _, info = run(tmp_path, ids, weights=dtype, kv="f32")
    test_quant.assert_those_of_the_format(got, reference.logits(config, kept(tensors, scales, dtype), ids), info)


@pytest.mark.parametrize("kind,dtype", [("Q8_0", "int8"), ("Q4_0", "int4"), ("Q4_0", "int8")])
def test_integers_of_gguf_blocks_stay(plain, tmp_path, kind, dtype):
    path = str(tmp_path / "m.gguf")
    scales = {}
    config, tensors = make_gguf.write_gguf(plain[256], path, kind, seed=4, scales=scales)
    ids = prompt(config, 20)
    vocabulary = ("model.embed_tokens.weight", "lm_head.weight")
    want = {name: a if a.ndim == 1 else Kept(a, scales[name], "int8" if name in vocabulary else dtype, name) for name, a in tensors.items()}
    got, _, info = run(tmp_path, ids, model=path, weights=dtype, kv="f32")
    test_quant.assert_those_of_the_format(got, reference.logits(config, want, ids), info)
    _, _, info = run(tmp_path, ids, model=path, weights="auto", kv="f32")
    assert f"weights={'int8' if kind == 'Q8_0' else 'int4'}" in info, info


def test_only_what_is_computed_with_chooses_the_type(tmp_path):
    """A part of a model that is not its text, plain as tools leave it, has matrices in layers of its own."""
    make_decoder.write(str(tmp_path / "plain"), "mistral3", seed=7, hidden_size=128, intermediate_size=128, head_dim=32)
    make_quant.write_quantised(str(tmp_path / "plain"), str(tmp_path), "awq-128-sym", seed=4)
    tensors = read(tmp_path)
    tensors["vision_tower.transformer.layers.0.attention.q_proj.weight"] = ("F32", [8, 8], bytes(256))
    make_quant.write_tensors(str(tmp_path / "model.safetensors"), tensors)
    _, _, info = run(tmp_path, [1, 2], weights="auto")
    assert "weights=int4" in info, info


def test_what_is_plain_stays_bf16(plain, tmp_path):
    _, _, info = run(tmp_path, [1, 2], model=plain[256], weights="auto")
    assert "weights=bf16" in info, info


def test_older_tools_wrote_a_file_of_their_own(plain, tmp_path):
    """quantize_config.json and quant_config.json say what quantization_config says."""
    for kind, name, members in (("gptq-64", "quantize_config.json", {"bits": 4, "group_size": 64, "desc_act": False}),
                                ("awq-64", "quant_config.json", {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"})):
        folder = tmp_path / kind
        config, tensors = make_quant.write_quantised(plain[256], str(folder), kind, seed=4)
        del config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(config))
        (folder / name).write_text(json.dumps(members))
        ids = prompt(config, 20)
        got, _, info = run(folder, ids, **F32)
        assert worst(got, reference.logits(config, tensors, ids)) < TOLERANCE, info


# ---- files that lie
def read(folder):
    with open(folder / "model.safetensors", "rb") as f:
        raw = f.read()
    (n,) = struct.unpack_from("<Q", raw)
    return {k: (t["dtype"], t["shape"], raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]) for k, t in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


Q = "model.layers.0.self_attn.q_proj."


def turned(tail, **what):
    def change(config, tensors):
        dtype, shape, raw = tensors[Q + tail]
        tensors[Q + tail] = (what.get("dtype", dtype), what.get("shape", shape), what.get("raw", raw))
    return change


def without(tail):
    return lambda config, tensors: tensors.pop(Q + tail)


def quant(**members):
    return lambda config, tensors: config["quantization_config"].update(members)


def index_of(value):
    def change(config, tensors):
        _, shape, raw = tensors[Q + "g_idx"]
        tensors[Q + "g_idx"] = ("I32", shape, struct.pack("<i", value) + raw[4:])
    return change


WRONG = {
    "no scales": ("awq-32", without("scales"), f"tensor {Q}qweight has no scales beside it"),
    "no zeros": ("awq-32", without("qzeros"), f"tensor {Q}qweight has no qzeros beside it"),
    "no zeros of GPTQ": ("gptq-32", without("qzeros"), f"tensor {Q}qweight has no qzeros beside it"),
    "scales of integers": ("awq-32", turned("scales", dtype="I16"), f"tensor {Q}scales must have type F32, F16, BF16 or F8_E8M0"),
    "scales turned": ("awq-32", turned("scales", shape=[128, 4]), f"tensor {Q}scales must have shape [128, 128], got [128, 4]"),
    "zeros turned": ("gptq-32", turned("qzeros", shape=[16, 4]), f"tensor {Q}qzeros must have shape [4, 16], got [16, 4]"),
    "values of another width": ("gptq-32", quant(bits=8), "must have shape"),
    "another group": ("gptq-32", lambda c, t: (without("g_idx")(c, t), quant(group_size=64)(c, t)), "groups of 64 (group_size) need 2"),
    "a group that is none": ("gptq-32-act", index_of(4), f"tensor {Q}g_idx: index 0 must be from 0 to 3, got 4"),
    "a negative group": ("gptq-32-act", index_of(-1), "index 0 must be from 0 to 3, got -1"),
    "an index too few": ("gptq-32-act", turned("g_idx", shape=[64], raw=b"\0" * 256), f"tensor {Q}g_idx must have an index for each input"),
    "a shape that lies": ("ct-int4-32", turned("weight_shape", raw=struct.pack("<qq", 128, 4096)), "has a width that its weight_shape does not give"),
    "a shape beyond all": ("ct-int4-32", turned("weight_shape", raw=struct.pack("<qq", 128, 1 << 62)), "1 to 16777216 columns"),
    "a negative shape": ("ct-int4-32", turned("weight_shape", raw=struct.pack("<qq", -128, 128)), "weight_shape must hold"),
    "blocks that do not fit": ("fp8-block", quant(weight_block_size=[64, 64]), "_proj.weight_scale_inv has shape [1, 2], which fits"),
    "no tensor of the kind": ("awq-32", quant(quant_method="fp8"), "quant_method is fp8, but no tensor is quantised that way"),
    "a tensor twice": ("awq-32", lambda c, t: t.update({Q + "weight": ("F32", [1], b"\0" * 4)}), f"tensor {Q}weight is there both quantised and not"),
    "a tensor too many": ("awq-32", lambda c, t: t.update({Q + "g_idx": ("I32", [1], b"\0" * 4)}), f"tensor {Q}g_idx is not used"),
    "bitsandbytes": ("awq-32", quant(quant_method="bitsandbytes"), "take the original checkpoint"),
    "a method of the future": ("awq-32", quant(quant_method="quip"), 'quantization_config.quant_method must be "awq", "gptq"'),
    "marlin": ("gptq-32", quant(checkpoint_format="marlin"), 'checkpoint_format must be absent or "gptq" or "gptq_v2", got "marlin"'),
    "three bits": ("gptq-32", quant(bits=3), "quantization_config.bits must be 2, 4 or 8, got 3"),
    "AWQ for other kernels": ("awq-32", quant(version="gemv_fast"), 'quantization_config.version must be absent or "gemm"'),
    "sparse": ("ct-int4-32", quant(sparsity_config={"format": "sparse-24-bitmask"}), 'sparsity_config.format must be absent or "dense"'),
    "a bias that counts": ("gptq-32-act", turned("bias", raw=b"\1" * 256), f"tensor {Q}bias is not used"),
    "FP8 that is no number": ("fp8-block", lambda c, t: turned("weight", raw=b"\x7f" + t[Q + "weight"][2][1:])(c, t), f"tensor {Q}weight: value [0, 0] is NaN"),
}


def refused(path):
    p = subprocess.run([LOGITS, str(path), "--ids", "1"], capture_output=True, text=True, timeout=60)
    assert p.returncode != 0, p.stdout
    assert len(p.stderr.strip().split("\n")) == 1, p.stderr
    return p.stderr


@pytest.mark.parametrize("story", WRONG)
def test_what_is_wrong_is_named(plain, tmp_path, story):
    kind, change, text = WRONG[story]
    config, _ = make_quant.write_quantised(plain[256] if "fp8" not in kind else plain[176], str(tmp_path), kind, seed=4)
    tensors = read(tmp_path)
    change(config, tensors)
    make_quant.write_tensors(str(tmp_path / "model.safetensors"), tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = refused(tmp_path)
    assert text in said, said


def test_values_that_are_no_numbers_are_named(plain, tmp_path):
    shutil.copytree(plain[256], tmp_path / "m")
    for name, at, value, text in ((Q + "weight", 131, np.nan, "value [1, 3] is NaN"), ("model.norm.weight", 5, np.inf, "value [5, 0] is infinite")):
        tensors = {k: (d, s, bytearray(r)) for k, (d, s, r) in read(tmp_path / "m").items()}
        struct.pack_into("<f", tensors[name][2], 4 * at, value)
        make_quant.write_tensors(str(tmp_path / "m" / "model.safetensors"), tensors)
        said = refused(tmp_path / "m")
        assert f"model.safetensors: tensor {name}: {text}" in said, said
        shutil.rmtree(tmp_path / "m")
        shutil.copytree(plain[256], tmp_path / "m")


def test_a_pickle_alone_is_refused_with_what_to_do(plain, tmp_path):
    shutil.copy(os.path.join(plain[256], "config.json"), tmp_path)
    for name in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        (tmp_path / name).write_bytes(b"\x80\x02")
        said = refused(tmp_path)
        assert f"{name} is a Python pickle" in said and "save_pretrained" in said, said
        os.remove(tmp_path / name)
