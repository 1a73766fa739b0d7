#!/usr/bin/python3
"""Writes a checkpoint of train_fable.py as a HuggingFace-style model directory.

    tools/fable_export.py OUT_DIR models/fable

OUT_DIR is the directory that train_fable.py was given; its checkpoint may be of a run that still
goes on. Writes config.json, generation_config.json, model.safetensors (bf16), tokenizer.json,
tokenizer_config.json and special_tokens_map.json; leaves other files of the target alone.
"""

import argparse
import json
import pathlib
import struct

import torch

import fable_bpe
from fable_model import Shape

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% else %}{{ raise_exception('Roles are system, user and assistant') }}"
    "{% endif %}"
    "{{ message['content'] | trim }}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def config(s):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fable_bpe.BOS,
        "eos_token_id": [fable_bpe.EOS, fable_bpe.END],
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "initializer_range": 0.02,
        "intermediate_size": s.inter,
        "max_position_embeddings": s.context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": s.heads,
        "num_hidden_layers": s.layers,
        "num_key_value_heads": s.kv_heads,
        "rms_norm_eps": s.eps,
        "rope_scaling": None,
        "rope_theta": s.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": s.vocab,
    }


def generation_config():
    return {
        "bos_token_id": fable_bpe.BOS,
        "eos_token_id": [fable_bpe.EOS, fable_bpe.END],
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
        "min_p": 0.05,
    }


def special_tokens():
    return {"bos_token": fable_bpe.SPECIALS[0], "eos_token": fable_bpe.SPECIALS[1],
            "pad_token": fable_bpe.SPECIALS[1]}


def tokenizer_config(s):
    return {
        "added_tokens_decoder": {
            str(fable_bpe.N_BASE + i): {"content": t, "lstrip": False, "normalized": False,
                                        "rstrip": False, "single_word": False, "special": True}
            for i, t in enumerate(fable_bpe.SPECIALS)},
        **special_tokens(),
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": s.context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def write_safetensors(path, tensors):
    """tensors as bf16: 8 bytes of header length, a JSON header padded by spaces, the data."""
    header, chunks, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        chunk = tensor.detach().cpu().contiguous().to(torch.bfloat16).view(torch.int16)
        chunk = chunk.numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                        "data_offsets": [at, at + len(chunk)]}
        chunks.append(chunk)
        at += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out", type=pathlib.Path, help="directory that train_fable.py wrote")
    p.add_argument("target", type=pathlib.Path, help="model directory to write")
    args = p.parse_args()
    shape = Shape()
    saved = torch.load(args.out / "checkpoint.pt", map_location="cpu")
    args.target.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.target / "model.safetensors", saved["model"])
    write_json(args.target / "config.json", config(shape))
    write_json(args.target / "generation_config.json", generation_config())
    write_json(args.target / "tokenizer_config.json", tokenizer_config(shape))
    write_json(args.target / "special_tokens_map.json", special_tokens())
    merges = fable_bpe.load(args.out / "tokenizer.json").merges
    write_json(args.target / "tokenizer.json", fable_bpe.tokenizer_json(merges))
    state = saved["state"]
    print("step %d, %d tokens seen, %.4f nats on the openings of valid.txt" %
          (state["steps"], state["tokens"], state["valid_nats"]))


if __name__ == "__main__":
    main()
