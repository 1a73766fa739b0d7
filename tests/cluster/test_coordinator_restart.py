"""Goal: a coordinator that is started again finds the cluster as it was: ready within two seconds, no role and no link touched, ids as before; what ran
for the clients of the old one ends on the instances, and nothing of it reaches the new one; what operators have ordered stands.
Method: SIGKILL and SIGTERM of the coordinator with streams open, with a rank table and with instances that register; time from the start of the
process; the instances' logs.
"""
import json
import re
import time

import pytest
from deaths import within
from families import made_up_ids
from harness import READY_S, SLOW, Cluster, Stream, post, wait_for
from test_roles import batonctl

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
    """Starts the coordinator, also one that runs; seconds until it is ready."""
    if cluster.coordinator.alive():
        cluster.coordinator.kill()
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
    within(2 * SLOW, lambda: again(cluster))
    wait_for(cluster.all_serve, 10 * SLOW, "all serve")
    wait_for(lambda: all(load and load[2:] == (0, 0, 0) for load in cluster.loads()), 10 * SLOW, "nothing runs for clients that are gone")
    assert ids(cluster) == before
    assert [touched(i) for i in cluster.instances] == marks
    log = cluster.coordinator.log().rsplit("event=listening", 1)[1]
    assert "bad_frame" not in log and "event=taken" not in log
    a = post(cluster.base, "/v1/completions", {**BODY, "stream": False, "max_tokens": 5})
    assert a.status == 200 and a.json["usage"]["completion_tokens"] == 5
    for s in streams:
        s.abandon()


def test_an_order_to_drain_survives(cluster):
    """It is the operator's, not the coordinator's: who was drained stays drained, until it is taken back; and that survives as well."""
    d = cluster.decodes[0]
    address = f"127.0.0.1:{d.port}"

    def row():
        return next((i for i in cluster.status()["instances"] if i["address"] == address), {"state": "not there yet"})

    def knows(drained):
        status = d.status()
        return status["service"]["roleStatus"] == "RoleReady" and status["orders"].get("drained", False) == drained

    def ask():
        return [post(cluster.base, "/v1/completions", {**BODY, "stream": False, "max_tokens": 2}).status for _ in range(8)]

    before = ids(cluster)
    assert batonctl(cluster, "drain", address).returncode == 0
    wait_for(lambda: row()["state"] == "drained" and knows(True), 5 * SLOW, "drained")
    marks = [touched(i) for i in cluster.instances]
    again(cluster)
    wait_for(lambda: row()["state"] == "drained" and ids(cluster) == before, 5 * SLOW, "drained as before")
    assert row()["draining"] == "order"
    assert ask() == [200] * 8
    assert all(r["d"] != row()["id"] for r in cluster.status()["recentRequests"][:8])
    assert [touched(i) for i in cluster.instances] == marks
    assert batonctl(cluster, "undrain", address).returncode == 0
    wait_for(lambda: row()["state"] == "serving" and knows(False), 5 * SLOW, "serves again")
    marks = [touched(i) for i in cluster.instances]
    again(cluster)
    wait_for(cluster.all_serve, 5 * SLOW, "all serve")
    assert "draining" not in row()
    assert [touched(i) for i in cluster.instances] == marks


def test_a_coordinator_that_stays_away(cluster):
    """Nobody will ever read what runs: it ends with the lease, and the cluster is ready when a coordinator comes."""
    before = ids(cluster)
    streams = [Stream(cluster.base, "/v1/completions", {**BODY, "min_tokens": 900}) for _ in range(8)]
    for s in streams:
        s.read_until(2)
    cluster.coordinator.kill()
    wait_for(lambda: all(load and load[2:] == (0, 0, 0) for load in cluster.loads()), (GRACE_S + 3) * SLOW, "nothing runs for nobody")
    within(2 * SLOW, lambda: again(cluster))
    wait_for(cluster.all_serve, 5 * SLOW, "all serve")
    assert ids(cluster) == before
    for s in streams:
        s.abandon()


def test_a_state_folder(tmp_path):
    """What the coordinator has written is there when nobody else remembers: id, role and the order of an instance that was killed with it."""
    with Cluster(1, 2, coord={"pd": {"state_dir": str(tmp_path)}}) as c:
        d = c.decodes[0]
        address = f"127.0.0.1:{d.port}"

        def row():
            return next(i for i in c.status()["instances"] if i["address"] == address)

        before = ids(c)
        assert batonctl(c, "drain", address).returncode == 0
        c.coordinator.kill()
        d.kill()
        state = json.loads((tmp_path / "coordinator-state.json").read_text().splitlines()[0])
        assert {(i["id"], i["role"]) for i in state["instances"]} == set(before.values())
        assert [i["id"] for i in state["instances"] if i["drained"]] == [before[address][0]]
        d.start()
        assert again(c) < READY_S
        wait_for(lambda: row()["state"] == "drained" and row()["role"] == "decode", READY_S, "drained as before")
        assert ids(c) == before
        later = json.loads((tmp_path / "coordinator-state.json").read_text().splitlines()[0])
        assert int(later["term"]) > int(state["term"])
        assert batonctl(c, "undrain", address).returncode == 0
        wait_for(c.all_serve, 5 * SLOW, "all serve")
