"""What a client feels, with real daemons and a model of random weights made on the spot:

    gaps      between the tokens of 4 running streams while prompts of 2,048 tokens arrive: one standard instance on all cores, then
              1P1D with a core each (the coordinator shares P's)
    exposed   time a hand-over adds behind the prefill of 2,048 tokens over loopback
    shaped    the same over a link of 1 Gbit/s between two network namespaces, made here and removed (needs root, ip and tc). What
              counts is how many bytes of KV a token has beside how long it computes: as many as TinyLlama-1.1B's (22.5 KB), but a
              fiftieth of its work, so there is less time to hide them in than a real model leaves, and it ends within two minutes
              on a busy machine. Each step has a deadline; a step that misses it fails the run.

    cluster_times.py [gaps] [exposed] [shaped]       (all when none is named; BENCH_QUICK=1: fewer layers, fewer prompts)

Lines are `name value unit [ratio of]`; progress is told on stderr."""
import contextlib
import ctypes
import json
import os
import shutil
import re
import signal
import socket
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
# 22 layers of 4 KV heads are here 4 layers of 22: the same bytes a token.
THIN = dict(hidden_size=256, intermediate_size=704, num_attention_heads=22, num_key_value_heads=22, head_dim=64, num_hidden_layers=4,
            vocab_size=4096, max_position_embeddings=4096)
THIN_BYTES_TOKEN = THIN["num_hidden_layers"] * THIN["num_key_value_heads"] * THIN["head_dim"] * 2 * 2
EXTRA = {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 4096, "maxInputTokenLen": 4095},
                           "ScheduleConfig": {"maxPrefillTokens": 4096}},
         "BatonConfig": {"kvCacheMiB": 256, "chunkTokens": CHUNK}}
RATE_BITS = 1_000_000_000
SHAPED_S = 30  # prompts over the shaped link, together; two at least
NET = f"10.213.{os.getpid() % 250}"


def say(name, value, unit, ratio=None, of=None):
    print(f"{name} {value:.3f} {unit}" + (f" {ratio:.3f} of {of}" if ratio is not None else ""), flush=True)


def told(what):
    print(f"cluster_times: {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def within(seconds, what):
    """The body has this long: a call that blocks is interrupted, too."""
    def late(*_):
        raise AssertionError(f"{what}: not within {seconds} s")

    told(what)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def model_of(family, shape):
    folder = tempfile.mkdtemp(prefix="baton-bench-model-")
    try:
        told("writes a model")
        make_model.write_model(folder, make_model.make_config(family, True, **shape), "bf16")
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
            shutil.copy(os.path.join(harness.FABLE, name), folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def prompt_of(i, n):
    """n ids nobody has cached."""
    return [10 + (j * (2 * i + 7) + i * 131) % 4000 for j in range(n)]


def complete(i, n_prompt, n_new, stream=False):
    return {"model": "fable", "prompt": prompt_of(i, n_prompt), "max_tokens": n_new, "ignore_eos": True, "temperature": 0, "stream": stream}


class Times(threading.Thread):
    """A stream that runs until it is told to stop: when each of its events came. One that has said all is followed by another; `runs`
    has a list for each."""

    def __init__(self, base, i):
        super().__init__(daemon=True)
        self.base, self.i, self.runs, self.stop = base, i, [], False

    def run(self):
        with contextlib.suppress(OSError):
            while not self.stop and (not self.runs or self.runs[-1]):
                self.runs.append([])
                self.one()

    def one(self):
        s = harness.Stream(self.base, "/v1/completions", complete(self.i, 16, 3500, True))
        try:
            while not self.stop:
                piece = s.read_some()
                if not piece:
                    break
                self.runs[-1] += [time.monotonic()] * piece.count(b"data: {")
        finally:
            s.abandon()


def gaps_of(streams, since, until):
    out = []
    for s in streams:
        for run in s.runs:
            at = [t for t in run if since <= t <= until]
            out += [b - a for a, b in zip(at, at[1:])]
    return out


def gaps_while_prompts_arrive(base, first):
    streams = [Times(base, first + i) for i in range(STREAMS)]
    for s in streams:
        s.start()
    harness.wait_for(lambda: all(s.runs and len(s.runs[0]) > 3 for s in streams), 120, "streams run")
    began = time.monotonic()
    time.sleep(2 if QUICK else 5)
    calm = time.monotonic()
    for i in range(PROMPTS):
        told(f"gaps: prompt {i + 1} of {PROMPTS}")
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


def gaps():
    if os.cpu_count() < 2:
        print("# skipped: gaps need two cores")
        return
    with model_of("qwen2", SHAPE) as model:
        gaps_with(model)


def gaps_with(model):
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


def hand_overs(cluster, seconds=None):
    """What the coordinator tells of a few prompts' hand-overs, the first one left out; two at least, then for so many seconds."""
    began, n = time.monotonic(), 0
    while n < PROMPTS + 1 and (n < 3 or seconds is None or time.monotonic() - began < seconds):
        told(f"hand-over {n + 1} of {PROMPTS + 1}")
        a = harness.post(cluster.base, "/v1/completions", complete(5000 + n, PROMPT, 2), timeout=600)
        assert a.status == 200, a.text
        n += 1
    return cluster.status()["recentRequests"][:n - 1]


def prefill_ms(row):
    return row["ttftMs"] - row["kvExposedMs"]


def exposed():
    with model_of("qwen2", SHAPE) as model, harness.Cluster(model=model, extra=EXTRA) as cluster:
        rows = hand_overs(cluster)
    say("kv_exposed_loopback", median([r["kvExposedMs"] for r in rows]), "ms", median([r["kvExposedMs"] / prefill_ms(r) for r in rows]),
        "its_prefill")


# ---- over a shaped link: D in a network namespace of its own
def sh(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True, timeout=10).stdout


@contextlib.contextmanager
def inside(namespace):
    """The body's sockets and children live in a network namespace."""
    CLONE_NEWNET = 0x40000000
    far = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    near = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert ctypes.CDLL(None).setns(far, CLONE_NEWNET) == 0, "setns"
        yield
    finally:
        assert ctypes.CDLL(None).setns(near, CLONE_NEWNET) == 0, "setns"
        os.close(far)
        os.close(near)


class FarDecode(harness.Instance):
    namespace = None

    def start(self):
        with inside(self.namespace):
            super().start()


def remove_left_overs():
    """Namespaces of runs that were killed; each is named after its process."""
    for line in sh("ip", "netns", "list").splitlines():
        m = re.match(r"baton(\d+)\b", line)
        if m and not os.path.exists(f"/proc/{m.group(1)}"):
            subprocess.run(["ip", "netns", "del", m.group(0)], check=False, capture_output=True, timeout=10)


@contextlib.contextmanager
def link():
    remove_left_overs()
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
        subprocess.run(["ip", "link", "del", a], check=False, capture_output=True, timeout=10)  # its other end goes with it
        subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True, timeout=10)


def tcp_mb_s(ns):
    """What one TCP stream carries from this end of the link to the other."""
    n, got = 32 << 20, []
    with inside(ns):
        door = socket.create_server((f"{NET}.2", 0))

    def receive():
        s, _ = door.accept()
        with s:
            while len(got) < n >> 16 and s.recv(1 << 16, socket.MSG_WAITALL):
                got.append(1)
            s.sendall(b"k")

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    with door, socket.create_connection(door.getsockname()) as s:
        began = time.monotonic()
        s.sendall(bytes(n))
        assert s.recv(1) == b"k", "the stream broke"
        return n / (time.monotonic() - began) / 1e6


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


def shaped():
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None:
        print("# skipped: the shaped link needs root, and ip and tc of iproute2")
        return
    with contextlib.ExitStack() as stack:
        try:
            ns = stack.enter_context(link())
        except (OSError, subprocess.SubprocessError) as e:
            print(f"# skipped: no shaped link here: {e} {getattr(e, 'stderr', None) or ''}".rstrip())
            return
        with within(20, "TCP over the shaped link"):
            tcp = tcp_mb_s(ns)
        model = stack.enter_context(model_of("llama2", THIN))
        cluster = harness.Cluster(model=model, extra=EXTRA)
        stack.callback(cluster.kill_all)
        try:
            move_to(cluster, ns)
            with within(30, "daemons start at both ends of the link"):
                for d in cluster.daemons:
                    d.start()
                harness.wait_for(lambda: cluster.all_serve() or not all(d.alive() for d in cluster.daemons), 30, "all instances serve")
                harness.wait_for(cluster.is_ready, 30, "coordinator ready")
            with within(2 * SHAPED_S, "prompts over the shaped link"):
                rows = hand_overs(cluster, SHAPED_S)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{cluster.logs()[-6000:]}") from None
    assert all(r["kvBytes"] >= PROMPT * THIN_BYTES_TOKEN for r in rows), "the KV did not go over the link"
    allowed = CHUNK * THIN_BYTES_TOKEN * 8 / RATE_BITS * 1e3 + 20
    value = median([r["kvExposedMs"] for r in rows])
    say("link_1gbit_tcp", tcp, "MB/s", tcp * 8e6 / RATE_BITS, "the_rate_asked_for")
    say("kv_exposed_1gbit", value, "ms", value / allowed, "one_chunk_at_the_link's_rate_and_20_ms")
    say("kv_exposed_1gbit_transfer", median([r["kvTransferMs"] for r in rows]), "ms")
    say("kv_exposed_1gbit_prefill", median([prefill_ms(r) for r in rows]), "ms")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespace and model go, too
    for w in sys.argv[1:] or ["gaps", "exposed", "shaped"]:
        {"gaps": gaps, "exposed": exposed, "shaped": shaped}[w]()


if __name__ == "__main__":
    main()
