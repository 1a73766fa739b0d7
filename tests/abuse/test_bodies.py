"""Goal: no client's body costs the others their service: what bodies hold together is bounded when their heads come, a slow one ends, and one
that is late gives way.
Method: bodies that are held back, trickle or stop, beside ordinary clients; the daemon's memory, its answers and its counters."""
import contextlib
import re
import select
import time

import pytest
from attack import Crowd, Peak, Prober, RECOVERY_S, SANITIZER_MB, crowds, dial, head, limits_of, rss_mb
from harness import SLOW, Cluster, Standalone, get, post, wait_for

MIB = 1 << 20
FRESH = {"prometheus_metrics_config": {"reuse_time": 0}}  # what is counted shows at once
BODY = {"model": "fable", "prompt": "Once", "max_tokens": 2}
REFUSED = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def answer(s, deadline_s=30 * SLOW):
    """Everything until the daemon closes."""
    s.settimeout(deadline_s)
    got = b""
    try:
        while piece := s.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    return got


def words(raw):
    """(status, Retry-After or None, text) of one answer."""
    top, _, body = raw.partition(b"\r\n\r\n")
    after = re.search(rb"(?i)\r\nretry-after: (\d+)", top)
    return int(REFUSED.match(top)[1]), int(after[1]) if after else None, body.decode()


# ---- held back
def hold_back(held, base, n, size, missing):
    """n bodies of a known length, each but for its last bytes. How many were turned away."""
    refused = 0
    for _ in range(n):
        s = dial(base)
        try:
            s.sendall(head(length=size, base=base))
            left = size - missing
            while left > 0:
                left -= s.send(b" " * min(left, MIB))
        except OSError:
            refused += 1
        held.append(s)
    return refused


def test_bodies_that_are_held_back_are_bounded():
    """20 times 40 MiB less a byte: 800 MB before there was a budget."""
    with Cluster(coord={"pd": {"limits": {"bodiesInFlightMiB": 96}}, "coordinator": FRESH}) as c:
        post(c.base, "/v1/completions", BODY)
        peak = Peak(c.coordinator)
        with Prober(c.status_base) as probe, crowds(Crowd(hold_back, c.base, 20, 40 * MIB, 1)) as (crowd,):
            assert crowd.said == 18, "two of 40 MiB are in seven eighths of 96 MiB"
            used = limits_of(c.external)["body_bytes"]
            assert used["used"] == 80 * MIB and used["refused_total"] >= 18
            for _ in range(10):
                assert post(c.base, "/v1/completions", BODY).status == 200
            s = dial(c.base)  # what a client is told that finds no room
            s.sendall(head(length=30 * MIB))
            status, after, text = words(answer(s))
            assert (status, after) == (503, 1) and "limits.bodiesInFlightMiB" in text and str(96 * MIB) in text, text
        probe.check()
        assert peak.grown() < 96 + 16 + SANITIZER_MB, f"{peak.grown():.0f} MB"
        wait_for(lambda: limits_of(c.external)["body_bytes"]["used"] == 0, RECOVERY_S + 4, "the room is free again")
        assert rss_mb(c.coordinator.process.pid) - peak.start < 16 + SANITIZER_MB


def only_heads(held, base, n, size):
    for _ in range(n):
        s = dial(base)
        s.sendall(head(length=size, base=base))
        held.append(s)


def test_announced_bytes_cost_no_memory_before_they_come():
    with Cluster(coord={"coordinator": FRESH}) as c:
        post(c.base, "/v1/completions", BODY)
        peak = Peak(c.coordinator)
        with crowds(Crowd(only_heads, c.base, 5, 40 * MIB)):
            wait_for(lambda: limits_of(c.external)["body_bytes"]["used"] == 200 * MIB, 5, "all are admitted")
            assert post(c.base, "/v1/completions", BODY).status == 200
            assert peak.grown() < 4 + SANITIZER_MB, f"{peak.grown():.0f} MB"


def grow(held, base, n, chunks):
    """n chunked bodies of 64 KiB chunks without an end; how many were turned away."""
    refused = 0
    for _ in range(n):
        s = dial(base)
        s.sendall(head(more=["Transfer-Encoding: chunked"], base=base))
        with contextlib.suppress(OSError):
            for _ in range(chunks):
                s.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        s.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            refused += s.recv(12) == b"HTTP/1.1 503"
        held.append(s)
    return refused


def test_chunked_bodies_are_counted_as_they_grow():
    with Cluster(coord={"pd": {"limits": {"bodiesInFlightMiB": 16}}}) as c:
        peak = Peak(c.coordinator)
        with crowds(Crowd(grow, c.base, 20, 64)) as (crowd,):
            assert crowd.said == 17, "three of 4 MiB are in fourteen"
            assert post(c.base, "/v1/completions", BODY).status == 200
        assert peak.grown() < 16 + 8 + SANITIZER_MB, f"{peak.grown():.0f} MB"


# ---- slow
@pytest.fixture(scope="module", params=["coordinator", "instance"])
def short(request):
    """A daemon with little patience: (base, its /metrics, who it is)."""
    limits = {"limits": {"bodyGraceSeconds": 1, "bodySeconds": 4 * SLOW, "bodiesInFlightMiB": 1, "headSeconds": 2}}
    if request.param == "coordinator":
        with Cluster(coord={"pd": limits, "coordinator": FRESH}) as c:
            yield c.base, c.external, "coordinator"
    else:
        with Standalone(extra={"BatonConfig": limits}) as s:
            yield s.base, s.mgmt, "instance"


def refusals(short, reason):
    return limits_of(short[1], short[2])[reason]["refused_total"]


def test_a_body_that_stops_ends(short):
    """However fast it was before."""
    before = refusals(short, "body_rate")
    for first in (b"", b" " * 60000):
        s = dial(short[0])
        began = time.monotonic()
        s.sendall(head(length=len(first) + 100) + first)
        status, _, text = words(answer(s))
        assert status == 408 and "1024 bytes a second (limits.bodyBytesPerSecondMin)" in text, text
        assert '"error"' in text and 0.9 < time.monotonic() - began < 8 * SLOW
    assert refusals(short, "body_rate") == before + 2


@pytest.mark.slow
def test_a_body_that_trickles_has_the_least_rate(short):
    """At half the rate it is late after two graces; at four times the rate it never is, until a whole body's time is up."""
    def trickles(n):
        """Sends n bytes each tenth of a second until there is an answer: after how many seconds, and which."""
        s = dial(short[0])
        s.sendall(head(length=100000))
        began = time.monotonic()
        while not select.select([s], [], [], 0.1)[0]:
            s.sendall(b" " * n)
        return time.monotonic() - began, words(answer(s))

    took, (status, _, text) = trickles(51)
    assert status == 408 and "bodyBytesPerSecondMin" in text and 1 < took < 8 * SLOW, (took, text)
    took, (status, _, text) = trickles(409)
    assert status == 408 and "limits.bodySeconds" in text and 3.9 * SLOW < took < 10 * SLOW, (took, text)
    s = dial(short[0])
    text = b'{"model": "fable", "prompt": "Once", "max_tokens": 2' + b" " * 8000 + b"}"
    s.sendall(head(length=len(text), more=["Connection: close"]))
    for i in range(0, len(text), 409):
        s.sendall(text[i:i + 409])
        time.sleep(0.1)
    assert words(answer(s))[0] == 200


def trickle(held, base, n, size):
    for _ in range(n):
        s = dial(base)
        s.sendall(head(length=size, base=base) + b" ")
        held.append(s)
    for _ in range(60 * SLOW):
        time.sleep(0.1)
        for s in held:
            try:
                s.send(b" " * 400)
            except OSError:
                pass


def test_slow_bodies_give_way(short):
    """20 clients fill the room with bodies that come slowly, and never too slowly: after two seconds the others are served all the same."""
    base = short[0]
    crowd = Crowd(trickle, base, 20, 60000).start()
    try:
        wait_for(lambda: limits_of(short[1], short[2])["body_bytes"]["used"] > 900000, 5 * SLOW, "the room is full")
        s = dial(base)
        s.sendall(head(length=200000))
        assert words(answer(s))[0] == 503
        time.sleep(2.2)
        big = {**BODY, "prompt": "Once " + "x" * 40000}
        answers = [post(base, "/v1/completions", {**BODY, "user": "x" * 40000}).status for _ in range(5)]
        assert answers == [200] * 5, answers
        assert post(base, "/v1/completions", big).status != 503
    finally:
        crowd.process.kill()
    wait_for(lambda: limits_of(short[1], short[2])["body_bytes"]["used"] == 0, 5 * SLOW, "the room is free")
    assert refusals(short, "body_yielded") > 0


def test_a_head_has_its_time(short):
    s = dial(short[0])
    began = time.monotonic()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
    status, _, text = words(answer(s))
    assert status == 408 and "limits.headSeconds" in text and 1.9 < time.monotonic() - began < 8 * SLOW
    assert get(short[0], "/v1/models").status == 200
