"""Goal: whatever TCP does between the coordinator and an instance - delay, a trickle, silence, resets in the middle of a frame - every client gets the
answer it would have had, or one error that names the stage that took too long; each piece of an answer comes exactly once.
Method: one P and one D of two behind TCP proxies (tcp_proxy.py), streams and large answers compared with those given in peace."""
import contextlib
import re
import threading
import time

import pytest
from families import made_up_ids, normal
from load import Clients, counts, learn, questions
from tcp_proxy import Behind

from harness import ANSWER_S, SLOW, Cluster, Stream, in_threads, post, wait_for

pytestmark = pytest.mark.slow
SILENCE_S, FIRST_S = 2, 12
STREAM = {"model": "fable", "max_tokens": 700, "ignore_eos": True, "temperature": 0.9, "seed": 5, "stream": True}
LARGE = {"model": "fable", "messages": [{"role": "user", "content": "Tell me of everything"}], "n": 4, "max_tokens": 250, "logprobs": True,
         "top_logprobs": 20, "temperature": 1.0, "seed": 7, "ignore_eos": True}


@pytest.fixture(scope="module")
def made():
    """The cluster, and its first P and first D behind proxies."""
    limits = {"coordinator": {"exception_config": {"first_token_timeout": FIRST_S * SLOW}}, "pd": {"decode_silence_s": SILENCE_S * SLOW, "breaker_faults": 0}}
    cluster = Cluster(2, 2, coord=limits, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}})
    p, d = Behind(cluster, cluster.prefills[0]), Behind(cluster, cluster.decodes[0])
    try:
        with cluster:
            yield cluster, p, d
    finally:
        p.close()
        d.close()


@pytest.fixture
def net(made):
    """As made, whole at the beginning and at the end, with nothing left of what ran."""
    cluster, p, d = made
    wait_for(cluster.all_serve, 20 * SLOW, "all serve")
    failed = cluster.status()["coordinator"]["requestsFailed"]
    cluster.n_failed = lambda: cluster.status()["coordinator"]["requestsFailed"] - failed
    yield cluster, p, d
    p.calm()
    d.calm()
    wait_for(cluster.all_serve, 20 * SLOW, "all serve again")
    wait_for(lambda: cluster.status()["coordinator"]["requestsInFlight"] == 0, 10 * SLOW, "nothing is in flight")
    wait_for(lambda: all(load and load[2:] == (0, 0, 0) for load in cluster.loads()), 10 * SLOW, "nothing runs")


def body(i, **more):
    return {**STREAM, "prompt": made_up_ids(24, 500 + i), **more}


def ask(cluster, i, **more):
    s = Stream(cluster.base, "/v1/completions", body(i, **more))
    assert s.status == 200, s.read_all()
    return normal(s.read_all(), False)


@pytest.fixture(scope="module")
def calm(made):
    return in_threads([lambda i=i: ask(made[0], i) for i in range(8)])


@contextlib.contextmanager
def under_way(cluster, calm):
    """Eight streams that have begun when the body runs; all must be those of peace."""
    streams = [Stream(cluster.base, "/v1/completions", body(i)) for i in range(len(calm))]
    for s in streams:
        s.read_until(2)
    yield streams
    for s, want in zip(streams, calm):
        assert normal(s.read_all(), False) == want


def test_a_delay_is_no_alarm(net, calm):
    cluster, p, d = net
    before = counts(cluster)["requestsRetried"]
    for b in (p, d):
        b.business.delay_s = b.management.delay_s = 0.1
    assert in_threads([lambda i=i: ask(cluster, i) for i in range(8)]) == calm
    assert counts(cluster)["requestsRetried"] == before and cluster.n_failed() == 0
    assert cluster.all_serve()


def test_p_is_done_before_d_is_heard_and_the_reverse(net, calm):
    """P's answer long before D's first piece, and all of D's pieces before P's answer."""
    cluster, p, d = net
    for late in (p, d):
        late.business.delay_s = 1.0
        assert in_threads([lambda i=i: ask(cluster, i) for i in range(8)]) == calm
        late.calm()
    assert cluster.n_failed() == 0


@pytest.mark.parametrize("after", [150, 1000, 40000])
def test_resets_inside_a_frame(net, calm, after):
    """The result stream ends again and again after so many bytes, mostly inside a frame or its head."""
    cluster, _, d = net
    with under_way(cluster, calm):
        d.business.only, d.business.reset_after = b"GET /dresult", after
        d.business.reset()
        before = d.business.n_resets
        if after < 40000:
            wait_for(lambda: d.business.n_resets > before + 2 or counts(cluster)["requestsInFlight"] == 0, ANSWER_S, "it is reset inside a frame")
    assert d.business.n_resets >= before
    assert cluster.n_failed() == 0


def test_a_large_answer_over_a_stream_that_breaks(net):
    """Frames of 256 KiB of an answer of over a megabyte, over connections of which none has more than one of them: exactly once, since each
    goes on where the last one was."""
    cluster, _, d = net
    want = normal(post(cluster.base, "/v1/chat/completions", LARGE).body, False)
    assert len(want) > 1 << 20
    d.business.only, d.business.reset_after = b"GET /dresult", 300000
    resets = d.business.n_resets
    got = [normal(post(cluster.base, "/v1/chat/completions", LARGE).body, False) for _ in range(6)]
    assert got == [want] * 6
    assert d.business.n_resets > resets, "no frame was hit"
    assert cluster.n_failed() == 0


def test_resets_of_the_result_stream_at_random_times(net, calm):
    cluster, _, d = net
    over = threading.Event()

    def strike():
        d.business.only = b"GET /dresult"
        while not over.wait(0.15):
            d.business.reset()

    t = threading.Thread(target=strike, daemon=True)
    t.start()
    try:
        for _ in range(3):
            assert in_threads([lambda i=i: ask(cluster, i) for i in range(8)]) == calm
    finally:
        over.set()
        t.join()
    assert cluster.n_failed() == 0


def test_resets_inside_the_answer_of_p(net, calm):
    """The other P does it again."""
    cluster, p, _ = net
    retried = counts(cluster)["requestsRetried"]
    p.business.only, p.business.reset_after = b"req-type", 60
    assert in_threads([lambda i=i: ask(cluster, i) for i in range(8)]) == calm
    assert p.business.n_resets > 0 and counts(cluster)["requestsRetried"] > retried
    assert cluster.n_failed() == 0


def test_d_trickles(net, calm):
    """A byte a second on the result stream: what has no piece for decode_silence_s goes on elsewhere."""
    cluster, _, d = net
    began = time.monotonic()
    with under_way(cluster, calm):
        d.business.only, d.business.down_rate = b"GET /dresult", 1
    print(f"a trickle of D: {time.monotonic() - began:.1f} s")
    lost = [a["cause"] for r in cluster.status()["recentRequests"][:8] for a in r["lostAttempts"]]
    assert lost and set(lost) <= {"d_silent", "d_lost"}, lost
    assert cluster.n_failed() == 0


def test_p_trickles(net):
    """A byte a second of P's answers: an error that names the first token, in its time; what the other P has is not hurt."""
    cluster, p, _ = net
    p.business.only, p.business.down_rate = b"req-type", 1
    began = time.monotonic()
    answers = in_threads([lambda i=i: post(cluster.base, "/v1/completions", {**body(i), "stream": False, "max_tokens": 3}) for i in range(6)])
    took = time.monotonic() - began
    print(f"a trickle of P: {[a.status for a in answers]} after {took:.1f} s")
    late = [a for a in answers if a.status != 200]
    assert late and len(late) < len(answers)
    assert all("first token timeout" in a.text for a in late), [a.text for a in late]
    assert took < (FIRST_S + 4) * SLOW


@pytest.mark.parametrize("side", ["p", "d"])
@pytest.mark.parametrize("what", ["all", "business"])
def test_half_open(net, calm, side, what):
    """Connections stand, and nothing passes: of the whole instance, or of its business plane alone while its polls are answered."""
    cluster, p, d = net
    hit = p if side == "p" else d
    began = time.monotonic()
    with under_way(cluster, calm):
        hit.business.silent = True
        hit.management.silent = what == "all"
        more = in_threads([lambda i=i: ask(cluster, i) for i in range(8)])
        assert more == calm
    took = time.monotonic() - began
    print(f"half-open {side} {what}: {took:.1f} s; {hit.row(cluster)['state']}")
    assert took < 20 * SLOW
    assert cluster.n_failed() == 0


def test_chaos_of_the_wire(net):
    """Clients of all families while the wire of one P and one D does one thing after the other."""
    cluster, p, d = net
    asked = questions(21, 34)
    learn(cluster.base, asked)
    with Clients(cluster.base, asked, 8, 2) as clients:
        for hit in (p, d, p, d):
            hit.business.reset()
            time.sleep(0.5)
            hit.business.delay_s = 0.2
            time.sleep(1)
            hit.business.silent = hit.management.silent = True
            time.sleep(3)
            hit.calm()
            wait_for(cluster.all_serve, 20 * SLOW, "all serve")
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])
    print(f"{clients.n_right} answers, longest {clients.longest_s:.1f} s")
    log = cluster.coordinator.log()
    assert not re.search(r"event=bad_frame", log)
