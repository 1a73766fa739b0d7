"""Reads the lines of a benchmark run (`name value unit [ratio of] ...`), writes them as JSON, and holds them against the bars.

    report.py BENCH.txt BENCH.json       ends with 1 when a bar is missed"""
import json
import os
import platform
import re
import sys

# name (a pattern; {n} is what the bar's text shows of it), what is compared, the bar, text. "value", "ratio", or two names to divide.
TINY = "tinyllama-1.1b"
BARS = [
    (rf"{TINY}_(bf16|int8|int4)_prefill_512_threads_1", "ratio", dict(bf16=0.80, int8=0.75, int4=0.70), "prefill 512, {}, over the peak of bf16"),
    (rf"{TINY}_(bf16)_prefill_2048_threads_1", "ratio", 0.70, "prefill 2048, {}, over the peak of bf16"),
    (rf"{TINY}_(bf16|int8|int4)_decode_batch_1_threads_1", "ratio", dict(bf16=0.92, int8=0.90, int4=0.85), "decode at batch 1, {}, over read bandwidth"),
    (rf"{TINY}_(bf16|int8|int4)_decode_gain_4_threads_1", "value", dict(bf16=3.5, int8=3.5, int4=3.0), "decode at batch 4 over batch 1, {}"),
    (rf"{TINY}_(bf16|int8|int4)_decode_gain_8_threads_1", "value", dict(bf16=6.0, int8=6.0, int4=5.0), "decode at batch 8 over batch 1, {}"),
    (rf"{TINY}_(bf16)_decode_context_2048_threads_1", "ratio", 0.85, "decode at context 2048 over 128, {}, KV bytes allowed for"),
    (r"kv_link_(plain)", "ratio", 0.80, "KV link, {}, over one TCP stream of the same bytes"),
    (r"kv_link_(sealed)", "ratio", 0.60, "KV link, {}, over one TCP stream of the same bytes"),
    (r"kv_exposed_(loopback)", "ratio_most", 0.02, "exposed KV time over {}, of the prefill"),
    (r"kv_exposed_(1gbit)", "ratio_most", 1.0, "exposed KV time over {}, of one chunk at the link's rate and 20 ms"),
    (r"gap_p99_(1p1d)_during_prefill", "ratio_most", 1.3, "p99 token gap during prefills, {}, over its calm gap"),
    (r"relay_(1000)_streams_live_rate", "value", 60000, "relayed events a second and core, {} streams"),
    (r"relay_(1|100|1000)_streams_latency_p50", "added_most", 0.3, "added latency p50, {} streams, ms"),
    (r"relay_stream_memory()", "value_most", 40, "coordinator's memory per stream, KB"),
    (r"tokenizer_llama3_pattern_mb_s()", "value", 5, "Llama 3 pattern, MB/s of text on one core"),
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
    rows, command = [], ""
    with open(path) as f:
        for line in f:
            if line.startswith("# ") and not line.startswith("# skipped"):
                command = line[2:].strip()
            row = parse_line(line)
            if row is not None:
                rows.append(dict(row, command=command))
    return rows


def judge(rows):
    out = []
    for pattern, kind, least, text in BARS:
        for row in rows:
            m = re.fullmatch(pattern, row["name"])
            if m is None:
                continue
            value = {"value": row["value"], "ratio": row.get("ratio"), "added": row.get("added")}[kind.split("_")[0]]
            if value is None:
                continue
            bar = least[m.group(1)] if isinstance(least, dict) else least
            most = kind.endswith("_most")
            out.append({"what": text.format(m.group(1)), "value": value, "bar": bar, "at": "most" if most else "least",
                        "ok": value <= bar if most else value >= bar})
    two_threads = {r["name"]: r.get("ratio") for r in rows}
    for dtype in ("bf16", "int8", "int4"):
        one, two = (two_threads.get(f"{TINY}_{dtype}_prefill_512_threads_{n}") for n in (1, 2))
        if one and two:
            out.append({"what": f"prefill 512, {dtype}, 2 threads, over its efficiency at 1", "value": two / one, "bar": 0.93, "at": "least",
                        "ok": two / one >= 0.93})
    return out


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def main():
    text, out = sys.argv[1:3]
    rows = read(text)
    bars = judge(rows)
    lines = [f"{b['what']:<72} {b['value']:10.3f}  (at {b['at']} {b['bar']:g})  {'ok' if b['ok'] else 'BELOW' if b['at'] == 'least' else 'ABOVE'}"
             for b in bars]
    with open(text, "a") as f:
        f.write("# bars\n" + "".join(line + "\n" for line in lines))
    print("\n".join(lines))
    with open(out, "w") as f:
        json.dump({"cpu": cpu_name(), "cores": os.cpu_count(), "load_1min": os.getloadavg()[0], "figures": rows, "bars": bars}, f, indent=1)
        f.write("\n")
    return 0 if all(b["ok"] for b in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
