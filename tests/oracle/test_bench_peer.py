"""Goal: what `make bench-peer` compares is what it says: its files are models that the engine reads, with the types and bytes that are counted, and
without a llama.cpp it tells what is missing.
Method: its shapes made small are written, loaded and run; paths that hold no peer are named."""
import os
import re
import sys
import xml.dom.minidom

import numpy as np
import perplexity
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "bench")]
import peer_engines  # noqa: E402
import peer_models  # noqa: E402
import pictures  # noqa: E402

SMALL = {"dense": dict(hidden=256, inter=512, layers=9, heads=4, kv_heads=2, dim=64, vocab=512, experts=0, used=0),
         "moe": dict(hidden=256, inter=256, layers=2, heads=4, kv_heads=2, dim=64, vocab=512, experts=8, used=2)}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(peer_models, "SHAPES", SMALL)
    monkeypatch.setattr(peer_models, "POOL_BLOCKS", 256)


@pytest.mark.parametrize("shape, mix", [("dense", m) for m in ("Q4_K_M", "Q8_0", "Q4_0", "BF16")] + [("moe", "Q4_K_M"), ("moe", "MXFP4")])
def test_its_files_are_read(tmp_path, shape, mix):
    path = str(tmp_path / "m.gguf")
    peer_models.write(shape, mix, path)
    rows = perplexity.log_softmax(path, [5, 6, 7, 8], "auto")
    assert rows.shape == (4, 512) and np.isfinite(rows).all()
    assert rows.std(-1).min() > 0.05  # random, but not nothing


def test_types_and_bytes_are_those_of_the_file(tmp_path):
    """Q4_K_M as llama.cpp's quantiser mixes it; a token reads two of eight experts and no embedding."""
    kinds = [peer_models.type_of(f"blk.{i}.ffn_down", "Q4_K_M", i, 22) for i in range(22)]
    assert [i for i, k in enumerate(kinds) if k == "Q6_K"] == [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]
    assert peer_models.type_of("output", "Q4_K_M", 0, 22) == "Q6_K" and peer_models.type_of("blk.3.attn_k", "Q4_K_M", 3, 22) == "Q4_K"
    path = str(tmp_path / "m.gguf")
    peer_models.write("moe", "Q8_0", path)
    experts, embedding = 2 * 3 * 8 * 256 * 256 * 34 // 32, 512 * 256 * 34 // 32
    rest = os.path.getsize(path) - experts - embedding
    assert peer_models.step_bytes("moe", "Q8_0") == pytest.approx(rest + experts // 4, rel=0.2)
    assert peer_models.step_bytes("moe", "Q8_0") < rest + experts // 4  # the header is in the file alone


def test_operations_of_a_prefill():
    """By hand: of every layer q and o 256 x 256, k and v 128 x 256, three of 512 x 256; a score and its share of a value a pair and head."""
    weights = 9 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256)
    assert peer_models.layer_operations("dense", 3) == 2 * weights * 3 + 9 * 4 * 256 * 6
    weights = 2 * (2 * 256 * 256 + 2 * 128 * 256 + 8 * 256 + 2 * 3 * 256 * 256)
    assert peer_models.layer_operations("moe", 1) == 2 * weights + 2 * 4 * 256


def test_without_a_peer_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_engines.harness, "BUILD", str(tmp_path))
    for path, words in (("", "PEER is not set"), (str(tmp_path), "has neither llama-batched-bench and llama-server nor a CMakeLists.txt")):
        with pytest.raises(SystemExit, match=words):
            peer_engines.find_peer(path)
    (tmp_path / "bin").mkdir()
    for name in peer_engines.PROGRAMS:
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    assert peer_engines.find_peer(str(tmp_path)) == str(tmp_path / "bin")


def test_a_file_that_the_peer_refuses_is_told(tmp_path):
    (tmp_path / "llama-batched-bench").write_text("#!/bin/sh\necho 'error loading model: unknown type' >&2\nexit 1\n")
    (tmp_path / "llama-batched-bench").chmod(0o755)
    with pytest.raises(peer_engines.Refused, match="unknown type"):
        peer_engines.batched_bench(str(tmp_path), "m.gguf", 2, 8, 1, (1,))


def hist(middle):
    return {"n": 100, "mean_us": middle, "quantiles_us": {str(q): middle * (0.2 + 2 * q) for q in (0, 0.01, 0.1, 0.5, 0.9, 0.99, 1)}}


def run(speed, failed=0):
    names = [f"{k}_gap_{q}_ms" for k in ("calm", "beside") for q in ("p50", "p99")] + ["ttft_p90_ms", "token_p99_ms", "gap_p99_ms"]
    return {"seconds": 8.0, "sent": 20, "ended": 20 - failed, "failed": failed, "good": 10, "output_tokens": 900, "ttft": hist(9e4 / speed), "gap": hist(9e3 / speed),
            "figures": {**{n: 30 / speed for n in names}, "answers_s": speed}}


def test_pictures_show_what_was_measured():
    """Each is XML that asks for nothing; every target is drawn, and what failed is said."""
    points = ["interference", "rate 1", "rate 2", "mix 16 192", "mix 512 64", "trace"]
    data = {"about": {"ttft_goal_ms": 1000, "gap_goal_ms": 50}, "runs": {p: {"split": run(2), "whole": run(1), "llama.cpp": run(0.5, 3)} for p in points}}
    drawn = pictures.draw(data)
    assert set(drawn) == {f"{n}.svg" for n in ("interference", "rates", "goodput", "crossover", "trace")}
    for name, text in drawn.items():
        xml.dom.minidom.parseString(text)
        assert "nan" not in text and "href" not in text and "<script" not in text and re.search(r"llama.cpp \(\d+ failed\)", text), name
        assert all(re.search(f'class="f?{kind}"', text) for kind in "abc"), name
    bars = [float(h) for h in re.findall(r'<rect class="fa" [^>]*width="[\d.]+" height="([\d.]+)"', drawn["interference.svg"])]
    assert len(set(bars[:-1])) == 1 and len(bars) == 5  # equal values, equal bars; the last is of the key
    del data["runs"]["trace"], data["runs"]["rate 1"]["llama.cpp"]
    assert "trace.svg" not in pictures.draw(data)
