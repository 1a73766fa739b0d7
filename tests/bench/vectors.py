"""Embeddings of an encoder of the shape of bge-small with random weights: 64 texts of 128 tokens, and of 8, in one request, in 64 requests at
once and one by one, with a real daemon on all cores.

    vectors.py       (BENCH_QUICK=1: fewer rounds)

The three ways take turns. Lines are `name value unit [ratio of]`; the ratio is how many times as fast as one by one."""
import concurrent.futures
import http.client
import json
import os
import shutil
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..", "oracle")]
import harness  # noqa: E402
import make_encoder  # noqa: E402
from cluster_times import QUICK, quantile, say, told, within  # noqa: E402

ROUNDS = 3 if QUICK else 9
TEXTS = 64
LENGTHS = (128, 8)
KEPT = threading.local()


def ask(server, texts):
    """Over a connection that each thread keeps."""
    if not hasattr(KEPT, "connection"):
        KEPT.connection = http.client.HTTPConnection(server.base.partition("//")[2], timeout=60)
    KEPT.connection.request("POST", "/v1/embeddings", json.dumps({"model": "fable", "input": texts, "encoding_format": "base64"}),
                            {"content-type": "application/json"})
    r = KEPT.connection.getresponse()
    body = r.read()
    assert r.status == 200, body[:300]
    return json.loads(body)["data"]


def texts_of(round_, n):
    return [[10 + (i * 131 + j * 7 + round_ * 17) % 4000 for j in range(n)] for i in range(TEXTS)]


def measure(server, n, pool):
    ways = {
        "one_by_one": lambda texts: [ask(server, [t])[0] for t in texts],
        "together": lambda texts: ask(server, texts),
        "at_once": lambda texts: [d[0] for d in pool.map(lambda t: ask(server, [t]), texts)],
    }
    times = {way: [] for way in ways}
    for i in range(ROUNDS):
        seen = {}
        for way, run in ways.items():
            with within(120, f"{TEXTS} texts of {n} tokens, {way}"):
                texts, began = texts_of(i, n), time.monotonic()
                seen[way] = [d["embedding"] for d in run(texts)]
                times[way].append(time.monotonic() - began)
        assert seen["together"] == seen["at_once"] == seen["one_by_one"], "the vectors differ by how they are asked for"
    base = quantile(times["one_by_one"], 0.5)
    say(f"embed_{n}_one_by_one", base * 1e3, "ms")
    for way in ("together", "at_once"):
        t = quantile(times[way], 0.5)
        say(f"embed_{n}_{way}", t * 1e3, "ms", base / t, "one by one")


def main():
    folder = tempfile.mkdtemp(prefix="baton-bench-encoder-")
    try:
        family, dtype, shape = make_encoder.PRESETS["bge-small"]
        make_encoder.write_encoder(folder, dict(make_encoder.FAMILIES[family], **shape), dtype=dtype)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(harness.FABLE, name), folder)
        with harness.Standalone(model=folder, extra={"BatonConfig": {"computeThreads": 0}}) as server, concurrent.futures.ThreadPoolExecutor(TEXTS) as pool:
            for n in LENGTHS:
                measure(server, n, pool)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told("done")


if __name__ == "__main__":
    main()
