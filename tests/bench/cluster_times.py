"""What a client feels, with real daemons and a model of random weights made on the spot:

    gaps      between the tokens of 4 running streams while prompts of 2,048 tokens arrive: one standard instance on all cores, then
              1P1D with a core each (the coordinator shares P's)
    exposed   time a hand-over adds behind the prefill of 2,048 tokens: over loopback, and over a link of 1 Gbit/s between two network
              namespaces (needs root and tc)

    cluster_times.py [gaps] [exposed] [shaped]       (all when none is named; BENCH_QUICK=1: fewer layers, fewer prompts)

Lines are `name value unit [ratio of]`."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..", "oracle")]
import harness  # noqa: E402
import make_model  # noqa: E402

QUICK = os.environ.get("BENCH_QUICK", "") == "1"
LAYERS, PROMPTS, STREAMS, PROMPT, CHUNK = (4, 3, 4, 2048, 512) if QUICK else (12, 5, 4, 2048, 512)
SHAPE = dict(hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, num_hidden_layers=LAYERS,
             vocab_size=4096, max_position_embeddings=8192)
KV_BYTES_TOKEN = LAYERS * 2 * 64 * 2 * 2
EXTRA = {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 4096, "maxInputTokenLen": 4095},
                           "ScheduleConfig": {"maxPrefillTokens": 4096}},
         "BatonConfig": {"kvCacheMiB": 256, "chunkTokens": CHUNK}}
RATE_BITS = 1_000_000_000
NET = f"10.213.{os.getpid() % 250}"


def say(name, value, unit, ratio=None, of=None):
    print(f"{name} {value:.3f} {unit}" + (f" {ratio:.3f} of {of}" if ratio is not None else ""), flush=True)


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def prompt_of(i, n):
    """n ids nobody has cached."""
    return [10 + (j * (2 * i + 7) + i * 131) % 4000 for j in range(n)]


def complete(i, n_prompt, n_new, stream=False):
    return {"model": "fable", "prompt": prompt_of(i, n_prompt), "max_tokens": n_new, "ignore_eos": True, "temperature": 0, "stream": stream}


class Times(threading.Thread):
    """One running stream: when each of its events came."""

    def __init__(self, base, i):
        super().__init__(daemon=True)
        self.base, self.i, self.at, self.stop = base, i, [], False

    def run(self):
        s = harness.Stream(self.base, "/v1/completions", complete(self.i, 16, 3500, True))
        with contextlib.suppress(OSError):
            while not self.stop:
                piece = s.read_some()
                if not piece:
                    break
                now = time.monotonic()
                self.at += [now] * piece.count(b"data: {")
        s.abandon()


def gaps_of(streams, since, until):
    out = []
    for s in streams:
        at = [t for t in s.at if since <= t <= until]
        out += [b - a for a, b in zip(at, at[1:])]
    return out


def gaps_while_prompts_arrive(base, first):
    streams = [Times(base, first + i) for i in range(STREAMS)]
    for s in streams:
        s.start()
    harness.wait_for(lambda: all(len(s.at) > 3 for s in streams), 120, "streams run")
    began = time.monotonic()
    time.sleep(2 if QUICK else 5)
    calm = time.monotonic()
    for i in range(PROMPTS):
        a = harness.post(base, "/v1/completions", complete(first + 100 + i, PROMPT, 1), timeout=600)
        assert a.status == 200, a.text
    busy = time.monotonic()
    for s in streams:
        s.stop = True
    for s in streams:
        s.join(30)
    quiet, loud = gaps_of(streams, began, calm), gaps_of(streams, calm, busy)
    assert quiet and loud, "no token came"
    return quantile(quiet, 0.99) * 1e3, quantile(loud, 0.99) * 1e3, max(loud) * 1e3


def start_pinned(cluster):
    """P and the coordinator on the first core, D on the last; threads inherit it."""
    cores = sorted(os.sched_getaffinity(0))
    for d in cluster.daemons:
        os.sched_setaffinity(0, {cores[-1] if d in cluster.decodes else cores[0]})
        try:
            d.start()
        finally:
            os.sched_setaffinity(0, cores)
    harness.wait_for(cluster.all_serve, 120, "all instances serve")
    harness.wait_for(cluster.is_ready, 120, "coordinator ready")


def median(values):
    return quantile(values, 0.5)


def gaps(model):
    if os.cpu_count() < 2:
        print("# skipped: gaps need two cores")
        return
    rounds = 1 if QUICK else 3
    extra = harness.merge(EXTRA, {"BatonConfig": {"computeThreads": 2}})
    whole, split = [], []
    with harness.Standalone(model=model, extra=extra) as one:
        for r in range(rounds):
            whole.append(gaps_while_prompts_arrive(one.base, 1000 * r))
    cluster = harness.Cluster(model=model, extra=EXTRA)
    try:
        start_pinned(cluster)
        for r in range(rounds):
            split.append(gaps_while_prompts_arrive(cluster.base, 1000 * r))
    finally:
        cluster.kill_all()
    for name, rows in (("standard", whole), ("1p1d", split)):
        quiet, loud = median([r[0] for r in rows]), median([r[1] for r in rows])
        say(f"gap_p99_{name}_calm", quiet, "ms")
        say(f"gap_p99_{name}_during_prefill", loud, "ms", median([r[1] / r[0] for r in rows]), "its_calm_gap")
        say(f"gap_worst_{name}_during_prefill", max(r[2] for r in rows), "ms")


def hand_overs(cluster):
    """(exposed ms, ms of the prefill) of each of a few prompts."""
    for i in range(PROMPTS + 1):
        a = harness.post(cluster.base, "/v1/completions", complete(5000 + i, PROMPT, 2), timeout=600)
        assert a.status == 200, a.text
    rows = cluster.status()["recentRequests"][:PROMPTS]
    return [(r["kvExposedMs"], r["ttftMs"] - r["kvExposedMs"]) for r in rows]


def exposed(model):
    with harness.Cluster(model=model, extra=EXTRA) as cluster:
        rows = hand_overs(cluster)
    say("kv_exposed_loopback", median([e for e, _ in rows]), "ms", median([e / p for e, p in rows]), "its_prefill")


# ---- over a shaped link: D in a network namespace of its own
def sh(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


class FarDecode(harness.Instance):
    """An instance that starts in a network namespace."""
    namespace = None

    def start(self):
        far = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        near = os.open("/proc/self/ns/net", os.O_RDONLY)
        libc = harness._libc
        try:
            assert libc.setns(far, 0x40000000) == 0, "setns"
            super().start()
        finally:
            assert libc.setns(near, 0x40000000) == 0, "setns"
            os.close(far)
            os.close(near)


@contextlib.contextmanager
def link():
    ns, a, b = f"baton{os.getpid()}", f"bt{os.getpid()}a"[:15], f"bt{os.getpid()}b"[:15]
    sh("ip", "netns", "add", ns)
    try:
        sh("ip", "link", "add", a, "type", "veth", "peer", "name", b, "netns", ns)
        sh("ip", "addr", "add", f"{NET}.1/30", "dev", a)
        sh("ip", "link", "set", a, "up")
        for args in (("addr", "add", f"{NET}.2/30", "dev", b), ("link", "set", b, "up"), ("link", "set", "lo", "up")):
            sh("ip", "-n", ns, *args)
        sh("tc", "qdisc", "add", "dev", a, "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms")
        sh("ip", "netns", "exec", ns, "tc", "qdisc", "add", "dev", b, "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms")
        yield ns
    finally:
        subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True)


def move_to(cluster, ns):
    """The cluster's configuration with P and the coordinator at one end of the link and D at the other."""
    near, far = f"{NET}.1", f"{NET}.2"
    FarDecode.namespace = ns
    for inst in cluster.instances:
        ip = far if inst in cluster.decodes else near
        inst.conf["ServerConfig"].update(ipAddress=ip, managementIpAddress=ip)
        inst.conf["BatonConfig"]["allowInsecure"] = True
        inst.base, inst.mgmt = f"http://{ip}:{inst.port}", f"http://{ip}:{inst.mgmt_port}"
    for inst in cluster.decodes:
        inst.__class__ = FarDecode
    table = cluster.coordinator.conf["controller"]["global_rank_table_file_path"]
    with open(table) as f:
        ranks = json.load(f)
    for s in ranks["server_group_list"][0]["server_list"]:
        s["server_ip"] = near if s["label"] == 0 else far
    with open(table, "w") as f:
        json.dump(ranks, f)


def shaped(model):
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None:
        print("# skipped: the shaped link needs root, ip and tc")
        return
    with contextlib.ExitStack() as stack:
        try:
            ns = stack.enter_context(link())
        except subprocess.CalledProcessError as e:
            print(f"# skipped: no shaped link here: {' '.join(e.cmd)}: {e.stderr.strip()}")
            return
        cluster = harness.Cluster(model=model, extra=EXTRA)
        try:
            move_to(cluster, ns)
            for d in cluster.daemons:
                d.start()
            harness.wait_for(cluster.all_serve, 60, "all instances serve")
            harness.wait_for(cluster.is_ready, 60, "coordinator ready")
            rows = hand_overs(cluster)
        except AssertionError as e:
            print(f"# skipped: the cluster does not stand over the shaped link: {e}\n{cluster.logs()[-6000:]}")
            return
        finally:
            cluster.kill_all()
    allowed = CHUNK * KV_BYTES_TOKEN * 8 / RATE_BITS * 1e3 + 20
    value = median([e for e, _ in rows])
    say("kv_exposed_1gbit", value, "ms", value / allowed, "one_chunk_at_the_link's_rate_and_20_ms")
    say("kv_exposed_1gbit_prefill", median([p for _, p in rows]), "ms")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespace and model go, too
    wanted = sys.argv[1:] or ["gaps", "exposed", "shaped"]
    model = tempfile.mkdtemp(prefix="baton-bench-model-")
    try:
        make_model.write_model(model, make_model.make_config("qwen2", True, **SHAPE), "bf16")
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
            shutil.copy(os.path.join(harness.FABLE, name), model)
        for w in wanted:
            {"gaps": gaps, "exposed": exposed, "shaped": shaped}[w](model)
    finally:
        shutil.rmtree(model, ignore_errors=True)


if __name__ == "__main__":
    main()
