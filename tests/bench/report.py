"""Reads the lines of a benchmark run (`name value unit [ratio of] ...`), writes them as JSON, and holds them against the bars.

    report.py BENCH.txt BENCH.json       ends with 1 when a bar is missed or a program failed

A bar above what the ceilings of the same run allow is out of reach on this machine, and told so.
A bar whose figure is not there (a program was skipped, left out or failed) is told as not measured."""
import json
import os
import platform
import re
import sys

# name (a pattern with one list of alternatives, which the text's {} shows), what of the line is compared ("value", "ratio", "of X" for the
# ratio to X, or the word a number stands behind; with _most the bar is an upper one), the bar, text.
TINY = "tinyllama-1.1b"
PROBE_SLACK = 1.03  # of read bandwidth: what noise may make of one
TYPES = "(bf16|int8|int4)"


def forward_bars(kernels):
    """Those of a kernel set, whose name its figures begin with. The sets with products of bf16 pairs or tiles have the bars that were set for
    AVX-512; of prefill these stand beside the peak of bf16 pairs, tiles or not. The other sets keep those of the earlier release."""
    name = f"{kernels}_{TINY}_{TYPES}_"
    bf16 = f"{kernels}_{TINY}_(bf16)_"
    text = kernels + ", {}: "
    if kernels in ("avx512bf16", "amx"):
        return [
            (name + "prefill_512_threads_1", "of peak_bf16_dot", dict(bf16=0.87, int8=1.15, int4=1.0), text + "prefill 512 over the peak of bf16 pairs"),
            (name + "prefill_2048_threads_1", "of peak_bf16_dot", dict(bf16=0.85, int8=1.05, int4=0.95), text + "prefill 2048 over the peak of bf16 pairs"),
            (name + "prefill_512_efficiency_threads_2", "value", 0.95, text + "prefill 512, 2 threads over the efficiency of 1"),
            (name + "decode_batch_1_threads_1", "ratio", 0.95, text + "decode at batch 1 over read bandwidth"),
            (name + "decode_context_2048_threads_1", "ratio", 0.90, text + "decode at context 2048, KV bytes allowed for"),
            (name + "decode_gain_8_threads_1", "value", dict(bf16=7, int8=5.5, int4=4.2), text + "decode at batch 8 over batch 1"),
            (name + "decode_gain_16_threads_1", "value", dict(bf16=10, int8=6.5, int4=5), text + "decode at batch 16 over batch 1"),
        ]
    return [
        (name + "prefill_512_threads_1", "ratio", dict(bf16=0.80, int8=0.75, int4=0.70), text + "prefill 512 over the peak of bf16"),
        (name + "prefill_512_efficiency_threads_2", "value", 0.93, text + "prefill 512, 2 threads over the efficiency of 1"),
        (bf16 + "prefill_2048_threads_1", "ratio", 0.70, text + "prefill 2048 over the peak of bf16"),
        (name + "decode_batch_1_threads_1", "ratio", dict(bf16=0.92, int8=0.90, int4=0.85), text + "decode at batch 1 over read bandwidth"),
        (name + "decode_gain_4_threads_1", "value", dict(bf16=3.5, int8=3.5, int4=3.0), text + "decode at batch 4 over batch 1"),
        (name + "decode_gain_8_threads_1", "value", dict(bf16=6.0, int8=6.0, int4=5.0), text + "decode at batch 8 over batch 1"),
        (bf16 + "decode_context_2048_threads_1", "ratio", 0.85, text + "decode at context 2048 over 128, KV bytes allowed for"),
    ]


BARS = [
    (r"perplexity_(fable|teacher)_int8", "change_most", 0.1, "perplexity with int8 weights over bf16, {}, %"),
    (r"perplexity_(fable|teacher)_int4", "change_most", 3, "perplexity with int4 weights over bf16, {}, %"),
    (r"perplexity_(fable|teacher)_kv_int8", "change_most", 0.1, "perplexity with int8 KV over bf16, {}, %"),
    (r"sample_(top_p|typical)_0.9", "ratio_most", 12, "a draw from 150,000 logits, {} 0.9, over a pass that reads them"),
    (r"sample_avx2_(top_p|typical)_0.9", "ratio_most", 12, "the same with AVX2, {} 0.9"),
    (r"lookup_edit_(3|8)_batch_1", "ratio", 1.2, "guesses by prompt lookup, {}, on a text that repeats, over none"),
    (r"lookup_novel_(3|8)_batch_1", "ratio", 0.95, "guesses by prompt lookup, {}, on a text that never does, over none"),
    (r"start_(again)_ms", "value_most", 1000, "start of a 1.1 B bf16 model, {}, exec to ready, ms"),
    (r"start_memory_(second)_adds", "value_most", 5, "memory that a {} process of the same weights adds, %"),
    (r"kv_link_(plain)", "ratio", 0.80, "KV link, {}, over one TCP stream of the same bytes"),
    (r"kv_link_(sealed)", "ratio", 0.60, "KV link, {}, over one TCP stream of the same bytes"),
    (r"kv_exposed_(loopback)", "ratio_most", 0.02, "exposed KV time over {}, of the prefill"),
    (r"kv_exposed_(1gbit)", "ratio_most", 1.0, "exposed KV time over {}, of one chunk at the link's rate and 20 ms"),
    (r"gap_p99_(1p1d)_during_prefill", "ratio_most", 1.3, "p99 token gap during prefills, {}, over its calm gap"),
    (f"gap_{TINY}_(bf16|int4)_threads_1_prefill_p99", "ratio_most", 4.0, "p99 token gap beside a prefill of 2048, {}, over the calm p99"),
    (f"gap_{TINY}_(bf16|int4)_threads_1_prefill_speed", "ratio", 0.85, "speed of that prefill, {}, over one alone"),
    (r"turn_(second)_ttft", "ratio_most", 0.15, "first token of the {} turn of 2,000 tokens, split, over the first turn's"),
    (r"relay_(1000)_streams_live_rate", "value", 60000, "relayed events a second and core, {} streams"),
    (r"relay_(1|100|1000)_streams_latency_p50", "added_most", 0.3, "added latency p50, {} streams, ms"),
    (r"relay_(budgets)_cost", "value_most", 3, "cost of {} on the way of an event, % of the coordinator's time for it"),
    (r"relay_(stream)_memory", "value_most", 40, "coordinator's memory per {}, KB"),
    (r"relay_(20000)_streams_memory", "value_most", 45, "coordinator's memory a stream, {} streams, KB"),
    (r"relay_(20000)_streams_latency_p99", "added_most", 5, "added latency p99 at 100,000 events a second, {} streams, ms"),
    (r"fleet_(400)_instances_cost", "value_most", 5, "polls, heartbeats and digests of {} instances, % of a core"),
    (r"relay_tls_(h2|grpc)_live_rate", "ratio", 0.70, "relayed events a second with TLS, 1,000 live streams, {}, over HTTP/1's"),
    (r"relay_tls_(h2|grpc)_flat_out_rate", "ratio", 0.70, "relayed events a second with TLS, flat out, {}, over HTTP/1's"),
    (r"relay_tls_(h2|grpc)_stream_memory", "value_most", 60, "coordinator's memory per stream with TLS, {}, KB"),
    (r"relay_tls_(h1|h2|grpc)_errors", "value_most", 0, "streams with TLS that broke, {}"),
    (r"guide_token_(json_object|json_schema|regex|grammar)", "ratio_most", 1, "guided decoding, {}, a token, of 50 us"),
    (r"body_look_([a-z_]+)_mb_s", "value", 1000, "the coordinator's look at a body, {}, MB/s on one core"),
    (r"tokenizer_(llama3)_pattern_mb_s", "value", 5, "tokenizer, pattern of {}, MB/s of text on one core"),
]


def parse_line(line):
    """One line of a program, or None. Numbers behind a word belong to it: `added 0.1`; `0.9 of x` is a ratio to x."""
    words = line.split()
    if len(words) < 2 or line.startswith("#"):
        return None
    try:
        row = {"name": words[0], "value": float(words[1])}
    except ValueError:
        return None
    rest = words[2:]
    if rest:
        row["unit"] = rest.pop(0)
    while len(rest) >= 2:
        if rest[1] == "of" and len(rest) >= 3:
            row.setdefault("ratios", {})[rest[2]] = float(rest[0])
            row.setdefault("ratio", float(rest[0]))
            rest = rest[3:]
        elif re.fullmatch(r"-?[0-9.]+", rest[1]) and not re.fullmatch(r"-?[0-9.]+", rest[0]):
            row[rest[0]] = float(rest[1])
            rest = rest[2:]
        else:
            rest = rest[1:]
    return row


def read(path):
    """The rows, and the programs that failed."""
    rows, failed, command = [], [], ""
    with open(path) as f:
        for line in f:
            if line.startswith("# failed"):
                failed.append(line[2:].strip())
            elif line.startswith("# ") and not line.startswith("# skipped"):
                command = line[2:].strip()
            row = parse_line(line)
            if row is not None:
                rows.append(dict(row, command=command))
    return rows, failed


def judged(what, value, bar, most=False, allowed=None):
    """allowed: what the ceilings of the same run leave room for; a bar above it cannot be reached here."""
    return {"what": what, "value": value, "bar": bar, "at": "most" if most else "least", "allowed": allowed,
            "ok": None if value is None else value <= bar if most else value >= bar}


def out_of_reach(b):
    return b["ok"] is False and b["allowed"] is not None and b["allowed"] < b["bar"]


def sets_in(rows):
    """The kernel sets of which there are figures."""
    found = [m.group(1) for m in (re.match(rf"(\w+)_{re.escape(TINY)}_", r["name"]) for r in rows) if m]
    return sorted(set(found) - {"gap"})


def compared(row, kind):
    kind = kind.removesuffix("_most")
    return row.get("ratios", {}).get(kind[3:]) if kind.startswith("of ") else row.get(kind)


def judge(rows, table=None):
    """The bars of a table, or of this release, beside rows."""
    if table is None:
        table = [bar for kernels in sets_in(rows) or ["auto"] for bar in forward_bars(kernels)] + BARS
    out, rows = [], {r["name"]: r for r in rows}
    for pattern, kind, bars, text in table:
        before, group, after = re.fullmatch(r"(.*)\((.*)\)(.*)", pattern).groups()
        for word in group.split("|"):
            row = rows.get(before + word + after, {})
            out.append(judged(text.format(word), compared(row, kind), bars[word] if isinstance(bars, dict) else bars,
                              kind.endswith("_most"), row.get("allowed")))
    return out


def bar_line(b):
    bar = f"(at {b['at']} {b['bar']:g})"
    if b["ok"] is None:
        return f"{b['what']:<72} {'-':>10}  {bar}  not measured"
    if out_of_reach(b):
        return f"{b['what']:<72} {b['value']:10.3f}  {bar}  out of reach: at most {b['allowed']:.2f} here, {b['value'] / b['allowed']:.2f} of it"
    return f"{b['what']:<72} {b['value']:10.3f}  {bar}  {'ok' if b['ok'] else 'BELOW' if b['at'] == 'least' else 'ABOVE'}"


def faults(rows):
    """Nothing reads faster than the machine: such a ratio says that the probe of its run did not."""
    return [f"{r['name']:<72} {ratio:10.3f}  over {to}: above {PROBE_SLACK}, a fault of the probe"
            for r in rows for to, ratio in r.get("ratios", {}).items() if to.startswith("read_bandwidth") and ratio > PROBE_SLACK]


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def main():
    text, out = sys.argv[1:3]
    rows, failed = read(text)
    bars = judge(rows)
    lines = [bar_line(b) for b in bars] + faults(rows) + failed
    with open(text, "a") as f:
        f.write("# bars\n" + "".join(line + "\n" for line in lines))
    print("\n".join(lines))
    with open(out, "w") as f:
        json.dump({"cpu": cpu_name(), "cores": os.cpu_count(), "load_1min": os.getloadavg()[0], "figures": rows, "bars": bars,
                   "failed": failed}, f, indent=1)
        f.write("\n")
    return 1 if failed or any(b["ok"] is False and not out_of_reach(b) for b in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
