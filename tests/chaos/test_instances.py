"""Goal: instances that stand still longer than anybody waits, the two orders in which P and D hear of a request, one role alone, connections that
idled: each costs a pause at most, or says what is missing.
Method: real daemons, clients who know their answers, the loads that instances report and the coordinator's counts before and after."""
import signal
import threading
import time

import pytest
from deaths import restart
from families import made_up_ids, normal
from load import balance, counts

from harness import READY_S, SLOW, Cluster, Stream, get, in_threads, post, wait_for

pytestmark = pytest.mark.slow
STREAM = {"model": "fable", "max_tokens": 400, "ignore_eos": True, "temperature": 0.9, "seed": 5, "stream": True}
PLAIN = {"model": "fable", "max_tokens": 64, "ignore_eos": True, "temperature": 0}


def body(i, **more):
    return {**STREAM, "prompt": made_up_ids(24, 900 + i), **more}


def whole(cluster, i):
    s = Stream(cluster.base, "/v1/completions", body(i))
    assert s.status == 200, s.read_all()
    return normal(s.read_all(), False)


@pytest.fixture(scope="module")
def four():
    """Prompts are computed eight tokens at a time, so that a long one lasts long enough to be stopped in."""
    with Cluster(2, 2, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}, "BatonConfig": {"chunkTokens": 8}}) as c:
        yield c


@pytest.fixture(scope="module")
def calm(four):
    return in_threads([lambda i=i: whole(four, i) for i in range(8)])


def test_p_is_done_before_d_knows_of_it(four, calm):
    """Both D sleep for less than three heartbeats when requests come: P has computed their prompts long before a D hears of them."""
    before = counts(four)["requestsRetried"]
    jobs = [threading.Thread(target=lambda: got.append(in_threads([lambda i=i: whole(four, i) for i in range(8)])), daemon=True)]
    got = []
    for d in four.decodes:
        d.process.send_signal(signal.SIGSTOP)
    try:
        jobs[0].start()
        time.sleep(0.7 * SLOW)  # less than a death
        waiting = [p.load() for p in four.prefills]
    finally:
        for d in four.decodes:
            d.process.send_signal(signal.SIGCONT)
    jobs[0].join(READY_S)
    assert any(w and w[2:] != (0, 0, 0) for w in waiting), f"nothing waited for D: {waiting}"
    assert got == [calm] and counts(four)["requestsRetried"] == before


def test_d_knows_of_it_before_p_is_done(four):
    """P sleeps in the middle of a long prompt, when a D has a place for it."""
    prompt = {**PLAIN, "prompt": made_up_ids(950, 77)}

    def text():
        a = post(four.base, "/v1/completions", prompt)
        assert a.status == 200, a.text
        return a.json["choices"][0]["text"]

    want, before = text(), counts(four)["requestsRetried"]
    free = [d.load()[0] for d in four.decodes]
    for _ in range(20):
        got = []
        t = threading.Thread(target=lambda: got.append(text()), daemon=True)
        t.start()
        wait_for(lambda: got or [d.load()[0] for d in four.decodes] != free, 10 * SLOW, "a D has a place for it")
        for p in four.prefills:
            p.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(0.7 * SLOW)  # less than a death
            hit = not got and all(d.load()[3] == 0 for d in four.decodes)
        finally:
            for p in four.prefills:
                p.process.send_signal(signal.SIGCONT)
        t.join(READY_S)
        assert got == [want]
        if hit:
            break
    assert hit, "P was always done before it could be stopped"
    assert counts(four)["requestsRetried"] == before


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_frozen_longer_than_the_heartbeat(four, calm, side):
    """Streams go on elsewhere while it sleeps; when it wakes it computes nothing more of theirs, gives all back, and no byte comes twice."""
    victim = getattr(four, side)[0]
    free = victim.load()
    streams = [Stream(four.base, "/v1/completions", body(i)) for i in range(8)]
    for s in streams:
        s.read_until(2)
    victim.process.send_signal(signal.SIGSTOP)
    try:
        got = in_threads([lambda s=s: normal(s.read_all(), False) for s in streams])  # all end while it sleeps
        assert got == calm
        assert in_threads([lambda i=i: whole(four, i) for i in range(8)]) == calm
    finally:
        victim.process.send_signal(signal.SIGCONT)
    wait_for(lambda: victim.load() == free, 3 * SLOW, f"slots and blocks are back at {free}, now {victim.load()}")
    wait_for(four.all_serve, 10 * SLOW, "it serves again")
    assert in_threads([lambda i=i: whole(four, i) for i in range(8)]) == calm
    balance(four)


# ---- one role alone
@pytest.mark.parametrize("left", ["prefill", "decode"])
def test_one_role_alone(left):
    """Clear 503 with the missing role in it; what D has already goes on without any P; all serves again when the role is filled."""
    with Cluster(1, 1, coord={"coordinator": {"exception_config": {"schedule_timeout": 2 * SLOW}}}) as c:
        want = whole(c, 0)
        s = Stream(c.base, "/v1/completions", body(0))
        s.read_until(3)
        gone = c.decodes[0] if left == "prefill" else c.prefills[0]
        gone.kill()
        wait_for(lambda: not c.is_ready(), 10 * SLOW, "it is not ready")
        missing = "no decode instance serves" if left == "prefill" else "no prefill instance serves"
        a = post(c.base, "/v1/completions", {**PLAIN, "prompt": "x"})
        assert a.status == 503 and int(a.headers["Retry-After"]) >= 1
        assert missing in a.text, a.text
        ready = get(c.status_base, "/v1/readiness")
        assert ready.status == 503 and {"stage": "role", "detail": missing} in ready.json["reasons"]
        if left == "decode":
            assert normal(s.read_all(), False) == want
        else:
            assert b'"error"' in s.read_all()
        restart(c, gone)
        wait_for(c.is_ready, READY_S, "ready")
        assert whole(c, 0) == want
        balance(c)


# ---- connections
def test_the_first_request_and_those_after_idle_times(four):
    """Connections of the coordinator to instances that idled, also past the instances' restarts, cost nobody a retry."""
    def timed():
        began = time.monotonic()
        assert post(four.base, "/v1/completions", {**PLAIN, "prompt": "Once", "max_tokens": 2}).status == 200
        return time.monotonic() - began

    in_threads([lambda d=d: d.kill(signal.SIGTERM) for d in four.daemons])
    for d in four.daemons:
        d.start()
    wait_for(four.is_ready, READY_S, "ready")
    first = timed()
    wait_for(four.all_serve, READY_S, "all serve")
    warm = sorted(timed() for _ in range(9))[4]
    idle = []
    for _ in range(3):
        time.sleep(5)
        idle.append(timed())
    for d in four.instances:  # what the coordinator has open to them is stale now
        d.kill(signal.SIGTERM)
        restart(four, d)
    stale = [timed() for _ in range(4)]
    print(f"first {first * 1000:.0f} ms, warm {warm * 1000:.0f}, after idle {max(idle) * 1000:.0f}, after restarts {max(stale) * 1000:.0f}")
    assert counts(four)["requestsRetried"] == 0
    assert first < 1.0 * SLOW and sorted(idle)[1] < 1.0 * SLOW and sorted(stale)[1] < 1.0 * SLOW
    balance(four)
