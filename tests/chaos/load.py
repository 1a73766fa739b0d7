"""Clients that ask the same questions again and again, and know the answers of a calm cluster."""
import os
import random
import re
import threading
import time

from families import MODES, normal

from harness import SLOW, wait_for

STORIES = ["Once upon a time there was a small dog", "The cat sat on the", "Lily went to the park. She saw", "Tom had a red ball and",
           "One day a bird found", "Mia and her mom went to", "The sun was warm. Ben", "In the garden there was a"]
LATE_S = 120 * SLOW  # an answer that takes longer hangs


class Question:
    def __init__(self, mode, body):
        self.mode, self.body, self.calm = mode, body, None

    def ask(self, base):
        """(fault or None, raw): a fault is the reason why this is no answer at all."""
        try:
            status, _, raw = self.mode.ask(base, self.body)
        except Exception as e:  # noqa: BLE001 - whatever a client's library says
            return f"{type(e).__name__}: {e}", b""
        return (None if status == 200 else f"status {status}: {raw[:200]!r}"), raw

    def same(self, raw):
        try:
            return self.comparable(raw) == self.comparable(self.calm)
        except UnicodeDecodeError:
            return False

    def comparable(self, raw):
        """The answer's bytes; events of several choices one choice after the other, since these take turns as steps have room."""
        text = normal(raw, keep_cached=False)
        if not self.mode.stream or self.body.get("n", 1) == 1:
            return text
        events = text.split("\n\n")
        return sorted(events, key=lambda e: int(m[1]) if (m := re.search(r'"index":(\d+)', e)) else 1 << 30)


def questions(seed, n):
    """n questions over all families: greedy and seeded, streamed and not, several choices, stop strings, log-probabilities."""
    rng, out = random.Random(seed), []
    for i in range(n):
        mode = MODES[i % len(MODES)]
        p = {"max_tokens": rng.choice([8, 24, 60, 120])}
        if rng.random() < 0.6:
            p.update(temperature=0.9, seed=rng.randrange(1, 1 << 31))
        if mode.family in ("chat", "completions"):
            if rng.random() < 0.3:
                p["n"] = 2
                p.setdefault("temperature", 0.9)
                p.setdefault("seed", rng.randrange(1, 1 << 31))
            if rng.random() < 0.3:
                p["logprobs"] = 2
            if rng.random() < 0.4:
                p["frequency_penalty"] = 0.5
        if "stop" in mode.accepts and rng.random() < 0.3:
            p["stop"] = [" the end"]
        if "ids" in mode.accepts and mode.family == "triton_token":
            prompt = [300 + rng.randrange(3000) for _ in range(rng.randrange(5, 40))]
        else:
            prompt = " ".join(rng.sample(STORIES, rng.randrange(1, 4)))
        body = mode.body(prompt, **p)
        body.pop("id", None)  # many ask it at once
        out.append(Question(mode, body))
    return out


def learn(base, asked):
    """Asks each question on a calm cluster."""
    for q in asked:
        fault, q.calm = q.ask(base)
        assert fault is None, f"{q.mode.name} {q.body}: {fault}"


class Clients:
    """n threads; each asks random questions until the body of the `with` ends. faults: what no client may see."""

    def __init__(self, base, asked, n, seed):
        self.base, self.asked, self.seed = base, asked, seed
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self.n_right, self.faults, self.longest_s = 0, [], 0.0
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(n)]

    def run(self, i):
        rng = random.Random(self.seed * 1000 + i)
        while not self.ending.is_set():
            q = rng.choice(self.asked)
            began = time.monotonic()
            fault, raw = q.ask(self.base)
            took = time.monotonic() - began
            if fault is None and not q.same(raw):
                fault = f"another answer\n  calm {q.calm!r}\n  now  {raw!r}"
            with self.lock:
                self.longest_s = max(self.longest_s, took)
                if fault is None:
                    self.n_right += 1
                else:
                    self.faults.append(f"{time.strftime('%H:%M:%S')} after {took:.2f} s {q.mode.name} {q.body}: {fault}")

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        end = time.monotonic() + LATE_S
        for t in self.threads:
            t.join(max(0.0, end - time.monotonic()))
        self.hung = sum(t.is_alive() for t in self.threads)


def held(daemon):
    """(KiB resident, descriptors, threads)."""
    with open(f"/proc/{daemon.process.pid}/status") as f:
        text = f.read()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]), len(os.listdir(f"/proc/{daemon.process.pid}/fd")), int(re.search(r"Threads:\s+(\d+)", text)[1])


# ---- what the coordinator counts
def counts(cluster):
    return cluster.status()["coordinator"]


def balance(cluster):
    """What came is what ended; gives the counts."""
    wait_for(lambda: counts(cluster)["requestsInFlight"] == 0, 10 * SLOW, "nothing is in flight")
    n = counts(cluster)
    assert n["requestsReceived"] == n["requestsFinished"] + n["requestsFailed"] + n["requestsCancelled"] + n["requestsRefused"], n
    return n
