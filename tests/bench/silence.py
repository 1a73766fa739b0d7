"""How long a stream is silent when its decode instance goes, by cause: killed, frozen, stopped by SIGTERM, drained without a wait. With real daemons, the bundled model and
one of the 0.5B shape with random weights made on the spot.

    silence.py [fable] [half_b] [killed] [frozen] [stopped] [drained]       (without names all; BENCH_QUICK=1: fewer layers and rounds)

A stream has a context of 500 tokens, half of them its own, when its decode instance goes; the silence is the longest gap between its events
after that. Beside it stands the time of one prefill of 500 tokens that nobody has cached: what another attempt has to compute at most. The
ratio is silence over that prefill. Lines are `name value unit [ratio of]`."""
import contextlib
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster")]
import harness  # noqa: E402
from cluster_times import QUICK, complete, model_of, quantile, say, told, within  # noqa: E402
from deaths import restart  # noqa: E402

ROUNDS = 3 if QUICK else 7
CONTEXT = 500
HALF_B = dict(hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, num_hidden_layers=4 if QUICK else 24,
              vocab_size=4096, max_position_embeddings=4096)
CAUSES = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "stopped": signal.SIGTERM}


class Watched(threading.Thread):
    """A stream and the times of its events."""

    def __init__(self, base, body):
        super().__init__(daemon=True)
        self.base, self.body, self.times, self.raw = base, body, [], b""
        self.start()

    def run(self):
        s = harness.Stream(self.base, "/v1/completions", self.body)
        while piece := s.read_some():
            self.times += [time.monotonic()] * piece.count(b"data: {")
        self.raw = s.raw

    def silence(self, since):
        """The longest gap after a moment, in seconds."""
        late = [t for t in self.times if t > since]
        return max((b - a for a, b in zip([since] + late, late)), default=float("inf"))


def busy_decode(cluster):
    return next((d for d in cluster.decodes if (load := d.load()) is not None and load[3] > 0), None)


def drain(cluster, victim, on):
    there = next(i for i in cluster.status()["instances"] if i["address"].endswith(f":{victim.port}"))
    a = harness.post(cluster.mgmt, "/v1/instances/" + ("drain" if on else "undrain"), {"id": there["id"]})
    assert a.status == 200, a.text


def one_round(cluster, i, how):
    """how: a signal; None: an order to drain."""
    n = CONTEXT // 2
    stream = Watched(cluster.base, complete(i, n, n + 60, True))
    harness.wait_for(lambda: len(stream.times) >= n or not stream.is_alive(), 120, "half of the context is generated")
    victim = busy_decode(cluster)
    assert victim is not None, "the stream ended before its instance could go"
    at = time.monotonic()
    if how is None:
        drain(cluster, victim, True)
    else:
        victim.process.send_signal(how)
    stream.join(120)
    assert not stream.is_alive() and b'"finish_reason":"length"' in stream.raw, stream.raw[-300:]
    if how is None:
        drain(cluster, victim, False)
        harness.wait_for(cluster.all_serve, 60, "all serve again")
    elif how == signal.SIGSTOP:
        victim.process.send_signal(signal.SIGCONT)
        harness.wait_for(cluster.all_serve, 60, "all serve again")
    else:
        victim.killed = True
        victim.process.wait(timeout=60)
        restart(cluster, victim)
    return stream.silence(at)


def prefill(cluster, i):
    began = time.monotonic()
    harness.post(cluster.base, "/v1/completions", complete(i, CONTEXT, 1))
    return time.monotonic() - began


def rounds(cluster, name, cause, how, base):
    gaps = []
    for i in range(ROUNDS):
        with within(300, f"{name}: decode instance {cause}"):
            gaps.append(one_round(cluster, 200 + i, how))
    say(f"silence_{name}_{cause}_median", quantile(gaps, 0.5) * 1e3, "ms", quantile(gaps, 0.5) / base, "one prefill of the context")
    say(f"silence_{name}_{cause}_p99", quantile(gaps, 0.99) * 1e3, "ms", quantile(gaps, 0.99) / base, "one prefill of the context")


def measure(name, model, extra, causes):
    with harness.Cluster(2, 2, model, extra) as cluster:
        alone = []
        for i in range(ROUNDS):
            with within(120, f"{name}: one prefill"):
                alone.append(prefill(cluster, 100 + i))
        base = quantile(alone, 0.5)
        say(f"silence_{name}_prefill_{CONTEXT}", base * 1e3, "ms")
        for cause, how in CAUSES.items():
            if cause in causes:
                rounds(cluster, name, cause, how, base)
    if "drained" not in causes:
        return
    with harness.Cluster(2, 2, model, extra, coord={"pd": {"drain_soft_s": 0}}) as cluster:
        rounds(cluster, name, "drained", None, base)


def main():
    models, causes = ["fable", "half_b"], [*CAUSES, "drained"]
    unknown = [a for a in sys.argv[1:] if a not in models + causes]
    assert not unknown, f"{unknown}: {' '.join(models + causes)} can be measured"
    wanted = [m for m in models if m in sys.argv] or models
    causes = [c for c in causes if c in sys.argv] or causes
    more = {"BatonConfig": {"kvCacheMiB": 128}}
    if "fable" in wanted:
        measure("fable", harness.FABLE, more, causes)
    if "half_b" in wanted:
        with model_of("qwen2", HALF_B) as model, contextlib.suppress(KeyboardInterrupt):
            measure("half_b", model, more, causes)
    told("done")


if __name__ == "__main__":
    main()
