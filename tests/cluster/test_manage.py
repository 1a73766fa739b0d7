"""Goal: what a controller of the reference asks of a coordinator (cluster-api 6.5) is answered with its bodies and statuses, and is true: an
instance that is offline keeps what it has and gets nothing new; tasks, pairs, bookings and lengths are those of the requests under way; a
coordinator that is told to stand by refuses.
Method: the calls against a real cluster, with streams that run meanwhile.
"""
import pytest
from families import BY_NAME, made_up_ids, normal
from harness import SLOW, Cluster, Stream, get, post, wait_for

MODE = BY_NAME["completions_stream"]


@pytest.fixture(scope="module")
def three():
    with Cluster(1, 2, coord={"pd": {"drain_soft_s": 0}}) as c:
        yield c


def long(seed):
    return MODE.body(made_up_ids(30, seed), max_tokens=300, ignore_eos=True, temperature=0.8, seed=1)


def is_end(c, p, d, change=0):
    a = post(c.mgmt, "/v1/instances/query_tasks", {"p_id": p, "d_id": d, "role_change_type": change})
    assert a.status == 200
    return a.json["is_end"]


def tasks(c, *ids):
    return get(c.mgmt, "/v1/instances/tasks?" + "&".join(f"id={i}" for i in ids)).json["tasks"]


def test_offline_keeps_what_runs_and_gives_nothing_new(three):
    c = three
    p, (d1, d2) = c.serving("prefill")[0], c.serving("decode")
    calm = MODE.ask(c.base, long(91000))[2]
    before = get(c.mgmt, "/recvs_info").json
    assert before["is_master"] is True and get(c.mgmt, "/recvs_info").json["recv_flow"] == 0
    s = Stream(c.base, MODE.path, long(91000))
    s.read_until(3)
    busy = wait_for(lambda: [i for i in (d1, d2) if tasks(c, i) == [1]], 5 * SLOW, "a D has it")[0]
    other = d1 if busy == d2 else d2
    assert tasks(c, busy, 7, other, "x", p) == [1, -1, 0, -1, 0]
    assert not is_end(c, p, busy) and is_end(c, p, other) and is_end(c, p, 99)
    row = {i["id"]: i for i in get(c.mgmt, "/v1/coordinator_info").json["schedule_info"]}
    assert set(row) == {p, d1, d2} and row[busy]["allocated_slots"] == 1 and row[busy]["allocated_blocks"] > 0 and row[other]["allocated_slots"] == 0
    a = post(c.mgmt, "/v1/instances/offline", {"ids": [busy, 12345]})
    assert a.status == 200 and a.body == b""
    shown = next(i for i in c.status()["instances"] if i["id"] == busy)
    assert (shown["state"], shown["draining"]) == ("draining", "offline")
    for i in range(4):
        assert post(c.base, "/v1/completions", BY_NAME["completions"].body(made_up_ids(20, 92000 + i), max_tokens=4)).status == 200
    assert {r["d"] for r in c.status()["recentRequests"][:4]} == {other}
    assert normal(s.read_all(), False) == normal(calm, False)
    record = c.status()["recentRequests"][0]
    assert record["d"] == busy and record["lostAttempts"] == [], "drain_soft_s is 0, and it stayed"
    assert wait_for(lambda: is_end(c, p, busy), 5 * SLOW, "it is over")
    wait_for(lambda: next(i for i in c.status()["instances"] if i["id"] == busy)["state"] == "drained", 5 * SLOW, "drained")
    assert get(c.mgmt, "/recvs_info").json == {"is_master": True, "recv_flow": 5}
    assert post(c.mgmt, "/v1/instances/online", {"ids": [busy]}).status == 200
    wait_for(lambda: set(c.serving("decode")) == {d1, d2}, 5 * SLOW, "both serve")
    lengths = get(c.mgmt, "/v1/coordinator_info").json["request_length_info"]
    assert 4 < lengths["output_len"] <= 300 and lengths["input_len"] > 0


@pytest.mark.parametrize("path,body,text", [
    ("/v1/instances/offline", {"ids": "all"}, 'ids must be an array of ids of instances, got "all"'),
    ("/v1/instances/offline", {"ids": list(range(4097))}, "ids must have at most 4096 entries, got 4097"),
    ("/v1/instances/online", b"{", None),
    ("/backup_info", {"is_master": True, "is_abnormal": "no", "is_random_pick": False}, 'is_abnormal must be a boolean, got "no"'),
])
def test_wrong_bodies(three, path, body, text):
    a = post(three.mgmt, path, body)
    assert a.status == 400 and (text is None or a.json["error"] == text), a.text


def test_a_wrong_pair_counts_as_over(three):
    for body in ({"p_id": 1, "d_id": 2}, {"p_id": -1, "d_id": 2, "role_change_type": 0}, b"nonsense"):
        a = post(three.mgmt, "/v1/instances/query_tasks", body)
        assert (a.status, a.json) == (400, {"is_end": True})


def test_one_of_two_coordinators_stands_by(three):
    c = three
    ask = BY_NAME["completions"].body(made_up_ids(20, 93000), max_tokens=4)
    a = post(c.mgmt, "/backup_info", {"is_master": False, "is_abnormal": True, "is_random_pick": False})
    assert (a.status, a.json) == (200, {"update_successfully": True})
    refused = post(c.base, "/v1/completions", ask)
    assert refused.status == 503 and "standby" in refused.text and not c.is_ready()
    assert get(c.mgmt, "/recvs_info").json["is_master"] is False
    assert post(c.mgmt, "/backup_info", {"is_master": True, "is_abnormal": True, "is_random_pick": False}).status == 200
    assert c.is_ready() and post(c.base, "/v1/completions", ask).status == 200


def test_before_anything_is_published():
    c = Cluster(1, 1)
    try:
        c.coordinator.start()
        wait_for(lambda: "event=listening" in c.coordinator.log(), 20 * SLOW, "it listens")
        for path, body in (("/v1/instances/offline", {"ids": []}), ("/v1/instances/online", {"ids": []}), ("/backup_info", {})):
            a = post(c.mgmt, path, body)
            assert (a.status, a.json["error"]) == (503, "No instance has been published yet"), path
        assert get(c.mgmt, "/v1/coordinator_info").status == 503
        assert get(c.mgmt, "/v1/instances/tasks?id=1").json == {"tasks": [-1]}
    finally:
        c.kill_all()
