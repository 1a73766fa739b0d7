"""Goal: a cut between any two processes, one way or both, costs clients a pause; it is seen within two seconds, and when it has healed nothing stays
behind. Method: daemons in network namespaces; clients who know their answers ask all the while."""
import time

import pytest
from load import Clients, learn, questions
from net import NetCluster, can_delay, why_not

from harness import SLOW, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

SEEN_S, BACK_S = 2.5 * SLOW, 4.0 * SLOW


@pytest.fixture(scope="module")
def cluster():
    with NetCluster(2, 2) as c:
        yield c


@pytest.fixture(scope="module")
def asked(cluster):
    out = questions(7, 51)
    learn(cluster.base, out)
    return out


def all_well(cluster):
    s = cluster.status()
    return all(i["state"] == "serving" for i in s["instances"]) and all(x["link"] == "ok" for i in s["instances"] for x in i["links"])


def ends(cluster, pair):
    a, b = pair.split("-")
    of = {"C": cluster.coordinator, "P": cluster.prefills[0], "D": cluster.decodes[0]}
    return of[a], of[b]


@pytest.mark.parametrize("pair", ["C-P", "C-D", "P-D", "P>D", "D>P", "C>P", "P>C", "C>D", "D>C"])
def test_a_cut(cluster, asked, pair):
    a, b = ends(cluster, pair.replace(">", "-"))
    with Clients(cluster.base, asked, 8, 3) as clients:
        time.sleep(1)
        began = time.monotonic()
        cluster.cut(a, b, both="-" in pair)
        wait_for(lambda: not all_well(cluster), SEEN_S, f"the cut {pair} is seen")
        seen = time.monotonic() - began
        time.sleep(4)
        cluster.heal(a, b)
        healed = time.monotonic()
        wait_for(lambda: all_well(cluster), BACK_S, f"everything serves again after {pair}")
        back = time.monotonic() - healed
        time.sleep(1)
    print(f"{pair}: seen after {seen:.2f} s, back after {back:.2f} s, {clients.n_right} answers, longest {clients.longest_s:.2f} s")
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])
    assert len(cluster.serving("prefill")) == 2 and len(cluster.serving("decode")) == 2  # no role changed hands


@pytest.mark.skipif(why_not() is not None or not can_delay(), reason="this kernel has no netem")
@pytest.mark.parametrize("how", [("delay", "200ms"), ("loss", "2%"), ("delay", "100ms", "20ms", "loss", "1%")])
def test_no_false_alarm(cluster, asked, how):
    before = cluster.status()["coordinator"]["requestsRetried"]
    for host in cluster.hosts.values():
        host.shape(*how)
    try:
        with Clients(cluster.base, asked, 4, 5) as clients:
            time.sleep(20)
    finally:
        for host in cluster.hosts.values():
            host.shape()
    assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])
    assert cluster.status()["coordinator"]["requestsRetried"] == before
    wait_for(lambda: all_well(cluster), BACK_S, "everything serves")
