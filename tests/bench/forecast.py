"""How far what `batonctl advise` says of split clusters on one machine is from what they do: 1 P and 1 D, 2 P and 2 D, 3 P and 1 D, of a thread each, with
real daemons; loads at two parts of what advise says the cluster bears, with prompts and answers of two mixes.

    forecast.py [fable] [small] [1p1d] [2p2d] [3p1d]        (without names all; BENCH_QUICK=1: one load)

small has the width of the 0.5B shape and 4 layers of random weights, made on the spot. Each cluster is measured, forecast and run in one go, and sent the
very arrivals that its forecast is of; the ratio is measured over forecast. Lines are `name value unit [ratio of]`; BELOW or ABOVE where they are more than
15% apart."""
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
PARTS = (0.5,) if QUICK else (0.4, 0.75)  # of what the cluster bears
SMALL = dict(hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, num_hidden_layers=4, vocab_size=4096,
             max_position_embeddings=4096)
# model: its shape or None, goals, and its mixes of prompts and answers
MODELS = {"fable": (None, (500, 40), {"long_in": ("200:400", "16:32"), "long_out": ("32:96", "64:160")}),
          "small": (SMALL, (2000, 100), {"long_in": ("200:400", "16:32"), "long_out": ("32:96", "40:80")})}
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


def compare(name, value, forecast, unit):
    ratio = value / forecast if forecast > 0 else 1 if value == 0 else 0
    word = "" if abs(ratio - 1) <= BAR else " BELOW" if ratio < 1 else " ABOVE"
    print(f"forecast_{name} {value:.3f} {unit} [{ratio:.2f} of {forecast:.3f} forecast]{word}", flush=True)


def report(name, said, is_so):
    f = is_so["figures"]
    compare(f"{name}_answers", f["answers_s"], said["answersPerSecond"], "/s")
    compare(f"{name}_goodput", f["goodput_s"], said["good"] * said["answersPerSecond"], "/s")
    for q, at in ((50, 0), (99, 2)):
        compare(f"{name}_ttft_p{q}", f[f"ttft_p{q}_ms"], said["ttftMs"][at], "ms")
        compare(f"{name}_token_p{q}", f[f"token_p{q}_ms"], said["tokenMs"][at], "ms")
        compare(f"{name}_gap_p{q}", f[f"gap_p{q}_ms"], said["gapMs"][at], "ms")


def one(name, model, goals, mixes, cluster):
    p, d = CLUSTERS[cluster]
    first = next(iter(mixes.values()))
    told(f"measures {name}")
    measured = advise([model, "--dtypes", "bf16", "--seconds", "6"], p + d, load(first, 1, 100, goals))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f, served(p, d, model) as base:
        json.dump(measured["abilities"][0], f)
        f.flush()
        print(f"# {name} {cluster}: {json.dumps(measured['abilities'][0]['times'])}")
        for mix_name, mix in mixes.items():
            at_all = plan_of(advise(["--abilities", f.name], p + d, load(mix, 1, 300, goals)), p)["bornePerSecond"]
            for part in PARTS:
                requests = max(40, int(part * at_all * SECONDS))
                words = load(mix, part * at_all, requests, goals)
                said = plan_of(advise(["--abilities", f.name], p + d, words), p)
                told(f"{name} {cluster} {mix_name}: {requests} requests at {part * at_all:.2f} a second")
                is_so = run([BENCH, base, "--completions", *words, "--warm-up", "0", "--json", "-"])
                report(f"{name}_{cluster}_{mix_name}_{part}", said, is_so["targets"][0]["rounds"][0])


def main(names):
    models = [n for n in names if n in MODELS] or list(MODELS)
    clusters = [n for n in names if n in CLUSTERS] or list(CLUSTERS)
    for name in models:
        shape, goals, mixes = MODELS[name]
        with model_of("qwen2", shape) if shape else contextlib.nullcontext(harness.FABLE) as model:
            for cluster in clusters:
                one(name, model, goals, mixes, cluster)


if __name__ == "__main__":
    main(sys.argv[1:])
