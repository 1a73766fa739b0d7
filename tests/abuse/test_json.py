"""Goal: no body of a client takes memory or time beyond its size, and no reader of the log holds a daemon up. Method: the worst bodies by
kind, 8 MiB each, over live daemons, while another client asks and the peaks of both daemons are taken from /proc; a pipe nobody reads."""
import os
import subprocess
import threading
import time

import pytest
from attack import SANITIZER_MB, TIMED, Prober
from harness import SLOW, Cluster, Daemon, get, leashed, post, request, wait_for

MB = 1 << 20
SILENCE_S = 0.2 * SLOW
SIZE = 8 * MB


def fill(head, unit, tail):
    return (head + unit * ((SIZE - len(head) - len(tail)) // len(unit)) + tail).encode()


# What each is answered does not matter here; that it is, and what it takes, does.
WORST = {
    "objects": fill('{"model":"fable","x":[', "{},", "{}]}"),
    "arrays": fill('{"model":"fable","x":[', "[],", "[]]}"),
    "numbers": fill('{"model":"fable","x":[', "1,", "1]}"),
    "reals": fill('{"model":"fable","x":[', "1e1,", "1]}"),
    "strings": fill('{"model":"fable","x":[', '"",', '""]}'),
    "escapes": fill('{"model":"fable","x":"', "\\u0001", '"}'),
    "nested": fill('{"model":"fable","x":[', "[[[[[]]]]],", "[]]}"),
    "too_deep": fill('{"model":"fable","x":', "[", "}"),
    "one_name": fill('{"model":"fable",', '"":1,', '"":1}'),
    "long_name": fill('{"model":"fable","', "n", '":1}'),
    "names": ('{"model":"fable",' + ",".join(f'"{i:x}":{i % 10}' for i in range(SIZE // 10)) + "}").encode(),
    "messages": fill('{"model":"fable","max_tokens":1,"messages":[', '{"role":"user","content":"a"},', '{"role":"user","content":"a"}]}'),
    "messages_empty": fill('{"model":"fable","max_tokens":1,"messages":[', "{},", "{}]}"),
    "parts": fill('{"model":"fable","max_tokens":1,"messages":[', '{"role":"user","content":[{"type":"text","text":"a"}]},',
                  '{"role":"user","content":"a"}]}'),
    "ids": fill('{"model":"fable","max_tokens":1,"prompt":[', "7,", "7]}"),
    "prompts": fill('{"model":"fable","max_tokens":1,"prompt":[', '"a",', '"a"]}'),
    "tools": fill('{"model":"fable","messages":[{"role":"user","content":"a"}],"tools":[', '{"type":"function","function":{"name":"f"}},', "{}]}"),
    "arguments": fill('{"model":"fable","n":0,"messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function",'
                      '"function":{"name":"f","arguments":"{\\"a\\":[', "1,", '1]}"}}]},{"role":"user","content":"a"}]}'),
    "stops": fill('{"model":"fable","prompt":"a","n":0,"stop":[', '"a",', '"a"]}'),
    "bias": fill('{"model":"fable","prompt":"a","n":0,"logit_bias":{', '"1":1,', '"2":1}}'),
    "schema": fill('{"model":"fable","prompt":"a","guided_json":{"anyOf":[', "{},", "{}]}}"),
    "tool_blocks": fill('{"model":"fable","max_tokens":1,"messages":[{"role":"assistant","content":[',
                        '{"type":"tool_use","id":"a","name":"x","input":{}},', '{"type":"text","text":"a"}]}]}'),
    "turns": fill('{"model":"fable","max_tokens":1,"messages":[', '{"role":"user","content":""},{"role":"assistant","content":""},', "{}]}"),
    "texts": fill('{"model":"fable","input":[', '"",', '""]}'),
    "no_json": b"x" * SIZE,
    "open": fill('{"model":"fable","x":[', "{},", ""),
}


PATHS = {"tool_blocks": "/v1/messages", "turns": "/v1/messages", "texts": "/v1/embeddings"}


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def restart_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")


class Asker:
    """Another client: asks for readiness all the time, and now and then for a few tokens."""

    def __init__(self, base, readiness):
        self.base, self.readiness = base, readiness
        self.silence, self.served, self.failed, self.ended = 0.0, 0, [], threading.Event()
        self.threads = [threading.Thread(target=f) for f in (self.ask, self.stream)]

    def ask(self):
        while not self.ended.is_set():
            began = time.monotonic()
            if get(self.readiness, "/v1/readiness").status != 200:
                self.failed.append("readiness")
            self.silence = max(self.silence, time.monotonic() - began)
            time.sleep(0.005)

    def stream(self):
        while not self.ended.is_set():
            a = post(self.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 3})
            if a.status != 200:
                self.failed.append(a.text)
            self.served += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for t in self.threads:
            t.join()


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as c:
        wait_for(lambda: post(c.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 3}).status == 200, 30 * SLOW, "an answer")
        yield c


@pytest.mark.parametrize("kind", WORST)
def test_a_body_costs_eight_times_its_size(cluster, kind):
    body = WORST[kind]
    path = PATHS.get(kind) or ("/v1/completions" if b'"prompt"' in body[:100] else "/v1/chat/completions")
    daemons = {"coordinator": cluster.coordinator.process.pid, "prefill": cluster.prefills[0].process.pid}
    for pid in daemons.values():
        restart_peak(pid)
    before = {name: peak(pid) for name, pid in daemons.items()}
    silence = []
    # A loop that stands still does so each time; a machine that is busy with something else does not.
    while len(silence) < (4 if TIMED else 1) and (silence == [] or min(silence) >= SILENCE_S):
        with Asker(cluster.base, cluster.mgmt) as asker:
            wait_for(lambda: asker.served > 0, 30 * SLOW, "the other client served")
            asker.silence = 0
            a = request(cluster.base + path, "POST", body, {"Content-Type": "application/json"})
            served = asker.served
            wait_for(lambda: asker.served > served, 30 * SLOW, "the other client still served")
        silence.append(asker.silence)
        assert 400 <= a.status < 500, a.text[:300]
        assert not asker.failed, asker.failed[:3]
    assert not TIMED or min(silence) < SILENCE_S, f"{silence} s without an answer"
    for name, pid in daemons.items():
        grown = peak(pid) - before[name]
        print(f"{kind}: {name} {grown / len(body):.1f} times")
        assert grown <= 8 * len(body) + (24 + SANITIZER_MB) * MB, f"{name}: {grown / MB:.0f} MiB for {len(body) / MB:.0f}"


# What takes most of a look that goes from member to member, from item to item, or by strings and brackets: 40 MiB, as much as a body may have.
LARGE = {"reals": ('"x":[', "1e1,", "1]}"), "nested": ('"x":[', "[[[[[]]]]],", "[]]}"), "members": ("", '"n":1,', '"n":1}'),
         "escaped_names": ("", '"\\u006e":1,', '"n":1}'), "members_nested": ("", '"":{"":{"":1}},', '"n":1}'),
         "parts": ('"messages":[', '{"content":[{"type":"text","text":"a"}]},', "{}]}"), "messages_spaced": ('"messages":[', "{ }, ", "{}]}"),
         "prompts": ('"prompt":[', '"\\n",', '"a"]}'), "lists": ('"prompt":[', '["a",1.5e3],', "1]}"), "escapes": ('"prompt":"', "\\u4f60", '"}')}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_the_largest_body_silences_nobody(cluster, kind):
    """The coordinator's loop looks at a body at once; an instance reads it beside its loop."""
    head, unit, tail = LARGE[kind]
    head = '{"model":"fable",' + head
    body = (head + unit * ((40 * MB - len(head) - len(tail)) // len(unit)) + tail).encode()
    path = "/v1/chat/completions" if "messages" in head else "/v1/completions"
    silence = []
    while len(silence) < (4 if TIMED else 1) and (silence == [] or min(silence) >= SILENCE_S):
        with Prober(cluster.mgmt) as p:
            a = request(cluster.base + path, "POST", body, {"Content-Type": "application/json"}, timeout=120 * SLOW)
        assert 400 <= a.status < 500 and p.n_failures == 0, (a.text[:300], p.failures)
        silence.append(p.longest_s)
    print(f"{kind}: silent for {min(silence) * 1000:.0f} ms")
    assert not TIMED or min(silence) < SILENCE_S, f"{silence} s without an answer"


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenizer", "/", "/generate", "/v2/models/fable/infer", "/v2/models/fable/generate"])
def test_other_paths_too(cluster, path):
    pid = cluster.prefills[0].process.pid
    restart_peak(pid)
    before = peak(pid)
    for kind in ("objects", "numbers", "one_name"):
        a = request(cluster.base + path, "POST", WORST[kind].replace(b'"x":', b'"inputs":'), {"Content-Type": "application/json"})
        assert 400 <= a.status < 500, a.text[:300]
    assert peak(pid) - before <= 8 * SIZE + (24 + SANITIZER_MB) * MB


class Unread(Daemon):
    """Its standard error is a pipe nobody reads."""

    def start(self):
        super().start()
        self.process.kill()
        self.process.wait()
        self.pipe, end = os.pipe()
        self.process = subprocess.Popen(leashed(self.command()), stdout=end, stderr=end, stdin=subprocess.DEVNULL)
        os.close(end)
        return self


def test_a_log_nobody_reads_holds_nothing_up(cluster):
    old = cluster.coordinator
    old.stop()
    conf = {**old.conf, "log_info": {"log_level": "DEBUG"}} if "log_info" in old.conf else old.conf
    cluster.coordinator = d = Unread(old.name, old.binary, conf, old.folder).start()
    try:
        wait_for(cluster.is_ready, 60 * SLOW, "the cluster ready")

        def dropped():
            text = get(cluster.external, "/metrics").text
            return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("baton_log_dropped_total"))

        bad = "/" + "x" * 900
        began = time.monotonic()
        while dropped() == 0 and time.monotonic() - began < 60 * SLOW:
            for _ in range(50):
                post(cluster.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 1})
                get(cluster.base, bad)
        assert dropped() > 0
        a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 3})
        assert a.status == 200, a.text
        began = time.monotonic()
        d.process.terminate()
        assert d.process.wait(timeout=30 * SLOW) == 0
        assert time.monotonic() - began < 3 * SLOW
    finally:
        os.close(d.pipe)
        if d.process.poll() is None:
            d.process.kill()
            d.process.wait()
        cluster.coordinator = old.start()
        wait_for(cluster.is_ready, 60 * SLOW, "the cluster ready")
