"""What the second turn of a conversation of 2,000 tokens waits for its first token, split over two prefill and two decode instances, beside its first turn. With real
daemons and the bundled model's shape for longer contexts (its positions beyond 1,024 say nothing; what is timed does not depend on it).

    turns.py       (BENCH_QUICK=1: fewer conversations)

Lines are `name value unit [ratio of]`; the ratio is the second turn over the first, medians of all conversations."""
import json
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster")]
import harness  # noqa: E402
from cluster_times import QUICK, median, say  # noqa: E402

CONVERSATIONS = 4 if QUICK else 10
WORDS = "fox dog cat sun tree house river stone bird cloud road hill lamp boat".split()


def longer_model(folder):
    """The bundled model with room for more positions."""
    shutil.copytree(harness.FABLE, folder)
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        conf = json.load(f)
    with open(path, "w") as f:
        json.dump({**conf, "max_position_embeddings": 4096}, f)
    return folder


def story(n, seed):
    out, x = [], seed * 7919 + 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2 ** 31
        out.append(WORDS[(x >> 16) % len(WORDS)])
    return " ".join(out)


def turn(base, messages):
    """(seconds to the first token, what was said)"""
    began = time.monotonic()
    s = harness.Stream(base, "/v1/chat/completions",
                       {"model": "fable", "stream": True, "max_tokens": 100, "temperature": 0, "ignore_eos": True, "messages": messages})
    while b'"content":"' not in s.raw.replace(b'"content":""', b""):
        if not s.read_some():
            raise SystemExit(f"turns: no token: {s.raw[-500:]}")
    waited = time.monotonic() - began
    said = "".join(e["choices"][0]["delta"].get("content") or "" for e in harness.events(s.read_all()) if e["choices"])
    return waited, said


def main():
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as tmp:
        model = longer_model(os.path.join(tmp, "fable"))
        sizes = {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 4096, "maxInputTokenLen": 4095}, "ScheduleConfig": {"maxPrefillTokens": 4096}}}
        first, second = [], []
        with harness.Cluster(2, 2, model=model, extra=sizes) as c:
            for i in range(CONVERSATIONS + 1):
                messages = [{"role": "user", "content": story(1990, i)}]
                t1, said = turn(c.base, messages)
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And what did the fox say then?"}]
                t2, _ = turn(c.base, messages)
                if i > 0:  # the first one warms up
                    first.append(t1 * 1000)
                    second.append(t2 * 1000)
        say("turn_first_ttft", median(first), "ms")
        say("turn_second_ttft", median(second), "ms", median(second) / median(first), "first")


main()
