"""Goal: a prefill instance that has lost one of its links takes no more than its share, and no decode instance starves for it; with all links two
share evenly. Method: two of each in network namespaces, a cut between one P and one D, clients who come one by one and at once; who served what is
in the coordinator's record of requests."""
import collections

import pytest
from net import NetCluster, why_not

from harness import SLOW, in_threads, post, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

N, CLIENTS = 96, 6


@pytest.fixture(scope="module")
def cluster():
    with NetCluster(2, 2, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}}) as c:
        yield c


def ask(cluster, i):
    a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": f"Number {i} of many: once upon a time", "max_tokens": 4, "ignore_eos": True})
    assert a.status == 200, a.text


def shares(cluster, at_once):
    """What part of N requests each address served."""
    if at_once:
        in_threads([lambda k=k: [ask(cluster, 1000 * k + i) for i in range(N // CLIENTS)] for k in range(CLIENTS)])
    else:
        for i in range(N):
            ask(cluster, i)
    s = cluster.status()
    last = s["recentRequests"][:N]
    assert len(last) == N
    where = {i["id"]: i["address"].rsplit(":", 1)[0] for i in s["instances"]}
    return [{a: n / N for a, n in collections.Counter(where[r[k]] for r in last).items()} for k in ("p", "d")]


def links_down(cluster):
    return sum(x["link"] != "ok" for i in cluster.status()["instances"] for x in i["links"])


@pytest.mark.parametrize("at_once", [False, True])
def test_all_links(cluster, at_once):
    p, d = shares(cluster, at_once)
    assert len(p) == 2 and all(0.4 <= part <= 0.6 for part in p.values()), p
    assert len(d) == 2 and all(part >= (0.15 if at_once else 0.05) for part in d.values()), d  # as in tests/abuse/test_balance.py


@pytest.mark.parametrize("at_once", [False, True])
def test_one_link_down(cluster, at_once):
    lame, lost = cluster.prefills[0], cluster.decodes[0]
    cluster.cut(lame, lost, both=True)
    try:
        wait_for(lambda: links_down(cluster) > 0, 10 * SLOW, "the cut is seen")
        p, d = shares(cluster, at_once)
    finally:
        cluster.heal(lame, lost)
    wait_for(lambda: links_down(cluster) == 0, 10 * SLOW, "the link is back")
    print(f"p {p}, d {d}")
    address = cluster.hosts[lame.name].address
    assert p.get(address, 0) <= 0.55, p
    assert len(d) == 2 and all(part >= (0.15 if at_once else 0.05) for part in d.values()), d  # as in tests/abuse/test_balance.py
