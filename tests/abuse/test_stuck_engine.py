"""Goal: an engine thread that stands still shows in its instance's status within 5 s and takes the instance out: new requests go elsewhere,
those that ran there do so too, health endpoints say it; when it gets on, the instance is back. A long prefill is no such thing.
Method: real daemons; one thread of one of them is stopped through ptrace, as a debugger does, while all others run."""
import contextlib
import ctypes
import os
import threading
import time

import pytest
from harness import READY_S, SLOW, Cluster, get, in_threads, post, wait_for

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
SHOWN_S = 5
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def engine_thread(daemon):
    folder = f"/proc/{daemon.process.pid}/task"
    for tid in os.listdir(folder):
        with open(f"{folder}/{tid}/comm") as f:
            if f.read().strip() == "engine":
                return int(tid)
    raise AssertionError("no thread called engine")


def ptrace(request, tid):
    if libc.ptrace(request, tid, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}, {tid})")


@contextlib.contextmanager
def stopped(daemon):
    """The daemon's engine thread alone stands still."""
    tid = engine_thread(daemon)
    try:
        ptrace(PTRACE_SEIZE, tid)
    except PermissionError:
        pytest.skip("this host allows no ptrace")
    ptrace(PTRACE_INTERRUPT, tid)
    os.waitpid(tid, 0x40000000)  # __WALL
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, tid)


def stuck_ms(inst):
    return inst.status()["service"].get("engineStuckMs", 0)


def booked(cluster, inst):
    return next(i["bookedSlots"] for i in cluster.status()["instances"] if i["address"].endswith(f":{inst.port}"))


def ask(base, n=8, **more):
    return post(base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": n, "temperature": 0, **more}, timeout=60 * SLOW)


def test_a_stuck_decode_engine_takes_its_instance_out():
    with Cluster(n_p=1, n_d=2) as c:
        text = ask(c.base, 400).json["choices"][0]["text"]
        wait_for(lambda: all(i["blocksFree"] == i["blocksTotal"] for i in c.status()["instances"]), READY_S, "the coordinator knows that all is free")
        d = c.decodes[0]
        answers, jobs = [], []
        with stopped(d):
            began = time.monotonic()
            jobs = [threading.Thread(target=lambda: answers.append(ask(c.base, 400))) for _ in range(4)]
            for j in jobs:
                j.start()
            wait_for(lambda: booked(c, d) > 0, SHOWN_S, "one of them is to be decoded there")
            wait_for(lambda: stuck_ms(d) > 0, SHOWN_S, "the status says it")
            assert time.monotonic() - began >= 2, "not before it is sure"
            assert get(d.mgmt, "/v2/health/live").status == 500
            assert get(d.mgmt, "/health").status == 500
            wait_for(lambda: len(c.serving("decode")) == 1, SHOWN_S, "the coordinator takes it out")
            assert c.is_ready()
            for _ in range(4):
                assert ask(c.base).status == 200
            for j in jobs:
                j.join(30 * SLOW)
            assert [a.status for a in answers] == [200] * 4, "what it had goes to the other one"
            assert {a.json["choices"][0]["text"] for a in answers} == {text}
        wait_for(lambda: stuck_ms(d) == 0, SHOWN_S, "it gets on")
        wait_for(lambda: len(c.serving("decode")) == 2, READY_S, "and is back")
        wait_for(lambda: d.load()[3] == 0, 10 * SLOW, "nothing is left of what it had")
        assert d.log().count("event=engine_stuck") == 1


def test_long_steps_are_not_stuck(whole):
    """Prefills of whole windows, many at once: steps of a second and more on a slow machine."""
    prompt = "The fox and the bear went to the pond. " * 90
    done = threading.Event()
    seen = []

    def look():
        while not done.wait(0.1):
            seen.append(stuck_ms(whole.instance))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        answers = in_threads([lambda i=i: ask(whole.base, 1, prompt=f"{i} {prompt}") for i in range(5)])
    finally:
        done.set()
        watcher.join()
    assert all(a.status == 200 for a in answers), [a.body for a in answers if a.status != 200][:1]
    assert seen and max(seen) == 0
