"""Goal: a model with latent attention is served split as on one instance, byte for byte; its KV is one row for all heads.
Method: a tiny random DeepSeek-V3: one instance in standard mode reads it as a HuggingFace folder, a prefill and a decode instance as GGUF, with KV in
bf16 and in int8. Prompts around a block's edge and longer than a chunk, greedy and drawn, alone and eight at once, with a cold and a warm prefix
cache; what `batonctl inspect` says of a token's KV is counted again."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from families import made_up_ids
from harness import FABLE, ROOT, Cluster, Standalone, in_threads, post

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_decoder  # noqa: E402
import make_gguf_decoder  # noqa: E402

BATONCTL = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bin", "batonctl")
BODIES = [{"model": "fable", "prompt": made_up_ids(n, 800 + n), "max_tokens": 20, "ignore_eos": True, "logprobs": 3, **how}
          for n in (1, 16, 17, 200) for how in ({"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7})]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("latent")
    make_decoder.write(str(folder / "hf"), "deepseek_v3", seed=7, vocab_size=4096, max_position_embeddings=512)
    (folder / "gguf").mkdir()
    make_gguf_decoder.write(str(folder / "hf"), str(folder / "gguf" / "model.gguf"))
    for kind in ("hf", "gguf"):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(FABLE, name), folder / kind / name)
    return folder


@pytest.fixture(scope="module", params=["bf16", "int8"])
def served(request, folder):
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


def test_kv_of_a_token_is_one_row(folder):
    for kind, row in (("bf16", 2 * (32 + 8)), ("int8", 2 + 32 + 8)):
        p = subprocess.run([BATONCTL, "inspect", str(folder / "hf"), "--kv", kind], capture_output=True, text=True, timeout=60)
        assert p.returncode in (0, 3), p.stderr
        assert "4 heads over latents of 40" in p.stdout, p.stdout
        assert f"{2 * row / 1024:.1f} KiB for each token" in p.stdout, p.stdout


def test_packed_weights_are_those_of_a_copy_of_the_files(folder, tmp_path):
    """The matrix that is cut is hashed the same whether it is packed or only looked at."""
    extra, said = {"BatonConfig": {"weightCachePath": str(tmp_path / "packed")}}, []
    os.makedirs(tmp_path / "packed")
    for kind in ("hf", "gguf"):
        for step, source in (("packed to cache", folder / kind), ("cache", tmp_path / kind)):
            if step == "cache":  # other inodes and times: only the content can tell that it is the same model
                shutil.copytree(folder / kind, tmp_path / kind)
                packed = [p for p in os.listdir(tmp_path / "packed") if p.endswith(".packed")]
                assert packed
            with Standalone(model=str(source), extra=extra) as one:
                assert re.findall(r'event=weights from="([^"]*)"', one.instance.log())[-1] == step
                said.append(answer(one.base, BODIES[4]))
        assert said[-1] == said[-2]
