"""Goal: `batonctl advise` says whether to split, how many of each role, in which type, and how sure it is; it takes its abilities from a file, from a
measurement made here, or from a running cluster; what it is told wrongly it refuses by name.
Method: made-up abilities under which the answer is known; the bundled model measured for a second; a cluster that runs. Whether forecasts come true is
tests/bench/advise.py's to say."""
import contextlib
import json
import os
import subprocess
import sys
import threading

import pytest
from harness import BUILD, FABLE, SLOW, Cluster, free_ports

CTL = os.path.join(BUILD, "bin", "batonctl")


def run(*args, **env):
    return subprocess.run([CTL, *args], capture_output=True, text=True, timeout=120 * SLOW, env={**os.environ, **env})


def advise(*args):
    r = run("--json", "advise", *args)
    assert r.returncode == 0 and not r.stderr, r
    return json.loads(r.stdout)


def abilities(folder, prompt_s, step_s):
    """A file of an instance that computes a token of a prompt in prompt_s and a step of n sequences in step_s(n)."""
    path = str(folder / "abilities.json")
    perf = {"prompts": [{"tokens": t, "seconds": t * prompt_s, "samples": 9} for t in (16, 256, 2048, 8192)],
            "steps": [{"batch": b, "context": 500, "seconds": step_s(b), "samples": 9} for b in (1, 8, 32)]}
    with open(path, "w") as f:
        json.dump({"perf": perf}, f)
    return path


def test_splitting_pays_where_prompts_would_hold_up_answers(tmp_path):
    """Prompts of half a second beside answers that want a token every 25 ms: only a decode instance of its own keeps that."""
    path = abilities(tmp_path, 0.5 / 2000, lambda b: 0.015 + 0.0003 * b)
    said = advise("--abilities", path, "--instances", "4", "--rate", "3", "--in", "2000", "--out", "200", "--gap-goal", "25", "--ttft-goal", "3000")
    assert said["linkFrom"] == "assumed" and "busy" not in said and "warning" not in said
    advice, plans = said["advice"], said["plans"]
    assert advice["split"] and advice["mode"] == "fixed" and advice["prefill"] + advice["decode"] == 4
    whole = next(p for p in plans if p["mode"] == "standard")
    assert advice["good"] > whole["good"] + 0.2 and advice["borneSplitPerSecond"] > 2 * advice["borneWholePerSecond"]
    assert {(p["mode"], p.get("prefill")) for p in plans} == {("standard", None), ("fixed", 1), ("fixed", 2), ("fixed", 3), ("follow", None)}
    low, middle, high = advice["goodRange"]
    assert low <= middle <= high and middle == advice["good"]
    assert advise("--abilities", path, "--instances", "4", "--rate", "3", "--in", "2000", "--out", "200", "--gap-goal", "25", "--ttft-goal", "3000") == said


def test_splitting_does_not_pay_for_short_prompts(tmp_path):
    path = abilities(tmp_path, 1e-5, lambda b: 0.01 + 0.001 * b)
    said = advise("--abilities", path, "--instances", "2", "--rate", "4", "--in", "32", "--out", "100", "--gap-goal", "60")
    assert not said["advice"]["split"] and said["advice"]["good"] > 0.95
    text = run("advise", "--abilities", path, "--instances", "2", "--rate", "4", "--in", "32", "--out", "100", "--gap-goal", "60").stdout
    assert "advice: ?, not split: " in text and "the target is within reach" in text and "split, roles follow" in text


def test_a_target_out_of_reach(tmp_path):
    path = abilities(tmp_path, 1e-3, lambda b: 0.2)
    said = run("advise", "--abilities", path, "--in", "2000", "--out", "10", "--rate", "0.1", "--requests", "50")
    assert said.returncode == 0 and said.stdout.count("out of reach") == 2 and "it bears 0.00 requests" in said.stdout


def test_a_trace(tmp_path):
    path = abilities(tmp_path, 1e-4, lambda b: 0.02)
    trace = str(tmp_path / "trace.csv")
    with open(trace, "w") as f:
        f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        f.writelines(f"2023-11-16 18:15:{s:02}.0000000,{100 * (s + 1)},{20 + s}\n" for s in range(40))
    said = advise("--abilities", path, "--trace", trace, "--time-scale", "0.5", "--length-scale", "2")
    assert said["load"]["requests"] == 40 and said["load"]["seconds"] == 19.5 and said["load"]["meanIn"] == 4100
    assert advise("--abilities", path, "--trace", trace, "--requests", "7")["load"]["requests"] == 7


@contextlib.contextmanager
def busy_for(seconds):
    """Every core has other work, until then or the end of the block."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    timer = threading.Timer(seconds, lambda: [p.kill() for p in others])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for p in others:
            p.kill()
            p.wait()


def test_measured_here():
    with busy_for(2 * SLOW):  # it looks for half a second before it measures
        said = advise(FABLE, "--seconds", "1", "--instances", "2", "--per-machine", "2", "--dtypes", "bf16,int8", "--in", "16:200", "--out", "8:20",
                      "--requests", "200")
    assert said["busy"] > 0.1 and said["warning"].startswith("this machine was busy before it was measured: other work had ")
    assert said["linkFrom"] == "handed over" and said["linkBytesPerSecond"] > 0
    assert [a["dtype"] for a in said["abilities"]] == ["bf16", "int8"] and {p["dtype"] for p in said["plans"]} == {"bf16", "int8"}
    # A prefill and a decode instance were started for what lies between clients and engines, and the forecast was held against them.
    held = said["held"]
    assert held["requests"] >= 20 and held["rate"] > 0 and held["measured"]["answersPerSecond"] > 0 and held["measured"]["good"] > 0
    assert held["measured"]["ttftMs"][0] > 0 and held["forecast"]["ttftMs"][0] > 0
    for a in said["abilities"]:
        t = a["times"]
        assert t["cores"] == os.cpu_count() and t["threads"] == max(1, os.cpu_count() // 2) and t["chunkTokens"] == 256
        assert 1 <= t["hopBesideEngines"] <= 4
        assert t["requestSeconds"] >= 0 and all(t[f"{x}Beside{y}"] >= 1 for x in ("prompt", "step") for y in ("Prompt", "Step"))
        lengths = [p["tokens"] for p in a["perf"]["prompts"]]
        assert lengths == sorted(lengths) and max(lengths) == 200 and len(a["perf"]["steps"]) >= 6 and a["kvTokenBytes"] == 3072
    assert said["abilities"][1]["weightBytes"] < said["abilities"][0]["weightBytes"]


def test_of_a_cluster():
    with Cluster(1, 2) as c:
        said = advise("-m", c.mgmt, "--rate", "2", "--in", "32", "--out", "16", "--requests", "100")
    t = said["abilities"][0]["times"]
    assert said["perMachine"] == 3 and t["cores"] == os.cpu_count() and t["chunkTokens"] == 256
    assert said["linkFrom"] == "measured" and said["linkBytesPerSecond"] > 1e6 and "busy" not in said
    assert said["instances"] == 3 and len(said["abilities"]) == 1 and said["abilities"][0]["dtype"] == "bf16"
    assert len(said["plans"]) == 4


@pytest.mark.parametrize("args,said", [
    (["--instances", "0"], "--instances must be a number from 1 to 64, got 0"),
    (["--rate", "0"], "--rate must be a number from 0.001 to 100000, got 0"),
    (["--in", "5:4"], "--in must be N or N:M with 1 <= N <= M"),
    (["--in", "-5"], "--in must be N or N:M with 1 <= N <= M"),
    (["--out", "4:"], "--out must be N or N:M with 1 <= N <= M"),
    (["--arrivals", "random"], "--arrivals must be poisson, even or bursty, got random"),
    (["--abilities", "/nowhere"], "--abilities: /nowhere"),
    (["--trace", "/nowhere"], "/nowhere"),
    (["--rat", "1"], "unknown option --rat; did you mean --rate?"),
    (["fable", "--abilities", "x"], "advise takes a MODEL or --abilities, not both"),
    (["/nowhere"], "MODEL must be a folder, a GGUF file or a bundled model"),
    (["fable", "--dtypes", "bf17", "--seconds", "1"], "measuring "),
])
def test_what_it_refuses(args, said):
    r = run("advise", *args)
    assert r.returncode in (1, 2) and r.stderr.startswith(f"batonctl: {said}") and r.stdout == "", r


def test_nobody_to_ask():
    port = free_ports(1)[0]
    r = run("-m", f"http://127.0.0.1:{port}", "advise")
    assert r.returncode == 1 and "no instance answers" in r.stderr
