"""How far what `batonctl advise` says is from what happens: the same load is forecast and sent, to one instance that does both and to a prefill and a
decode instance, with real daemons, the bundled model and one of the 0.5B shape with random weights made on the spot.

    advise.py [fable] [half_b]                  (without names both; BENCH_QUICK=1: fewer layers, one rate)

For each model and plan rates of a quarter and a half of what advise says the plan bears. Measuring, forecast and run follow each other in one go; the
ratio is measured over forecast. Lines are `name value unit [ratio of]`; BELOW or ABOVE where they are more than 15% apart."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster")]
import harness  # noqa: E402
from cluster_times import QUICK, model_of  # noqa: E402
from silence import HALF_B  # noqa: E402

CTL, BENCH = (os.path.join(harness.BUILD, "bin", name) for name in ("batonctl", "baton-bench"))
CORES = os.cpu_count()
BAR = 0.15
SECONDS = 12 if QUICK else 40  # of load, at least
# name: (model's shape or None, prompt, answer, requests)
LOADS = {"fable": (None, "64:400", "40:120", 100), "half_b": (HALF_B, "64:256", "20:40", 60)}
PLANS = {"whole": (1, 1), "split": (2, 2)}  # instances, of one machine
GOALS = ["--ttft-goal", "2000", "--gap-goal", "200"]


def advise(source, prompt, answer, instances, at_once, rate, requests):
    args = [CTL, "--json", "advise", *source, "--instances", str(instances), "--per-machine", str(at_once), "--slots", "32", "--rate", str(rate), "--in",
            prompt, "--out", answer, "--requests", str(requests), *GOALS]
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)


def measured(base, prompt, answer, rate, requests):
    args = [BENCH, base, "--completions", "--rate", str(rate), "--in", prompt, "--out", answer, "--requests", str(requests), "--warm-up", "1", "--json", "-",
            *GOALS]
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)


@contextlib.contextmanager
def served(plan, model):
    extra = {"BatonConfig": {"computeThreads": max(1, CORES // PLANS[plan][1]), "kvCacheMiB": 512, "weightDtype": "bf16", "prefixCache": False},
             "BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 2048, "maxInputTokenLen": 1024},
                               "ScheduleConfig": {"cacheBlockSize": 128, "maxPrefillTokens": 8192}}}
    with (harness.Standalone(model=model, extra=extra) if plan == "whole" else harness.Cluster(1, 1, model=model, extra=extra)) as c:
        yield c.base


def compare(name, what, is_value, said, unit):
    ratio = is_value / said if said > 0 else 0
    word = "" if abs(ratio - 1) <= BAR else " BELOW" if ratio < 1 else " ABOVE"
    print(f"advise_{name}_{what} {is_value:.2f} {unit} [{ratio:.2f} of {said:.2f} forecast]{word}", flush=True)


def report(of, plan, said, is_so):
    forecast = next(p for p in said["plans"] if p["mode"] == ("standard" if plan == "whole" else "fixed"))
    r = is_so["targets"][0]["rounds"][0]
    compare(of, "ttft_mean", r["ttft"]["mean_us"] / 1e3, forecast["ttftMeanMs"], "ms")
    compare(of, "ttft_p90", r["figures"]["ttft_p90_ms"], forecast["ttftMs"][1], "ms")
    compare(of, "gap_mean", r["gap"]["mean_us"] / 1e3, forecast["gapMeanMs"], "ms")
    compare(of, "good", 100 * r["figures"]["good_share"], 100 * forecast["good"], "%")


def main(names):
    for name in names or LOADS:
        shape, prompt, answer, least = LOADS[name]
        with model_of("qwen2", shape) if shape else contextlib.nullcontext(harness.FABLE) as model:
            for plan, (instances, at_once) in PLANS.items():
                first = advise([model, "--dtypes", "bf16", "--seconds", "8"], prompt, answer, instances, at_once, 1, least)
                with tempfile.NamedTemporaryFile("w", suffix=".json") as f:  # what was measured is what every forecast is made of
                    json.dump(first["abilities"][0], f)
                    f.flush()
                    for part in (0.5,) if QUICK else (0.25, 0.5):
                        borne = first["advice"]["borneWholePerSecond" if plan == "whole" else "borneSplitPerSecond"]
                        rate = round(part * borne, 3)
                        requests = max(least, int(rate * SECONDS))
                        said = advise(["--abilities", f.name], prompt, answer, instances, at_once, rate, requests)
                        with served(plan, model) as base:
                            time.sleep(6)  # an instance without work measures itself for five seconds
                            is_so = measured(base, prompt, answer, rate, requests)
                        report(f"{name}_{plan}_{part}", plan, said, is_so)


if __name__ == "__main__":
    main(sys.argv[1:])
