"""make bench-peer: Baton beside llama.cpp, the same GGUF files in the same run, each in turn.

    PEER=PATH peer.py [NAME...]      only parts whose name contains one of these: dense-Q4_K_M, moe-Q4_K_M, answers-Q8_0, embed-F16, ...

PEER is a source or build tree of llama.cpp; nothing of it lies in this repository. Lines are `name value unit ratio of llama.cpp`, medians over the
rounds; behind `theirs` the peer's figure, behind `least` and `most` the ratios of single rounds. At the end the bars. BENCH_QUICK=1: three
rounds. PEER_THREADS="1": with one thread only. Files are made in $TMPDIR, 4 GB at most at a time, and removed."""
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import peer_models  # noqa: E402
import peer_text  # noqa: E402
import report  # noqa: E402
from cluster_times import quantile  # noqa: E402
from peer_engines import BIN, CLOCK, Ours, Refused, batched_bench, find_peer, harness, told  # noqa: E402

QUICK = os.environ.get("BENCH_QUICK", "") == "1"
ROUNDS = 3 if QUICK else 5
PREFILL, CONTEXT, STEPS, BATCHES = 512, 64, 16, (1, 4, 8)
THREADS = [int(n) for n in os.environ.get("PEER_THREADS", "1 2").split() if int(n) <= len(os.sched_getaffinity(0))]
DENSE = ("Q4_K_M", "Q8_0", "Q4_0", "BF16")
MOE = ("Q4_K_M", "MXFP4")

BARS = [
    ("peer_dense_(bf16|q8_0|q4_k_m|q4_0)_prefill_512_threads_1", "ratio", dict(bf16=1.9, q8_0=4, q4_k_m=2, q4_0=2), "prefill 512, {}, 1 thread, over llama.cpp"),
    ("peer_dense_(q8_0|q4_k_m)_prefill_512_threads_2", "ratio", dict(q8_0=2, q4_k_m=1.5), "prefill 512, {}, 2 threads, over llama.cpp"),
    ("peer_dense_(bf16|q8_0|q4_k_m|q4_0)_decode_1_threads_1", "ratio", 1.35, "decode at batch 1, {}, 1 thread, over llama.cpp"),
    ("peer_dense_(q8_0|q4_k_m)_decode_1_threads_2", "ratio", 1.15, "decode at batch 1, {}, 2 threads, over llama.cpp"),
    ("peer_dense_(q8_0|q4_k_m)_decode_8_threads_1", "ratio", 2, "decode at batch 8, {}, 1 thread, over llama.cpp"),
    ("peer_dense_(q8_0|q4_k_m)_decode_8_threads_2", "ratio", 2, "decode at batch 8, {}, 2 threads, over llama.cpp"),
    ("peer_moe_(q4_k_m)_decode_bytes_threads_1", "ratio", 0.8, "experts, {}: bytes of the chosen and shared matrices a second over read bandwidth"),
    ("peer_moe_(q4_k_m)_prefill_operations_threads_1", "ratio", 0.7, "experts, {}: prefill 512, operations a second over the dense shape's"),
    ("peer_answers_(q8_0|q4_k)_gap", "ratio_most", 1, "bundled model in {}: greedy texts part at ties only, over both errors"),
    ("peer_answers_(q8_0|q4_k)_error", "ratio_most", 1, "bundled model in {}: error of log-probabilities over llama.cpp's"),
    ("peer_embed_(f16|q8_0)_threads_2", "ratio", 1.5, "64 texts of 128 tokens in one request, {}, over llama.cpp's server"),
]


class Report:
    """Lines to the terminal and to BUILD/peer.txt."""

    def __init__(self, path):
        self.path, self.file = path, open(path, "w")

    def line(self, text):
        print(text, flush=True)
        print(text, file=self.file, flush=True)

    def say(self, name, value, unit, ratio=None, of=None, words=""):
        self.line(f"{name} {value:.4g} {unit}" + (f" {ratio:.3f} of {of}" if ratio is not None else "") + (f" {words}" if words else ""))


def better_way(peer, path, threads):
    """Flash attention or not: what prefills faster here."""
    seconds = {more: batched_bench(peer, path, threads, PREFILL, 1, (1,), more)[0]["t_pp"] for more in ((), ("-fa",))}
    return min(seconds, key=seconds.get)


def compared(out, name, pairs, unit, amount):
    """pairs: seconds of ours and theirs, a pair a round, for so much."""
    ratios = [b / a for a, b in pairs]
    out.say(name, amount / quantile([a for a, _ in pairs], 0.5), unit, quantile(ratios, 0.5), "llama.cpp",
            f"theirs {amount / quantile([b for _, b in pairs], 0.5):.1f} least {min(ratios):.2f} most {max(ratios):.2f}")


def alone(out, name, seconds, amount):
    out.say(name, amount / quantile([t for t, _ in seconds], 0.5), "tokens/s", words="llama.cpp does not read this file")


def turns(out, peer, shape, mix, path, threads, dense=None):
    """One file with one number of threads."""
    label = f"peer_{shape}_{mix.lower()}"
    prefill, decode, bandwidth, steps, operations = [], {b: [] for b in BATCHES}, [], [], []
    try:
        way = better_way(peer, path, threads)
    except Refused as why:
        out.line(f"# llama.cpp does not read {shape} {mix}: {why}")
        way = None
    with Ours(path, threads) as ours:
        ours("prefill", PREFILL)
        step_bytes = peer_models.step_bytes(shape, mix)
        for i in range(ROUNDS):
            told(f"{shape} {mix}, threads {threads}, round {i + 1} of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
            mine = ours("prefill", PREFILL)
            prefill.append((mine, batched_bench(peer, path, threads, PREFILL, 1, (1,), way)[0]["t_pp"] if way is not None else 0))
            theirs = [r["t_tg"] for r in batched_bench(peer, path, threads, CONTEXT, STEPS, BATCHES, way)] if way is not None else [0] * len(BATCHES)
            for b, other in zip(BATCHES, theirs):
                decode[b].append((ours("decode", b, CONTEXT, STEPS), other))
            before = ours("read", step_bytes)  # the best of some sweeps, so the best of some steps beside it
            step = min(ours("decode", 1, CONTEXT, 1) for _ in range(STEPS))
            bandwidth.append(min(before, ours("read", step_bytes)) / step)
            steps.append(step)
            if dense is not None:
                operations.append(peer_models.layer_operations(shape, PREFILL) / mine / (peer_models.layer_operations("dense", PREFILL) / dense("prefill", PREFILL)))
    if way is None:
        alone(out, f"{label}_prefill_{PREFILL}_threads_{threads}", prefill, PREFILL)
        for b in BATCHES:
            alone(out, f"{label}_decode_{b}_threads_{threads}", decode[b], b * STEPS)
    else:
        compared(out, f"{label}_prefill_{PREFILL}_threads_{threads}", prefill, "tokens/s", PREFILL)
        for b in BATCHES:
            compared(out, f"{label}_decode_{b}_threads_{threads}", decode[b], "tokens/s", b * STEPS)
    out.say(f"{label}_decode_bytes_threads_{threads}", step_bytes / quantile(steps, 0.5) * 1e-9, "GB/s", quantile(bandwidth, 0.5),
            "read_bandwidth", f"least {min(bandwidth):.2f} most {max(bandwidth):.2f}")
    if operations:
        rate = peer_models.layer_operations(shape, PREFILL) / quantile([a for a, _ in prefill], 0.5)
        out.say(f"{label}_prefill_operations_threads_{threads}", rate * 1e-9, "GFLOP/s", quantile(operations, 0.5), "the_dense_shape",
                f"least {min(operations):.2f} most {max(operations):.2f}")


def decoders(out, peer, shape, mixes, wanted, tmp):
    for mix in mixes:
        if not wanted(f"{shape}-{mix}"):
            continue
        path, dense_path = os.path.join(tmp, f"{shape}-{mix}.gguf"), os.path.join(tmp, "beside.gguf")
        told(f"writes {shape} {mix}")
        peer_models.write(shape, mix, path)
        if shape == "moe":
            peer_models.write("dense", "Q4_K_M", dense_path)
        for threads in THREADS:
            if shape == "moe":
                with Ours(dense_path, threads) as dense:
                    turns(out, peer, shape, mix, path, threads, dense)
            else:
                turns(out, peer, shape, mix, path, threads)
        for done in (path, dense_path):
            if os.path.exists(done):
                os.remove(done)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the files go, too
    names = sys.argv[1:]
    wanted = lambda name: not names or any(n in name for n in names)  # noqa: E731
    peer = find_peer(os.environ.get("PEER"))
    if not os.path.exists(CLOCK) or not os.path.exists(os.path.join(BIN, "bench_turns")):
        sys.exit(f"bench-peer: {BIN} has no bench_turns or peer_clock.so: make bench-peer builds them")
    out = Report(os.path.join(harness.BUILD, "peer.txt"))
    version = subprocess.run([os.path.join(peer, "llama-server"), "--version"], capture_output=True, text=True)
    out.line(f"# llama.cpp {(version.stderr + version.stdout).splitlines()[0]}; {report.cpu_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="baton-peer-", dir=os.environ.get("TMPDIR", "/var/tmp")) as tmp:
        for mix in ("Q8_0", "Q4_K"):
            if wanted(f"answers-{mix}"):
                peer_text.answers(peer, mix, tmp, 4 if QUICK else 12, out.say)
        for kind in ("F16", "Q8_0"):
            for threads in THREADS:
                if wanted(f"embed-{kind}"):
                    peer_text.embeddings(peer, kind, threads, tmp, ROUNDS, out.say)
        decoders(out, peer, "dense", DENSE, wanted, tmp)
        decoders(out, peer, "moe", MOE, wanted, tmp)
    rows, _ = report.read(out.path)
    bars = [b for b in report.judge(rows, BARS) if b["ok"] is not None or not names]
    for b in bars:
        out.line(report.bar_line(b))
    return 1 if any(b["ok"] is False for b in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
