"""Goal: a coordinator that is started again finds the cluster as it was: ready within two seconds, no role and no link touched, ids as before; what ran
for the clients of the old one ends on the instances, and nothing of it reaches the new one.
Method: SIGKILL and SIGTERM of the coordinator with streams open, with a rank table and with instances that register; time from the start of the
process; the instances' logs.
"""
import re
import time

import pytest
from families import made_up_ids
from harness import SLOW, Cluster, Stream, post, wait_for

BODY = {"model": "fable", "prompt": made_up_ids(30, 9), "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}

GRACE_S = 2


@pytest.fixture(scope="module", params=["rank table", "registered"])
def cluster(request):
    with Cluster(2, 2, register=request.param == "registered", extra={"BatonConfig": {"listenerGraceSeconds": GRACE_S}}) as c:
        yield c


def ids(cluster):
    return {i["address"]: (i["id"], i["role"]) for i in cluster.status()["instances"]}


def touched(instance):
    """How often its role was posted or its links changed."""
    return len(re.findall(r" role from=| kv_link peer=\d+ .*state=", instance.log()))


def again(cluster):
    """Starts the coordinator; seconds until it is ready."""
    began = time.monotonic()
    cluster.coordinator.start()
    wait_for(cluster.is_ready, 30 * SLOW, "ready again")
    return time.monotonic() - began


@pytest.mark.parametrize("away_s", [0, 1])
def test_killed_with_streams_open(cluster, away_s):
    before, marks = ids(cluster), [touched(i) for i in cluster.instances]
    assert min(marks) >= 4  # a role that became ready, and a link to each peer
    streams = [Stream(cluster.base, "/v1/completions", BODY) for _ in range(4)]
    for s in streams:
        s.read_until(2)
    cluster.coordinator.kill()
    time.sleep(away_s)
    took = again(cluster)
    wait_for(cluster.all_serve, 5 * SLOW, "all serve")
    assert took < 2 * SLOW, took
    wait_for(lambda: all(load[2:] == (0, 0, 0) for load in cluster.loads()), 2 * SLOW, "nothing runs for clients that are gone")
    assert ids(cluster) == before
    assert [touched(i) for i in cluster.instances] == marks
    log = cluster.coordinator.log().rsplit("event=listening", 1)[1]
    assert "bad_frame" not in log and "event=taken" not in log
    a = post(cluster.base, "/v1/completions", {**BODY, "stream": False, "max_tokens": 5})
    assert a.status == 200 and a.json["usage"]["completion_tokens"] == 5
    for s in streams:
        s.abandon()


def test_a_coordinator_that_stays_away(cluster):
    """Nobody will ever read what runs: it ends with the lease, and the cluster is ready when a coordinator comes."""
    before = ids(cluster)
    streams = [Stream(cluster.base, "/v1/completions", {**BODY, "min_tokens": 900}) for _ in range(8)]
    for s in streams:
        s.read_until(2)
    cluster.coordinator.kill()
    wait_for(lambda: all(load[2:] == (0, 0, 0) for load in cluster.loads()), (GRACE_S + 1) * SLOW, "nothing runs for nobody")
    assert again(cluster) < 2 * SLOW
    wait_for(cluster.all_serve, 5 * SLOW, "all serve")
    assert ids(cluster) == before
    for s in streams:
        s.abandon()
