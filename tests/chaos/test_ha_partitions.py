"""Goal: whatever is cut between two coordinators, their etcd and each other, one way or both, with requests in both journals: at most one leads, no
order of the older one is obeyed, every client that comes back gets the rest of its stream as in a calm run, and when it has healed both are as
before. Method: network namespaces, a real etcd, streams that are under way at each cut."""
import threading
import time

import pytest
from etcd_server import LEASE_S
from net import NetHaCluster, why_not
from test_resume import ON, body, come_back, ids_of, read_broken, texts

from harness import READY_S, SLOW, Stream, in_threads, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
N, TOKENS = 12, 400
DONE = b"data: [DONE]\n\n"


class Watch:
    """Who claims to lead and is ready, asked all the while."""

    def __init__(self, c):
        self.c, self.both, self.ended = c, 0, False
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.ended:
            self.both += self.c.ready(0) and self.c.ready(1) and self.c.ready(0)
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()


@pytest.fixture(scope="module")
def c():
    with NetHaCluster(1, 2, coord=ON) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calm(c):
    return in_threads([lambda i=i: Stream(c.base, "/v1/completions", body(i, max_tokens=TOKENS)).read_all() for i in range(N)])


def leader_of(c):
    lead = 0 if c.ready(0) else 1
    c.use(lead)
    wait_for(lambda: c.ha(1 - lead).get("journal", {}).get("synced"), READY_S, "the other has a copy")
    return lead


def begun(c):
    streams = in_threads([lambda i=i: Stream(c.base, "/v1/completions", body(i, max_tokens=TOKENS)) for i in range(N)])
    in_threads([lambda s=s: s.read_until(3) for s in streams])
    return streams


def finish(c, streams, at, deadline_s=120):
    """All of each stream; what broke goes on at coordinator `at`. Returns (streams, how many broke)."""
    got = in_threads([lambda s=s: read_broken(s) for s in streams])
    n = sum(not g.endswith(DONE) for g in got)
    deadline = time.monotonic() + deadline_s * SLOW
    return in_threads([lambda i=i, g=g: g if g.endswith(DONE) else come_back(f"http://{c.address(at)}", "/v1/completions", body(i, max_tokens=TOKENS), g, deadline)
                       for i, g in enumerate(got)]), n


def are_as(raw, calm, what):
    for i, (now, before) in enumerate(zip(raw, calm)):
        assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(DONE), (what, i, now[-300:])
        assert texts(now) == texts(before), (what, i)


def both_well(c, lead):
    wait_for(lambda: c.ready(lead) and c.ha(1 - lead).get("leader") == c.address(lead), READY_S, "one leads, the other follows")
    wait_for(lambda: c.ha(1 - lead).get("journal", {}).get("synced"), READY_S, "the copy is whole again")
    c.use(lead)
    wait_for(c.all_serve, READY_S, "all instances serve")


def test_between_the_coordinators(c, calm):
    """Nothing for clients; what ran meanwhile is in the copy when it has healed, so the leader may die then."""
    for how in ("both", "leader to standby", "standby to leader"):
        lead = leader_of(c)
        here, there = c.coordinators[lead], c.coordinators[1 - lead]
        with Watch(c) as w:
            streams = begun(c)
            c.cut(*((there, here) if how == "standby to leader" else (here, there)), both=how == "both")
            wait_for(lambda: c.ha(lead)["journal"]["copiesSynced"] == 0 or not c.ha(1 - lead).get("journal", {}).get("synced"), READY_S, "the copy is away")
            more = begun(c)
            assert c.ready(lead), how
            c.heal(here, there)
            both_well(c, lead)
            here.kill()
            took = c.took_over(1 - lead, time.monotonic())
            for kind in (streams, more):
                raw, n = finish(c, kind, 1 - lead)
                are_as(raw, calm, how)
                print(f"{how}: {n} of {N} streams broke when the leader died; another one after {took:.2f} s")
        assert w.both == 0, how
        c.both_again(lead)
        both_well(c, 1 - lead)


def test_the_leader_loses_etcd(c, calm):
    """It steps down before its lease ends there, and the other one goes on with its streams; healed, it stands by."""
    for both in (True, False):
        lead = leader_of(c)
        here = c.coordinators[lead]
        with Watch(c) as w:
            streams = begun(c)
            began = time.monotonic()
            c.cut(here, c.etcd, both=both)
            took = c.took_over(1 - lead, began)
            raw, n = finish(c, streams, 1 - lead)
            are_as(raw, calm, both)
            c.heal(here, c.etcd)
            both_well(c, 1 - lead)
        print(f"etcd away, {'both ways' if both else 'one way'}: another one after {took:.2f} s, lease {LEASE_S} s; {n} of {N} streams broke")
        assert w.both == 0 and took <= LEASE_S + 1 + 2 * SLOW, both


def test_the_leader_loses_etcd_and_the_other_one(c, calm):
    """Only clients and instances are left to it: the instances obey the other one, whose term is higher."""
    lead = leader_of(c)
    here, there = c.coordinators[lead], c.coordinators[1 - lead]
    term = c.ha(lead)["term"]
    with Watch(c) as w:
        streams = begun(c)
        began = time.monotonic()
        for other in (c.etcd, there):
            c.cut(here, other)
        took = c.took_over(1 - lead, began)
        raw, n = finish(c, streams, 1 - lead)
        are_as(raw, calm, "alone")
        assert c.ha(1 - lead)["term"] > term
        for other in (c.etcd, there):
            c.heal(here, other)
        both_well(c, 1 - lead)
    print(f"alone: another one after {took:.2f} s, {n} of {N} streams broke")
    assert w.both == 0
    assert all(t == sorted(t) for t in c.terms())


def test_the_standby_loses_etcd(c, calm):
    """Nobody notices; the leader's death then is healed when the standby can ask again."""
    lead = leader_of(c)
    there = c.coordinators[1 - lead]
    with Watch(c) as w:
        c.cut(there, c.etcd)
        streams = begun(c)
        wait_for(lambda: c.ha(1 - lead).get("etcdTrouble"), READY_S, "it says so")
        assert c.ready(lead)
        c.coordinators[lead].kill()
        time.sleep(LEASE_S + 1)
        assert not c.ready(1 - lead)
        c.heal(there, c.etcd)
        c.took_over(1 - lead, time.monotonic())
        raw, _ = finish(c, streams, 1 - lead)
        are_as(raw, calm, "standby")
    assert w.both == 0
    c.both_again(lead)
