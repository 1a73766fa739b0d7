#!/usr/bin/env python3
"""Writes a HuggingFace model directory with its linear layers quantised as other tools do it: AWQ, GPTQ, compressed-tensors, FP8.

    make_quant.py MODEL OUT --kind awq-128 | gptq-32-act | ct-int4-32 | fp8-block | ...

The integers are rounded from the model's values; `values` is what they mean, (q - zero) * scale in float64, computed before anything is
packed. Formats: the projects' own readers.
"""
import argparse
import json
import os
import struct

import numpy as np

import reference

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble n of a word holds column 8 w + AWQ_ORDER[n]
E4M3 = np.array([(-1) ** (b >> 7) * ((b & 7) * 2.0 ** -9 if b >> 3 & 15 == 0 else (1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7))
                 if b & 127 != 127 else np.nan for b in range(256)])

KINDS = ["awq-32", "awq-64", "awq-128", "awq-128-sym", "gptq-32", "gptq-64", "gptq-128", "gptq-128-sym", "gptq-32-act", "gptq-all",
         "gptq-64-v2", "gptq8-32", "ct-int4-32", "ct-int4-128-sym", "ct-int4-all", "ct-int4-32-act", "ct-int8-64-sym", "ct-w8a8",
         "ct-w8a8-tensor", "ct-w8a8-zero", "ct-fp8-tensor", "ct-fp8-channel", "ct-fp8-block", "fp8-block", "fp8-block-bf16", "fp8-block-e8m0",
         "fp8-tensor"]


def bf16(a):
    u = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def scale_as(a, dtype):
    """(dtype of the file, bytes, values)"""
    if dtype == "F16":
        h = a.astype(np.float16)
        return dtype, h.tobytes(), h.astype(np.float64)
    if dtype == "BF16":
        h = bf16(a)
        return dtype, h.tobytes(), (h.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "F8_E8M0":
        e = np.clip(np.ceil(np.log2(a)) + 127, 1, 254).astype(np.uint8)
        return dtype, e.tobytes(), 2.0 ** (e.astype(np.float64) - 127)
    f = a.astype(np.float32)
    return "F32", f.tobytes(), f.astype(np.float64)


def pack(fields, bits):
    """Fields along the last axis into words, low bits first: u32 [...][n * bits / 32]."""
    per = 32 // bits
    fields = np.pad(fields, [(0, 0)] * (fields.ndim - 1) + [(0, -fields.shape[-1] % per)])
    words = np.zeros(fields.shape[:-1] + (fields.shape[-1] // per,), np.uint32)
    for i in range(per):
        words |= fields[..., i::per].astype(np.uint32) << np.uint32(bits * i)
    return words


def awq_pack(fields):
    return pack(fields.reshape(fields.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(fields.shape), 4)


def groups_of(w, group, g_idx, bits, sym, dtype):
    """(q, zero [groups][out], scale as in the file, scale values [groups][out]) for W [out][in]; q unsigned."""
    n_groups, top = int(g_idx.max()) + 1, 2 ** bits - 1
    scale, zero = np.zeros((n_groups, len(w))), np.zeros((n_groups, len(w)), int)
    for g in range(n_groups):
        part = w[:, g_idx == g]
        if sym:
            scale[g] = 2 * np.abs(part).max(1) / top
        else:
            scale[g] = (part.max(1) - part.min(1)) / top
    file_type, raw, scale = scale_as(scale, dtype)
    for g in range(n_groups):
        zero[g] = 2 ** (bits - 1) if sym else np.clip(np.rint(-w[:, g_idx == g].min(1) / scale[g]), 1, top)
    q = np.clip(np.rint(w / scale[g_idx].T) + zero[g_idx].T, 0, top).astype(int)
    return q, zero, (file_type, raw), scale, (q - zero[g_idx].T) * scale[g_idx].T


def to_e4m3(a):
    code = np.argsort(np.nan_to_num(E4M3, nan=1e9), kind="stable")
    code = code[np.isfinite(E4M3[code])]
    levels = E4M3[code]
    at = np.clip(np.searchsorted(levels, a), 1, len(levels) - 1)
    at = np.where(np.abs(levels[at - 1] - a) <= np.abs(levels[at] - a), at - 1, at)
    return code[at].astype(np.uint8)


def linear(kind, name, w, rng, scales=None):
    """({tail: (dtype, shape, bytes)}, values); scales[name] gets what each value's integer was multiplied with."""
    parts, out, n_in = kind.split("-"), w.shape[0], w.shape[1]
    words = lambda a: ("I32", list(a.shape), a.astype(np.uint32).tobytes())  # noqa: E731
    if parts[0] in ("awq", "gptq", "gptq8") or kind.startswith("ct-int"):
        bits = 8 if "8" in parts[0] or "int8" in kind else 4
        size = parts[2] if parts[0] == "ct" else parts[1]
        group = n_in if size == "all" else int(size)
        g_idx = np.arange(n_in) // group
        if "act" in parts:
            g_idx = rng.permutation(g_idx)
        dtype = "BF16" if parts[0] == "ct" else "F16"
        q, zero, (file_type, raw), scale, values = groups_of(w, group, g_idx, bits, "sym" in parts or parts[-1] == "all", dtype)
        if scales is not None:
            scales[name] = scale[g_idx].T
    if parts[0] == "awq":
        found = {"qweight": words(awq_pack(q.T)), "scales": (file_type, list(scale.shape), raw)}
        if "sym" not in parts:
            found["qzeros"] = words(awq_pack(zero))
        else:
            assert (zero == 8).all()
        return found, values
    if parts[0] in ("gptq", "gptq8"):
        stored = zero if "v2" in parts else zero - 1
        found = {"qweight": words(pack(q, bits).T), "scales": (file_type, list(scale.shape), raw), "qzeros": words(pack(stored, bits))}
        found["g_idx"] = ("I32", [n_in], g_idx.astype(np.int32).tobytes())
        if "v2" in parts:
            del found["g_idx"]
        if "act" in parts:
            found["bias"] = ("F16", [out], b"\0" * (2 * out))
        return found, values
    if kind.startswith("ct-int"):
        raw = scale_as(scale.T, dtype)[1]
        found = {"weight_packed": words(pack(q, bits)), "weight_scale": (file_type, [out, scale.shape[0]], raw),
                 "weight_shape": ("I64", [2], np.array([out, n_in], np.int64).tobytes())}
        if not ("sym" in parts or parts[-1] == "all"):
            found["weight_zero_point"] = words(pack(zero, bits).T)
        if "act" in parts:
            found["weight_g_idx"] = ("I32", [n_in], g_idx.astype(np.int32).tobytes())
        return found, values
    # whole bytes
    fp8 = "fp8" in kind
    top = 448.0 if fp8 else 127.0
    rows, columns = (128, 128) if "block" in kind else (out, n_in) if parts[-1] == "tensor" else (1, n_in)
    r, c = -(-out // rows), -(-n_in // columns)
    scale = np.array([[np.abs(w[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns]).max() / top for j in range(c)] for i in range(r)])
    file_type, raw, scale = scale_as(scale, {"bf16": "BF16", "e8m0": "F8_E8M0"}.get(parts[-1], "F32"))
    wide = np.repeat(np.repeat(scale, rows, 0)[:out], columns, 1)[:, :n_in]
    if scales is not None:
        scales[name] = wide
    shape = [] if parts[-1] == "tensor" else list(scale.shape)
    tail = "weight_scale_inv" if parts[0] == "fp8" and "block" in kind else "weight_scale"
    if fp8:
        code = to_e4m3(w / wide)
        return {"weight": ("F8_E4M3", [out, n_in], code.tobytes()), tail: (file_type, shape, raw),
                "input_scale": ("F32", [], struct.pack("<f", 1))}, E4M3[code] * wide
    zero = np.full(scale.shape, 3) if "zero" in parts else np.zeros(scale.shape, int)
    q = np.clip(np.rint(w / wide) + np.repeat(zero, out // r, 0), -128, 127).astype(np.int8)
    found = {"weight": ("I8", [out, n_in], q.tobytes()), tail: (file_type, shape, raw)}
    if "zero" in parts:
        found["weight_zero_point"] = ("I8", shape, zero.astype(np.int8).tobytes())
    return found, (q - np.repeat(zero, out // r, 0)) * wide


def quantization_config(kind):
    parts = kind.split("-")
    if parts[0] == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": int(parts[1]), "version": "gemm", "zero_point": "sym" not in parts}
    if parts[0] in ("gptq", "gptq8"):
        return {"quant_method": "gptq", "bits": 8 if "8" in parts[0] else 4, "group_size": -1 if parts[1] == "all" else int(parts[1]),
                "desc_act": "act" in parts, "sym": "sym" in parts, "checkpoint_format": "gptq_v2" if "v2" in parts else "gptq"}
    if parts[0] == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", **({"weight_block_size": [128, 128]} if "block" in kind else {})}
    form = "pack-quantized" if parts[1].startswith("int") else "int-quantized" if "w8a8" in parts else "float-quantized"
    weights = {"num_bits": 4 if parts[1] == "int4" else 8, "type": "float" if "fp8" in kind else "int", "symmetric": True,
               "strategy": "block" if "block" in kind else "tensor" if "tensor" in kind else "channel" if form != "pack-quantized" else "group",
               "block_structure": [128, 128] if "block" in kind else None}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


def write_tensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def write_quantised(folder, out, kind, seed=0, scales=None):
    """Returns (config, tensors) of what the files mean, for reference.py."""
    config, tensors = reference.read_model(folder)
    rng = np.random.default_rng(seed)
    os.makedirs(out, exist_ok=True)
    files, back = {}, {}
    for name, a in tensors.items():
        if "_proj.weight" not in name:
            files[name] = ("F32", a.shape, a.astype(np.float32).tobytes())
            back[name] = a
            continue
        module = name[:-len("weight")]
        found, back[name] = linear(kind, name, a, rng, scales)
        files.update({module + tail: t for tail, t in found.items()})
    write_tensors(os.path.join(out, "model.safetensors"), files)
    config["quantization_config"] = quantization_config(kind)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    return config, back


def mxfp4(w, rng):
    """(blocks, scales, values) of rows along the last axis, 32 at a time: codes of E2M1, two a byte, and powers of two."""
    groups = w.reshape(*w.shape[:-1], -1, 32)
    scales = np.ceil(np.log2(np.abs(groups).max(-1) / 6)) + rng.integers(0, 2, groups.shape[:-1])
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    code = np.abs((groups / 2.0 ** scales[..., None])[..., None] - values).argmin(-1)
    blocks = (code[..., 0::2] | code[..., 1::2] << 4).astype(np.uint8)
    return blocks, (scales + 127).astype(np.uint8), (values[code] * 2.0 ** scales[..., None]).reshape(w.shape)


def write_mxfp4(folder, out, seed=0):
    """A folder of make_decoder.py's gpt-oss as it is published: blocks and scales of its experts. Returns (config, tensors) likewise."""
    config, tensors = reference.read_model(folder)
    rng = np.random.default_rng(seed)
    os.makedirs(out, exist_ok=True)
    files, back = {}, {}
    for name, a in tensors.items():
        back[name] = a
        if not name.endswith(("gate_up_proj", "down_proj")):
            files[name] = ("F32", a.shape, a.astype(np.float32).tobytes())
            continue
        blocks, scales, values = mxfp4(np.swapaxes(a, 1, 2), rng)
        files[name + "_blocks"] = ("U8", blocks.shape, blocks.tobytes())
        files[name + "_scales"] = ("U8", scales.shape, scales.tobytes())
        back[name] = np.swapaxes(values, 1, 2)
    write_tensors(os.path.join(out, "model.safetensors"), files)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    return config, back


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--kind", choices=KINDS, required=True)
    a = p.parse_args()
    write_quantised(a.model, a.out, a.kind)


if __name__ == "__main__":
    main()
