"""How far what `batonctl advise` says of split clusters on one machine is from what they do: 1 P and 1 D, 2 P and 2 D, 3 P and 1 D, of a thread each, with
real daemons; loads at two parts of what advise says the cluster bears, with prompts and answers of two mixes.

    forecast.py [fable] [small] [1p1d] [2p2d] [3p1d] [long_in] [long_out]      (without names all; BENCH_QUICK=1: one load, once)

small has the width of the 0.5B shape and 4 layers of random weights, made on the spot. Each cluster and mix is measured, forecast and run in one go, and
sent the very arrivals that its forecast is of, FORECAST_ROUNDS times (2): a forecast cannot be nearer than reality is to itself. Lines are `name value unit
[ratio of] (least to most)`, the ratio being the mean over the forecast; BELOW or ABOVE where an operator would miss it: answers, goodput, the first token's
median and mean, and the median time per token more than 15% apart. Ends of distributions and single gaps are told, and not judged. Goals are what somebody
would promise: five times what a prompt takes on an idle cluster, three times an idle step."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster")]
import harness  # noqa: E402
from cluster_times import QUICK, model_of, told  # noqa: E402

CTL, BENCH = (os.path.join(harness.BUILD, "bin", name) for name in ("batonctl", "baton-bench"))
BAR = 0.15
SECONDS = float(os.environ.get("FORECAST_SECONDS", 10))
ROUNDS = 1 if QUICK else int(os.environ.get("FORECAST_ROUNDS", 2))
PARTS = (0.5,) if QUICK else (0.4, 0.75)  # of what the cluster bears
SMALL = dict(hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, num_hidden_layers=4, vocab_size=4096,
             max_position_embeddings=4096)
# model: its shape or None, goals, and its mixes of prompts and answers
MODELS = {"fable": (None, (25, 3), {"long_in": ("200:400", "16:32"), "long_out": ("32:96", "64:160")}),
          "small": (SMALL, (300, 25), {"long_in": ("200:400", "16:32"), "long_out": ("32:96", "40:80")})}
CLUSTERS = {"1p1d": (1, 1), "2p2d": (2, 2), "3p1d": (3, 1)}


def run(args):
    return json.loads(subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True).stdout)


def load(mix, rate, requests, goals):
    return ["--rate", f"{rate:.6g}", "--in", mix[0], "--out", mix[1], "--requests", str(requests), "--ttft-goal", str(goals[0]), "--gap-goal", str(goals[1])]


def advise(source, n, words):
    return run([CTL, "--json", "advise", *source, "--instances", str(n), "--per-machine", str(n), "--clients-here", *words])


def plan_of(said, p):
    return next(x for x in said["plans"] if x["mode"] == "fixed" and x["prefill"] == p)


@contextlib.contextmanager
def served(p, d, model):
    extra = {"BatonConfig": {"computeThreads": 1, "kvCacheMiB": 512, "weightDtype": "bf16", "prefixCache": False},
             "BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 2048, "maxInputTokenLen": 1024},
                               "ScheduleConfig": {"cacheBlockSize": 128, "maxBatchSize": 32, "maxPrefillBatchSize": 32, "maxPrefillTokens": 8192}}}
    with harness.Cluster(p, d, model=model, extra=extra) as c:
        run([BENCH, c.base, "--completions", "--clients", "4", "--in", "64", "--out", "8", "--requests", "40", "--warm-up", "0", "--json", "-"])
        yield c.base


def compare(name, values, forecast, unit, judged):
    mean = sum(values) / len(values)
    ratio = mean / forecast if forecast > 0 else 1 if mean == 0 else 0
    word = "" if not judged or abs(ratio - 1) <= BAR else " BELOW" if ratio < 1 else " ABOVE"
    print(f"forecast_{name} {mean:.3f} {unit} [{ratio:.2f} of {forecast:.3f} forecast] ({min(values):.3f} to {max(values):.3f}){word}", flush=True)


def report(name, said, rounds):
    def of(figure):
        return [r["figures"][figure] for r in rounds]

    compare(f"{name}_answers", of("answers_s"), said["answersPerSecond"], "/s", True)
    compare(f"{name}_goodput", of("goodput_s"), said["good"] * said["answersPerSecond"], "/s", True)
    compare(f"{name}_ttft_mean", [r["ttft"]["mean_us"] / 1e3 for r in rounds], said["ttftMeanMs"], "ms", True)
    for q, at in ((50, 0), (99, 2)):
        compare(f"{name}_ttft_p{q}", of(f"ttft_p{q}_ms"), said["ttftMs"][at], "ms", q == 50)
        compare(f"{name}_token_p{q}", of(f"token_p{q}_ms"), said["tokenMs"][at], "ms", q == 50)
        compare(f"{name}_gap_p{q}", of(f"gap_p{q}_ms"), said["gapMs"][at], "ms", False)


def one(name, model, goals, mix_name, mix, cluster):
    p, d = CLUSTERS[cluster]
    told(f"measures {name}")
    measured = advise([model, "--dtypes", "bf16", "--seconds", "6"], p + d, load(mix, 1, 100, goals))
    if "warning" in measured:
        print(f"# {measured['warning']}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f, served(p, d, model) as base:
        json.dump(measured["abilities"][0], f)
        f.flush()
        print(f"# {name} {cluster} {mix_name}: {json.dumps(measured['abilities'][0]['times'])}")
        at_all = plan_of(advise(["--abilities", f.name], p + d, load(mix, 1, 300, goals)), p)["bornePerSecond"]
        for part in PARTS:
            requests = max(40, int(part * at_all * SECONDS))
            words = load(mix, part * at_all, requests, goals)
            said = plan_of(advise(["--abilities", f.name], p + d, words), p)
            told(f"{name} {cluster} {mix_name}: {requests} requests at {part * at_all:.2f} a second")
            rounds = [run([BENCH, base, "--completions", *words, "--warm-up", "0", "--json", "-"])["targets"][0]["rounds"][0] for _ in range(ROUNDS)]
            report(f"{name}_{cluster}_{mix_name}_{part}", said, rounds)


def main(names):
    models = [n for n in names if n in MODELS] or list(MODELS)
    clusters = [n for n in names if n in CLUSTERS] or list(CLUSTERS)
    mixes_named = [n for n in names if n in ("long_in", "long_out")] or ["long_in", "long_out"]
    for name in models:
        shape, goals, mixes = MODELS[name]
        with model_of("qwen2", shape) if shape else contextlib.nullcontext(harness.FABLE) as model:
            for cluster in clusters:
                for mix in mixes_named:
                    one(name, model, goals, mix, mixes[mix], cluster)


if __name__ == "__main__":
    main(sys.argv[1:])
