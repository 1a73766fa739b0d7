"""make bench-load: a split pair, one instance that does both, and llama.cpp's server under the same load on the same two cores, in turns, by baton-bench.

    PEER=PATH TRACE=FILE peer_load.py [SECONDS]

PEER is a source or build tree of llama.cpp, TRACE a published trace (Azure's CSV; without one there is no trace in the figures). All three serve one
GGUF file of random weights, 0.13 B parameters in Q8_0, with two threads of computing: split they are one of each instance. llama.cpp's threads wait for each
other by spinning, which costs them dearly where the client shares their cores, so of SETTINGS it gets the one with which it answers most. What was measured
is in BUILD/peer-load.json and is not measured again, so a run may be ended and taken up; SECONDS: no turn begins that would end later, and with one left
the exit code is 75. pictures.py draws the file."""
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import peer_models  # noqa: E402
import report  # noqa: E402
from peer_engines import find_peer, harness, their_server, told  # noqa: E402

CONTEXT, SLOTS = 4096, 8
TTFT_MS, GAP_MS = 1000, 50
OURS = {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": CONTEXT, "maxInputTokenLen": CONTEXT - 1},
                          "ScheduleConfig": {"maxPrefillTokens": CONTEXT, "maxIterTimes": CONTEXT, "maxBatchSize": SLOTS}},
        "BatonConfig": {"kvCacheMiB": 256}}
GOALS = ["--ttft-goal", str(TTFT_MS), "--gap-goal", str(GAP_MS)]
RATES = (1, 2, 3, 4, 6)
MIXES = ((16, 192), (128, 128), (512, 64), (1024, 32))
SETTINGS = {"two threads": (2, ()), "two threads that do not poll": (2, ("--poll", "0")), "one thread": (1, ())}


def points():
    """(name, what baton-bench is told, its seconds)"""
    yield "interference", ["-c", "4", "-i", "32", "-o", "128", "--long", "1500", "--long-every", "1", "-s", "12"], 12
    for rate in RATES:
        yield f"rate {rate}", ["-r", str(rate), "-i", "256:768", "-o", "64", "-s", "8", *GOALS], 8
    for n_in, n_out in MIXES:
        yield f"mix {n_in} {n_out}", ["-c", "6", "-i", str(n_in), "-o", str(n_out), "-s", "6"], 6
    if os.environ.get("TRACE"):
        yield "trace", ["--trace", os.environ["TRACE"], "--time-scale", "0.5", "--length-scale", "0.5", "-s", "15", *GOALS], 15


class File:
    """{"about": .., "runs": {point: {target: figures and histograms}}}"""

    def __init__(self, path, about):
        self.path = path
        try:
            with open(path) as f:
                self.all = json.load(f)
        except FileNotFoundError:
            self.all = {"about": about, "runs": {}}

    def has(self, point, target):
        return target in self.all["runs"].get(point, {})

    def add(self, point, target, result):
        self.all["runs"].setdefault(point, {})[target] = result
        self.write()


    def set_about(self, name, value):
        self.all["about"][name] = value
        self.write()

    def write(self):
        with open(self.path + ".new", "w") as f:
            json.dump(self.all, f, indent=1)
            f.write("\n")
        os.replace(self.path + ".new", self.path)


def measured(base, model, words):
    p = subprocess.run([os.path.join(harness.BUILD, "bin", "baton-bench"), base, "--completions", "--model", model, "--warm-up", "1", "--timeout", "60",
                        "--json", "-", *words], capture_output=True, text=True, timeout=240)
    if p.returncode not in (0, 1):  # 1: every request failed, which is an outcome
        sys.exit(f"bench-load: baton-bench ended with {p.returncode}: {p.stderr[-500:]}")
    (result,) = json.loads(p.stdout)["targets"][0]["rounds"]
    return {k: result[k] for k in ("seconds", "sent", "ended", "failed", "good", "output_tokens", "figures", "ttft", "gap")}


def their_base(server):
    return f"http://127.0.0.1:{server.port}", "served"


def peer_served(peer, path, setting):
    threads, more = SETTINGS[setting]
    return their_server(peer, path, threads, "-c", str(CONTEXT * SLOTS), "-np", str(SLOTS), "-b", "2048", "-ub", "512", *more, pin=False)


def best_setting(out, peer, path):
    """The one of SETTINGS with which llama.cpp writes most tokens a second; tried once, and kept in the file."""
    if "setting" not in out.all["about"]:
        tried = {}
        for setting in SETTINGS:
            with peer_served(peer, path, setting) as server:
                tried[setting] = measured(*their_base(server), ["-c", "6", "-i", "128", "-o", "128", "-s", "12"])["figures"]["output_tokens_s"]
            told(f"llama.cpp with {setting}: {tried[setting]:.1f} tokens a second")
        out.set_about("tokens_s", tried)
        out.set_about("setting", max(tried, key=tried.get))
    return out.all["about"]["setting"]


def turns(out, bases, until):
    """True: all is measured."""
    for point, words, seconds in points():
        for target, (base, model) in bases.items():
            if out.has(point, target):
                continue
            if time.monotonic() + seconds * 2 + 4 > until:
                return False
            told(f"{point}: {target}")
            out.add(point, target, measured(base, model, words))
    return True


def main():
    until = time.monotonic() + float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")
    peer = find_peer(os.environ.get("PEER"))
    version = subprocess.run([os.path.join(peer, "llama-server"), "--version"], capture_output=True, text=True)
    out = File(os.path.join(harness.BUILD, "peer-load.json"),
               {"machine": f"{report.cpu_name()}, {os.cpu_count()} cores", "llama.cpp": (version.stderr + version.stdout).splitlines()[0],
                "date": time.strftime("%Y-%m-%d"), "ttft_goal_ms": TTFT_MS, "gap_goal_ms": GAP_MS})
    with tempfile.TemporaryDirectory(prefix="baton-peer-", dir=os.environ.get("TMPDIR", "/var/tmp")) as tmp:
        path = os.path.join(tmp, "served.gguf")
        peer_models.write_served("Q8_0", path)
        one, two = ({"BatonConfig": {**OURS["BatonConfig"], "computeThreads": n}, "BackendConfig": OURS["BackendConfig"]} for n in (1, 2))
        with peer_served(peer, path, best_setting(out, peer, path)) as theirs, harness.Cluster(1, 1, model=path, extra=one) as split, \
                harness.Standalone(model=path, extra=two) as whole:
            harness.wait_for(lambda: split.serving("prefill") and split.serving("decode"), 60, "the pair serves")
            bases = {"split": (split.base, "fable"), "whole": (whole.base, "fable"), "llama.cpp": their_base(theirs)}
            done = turns(out, bases, until)
    told(f"{out.path}: {'all is measured' if done else 'more is to be measured'}")
    return 0 if done else 75


if __name__ == "__main__":
    sys.exit(main())
