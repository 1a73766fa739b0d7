"""The two engines of peer.py: Baton's forward pass or daemon, and the programs of a llama.cpp that lies outside this repository.

A turn of one thread is timed by processor time in both (BENCH_CPU_TIME; peer_clock.so for programs that time themselves) and pinned to the last
core, so that what else the machine does takes no part of it. Turns of more threads are timed by the clock on the wall."""
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster")]
import harness  # noqa: E402

BIN = os.path.join(harness.BUILD, "tests", "bench")
CLOCK = os.path.join(BIN, "peer_clock.so")
PROGRAMS = ("llama-batched-bench", "llama-server")
TURN_S = 400  # the longest that a turn may take
LAST_CORE = max(os.sched_getaffinity(0))


def told(what):
    print(f"peer: {what}", file=sys.stderr, flush=True)


def pinned(threads):
    if threads == 1:
        os.sched_setaffinity(0, {LAST_CORE})


# ---- where it is
def programs_in(path):
    """The folder with the programs, of a source tree, a build tree or itself; None."""
    for folder in (path, os.path.join(path, "bin"), os.path.join(path, "build", "bin")):
        if all(os.access(os.path.join(folder, p), os.X_OK) for p in PROGRAMS):
            return folder
    return None


def find_peer(path):
    """The folder with the programs; builds them below our build folder from sources. Ends with words where there is nothing to build."""
    if not path:
        sys.exit("bench-peer: PEER is not set: name a source or build tree of llama.cpp, make bench-peer PEER=PATH (no part of it lies in this repository)")
    path = os.path.abspath(path)
    own = os.path.join(harness.BUILD, "peer")
    found = programs_in(path) or programs_in(own)
    if found:
        return found
    if not os.path.exists(os.path.join(path, "CMakeLists.txt")):
        sys.exit(f"bench-peer: PEER={path} has neither {' and '.join(PROGRAMS)} nor a CMakeLists.txt to build them by")
    if shutil.which("cmake") is None:
        sys.exit("bench-peer: cmake is missing, and PEER is not built: apt-get install cmake g++")
    told(f"builds {' and '.join(PROGRAMS)} from {path} into {own}; once, tens of minutes")
    for command in (["cmake", "-S", path, "-B", own, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF"],
                    ["cmake", "--build", own, "-j", str(os.cpu_count()), "--target", *PROGRAMS]):
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"bench-peer: failed: {' '.join(command)}")
    return programs_in(own) or sys.exit(f"bench-peer: {own}/bin has no {' or '.join(PROGRAMS)} after its build")


# ---- ours
class Ours:
    """bench_turns with a model; seconds of what it is asked for."""

    def __init__(self, model, threads, rows=512):
        env = {k: v for k, v in os.environ.items() if k != "BENCH_CPU_TIME"} | ({"BENCH_CPU_TIME": "1"} if threads == 1 else {})
        self.process = subprocess.Popen([os.path.join(BIN, "bench_turns"), model, "--threads", str(threads), "--rows", str(rows)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pinned(threads))
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise RuntimeError(f"bench_turns {model}: does not load")

    def __call__(self, *what):
        self.process.stdin.write(" ".join(map(str, what)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"bench_turns ended at {what}")
        return float(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)


# ---- theirs
class Refused(Exception):
    """The peer does not read this file."""


def batched_bench(folder, model, threads, n_prompt, n_steps, batches, more=()):
    """Its rows: dictionaries with t_pp and t_tg, seconds, of each batch. The prompt is one for all sequences."""
    env = os.environ | ({"LD_PRELOAD": CLOCK} if threads == 1 else {})
    command = [os.path.join(folder, "llama-batched-bench"), "-m", model, "-c", "2048", "-t", str(threads), "-tb", str(threads), "-npp", str(n_prompt),
               "-ntg", str(n_steps), "-npl", ",".join(map(str, batches)), "-pps", "--output-format", "jsonl", *more]
    p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TURN_S, preexec_fn=lambda: pinned(threads))
    rows = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    if p.returncode != 0 or len(rows) != len(batches):
        raise Refused(next((line for line in (p.stderr + p.stdout).splitlines() if "error" in line), f"exit code {p.returncode}"))
    return rows


class Server:
    """Something that answers HTTP: post() gives the answer and the seconds that it took, processor time of one thread."""

    def __init__(self, port, pid, threads):
        self.port, self.pid, self.threads = port, pid, threads

    def clock(self):
        if self.threads > 1:
            return time.monotonic()
        with open(f"/proc/{self.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TURN_S)
        began = self.clock()
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        r = connection.getresponse()
        data = r.read()
        seconds = self.clock() - began
        connection.close()
        if r.status != 200:
            raise RuntimeError(f"{path}: {r.status} {data[:300]}")
        return json.loads(data), seconds


@contextlib.contextmanager
def their_server(folder, model, threads, *more, pin=True):
    """With one thread on the last core, unless pin is false."""
    (port,) = harness.free_ports(1)
    command = [os.path.join(folder, "llama-server"), "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(threads), "-tb", str(threads), *more]
    with tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=lambda: pin and pinned(threads))
        try:
            def ready():
                with contextlib.suppress(OSError):
                    return harness.get(f"http://127.0.0.1:{port}", "/health", timeout=5).status == 200
                return False

            harness.wait_for(lambda: p.poll() is not None or ready(), 120, "llama-server ready")
            if p.poll() is not None:
                log.seek(0)
                raise Refused(next((line.strip() for line in log if "error" in line), f"exit code {p.returncode}"))
            yield Server(port, p.pid, threads)
        finally:
            p.terminate()
            p.wait(30)


@contextlib.contextmanager
def our_server(model, threads):
    settings = {"BatonConfig": {"computeThreads": threads}}
    before = os.sched_getaffinity(0)
    pinned(threads)  # what is started inherits it
    try:
        standalone = harness.Standalone(model=model, extra=settings)
        standalone.__enter__()
    finally:
        os.sched_setaffinity(0, before)
    try:
        yield Server(int(standalone.base.rpartition(":")[2]), standalone.instance.process.pid, threads)
    finally:
        standalone.__exit__()
