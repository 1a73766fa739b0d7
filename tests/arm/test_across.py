"""Goal: a model has the same bits on aarch64 as on this machine with every kernel set that promises so, and those of its own where a set has such;
a cluster of aarch64 answers as one instance here does; a prefill instance here links with a decode instance there when their arithmetic is the
same, is refused with both names when it is not, and links all the same when both allow it.
Method: BUILD has aarch64 programs that run under qemu-user (tests/arm/run.sh), build/ has this machine's; synthetic models of tests/oracle, the bundled
one for the clusters."""
import os
import subprocess

import make_gguf
import make_model
import numpy as np
import pytest
from harness import BUILD, ROOT, SLOW, Cluster, Standalone, merge, post, wait_for

HERE = os.path.join(ROOT, "build")
SAME = ["neon", "neondot", "neoni8mm"]
IDS = ",".join(str(3 + i * 37 % 200) for i in range(45))


def logits(build, out, model, **options):
    cmd = [os.path.join(build, "tests", "oracle", "logits"), model, "--ids", IDS, "--out", str(out), "--greedy", "4"]
    for k, v in options.items():
        cmd += ["--" + k, str(v)]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=600)
    assert p.returncode == 0, p.stderr
    return np.fromfile(out, np.float32), p.stdout.splitlines()[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_model.write_model(str(folder), make_model.make_config("llama2"), "f32", seed=3)
    return str(folder)


@pytest.mark.parametrize("weights,kv", [("f32", "f32"), ("bf16", "bf16"), ("int8", "int8"), ("int4", "bf16")])
def test_bits_are_those_of_this_machine(model, tmp_path, weights, kv):
    want, tokens = logits(HERE, tmp_path / "here", model, weights=weights, kv=kv, kernels="ref")
    for kernels in SAME:
        for chunk, threads in ((70, 1), (7, 3)):
            got, again = logits(BUILD, tmp_path / "there", model, weights=weights, kv=kv, kernels=kernels, chunk=chunk, threads=threads)
            assert got.tobytes() == want.tobytes() and again == tokens, (kernels, chunk, threads)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K", "IQ4_NL"])
def test_blocks_too(tmp_path, kind):
    hf, path = str(tmp_path / "hf"), str(tmp_path / "model.gguf")
    make_model.write_model(hf, make_model.make_config("llama2", hidden_size=256, intermediate_size=512, num_hidden_layers=1), "f32", seed=3)
    make_gguf.write_gguf(hf, path, kind, seed=4)
    want, _ = logits(HERE, tmp_path / "here", path, weights="auto", kv="f32", kernels="ref")
    for kernels in SAME + ["neonbf16"]:
        got, _ = logits(BUILD, tmp_path / "there", path, weights="auto", kv="f32", kernels=kernels, chunk=11)
        assert got.tobytes() == want.tobytes(), kernels


def test_bf16_products_have_bits_of_their_own_in_any_chunk(model, tmp_path):
    here, _ = logits(HERE, tmp_path / "here", model, weights="bf16", kv="bf16", kernels="ref")
    want, tokens = logits(BUILD, tmp_path / "there", model, weights="bf16", kv="bf16", kernels="neonbf16", chunk=1, block=1, threads=1)
    assert want.tobytes() != here.tobytes() and np.abs(want - here).max() < 0.02 * np.abs(here).max()
    for chunk, block, threads in ((70, 16, 1), (7, 3, 2), (16, 128, 2)):
        got, again = logits(BUILD, tmp_path / "there", model, weights="bf16", kv="bf16", kernels="neonbf16", chunk=chunk, block=block,
                            threads=threads)
        assert got.tobytes() == want.tobytes() and again == tokens, (chunk, block, threads)


@pytest.mark.parametrize("cpu,want", [("cortex-a53", "neon"), ("cortex-a72", "neon"), ("cortex-a76", "neondot"), ("neoverse-n1", "neondot"),
                                      ("max", "neonbf16")])
def test_the_processor_chooses_the_set(model, tmp_path, cpu, want):
    """By what the system says of it (HWCAP); those that it lacks are refused."""
    env = {**os.environ, "ARM_CPU": cpu}
    logits_of = os.path.join(BUILD, "tests", "oracle", "logits")
    p = subprocess.run([logits_of, model, "--ids", "1,2"], capture_output=True, text=True, timeout=600, env=env)
    assert f" kernels={want} " in p.stdout, p.stdout + p.stderr
    sets = [line.split()[0] for line in subprocess.run([logits_of, "--sets"], capture_output=True, text=True, timeout=600, env=env).stdout.splitlines()]
    there = SAME + ["neonbf16"]
    assert sets == ["ref"] + there[:there.index(want) + 1] + ["openblas"]
    for name in there[there.index(want) + 1:]:
        p = subprocess.run([logits_of, model, "--ids", "1,2", "--kernels", name], capture_output=True, text=True, timeout=600, env=env)
        assert p.returncode == 1 and "is not available on this processor" in p.stderr


# ---- clusters
STEPS = 12


def answer(base, seed):
    a = post(base, "/v1/completions", {"model": "fable", "prompt": f"Once upon a time there were {seed} foxes who", "max_tokens": STEPS,
                                       "temperature": 0, "ignore_eos": True, "logprobs": 1}, timeout=60 * SLOW)
    assert a.status == 200, a.text
    choice = a.json["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def kernels_of(p, d, **more):
    """A cluster whose prefill instance is of this machine, and its decode instance of aarch64."""
    cluster = Cluster()
    for inst, kernels in ((cluster.prefills[0], p), (cluster.decodes[0], d)):
        inst.conf = merge(inst.conf, {"BatonConfig": {"kernels": kernels, **more}})
    for daemon in (cluster.prefills[0], cluster.coordinator):
        daemon.command = lambda daemon=daemon: [os.path.join(HERE, "bin", daemon.binary), "-c", daemon.conf_path]
    return cluster


@pytest.fixture(scope="module")
def alone():
    """What one instance of aarch64 says with kernels that have this machine's bits."""
    with Standalone(extra={"BatonConfig": {"kernels": "neoni8mm"}}) as s:
        return [answer(s.base, seed) for seed in range(3)]


def test_a_cluster_of_aarch64(alone):
    with Cluster(extra={"BatonConfig": {"kernels": "neondot"}}) as c:
        assert [answer(c.base, seed) for seed in range(3)] == alone
        last = c.status()["recentRequests"][0]
        assert last["p"] != last["d"] and last["status"] == 200 and last["kvBytes"] > 0


def test_prefill_here_and_decode_there(alone):
    with kernels_of("avx2", "neoni8mm") as c:
        assert [answer(c.base, seed) for seed in range(3)] == alone


def links(instance):
    s = instance.status()
    return s["linkStatus"]["peers"] if s else []


def test_other_bits_are_refused_with_both_names():
    c = kernels_of("avx2", "neonbf16")
    try:
        for d in c.daemons:
            d.start()
        wait_for(lambda: all(p and p[0]["link"] == "failed : 15" for p in map(links, c.instances)), 120 * SLOW, "both say why")
        for inst in c.instances:
            detail = links(inst)[0]["detail"]
            assert all(w in detail for w in ("arithmetic", "common", "neonbf16", "allowMixedIsa is off in both")), detail
        for d in c.daemons:
            d.stop()
    finally:
        c.kill_all()


def test_other_bits_link_where_both_allow_it(alone):
    with kernels_of("avx2", "neonbf16", allowMixedIsa=True) as c:
        text, logprobs = answer(c.base, 0)
        assert logprobs[0] == alone[0][1][0]  # the first token is P's alone
        assert len(logprobs) == STEPS and abs(logprobs[1] - alone[0][1][1]) < 0.1
        assert "arithmetic" in links(c.decodes[0])[0]["detail"]
