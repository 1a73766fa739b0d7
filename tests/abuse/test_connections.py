"""Goal: connections that do nothing, or nothing in time, shut nobody out: not other clients, not the planes without clients, not the coordinator's
own calls. Method: crowds of them on every plane, plain and with TLS, with few places and with few descriptors; counters, memory and a prober."""
import contextlib
import http.client
import resource
import socket
import time

import pytest
from attack import RECOVERY_S, SANITIZER_MB, SILENCE_S, TIMED, Crowd, Peak, Prober, crowds, descriptors, dial, head, is_closed, limits_of
from harness import SLOW, Cluster, Standalone, Stream, _doors, get, in_threads, merge, post, wait_for

FRESH = {"prometheus_metrics_config": {"reuse_time": 0}}  # what is counted shows at once
BODY = {"model": "fable", "prompt": "Once", "max_tokens": 2}


def idle(held, base, n, source=None):
    """n connections that say nothing. How many came about."""
    for _ in range(n):
        with contextlib.suppress(OSError):
            held.append(dial(base, source))
    return len(held)


def kept(held, base, n):
    """n connections that were used once, and are kept."""
    for _ in range(n):
        s = dial(base)
        s.sendall(head("/v1/models", "GET", base=base))
        s.recv(65536)
        held.append(s)


def half_heads(held, base, n):
    for _ in range(n):
        with contextlib.suppress(OSError):
            s = dial(base)
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
            held.append(s)
    return len(held)


def half_handshakes(held, base, n):
    """Plain sockets on a TLS plane, with the beginning of a record."""
    for _ in range(n):
        s = dial(base.replace("https", "http"))
        s.sendall(b"\x16\x03\x01\x02\x00\x01")
        held.append(s)


def serve(c, n=5):
    """The service as a new client finds it, and every plane."""
    for _ in range(n):
        assert post(c.base, "/v1/completions", BODY).status == 200
    assert get(c.status_base, "/v1/readiness").status == 200
    assert get(c.mgmt, "/v2/status").status == 200
    assert get(c.external, "/metrics").status == 200


@pytest.fixture(scope="module")
def few():
    """A cluster with few places and little patience."""
    limits = {"limits": {"connections": 200, "headSeconds": 2, "handshakeSeconds": 2}}
    with Cluster(coord={"pd": limits, "coordinator": FRESH}, extra={"BatonConfig": limits}) as c:
        yield c


def test_idle_connections_make_room(few):
    """On every plane, twice as many as there are places: new clients are served, and who asked last is kept longest."""
    c = few
    with Prober(c.status_base) as probe, crowds(Crowd(kept, c.base, 150)) as (old,), crowds(
            Crowd(idle, c.base, 250), Crowd(idle, c.mgmt, 200), Crowd(idle, c.external, 200), Crowd(idle, c.status_base, 200)) as (new, *_):
        serve(c)
        used = limits_of(c.external)
        assert used["connections"]["used"] <= 200 == used["connections"]["max"]
        assert used["control_connections"]["used"] <= 3 * 128
        assert used["connections_yielded"]["refused_total"] >= 200 + 3 * 72
        assert all(s["state"] == "serving" for s in c.status()["instances"])
    probe.check()
    assert sum(old.closed) >= 140 and sum(new.closed) <= 70, "the oldest go first"


def test_a_busy_connection_is_never_closed_for_a_new_one(few):
    s = Stream(few.base, "/v1/completions", {**BODY, "max_tokens": 300, "stream": True, "ignore_eos": True})
    with crowds(Crowd(idle, few.base, 400)):
        raw = s.read_all()
    assert raw.endswith(b"data: [DONE]\n\n"), raw[-200:]


def served(c):
    """A new client may find all places just taken; not for long."""
    def one():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return serve(c, 1) or True
        return False
    wait_for(one, SILENCE_S + RECOVERY_S, "served")


def n_open(c):
    """Connections of clients that the coordinator has, this one too."""
    limits = limits_of(c.external)
    return sum(limits[reason]["used"] for reason in ("connections", "control_connections"))


@pytest.mark.parametrize("plane", ["base", "status_base", pytest.param("mgmt", marks=pytest.mark.slow), pytest.param("external", marks=pytest.mark.slow)])
def test_half_heads_shut_nobody_out(few, plane):
    """More of them than there are places; each ends at its deadline, on every port."""
    base = getattr(few, plane)
    before, calm = limits_of(few.external)["head_time"]["refused_total"], n_open(few)
    with Prober(few.status_base) as probe, crowds(Crowd(half_heads, base, 260)) as (crowd,):
        for _ in range(3):
            served(few)
            time.sleep(0.3)
        wait_for(lambda: limits_of(few.external)["head_time"]["refused_total"] >= before + 50, 20 * SLOW, "their time is up")
        wait_for(lambda: n_open(few) <= calm + 3, 10 * SLOW, "everybody's time is up")  # the prober has some
        serve(few)
    assert all(crowd.closed)
    probe.check(may_fail=True)


def test_half_heads_and_idle_ones_on_an_instance(few):
    one = few.decodes[0]
    with crowds(Crowd(idle, one.mgmt, 200), Crowd(half_heads, one.mgmt, 100), Crowd(idle, one.base, 300)):
        serve(few)
        assert one.status() is not None
        used = limits_of(one.mgmt, "instance")
        assert used["control_connections"]["used"] <= 2 * 128 and used["connections"]["used"] <= 200
        assert few.all_serve()


def test_an_address_may_have_a_cap():
    with Cluster(coord={"pd": {"limits": {"connectionsPerAddress": 20}}, "coordinator": FRESH}) as c:
        mine = [s for s in [dial(c.base, "127.0.0.2") for _ in range(30)]]
        wait_for(lambda: [is_closed(s) for s in mine] == [False] * 20 + [True] * 10, 10 * SLOW, "ten are closed")
        serve(c)  # another address
        assert limits_of(c.external)["address_connections"]["refused_total"] == 10
        for s in mine[:5]:
            s.close()
        wait_for(lambda: not is_closed(again := dial(c.base, "127.0.0.2")) and again.close() is None, 5, "a place that is free again")
        others = [dial(c.mgmt, "127.0.0.2") for _ in range(30)]
        assert not any(is_closed(s) for s in others), "planes without clients have no such cap"


def test_descriptors_run_out():
    """The limit falls below what is open: idle clients are closed, and every plane answers."""
    with Cluster(coord={"coordinator": FRESH}) as c:
        serve(c)
        pid = c.coordinator.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with Prober(c.status_base) as probe, crowds(Crowd(idle, c.base, 300)):
            wait_for(lambda: descriptors(c.coordinator) > 300, 10, "all are open")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(c.coordinator), hard))
            with crowds(Crowd(idle, c.base, 100)):
                serve(c)
                assert limits_of(c.external)["descriptors"]["refused_total"] > 50
                cpu = open(f"/proc/{pid}/stat").read().split()[13:15]
                time.sleep(1)
                after = open(f"/proc/{pid}/stat").read().split()[13:15]
                assert sum(map(int, after)) - sum(map(int, cpu)) < 40 * SLOW, "it does not spin"
        probe.check()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        serve(c)


def test_a_low_limit_at_the_start_means_fewer_clients_not_fewer_planes():
    """As `ulimit -n 2048` before the daemon starts: less than three times max_requests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    c = Cluster(coord={"coordinator": {"request_limit": {"max_requests": 800}, **FRESH}})
    spawn = c.coordinator.start
    c.coordinator.start = lambda: (spawn(), resource.prlimit(c.coordinator.process.pid, resource.RLIMIT_NOFILE, (2048, 2048)))[0]
    with c:
        assert "event=few_descriptors" in c.coordinator.log() or limits_of(c.external)["connections"]["max"] <= 2400
        with crowds(Crowd(idle, c.base, 2500)):
            serve(c)
        assert soft <= hard


# ---- TLS
def shake(held, base, n):
    """n handshakes at once, as many as go, again and again for two seconds."""
    end = time.monotonic() + 2
    done = 0
    while time.monotonic() < end:
        socks = []
        for _ in range(n):
            s = socket.socket()
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.connect(("127.0.0.1", int(base.rsplit(":", 1)[1])))
            socks.append(s)
        time.sleep(0.02)
        ctx = _doors[int(base.rsplit(":", 1)[1])][0]
        tls = [ctx.wrap_socket(s, server_hostname="127.0.0.1", do_handshake_on_connect=False) for s in socks]
        for _ in range(3):
            for t in tls:
                with contextlib.suppress(OSError):
                    t.do_handshake()
        done += len(tls)
        for t in tls:
            t.close()
    return done


def test_handshakes_hold_nobody_up(tls_pair):
    c = tls_pair
    with Prober(c.status_base) as probe, crowds(Crowd(half_handshakes, c.base, 300), Crowd(half_handshakes, c.mgmt, 150)):
        with crowds(Crowd(shake, c.base, 100)) as (crowd,):
            assert crowd.said > 100
        serve(c)
    probe.check()


def test_half_handshakes_end_at_their_deadline(pki):
    with Standalone(pki=pki, extra={"BatonConfig": {"limits": {"handshakeSeconds": 1, "connections": 50}}}) as s:
        with crowds(Crowd(half_handshakes, s.base, 100)) as (crowd,):
            time.sleep(0.2)  # the last of them are young, and nobody waits longer than that
            for _ in range(3):
                assert post(s.base, "/v1/completions", BODY).status == 200
            wait_for(lambda: limits_of(s.mgmt, "instance")["handshake_time"]["refused_total"] > 10, 20 * SLOW, "their time is up")
        assert all(crowd.closed)


# ---- thousands
def slow_bodies(held, base, n):
    for _ in range(n):
        s = dial(base)
        s.sendall(head(length=60000, base=base) + b" " * 1000)
        held.append(s)


def slow_readers(held, base, n, n_tokens):
    """Streams of which nothing is read."""
    body = b'{"model": "fable", "prompt": "Once", "max_tokens": %d, "stream": true, "ignore_eos": true}' % n_tokens
    for _ in range(n):
        s = dial(base, rcvbuf=4096)
        s.sendall(head(length=len(body), base=base) + body)
        held.append(s)


def thousands(c, scale, per_idle_kb, places):
    """10,000 idle, 1,000 slow bodies and 1,000 slow readers, over scale: the coordinator's memory, and how the others were served."""
    serve(c)
    peak = Peak(c.coordinator)
    n_idle = 10000 // scale
    with Prober(c.status_base) as probe:
        with crowds(*[Crowd(idle, c.base, n_idle // 4, f"127.0.0.{i + 2}") for i in range(4)]) as many:
            assert sum(m.said for m in many) == n_idle
            idle_kb = peak.grown() * 1024 / min(n_idle, places)
            assert not TIMED or idle_kb < per_idle_kb, f"{idle_kb:.1f} KB an idle connection"
            with crowds(Crowd(slow_bodies, c.base, 1000 // scale), Crowd(slow_readers, c.base, 1000 // scale, 40)):
                answers = in_threads([lambda: post(c.base, "/v1/completions", BODY).status for _ in range(8)])
                assert answers == [200] * 8
                serve(c, 2)
    probe.check()
    assert sum(sum(m.closed) for m in many) <= max(0, n_idle + 2500 // scale - places), "who has a place keeps it"
    began = time.monotonic()
    serve(c)
    assert not TIMED or time.monotonic() - began < RECOVERY_S + 2
    wait_for(lambda: limits_of(c.external)["connections"]["used"] < 100, 30 * SLOW, "places are free again")
    return peak


@pytest.mark.parametrize("tls", [False, True])
def test_a_thousand_idle_a_hundred_slow(tls, pki):
    with Cluster(coord={"coordinator": FRESH}, pki=pki if tls else None) as c:
        peak = thousands(c, 10, 40 if tls else 4, 8192)
        assert peak.peak() < 100 + SANITIZER_MB, f"{peak.peak():.0f} MB"


@pytest.mark.slow
@pytest.mark.parametrize("who", ["plain", "keys", "certificates"])
def test_ten_thousand_idle_a_thousand_slow(who, pki):
    """Over TLS, clients have API keys, and places for all of them; or certificates too, which cost twice the memory, and the places that a TLS plane
    has by default, 8,192: who came first gives way."""
    places = 8192 if who == "certificates" else 13000
    coord = {"coordinator": {"request_limit": {"max_requests": 4000}, **FRESH}, "pd": {"limits": {"connections": places}}}
    if who == "keys":
        coord["coordinator"] = merge(coord["coordinator"], {"tls_config": {"client_certificates": "optional"}})
    c = Cluster(coord=coord, pki=None if who == "plain" else pki)
    if who == "keys":
        _doors[int(c.base.rsplit(":", 1)[1])] = (pki.context("user", cert=False), pki.headers())
    with c:
        peak = thousands(c, 1, {"plain": 3, "keys": 18, "certificates": 30}[who], places)
        print(f"{who}: {peak.peak():.0f} MB")
        assert peak.peak() < 300 + SANITIZER_MB, f"{peak.peak():.0f} MB"
