"""Writes a PEFT LoRA directory with random weights for a model's config: what `save_pretrained` of the peft library
leaves behind. Used by the oracle's and the cluster's tests; nothing but numpy."""
import json
import os

import numpy as np

import make_gguf
import make_model

MODULES = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
           "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}


def extents(c):
    """{module: (rows, columns)} of the base model's matrices."""
    h, inter, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    hd = c.get("head_dim") or h // heads
    q, kv = heads * hd, c["num_key_value_heads"] * hd
    return {"q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, q), "gate_proj": (inter, h),
            "up_proj": (inter, h), "down_proj": (h, inter)}


def write_adapter(out, config, r=8, alpha=16, targets=tuple(MODULES), dtype="f32", seed=0, scale=1.0, ranks=None,
                  layers=None, drop=(), **members):
    """Returns {(layer, module): (A, B, rank)} as float32, before rounding to dtype. ranks: {module: rank} of
    rank_pattern. drop: names of tensors to leave out. members: over and above those of adapter_config.json."""
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(seed)
    shapes, pairs, tensors, values = extents(config), {}, [], {}
    for i in range(config["num_hidden_layers"]) if layers is None else layers:
        for module in targets:
            rank = (ranks or {}).get(module, r)
            n, k = shapes[module]
            a = rng.standard_normal((rank, k), dtype=np.float32) / np.float32(np.sqrt(k))
            b = rng.standard_normal((n, rank), dtype=np.float32) * np.float32(scale / np.sqrt(rank))
            pairs[i, module] = (a, b, rank)
            for half, x in (("A", a), ("B", b)):
                name = f"base_model.model.model.layers.{i}.{MODULES[module]}.{module}.lora_{half}.weight"
                if name not in drop:
                    tensors.append((name, x.shape, None))
                    values[name] = x
    order = iter([values[name] for name, _, _ in tensors])
    make_model.write_file(os.path.join(out, "adapter_model.safetensors"), tensors, lambda n, scale: next(order), dtype)
    adapter = dict(peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path="someone/base", r=r, lora_alpha=alpha,
                   lora_dropout=0.05, target_modules=list(targets), bias="none", use_rslora=False, use_dora=False,
                   fan_in_fan_out=False, init_lora_weights=True, modules_to_save=None, layers_to_transform=layers,
                   layers_pattern=None, rank_pattern=ranks or {}, alpha_pattern={}, inference_mode=True,
                   megatron_config=None, loftq_config={})
    adapter.update(members)
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump(adapter, f, indent=1)
    return pairs


GGUF_ARCHS = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def write_gguf(path, config, pairs, alpha, kind="F32", over=(), change=None):
    """The adapter that write_adapter() returned, as llama.cpp's converter writes one. kind: of all tensors, or {end of a name: its type}. over: pairs of
    metadata in the place of those of the same key, None: none. change(tensors): over [(name, shape, kind, bytes)]."""
    arch = GGUF_ARCHS[config["model_type"]]
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    meta = {"general.architecture": ("str", arch), "general.type": ("str", "adapter"), "adapter.type": ("str", "lora"), "adapter.lora.alpha": ("f32", alpha)}
    meta.update(over)
    tensors = []
    for (layer, module), (a, b, _) in pairs.items():
        if arch == "llama" and module in heads:
            b = make_gguf.as_pairs(b, heads[module])
        stem = make_gguf.NAMES[f"{MODULES[module]}.{module}"]
        for half, x in (("a", a), ("b", b)):
            name = f"blk.{layer}.{stem}.weight.lora_{half}"
            own = kind if isinstance(kind, str) else next((k for end, k in kind.items() if name.endswith(end)), "F32")
            data, _ = make_gguf.blocks_of(own, x, np.random.default_rng(len(tensors)))
            tensors.append((name, x.shape, own, data))
    make_gguf.write_file(path, [(k, *v) for k, v in meta.items() if v is not None], change(tensors) if change else tensors)
