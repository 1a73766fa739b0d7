"""Goal: where memory or threads are refused, a daemon says so, at its start and in its answers; nothing crashes, nothing is answered that is
not whole, and afterwards everything is as before. Method: daemons under a library that refuses what the test wants (scarce.c): each thread of
a start, and one of so many allocations while requests of all families run."""
import contextlib
import http.client
import re
import threading
import time

import pytest
from harness import SLOW, Cluster, Instance, Standalone, free_ports, post, wait_for
from scarce import Scarce, not_with_sanitizers

pytestmark = not_with_sanitizers
MEASURES = re.compile(rb'"(id|created|prefill_time|decode_time_arr)":("[^"]*"|\[[^\]]*\]|[0-9.]+|null),?')
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 8}}, "required": ["a", "b"]}
CASES = [
    ("/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}),
    ("/v1/completions", {"model": "fable", "prompt": "A bird", "max_tokens": 10, "n": 2, "seed": 3, "logprobs": 2, "temperature": 0.7}),
    ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 12, "temperature": 0,
                              "stream": True}),
    ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "json"}], "max_tokens": 24, "temperature": 0,
                              "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
    ("/generate_stream", {"inputs": "The dog", "parameters": {"max_new_tokens": 10, "do_sample": False}}),
    ("/v2/models/fable/infer", {"inputs": [{"name": "input0", "shape": [1, 3], "datatype": "UINT32", "data": [5, 6, 7]}],
                                "outputs": [{"name": "output0"}], "parameters": {"max_new_tokens": 5, "do_sample": False, "temperature": 1.0}}),
]


@pytest.fixture(scope="module")
def scarce():
    with Scarce() as s:
        yield s


# ---- threads
def start_without(scarce, daemon, n):
    """True: it starts without its n-th thread; False: it ends, with an error that says so."""
    scarce.take(daemon, thread=n)
    daemon.start()
    try:
        wait_for(lambda: not daemon.alive() or "event=ready" in daemon.log(), 10, f"it starts or ends without thread {n}:\n{daemon.log()}")
        if daemon.alive():
            daemon.stop()
            return True
        assert daemon.process.returncode == 1, daemon.log()
        assert re.search(" error start .*(thread|loading|memory)", daemon.log()), daemon.log()
        return False
    finally:
        if daemon.alive():
            daemon.process.kill()
            daemon.process.wait()


def test_each_thread_of_a_start(scarce, tmp_path):
    for mode, n_threads in (("standard", 8), ("dmi", 9)):
        started = []
        for n in range(1, n_threads + 2):
            inst = Instance(f"{mode}-{n}", "decode", str(tmp_path), free_ports(3), mode, extra={"BatonConfig": {"computeThreads": 3}})
            started.append(start_without(scarce, inst, n))
        # the log's thread is one that can be done without
        assert started == [True] + [False] * (n_threads - 1) + [True], (mode, started)


def test_a_link_waits_for_its_thread(scarce):
    """nanomsg starts a thread with the first link, and ends the process when it cannot."""
    c = Cluster()
    scarce.take(c.decodes[0], thread=8)
    with c:
        assert post(c.base, *CASES[0]).status == 200
        assert scarce.count(c.decodes[0], "n_threads") > 8


# ---- memory
def said(base, case):
    """(status, what was said but for ids and times)"""
    a = post(base, *case, timeout=30)
    return a.status, MEASURES.sub(b"", a.body)


class Requests:
    """Clients that ask for all cases in turn; every answer is an error, ends in one, is cut off, or is the one that was given in calm."""

    def __init__(self, base, calm):
        self.base, self.calm, self.right, self.errors, self.wrong, self.end = base, calm, 0, 0, [], False
        self.slowest = 0.0

    def run(self, i):
        while not self.end:
            i += 1
            began = time.monotonic()
            try:
                status, body = said(self.base, CASES[i % len(CASES)])
            except (OSError, http.client.HTTPException):  # closed: a connection for which there is no memory
                self.errors += 1
                continue
            finally:
                self.slowest = max(self.slowest, time.monotonic() - began)
            if status == 200 and body == self.calm[i % len(CASES)][1]:
                self.right += 1
            elif status >= 500 or (status == 200 and b'"error"' in body):
                self.errors += 1
            else:
                self.wrong.append((status, CASES[i % len(CASES)][0], body[:300], body[-200:]))

    def __enter__(self):
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(4)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.end = True
        for t in self.threads:
            t.join()


def refuse_memory(scarce, base, instances, starved, one_in, seed, seconds, least=1):
    """One of one_in allocations of the starved daemons fails for so long, in which at least so many requests are answered. Then all is as before.
    A coordinator tries again and again, which takes its time, but none of its answers takes long."""
    def serves():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return said(base, CASES[0])[0] == 200
        return False

    calm = [said(base, c) for c in CASES]
    assert [s for s, _ in calm] == [200] * len(CASES), calm
    loads = [i.idle() for i in instances]
    with Requests(base, calm) as r:
        for d in starved:
            scarce.set(d, seed=seed, one_in=one_in)
        time.sleep(seconds)
        for d in starved:
            scarce.set(d, one_in=0)
    why = f"seed {seed}, one in {one_in}: {r.right} right, {r.errors} errors"
    assert all(d.alive() for d in starved), why + "".join(d.log()[-2000:] for d in starved)
    assert not r.wrong, (why, r.wrong[:3])
    assert all(scarce.count(d, "n_failed") > 0 for d in starved) and r.right + r.errors >= least and r.slowest < 10 * SLOW, f"{why}, {r.slowest:.1f} s"
    wait_for(serves, 20, why + ": it serves again")
    wait_for(lambda: [i.load() for i in instances] == loads, 20, f"{why}: {[i.load() for i in instances]} become {loads} again")
    assert [said(base, c) for c in CASES] == calm


@pytest.mark.slow
def test_memory_of_a_whole_instance(scarce):
    s = Standalone()
    scarce.take(s.instance)
    with s:
        refuse_memory(scarce, s.base, [s.instance], [s.instance], 200, 1, 2, 20 // SLOW)


@pytest.fixture(scope="module")
def starving(scarce):
    c = Cluster()
    for d in c.daemons:
        scarce.take(d)
    with c:
        yield c


@pytest.mark.slow
def test_memory_of_a_pair(scarce, starving):
    for d in starving.daemons:
        refuse_memory(scarce, starving.base, starving.instances, [d], 300, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_memory_again_and_again(scarce, starving, seed):
    for one_in in (2000, 300, 60):
        for starved in [*([d] for d in starving.daemons), starving.daemons]:
            refuse_memory(scarce, starving.base, starving.instances, starved, one_in, seed, 3)


@pytest.mark.slow
def test_each_allocation_of_a_start(scarce, tmp_path):
    """The n-th from the start of the process: it ends with an error, or serves."""
    n = 1
    while True:
        inst = Instance(f"standard-{n}", "decode", str(tmp_path), free_ports(3), "standard")
        scarce.take(inst, nth=n)
        inst.start()
        wait_for(lambda: not inst.alive() or "event=ready" in inst.log(), 20, f"allocation {n}: it starts or ends:\n{inst.log()}")
        if inst.alive():
            inst.stop()
        else:
            assert inst.process.returncode in (1, 2) and inst.log().strip(), f"allocation {n}: {inst.process.returncode}\n{inst.log()}"
        if scarce.count(inst, "n_failed") == 0:
            return
        n += 1 + n // 20  # all of the first, then one in so many
