"""Goal: P and D of one host hold the weights once, and a second start packs nothing; weights that `batonctl quantize` packed are used as they are.
Method: a random model of 130 MB made on the spot, served as 1P1D twice with the default settings: the log says where the weights came from, the
answers are the same, and in /proc each instance's proportional share is far below what it maps. Then int8 packed ahead of time, standard and 1P1D.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile

import pytest
from harness import BUILD, FABLE, READY_S, ROOT, Cluster, Standalone, post, wait_for

SETTINGS = {"BatonConfig": {"kvCacheMiB": 8, "maxLoras": 0}, "BackendConfig": {"ScheduleConfig": {"maxBatchSize": 4, "maxPrefillBatchSize": 4}}}


@pytest.fixture(scope="module")
def model():
    folder = tempfile.mkdtemp(prefix="baton-weights-")
    wide = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4,
            "head_dim": 64, "vocab_size": 16384, "max_position_embeddings": 2048}
    path = os.path.join(folder, "model")
    args = ["/usr/bin/python3", os.path.join(ROOT, "tests", "oracle", "make_model.py"), path, "--family", "llama2", "--dtype", "bf16",
            "--tokenizer", os.path.join(FABLE, "tokenizer.json")]
    for k, v in wide.items():
        args += ["--set", f"{k}={v}"]
    subprocess.run(args, check=True)
    yield path
    shutil.rmtree(folder)


def answer(base):
    a = post(base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    assert a.status == 200, a.text
    return a.json["choices"][0]["text"]


def came_from(instance):
    return re.search(r'event=weights from="([^"]*)"', instance.log()).group(1)


def came_from_last(instance):
    return re.findall(r'event=weights from="([^"]*)"', instance.log())[-1]


def share_of_weights(instance):
    """(Rss, Pss) in kB of what the instance maps of the file of packed weights."""
    with open(f"/proc/{instance.process.pid}/smaps") as f:
        found, rss, pss = False, 0, 0
        for line in f:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                found = line.rstrip().endswith(".packed")
            elif found and line.startswith(("Rss:", "Pss:")):
                kb = int(line.split()[1])
                rss, pss = (rss + kb, pss) if line.startswith("Rss") else (rss, pss + kb)
    return rss, pss


def test_weights_are_packed_once_and_shared(model):
    with Cluster(model=model, extra=SETTINGS) as cluster:
        assert sorted(came_from(i) for i in cluster.instances) == ["cache", "packed to cache"]
        first = answer(cluster.base)
        files = glob.glob(os.path.join(model, ".baton", "*.packed"))
        assert len(files) == 1
        kb = os.path.getsize(files[0]) / 1024
        for i in cluster.instances:
            rss, pss = share_of_weights(i)
            assert rss > 0.95 * kb and pss < 0.6 * kb, (rss, pss, kb)
    with Cluster(model=model, extra=SETTINGS) as cluster:
        assert [came_from(i) for i in cluster.instances] == ["cache", "cache"]
        assert answer(cluster.base) == first
    with Standalone(model=model, extra={**SETTINGS, "BatonConfig": {**SETTINGS["BatonConfig"], "weightCachePath": "off"}}) as whole:
        assert came_from(whole.instance) == "memory"
        assert answer(whole.base) == first


def test_wrong_kept_weights_end_the_instance_that_uses_them(model):
    """A bit that turned since the weights were packed: the instance serves, then ends by itself and names the file; the next one packs anew."""
    with tempfile.TemporaryDirectory(prefix="baton-bad-") as folder:
        extra = {**SETTINGS, "BatonConfig": {**SETTINGS["BatonConfig"], "weightCachePath": folder}}
        with Standalone(model=model, extra=extra) as whole:
            assert came_from(whole.instance) == "packed to cache"
        with Standalone(model=model, extra=extra) as whole:
            assert came_from(whole.instance) == "cache"
            wait_for(lambda: "event=weights_checked" in whole.instance.log(), READY_S, "the weights were looked through")
        path, = glob.glob(os.path.join(folder, "*.packed"))
        with open(path, "r+b") as f:
            f.seek(100 << 20)
            byte = f.read(1)[0]
            f.seek(100 << 20)
            f.write(bytes([byte ^ 1]))
        one = Standalone(model=model, extra=extra).instance
        try:
            one.start()
            wait_for(lambda: not one.alive(), READY_S, "it ends")
            assert one.process.returncode == 1
            last = [line for line in one.log().splitlines() if " error " in line][-1]
            assert path + ": the checksum of its data is wrong" in last, last
            assert "event=ready" in one.log(), "the start did not wait for it"
            assert os.path.exists(path + ".bad") and not os.path.exists(path)
            one.start()
            wait_for(lambda: one.load() or not one.alive(), READY_S, "the next one serves")
            assert came_from_last(one) == "packed to cache"
            one.stop()
        finally:
            if one.alive():
                one.process.kill()


def test_weights_packed_ahead_of_time():
    with tempfile.TemporaryDirectory(prefix="baton-packed-") as folder:
        def quantize(dtype):
            return subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "quantize", FABLE, "--dtype", dtype, "--out", folder, "--threads", "1"],
                                  capture_output=True, text=True)
        assert quantize("float7").returncode == 2
        told = quantize("int8")
        assert told.returncode == 0 and "as int8" in told.stdout and "packed" in told.stdout, told.stderr
        again = quantize("int8")
        assert again.returncode == 0 and "there already" in again.stdout
        extra = {"BatonConfig": {"weightCachePath": folder, "weightDtype": "int8", "weightCacheVerify": True}}
        with Standalone(extra=extra) as whole:
            assert came_from(whole.instance) == "cache"
            text = answer(whole.base)
        with Cluster(extra=extra) as cluster:
            assert [came_from(i) for i in cluster.instances] == ["cache", "cache"]
            assert answer(cluster.base) == text
