"""Goal: a beam search of the engine over a real model, its KV shared and copied as beams fork and die, finds what its definition says.
Method: tiny random models; $BUILD/tests/oracle/beams against a search of its own here over the independent float64 forward pass
(reference.py), which computes every beam from its ids alone. Sequences are equal, sums agree within 1e-3."""
import os
import subprocess

import numpy as np
import pytest

import make_adapter
import make_model
import reference
from test_engine import ROOT, prompt
from test_lora import merged

BEAMS = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "oracle", "beams")
EOS = make_model.TINY["eos_token_id"]


def run(folder, ids, width, new, **options):
    """[(sum, ended by EOS, ids)] of the engine."""
    cmd = [BEAMS, str(folder), "--ids", ",".join(map(str, ids)), "--width", str(width), "--new", str(new)]
    for k, v in options.items():
        cmd += ["--" + k, str(v)]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    lines = [line.split() for line in p.stdout.splitlines()]
    return [(float(n[0]), n[1] == "0", [int(t) for t in n[2:]]) for n in lines]


def logprobs(config, tensors, ids, penalty):
    x = reference.logits(config, tensors, ids)[-1].copy()
    seen = sorted(set(ids))
    x[seen] = np.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def search(config, tensors, ids, width, new, penalty=1.0):
    """The same of the definition in common/engine/engine.h, without its early end."""
    run, pool = [(0.0, [])], []
    for step in range(new):
        grown = []
        for score, made in run:
            lp = logprobs(config, tensors, ids + made, penalty)
            grown += [(score + lp[t], made + [int(t)]) for t in np.argsort(-lp, kind="stable")[:2 * width]]
        grown.sort(key=lambda g: -g[0])
        run = []
        for score, made in grown[:2 * width]:
            if made[-1] == EOS:
                pool.append((score, True, made))
            elif step + 1 == new:
                pool.append((score, False, made))
            elif len(run) < width:
                run.append((score, made))
            if len(run) == width:
                break
    return sorted(pool, key=lambda g: -g[0])[:width]


def check(got, want):
    assert [g[1:] for g in got] == [w[1:] for w in want]
    assert np.allclose([g[0] for g in got], [w[0] for w in want], atol=1e-3)


@pytest.mark.parametrize("family,width", [("llama2", 1), ("llama2", 7), ("mistral", 4), ("qwen2", 2), ("qwen3", 4)])
def test_finds_what_the_definition_finds(tmp_path, family, width):
    make_model.write_model(str(tmp_path), make_model.make_config(family), "f32", seed=21)
    config, tensors = reference.read_model(str(tmp_path))
    ids = prompt(config, 21 + width)
    want = search(config, tensors, ids, width, 12)
    for options in (dict(block=4), dict(block=1, rows=3), dict(block=16)):
        check(run(tmp_path, ids, width, 12, **options), want)


def test_penalty_follows_each_beam(tmp_path):
    make_model.write_model(str(tmp_path), make_model.make_config("llama2"), "f32", seed=22)
    config, tensors = reference.read_model(str(tmp_path))
    ids = prompt(config, 17)
    check(run(tmp_path, ids, 4, 12, penalty=1.5, block=4), search(config, tensors, ids, 4, 12, 1.5))


def test_adapter(tmp_path):
    make_model.write_model(str(tmp_path / "base"), make_model.make_config("llama2"), "f32", seed=23)
    config, tensors = reference.read_model(str(tmp_path / "base"))
    pairs = make_adapter.write_adapter(str(tmp_path / "adapter"), config, dtype="f32", seed=12, scale=0.3, r=8, alpha=16)
    ids = prompt(config, 17)
    want = search(config, merged(tensors, pairs, "f32", lambda m, r: 2.0), ids, 4, 12)
    check(run(tmp_path / "base", ids, 4, 12, block=4, adapter=tmp_path / "adapter"), want)
    assert [w[2] for w in want] != [w[2] for w in search(config, tensors, ids, 4, 12)]
