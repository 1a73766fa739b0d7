"""Goal: Llama 4 is served split as on one instance, byte for byte, in prompts over a border of its chunks and blocks of KV.
Method: a tiny random model: one instance in standard mode reads it as a HuggingFace folder, a prefill and a decode instance as GGUF, with KV in
bf16 and in int8. Prompts that end before, at and behind a chunk, answers that run into the next, greedy and drawn, alone and eight at once,
with a cold and a warm prefix cache."""
import os
import shutil
import sys

import pytest
from families import made_up_ids
from harness import FABLE, ROOT, Cluster, Standalone, in_threads, post

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_decoder  # noqa: E402
import make_gguf_decoder  # noqa: E402

CHUNK = 50
BODIES = [{"model": "fable", "prompt": made_up_ids(n, 700 + n), "max_tokens": 20, "ignore_eos": True, "logprobs": 3, **how}
          for n in (1, CHUNK - 1, CHUNK, 200) for how in ({"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7})]


@pytest.fixture(scope="module", params=["bf16", "int8"])
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama4")
    make_decoder.write(str(folder / "hf"), "llama4", seed=7, vocab_size=4096, max_position_embeddings=512, attention_chunk_size=CHUNK, floor_scale=60)
    (folder / "gguf").mkdir()
    make_gguf_decoder.write(str(folder / "hf"), str(folder / "gguf" / "model.gguf"))
    for kind in ("hf", "gguf"):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(FABLE, name), folder / kind / name)
    extra = {"BatonConfig": {"weightDtype": "f32", "chunkTokens": 64, "kvDtype": request.param}}
    with Standalone(model=str(folder / "hf"), extra=extra) as one, Cluster(model=str(folder / "gguf"), extra=extra) as c:
        yield one, c


def answer(base, body):
    a = post(base, "/v1/completions", body)
    assert a.status == 200, a.text
    return a.json["choices"], a.json["usage"]["completion_tokens"]


def test_split_is_whole(served):
    one, c = served
    want = [answer(one.base, body) for body in BODIES]
    assert [answer(c.base, body) for body in BODIES] == want
    assert in_threads([lambda b=b: answer(c.base, b) for b in BODIES]) == want
    assert len({str(w) for w in want}) == len(BODIES)
