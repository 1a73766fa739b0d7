"""Goal: hours of kills, freezes and clients who leave cost no process memory, descriptors or threads. Method: a load that is the same in every
round, one P and one D that are killed or frozen in each, and what /proc says of the coordinator and of the P and D that live through all of it, when
everything is idle again. CHAOS_SECONDS chooses how long."""
import os
import random
import threading
import time

import pytest
from faults import freeze, kill
from load import Clients, balance, held, learn, questions

from harness import SLOW, Cluster, Stream, wait_for

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("CHAOS_SECONDS", "600"))
ROUND_S = 8
ROUNDS_MIN = 9
GROWTH_KIB = 2048  # of a third of the rounds over the one before it; a leak of 4 KiB a request is more
SETTLE_S = 10 * SLOW
REST_S = 10  # an instance keeps answers for a listener that comes back: 16 heartbeats, and until the next look at its heap


def leavers(cluster, asked, over, seed):
    """A client that goes away in the middle, again and again."""
    rng = random.Random(seed)
    streams = [q for q in asked if q.mode.stream]
    while not over.is_set():
        q = rng.choice(streams)
        s = Stream(cluster.base, q.mode.path, q.body)
        for _ in range(rng.randrange(4)):
            s.read_some()
        s.abandon()


def one_round(cluster, asked, n, rng):
    over = threading.Event()
    gone = threading.Thread(target=leavers, args=(cluster, asked, over, n), daemon=True)
    with Clients(cluster.base, asked, 8, 77) as clients:  # the same in every round
        gone.start()
        end = time.monotonic() + ROUND_S
        for victim in (cluster.prefills[1], cluster.decodes[1]):
            rng.choice([kill, freeze])(cluster, victim, rng)
        time.sleep(max(0.0, end - time.monotonic()))
        over.set()
        gone.join()
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])
    return clients.n_right


def test_nothing_grows():
    asked, rng = questions(41, 51), random.Random(41)
    with Cluster(2, 2) as cluster:
        lasting = [cluster.coordinator, cluster.prefills[0], cluster.decodes[0]]
        learn(cluster.base, asked)
        idle, pids = [d.load() for d in lasting[1:]], [d.process.pid for d in lasting]
        seen = {d.name: [] for d in lasting}
        began, n_right, rounds = time.monotonic(), 0, 0
        while rounds < ROUNDS_MIN or time.monotonic() - began < SECONDS:
            n_right += one_round(cluster, asked, rounds, rng)
            rounds += 1
            balance(cluster)
            wait_for(lambda: [d.load()[0] for d in lasting[1:]] == [i[0] for i in idle] and all(d.load()[2:] == (0, 0, 0) for d in lasting[1:]),
                     SETTLE_S, "all slots are free")
            time.sleep(REST_S)
            for d in lasting:
                seen[d.name].append(held(d))
        assert [d.process.pid for d in lasting] == pids
        third = rounds // 3
        for name, rows in seen.items():
            for what, i, more in (("KiB", 0, GROWTH_KIB), ("descriptors", 1, 4), ("threads", 2, 0)):
                middle, last = sorted(r[i] for r in rows[third:2 * third])[third // 2], sorted(r[i] for r in rows[-third:])[third // 2]
                print(f"{name}: {what} {rows[0][i]} first, {middle} middle, {last} last")
                assert last <= middle + more, f"{name} grows: {what} {[r[i] for r in rows]}"
        n = balance(cluster)
        assert n["requestsCancelled"] > rounds and n["requestsFailed"] == 0
        print(f"{rounds} rounds, {n_right} right answers, {n['requestsCancelled']} left, {n['requestsRetried']} attempts lost")
