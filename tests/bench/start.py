"""Start of a model of 1.1 B random weights in bf16, made on the spot: time from exec to ready when the weights are packed and put in the cache
file, and when the file is there; then what a second process of the same host adds to memory. Part of `make bench`. The second start comes again
as soon as the first has ended, so its pages are in the page cache: without it the disk is what is measured. START_MODEL names a model folder
that is there already (it is not changed; its tokenizer must fit); START_PRESET another shape."""
import os
import signal
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
import harness  # noqa: E402

STARTS = 3
SETTINGS = {"BatonConfig": {"kvCacheMiB": 32, "maxLoras": 0, "chunkTokens": 128}, "BackendConfig": {"ScheduleConfig": {"maxBatchSize": 8}}}


def memory_kb(instance, key):
    with open(f"/proc/{instance.process.pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))


def start(name, folder, model, cache):
    """An instance that is ready, and the milliseconds that took."""
    print(f"start: {name}", file=sys.stderr, flush=True)
    extra = harness.merge(SETTINGS, {"BatonConfig": {"weightCachePath": cache}})
    i = harness.Instance(name, "prefill", folder, harness.free_ports(3), "standard", model, extra)
    began = time.monotonic()
    i.start()
    while "event=ready" not in i.log():
        assert i.alive() and time.monotonic() - began < 300, i.log()
        time.sleep(0.002)
    return i, (time.monotonic() - began) * 1000


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the model goes, too
    folder = tempfile.mkdtemp(prefix="baton-start-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        model, cache = os.environ.get("START_MODEL"), os.path.join(folder, "cache")
        if model is None:
            model = os.path.join(folder, "model")
            print("start: writes a model of 2.2 GB", file=sys.stderr, flush=True)
            subprocess.run(["/usr/bin/python3", os.path.join(HERE, "..", "oracle", "make_model.py"), model, "--preset",
                            os.environ.get("START_PRESET", "tinyllama-1.1b"), "--tokenizer", os.path.join(harness.FABLE, "tokenizer.json")],
                           check=True)
        first, first_ms = start("first", folder, model, cache)
        assert 'from="packed to cache"' in first.log(), first.log()
        first.stop()
        times = []
        for n in range(STARTS):
            i, ms = start(f"again{n}", folder, model, cache)
            assert 'event=weights from="cache"' in i.log(), i.log()
            times.append(ms)
            if n + 1 < STARTS:
                i.stop()
        alone_kb = memory_kb(i, "Pss")
        second, _ = start("second", folder, model, cache)
        both_kb = memory_kb(i, "Pss") + memory_kb(second, "Pss")
        again_ms = sorted(times)[STARTS // 2]
        print(f"start_first_ms {first_ms:.0f} ms")
        print(f"start_again_ms {again_ms:.0f} ms")
        print(f"start_memory_one {alone_kb / 1024:.0f} MiB")
        print(f"start_memory_second_adds {100 * (both_kb - alone_kb) / alone_kb:.2f} %")
        second.stop()
        i.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
