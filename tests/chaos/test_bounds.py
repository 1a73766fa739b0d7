"""Goal: a restart of every instance, one after the other, costs no client anything; a machine with too much to do is not taken for a dead one; a network
that was away for a minute is in use two seconds after it is back.
Method: clients who know their answers ask all the while; SIGTERM to each instance in turn; processes that compute beside the cluster; a cut in
network namespaces.
"""
import multiprocessing
import os
import signal
import time

import pytest
from deaths import restart
from load import Clients, learn, questions
from net import NetCluster, why_not

from harness import SLOW, Cluster, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 2, coord={"pd": {"drain_soft_s": 1}}) as c:
        yield c


@pytest.fixture(scope="module")
def asked(cluster):
    out = questions(3, 51)
    learn(cluster.base, out)
    return out


def test_a_rolling_restart(cluster, asked):
    failed = cluster.status()["coordinator"]["requestsFailed"]
    with Clients(cluster.base, asked, 8, 1) as clients:
        for daemon in cluster.instances:
            daemon.kill(signal.SIGTERM)
            assert daemon.process.returncode == 0
            restart(cluster, daemon)
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])[:2000]
    assert cluster.status()["coordinator"]["requestsFailed"] == failed


def compute_for_ever():
    while True:
        pass


def test_a_loaded_machine_is_no_dead_one(cluster, asked):
    """Two processes for each core, beside the cluster's own."""
    marks = [d.log().count("faulty") + d.log().count("no heartbeat") for d in cluster.daemons]
    others = [multiprocessing.Process(target=compute_for_ever, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for p in others:
        p.start()
    try:
        with Clients(cluster.base, asked, 8, 2) as clients:
            time.sleep(20)
    finally:
        for p in others:
            p.kill()
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])[:2000]
    assert [d.log().count("faulty") + d.log().count("no heartbeat") for d in cluster.daemons] == marks


@pytest.fixture(scope="module")
def net():
    with NetCluster(2, 2) as c:
        yield c


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("between", ["C-D", "P-D"])
def test_a_minute_without_a_network(net, between):
    def all_well():
        s = net.status()
        return all(i["state"] == "serving" for i in s["instances"]) and all(x["link"] == "ok" for i in s["instances"] for x in i["links"])

    a, b = (net.coordinator if between == "C-D" else net.prefills[0]), net.decodes[0]
    net.cut(a, b)
    wait_for(lambda: not all_well(), 3 * SLOW, "the cut is seen")
    time.sleep(60)
    net.heal(a, b)
    began = time.monotonic()
    wait_for(all_well, 30 * SLOW, "everything serves again")
    assert time.monotonic() - began < 2 * SLOW
