"""Tiny random models of a family, as a HuggingFace folder and as GGUF, and how it is shown that one is served split as on one instance."""
import os
import shutil
import sys

from families import made_up_ids
from harness import FABLE, ROOT, in_threads, post

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_decoder  # noqa: E402
import make_gguf_decoder  # noqa: E402


def with_tokenizer(folder):
    """The bundled model's, whose vocabulary of 4,096 the tiny models have."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(FABLE, name), folder)


def write_both(folder, family, **sizes):
    """folder/hf and folder/gguf; their paths."""
    make_decoder.write(str(folder / "hf"), family, seed=7, vocab_size=4096, max_position_embeddings=512, **sizes)
    (folder / "gguf").mkdir()
    make_gguf_decoder.write(str(folder / "hf"), str(folder / "gguf" / "model.gguf"))
    for kind in ("hf", "gguf"):
        with_tokenizer(folder / kind)
    return str(folder / "hf"), str(folder / "gguf")


def bodies(lengths, salt, n_new=20):
    """Prompts of these lengths, greedy and drawn."""
    return [{"model": "fable", "prompt": made_up_ids(n, salt + n), "max_tokens": n_new, "ignore_eos": True, "logprobs": 3, **how}
            for n in lengths for how in ({"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7})]


def answer(base, body):
    a = post(base, "/v1/completions", body)
    assert a.status == 200, a.text
    return a.json["choices"], a.json["usage"]["completion_tokens"]


def same_answers(want, base, asked):
    """One by one, then all at once, with what the first left in caches."""
    assert [answer(base, body) for body in asked] == want
    assert in_threads([lambda b=b: answer(base, b) for b in asked]) == want
    assert len({str(w) for w in want}) == len(asked)
