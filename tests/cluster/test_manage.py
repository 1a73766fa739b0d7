"""Goal: what a controller of the reference asks of a coordinator (cluster-api 6.5) is answered with its bodies and statuses, and is true: an
instance that is offline keeps what it has and gets nothing new; tasks, pairs, bookings and lengths are those of the requests under way; a
coordinator that is told to stand by refuses.
Method: the calls against a real cluster, with streams that run meanwhile.
"""
import os
import subprocess

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import BUILD, SLOW, Cluster, Stream, get, post, wait_for

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


# ---- what the planner would do
def batonctl(c, *args):
    return subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", c.mgmt, *args], capture_output=True, text=True, timeout=30 * SLOW)


def test_the_plan_says_what_comes_and_then_it_comes():
    with Cluster(2, 1, coord={"pd": {"role_repair_s": 4, "register_lease_s": 2}}) as c:
        wait_for(lambda: c.status()["coordinator"]["uptimeSeconds"] >= 2, 10 * SLOW, "the start is over")
        out = batonctl(c, "plan")
        assert out.returncode == 0 and out.stdout == "nothing changes (ratio 2:1)\n", out
        p = c.serving("prefill")[0]
        dry = batonctl(c, "role", str(p), "decode", "--dry-run")
        assert dry.returncode == 0 and dry.stdout == f"if {p} was decode:\nnothing changes (ratio 2:1)\n", dry
        assert len(c.serving("prefill")) == 2, "nothing was done"
        d = c.serving("decode")[0]
        last = batonctl(c, "role", str(d), "prefill", "--dry-run")
        assert last.returncode == 1 and f"instance {d} is the last decode instance" in last.stderr, last
        then = batonctl(c, "role", str(d), "prefill", "--dry-run", "--force")
        assert then.returncode == 0 and "in 4.0 s" in then.stdout and "becomes decode" in then.stdout, then
        c.decodes[0].kill()
        said = wait_for(lambda: (a := get(c.mgmt, "/v1/plan").json)["changes"] and a, 5 * SLOW, "it says what will be done")
        assert 0 < said["inSeconds"] <= 4 and len(said["changes"]) == 1 and not said["unmet"]
        change = said["changes"][0]
        assert change["from"]["role"] == "prefill" and change["to"]["role"] == "decode"
        assert change["why"].startswith("group 1 has had no decode instance at work for 4 s")
        told = batonctl(c, "plan", "--dry-run")
        assert told.returncode == 0 and "if nothing else happens:" in told.stdout and f"{change['name']} becomes decode (prefill before)" in told.stdout, told
        wait_for(lambda: c.serving("decode") == [change["id"]], 15 * SLOW, "it is done")
        # One is left of each: a second loss nobody can mend, and it says why.
        c.instance_of(change["id"]).kill()
        wait_for(lambda: get(c.mgmt, "/v1/plan").json["unmet"], 5 * SLOW, "a role is lacking")
        lack = get(c.mgmt, "/v1/plan").json["unmet"][0]
        assert lack["role"] == "decode" and "which must stay" in lack["why"]
        shown = batonctl(c, "plan")
        assert "has no decode instance at work: the group has one prefill instance" in shown.stdout
        alarms = batonctl(c, "alarms")
        assert alarms.returncode == 0 and "raised  0xFC001003" in alarms.stdout and "service name=" in alarms.stdout, alarms


@pytest.mark.parametrize("query,status,text", [
    ("id=1", 422, "role is missing"),
    ("id=99&role=decode", 404, "id must be a known instance, got 99"),
    ("ids=1&role=decode", 422, 'unknown parameter "ids": id, name, role, force are known'),
])
def test_wrong_questions_about_the_plan(three, query, status, text):
    a = get(three.mgmt, "/v1/plan?" + query)
    assert (a.status, a.json["error"]) == (status, text)
    assert batonctl(three, "plan", "--now").returncode == 2
    assert batonctl(three, "role", "1", "decode", "--dry-run", "--dry-run").returncode == 2
