#!/usr/bin/env python3
"""What the planner's decisions are worth, in the simulator: goodput beside an oracle that knows the load, roles that stay 1:1, and no split.

    tests/bench/simulate.py [--set tuned|held|all] [--instances 4,8,16] [--seeds 1,2] [--traces DIR] [--jobs N] [--extra "OPTIONS"]

One line a case: goodput in percent of the requests, then ours over the oracle's and over the better of the other two. Traces are Azure's and
Mooncake's (https://github.com/Azure/AzurePublicDataset, https://github.com/kvcache-ai/Mooncake), laid over themselves so that a cluster of four
sees a quarter of what one of sixteen does in the same time. A case that the constants were chosen on is in the set `tuned`; nothing was chosen on
`held`. Abilities are made up: steps of 10 to 80 ms, prompts of so many tokens a second.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

BIN = os.environ.get("SIMULATE") or os.path.join(os.environ.get("BUILD", "build"), "bin", "simulate")
KINDS = {"slow": 1024, "middle": 2048, "fast": 8192}  # tokens of a prompt a second
TRACES = {
    "code": ("AzureLLMInferenceTrace_code.csv.gz", 1),
    "conv": ("AzureLLMInferenceTrace_conv.csv.gz", 1),
    "mooncake": ("mooncake_conversation_first1500.jsonl.gz", 1 / 16),
}
# of the first token in units of a prompt of 2,048 tokens, and of a token in ms
GOALS = {"tight": (1.5, 40), "wide": (3, 50), "loose": (5, 80)}
LOADS = (0.5, 0.75)
INSTANCES = (4, 8, 16, 32, 64, 128, 256)


def abilities(folder, kind):
    def step(batch, context, seconds):
        return {"batch": batch, "context": context, "seconds": seconds, "samples": 32}

    prompts = [{"tokens": n, "seconds": 0.002 + n / KINDS[kind], "samples": 32} for n in (16, 2048)]
    steps = [step(1, 64, 0.010), step(32, 64, 0.040), step(1, 4096, 0.015), step(32, 4096, 0.080)]
    path = os.path.join(folder, kind + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"perf": {"prompts": prompts, "steps": steps}}, f)
    return path


def cases(which, instances, seeds):
    """(set, trace, kind, goals, load, reject, n, seed): one factor after the other, not their product."""
    out = []
    if which in ("tuned", "all"):
        for trace, load, reject, n, seed in itertools.product(("code", "conv"), LOADS, (0, 1), instances, (11, 12)):
            out.append(("tuned", trace, "middle", "wide", load, reject, n, seed))
    if which in ("held", "all"):
        picks = [("mooncake", "middle", "wide")]
        picks += [(trace, kind, "wide") for trace in TRACES for kind in ("slow", "fast")]
        picks += [(trace, "middle", goals) for trace in TRACES for goals in ("tight", "loose")]
        for (trace, kind, goals), load, reject, n in itertools.product(picks, LOADS, (0, 1), instances):
            for seed in seeds:
                out.append(("held", trace, kind, goals, load, reject, n, seed))
        out.sort(key=lambda c: c[6])
    return out


def run(case, paths, args):
    _, trace, kind, goals, load, reject, n, seed = case
    name, scale = TRACES[trace]
    first, token = GOALS[goals]
    copies = max(1, n // 4) * (4 if kind == "fast" else 1)
    line = [BIN, paths[kind], "-n", str(n), "--trace", os.path.join(args.traces, name), "--length-scale", str(scale), "--overlay", str(copies),
            "--load", str(load), "--seed", str(seed), "--reject-factor", str(reject), "--ttft-goal", str(first * 2048 / KINDS[kind] * 1000),
            "--gap-goal", str(token), "--flex", "--unsplit"] + args.extra.split()

    def simulate(requests, *more):
        text = subprocess.run(line + ["--requests", str(requests), *more], check=True, capture_output=True, text=True).stdout
        return text.splitlines()
    # how many come in a second is known when they are scaled
    head = simulate(400 * copies, "--mode", "fixed")[0].split()
    rows = simulate(int(min(max(float(head[2]) / float(head[5]) * args.seconds, 400), args.most)))
    good = {"fixed": 0.0, "standard": 0.0}
    for row in rows[2:]:
        words = row.replace("fixed 1:1", "fixed").split()
        good[words[0]] = float(words[2])
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--set", default="held", choices=("tuned", "held", "all"))
    p.add_argument("--instances", default=",".join(map(str, INSTANCES)))
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--traces", default=os.environ.get("TRACES", "."))
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=int, default=300, help="about so long a run")
    p.add_argument("--most", type=int, default=60000, help="requests of a case")
    p.add_argument("--only", default="", help="cases whose line has this text")
    p.add_argument("--extra", default="", help="more options of simulate")
    args = p.parse_args()
    every = cases(args.set, [int(n) for n in args.instances.split(",")], [int(s) for s in args.seeds.split(",")])
    every = [c for c in every if args.only in " ".join(map(str, c))]
    row = "{:5} {:8} {:6} {:5} {:>4} {:>6} {:>4} {:>4}"
    print(row.format("set", "trace", "kind", "goals", "load", "refuse", "n", "seed"), "  oracle    ours   fixed   whole  /oracle  /best")
    of_oracle, of_best = {}, {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        paths = {kind: abilities(folder, kind) for kind in KINDS}
        for case, good in zip(every, pool.map(lambda c: run(c, paths, args), every)):
            best = max(good["fixed"], good["standard"])
            a, b = good["follow"] / max(good.get("oracle", 0), 1e-9), good["follow"] / max(best, 1e-9)
            print(row.format(*case), f"{good.get('oracle', 0):8.2f}{good['follow']:8.2f}{good['fixed']:8.2f}{good['standard']:8.2f}{a:9.3f}{b:7.3f}", flush=True)
            key = (case[0], case[1], f"refuse {case[5]}")
            of_oracle.setdefault(key, []).append(a)
            of_best.setdefault(key, []).append(b)
    for key, a in of_oracle.items():
        b = of_best[key]
        print(f"{' '.join(key)}: {len(a)} cases; of the oracle mean {statistics.mean(a):.3f}, least {min(a):.3f}, "
              f"{sum(x >= 0.95 for x in a)} of 95% and more; of the better of 1:1 and unsplit least {min(b):.3f}, {sum(x >= 0.97 for x in b)} of 97% and more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
