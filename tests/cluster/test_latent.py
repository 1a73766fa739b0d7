"""Goal: a model with latent attention is served split as on one instance, byte for byte; its KV is one row for all heads.
Method: a tiny random DeepSeek-V3: one instance in standard mode reads it as a HuggingFace folder, a prefill and a decode instance as GGUF, with KV in
bf16 and in int8. Prompts around a block's edge and longer than a chunk, greedy and drawn, alone and eight at once, with a cold and a warm prefix
cache; what `batonctl inspect` says of a token's KV is counted again."""
import os
import re
import shutil
import subprocess

import pytest
from harness import ROOT, Cluster, Standalone
from tiny_models import answer, bodies, same_answers, write_both

BATONCTL = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bin", "batonctl")
BODIES = bodies((1, 16, 17, 200), 800)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("latent")
    write_both(folder, "deepseek_v3")
    return folder


@pytest.fixture(scope="module", params=["bf16", "int8"])
def served(request, folder):
    extra = {"BatonConfig": {"weightDtype": "f32", "chunkTokens": 64, "kvDtype": request.param}}
    with Standalone(model=str(folder / "hf"), extra=extra) as one, Cluster(model=str(folder / "gguf"), extra=extra) as c:
        yield one, c


def test_split_is_whole(served):
    one, c = served
    same_answers([answer(one.base, body) for body in BODIES], c.base, BODIES)


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
