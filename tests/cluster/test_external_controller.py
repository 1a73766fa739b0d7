"""Goal: with controller.enabled false another controller decides and pushes (cluster-api 6.4, 7.5): a cluster that it builds by hand serves; its
switch of a role under load - offline, tasks, query_tasks, roles, online, refresh - fails nobody; who dies is passed over for two minutes, and
requests go on elsewhere; wrong lists and wrong instances are answered as the chapter says.
Method: a controller of a few lines in this file, over real daemons: it posts roles, polls status, and pushes every half second.
"""
import contextlib
import http.client
import threading
import time

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import READY_S, SLOW, Cluster, Standalone, Stream, get, in_threads, post, wait_for

IDS = {"prefill1": 11, "prefill2": 12, "decode1": 21, "decode2": 22}
MODE = BY_NAME["completions"]


class Controller:
    """Roles by hand, and the list of those that are ready and linked."""

    def __init__(self, cluster, roles):
        self.c, self.roles, self.ended, self.hidden = cluster, dict(roles), threading.Event(), set()
        self.pushed = []

    def node(self, name):
        inst = next(i for i in self.c.instances if i.name == name)
        return {"server_ip": "127.0.0.1", "id": IDS[name], "host_ip": "127.0.0.1",
                "inter_comm_port": str(inst.conf["ServerConfig"]["interCommPort"]),
                "device": [{"device_id": "0", "device_logical_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]}

    def instance(self, name):
        return next(i for i in self.c.instances if i.name == name)

    def post_roles(self):
        for name, role in self.roles.items():
            peers = [self.node(n) for n, r in self.roles.items() if r != role]
            a = post(self.instance(name).mgmt, f"/v1/role/{role}", {"local": self.node(name), "peers": peers})
            assert a.status == 200, a.text

    def entry(self, name):
        with contextlib.suppress(OSError, http.client.HTTPException):  # it may be killed meanwhile
            return self.ask(name)
        return None

    def ask(self, name):
        inst = self.instance(name)
        s = inst.status()
        if s is None or s["service"]["roleStatus"] != "RoleReady" or s["service"]["currentRole"] != self.roles[name]:
            return None
        conf, res = get(inst.mgmt, "/v1/config").json, s["resource"]
        peers = [p["target"] for p in s["linkStatus"]["peers"] if p["link"] == "ok"]
        if not peers:
            return None
        return {"id": IDS[name], "ip": "127.0.0.1", "port": str(inst.port), "metric_port": str(inst.mgmt.rsplit(":", 1)[1]),
                "inter_comm_port": str(inst.conf["ServerConfig"]["interCommPort"]), "model_name": conf["modelName"],
                "static_info": {"group_id": 5, "max_seq_len": conf["maxSeqLen"], "max_output_len": conf["maxOutputLen"],
                                "total_slots_num": max(1, res["availSlotsNum"] + res["runningRequestNum"]),
                                "total_block_num": res["totalNpuBlockNums"], "block_size": conf["cacheBlockSize"],
                                "label": 2 if self.roles[name] == "prefill" else 3, "role": 80 if self.roles[name] == "prefill" else 68},
                "dynamic_info": {"avail_slots_num": res["availSlotsNum"], "avail_block_num": res["availBlockNum"], "peers": peers}}

    def push(self):
        entries = [e for e in (self.entry(n) for n in self.roles if n not in self.hidden and self.instance(n).alive()) if e]
        a = post(self.c.mgmt, "/v1/instances/refresh", {"ids": [e["id"] for e in entries], "instances": entries})
        assert a.status == 200 and a.body == b"", a.text
        self.pushed = [e["id"] for e in entries]

    def run(self):
        while not self.ended.wait(0.5):
            self.push()

    def __enter__(self):
        wait_for(lambda: all(i.status() is not None or get(i.mgmt, "/v1/config").status == 200 for i in self.c.instances), READY_S, "they are online")
        self.post_roles()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def bare(n_p, n_d):
    return Cluster(n_p, n_d, coord={"controller": {"enabled": False, "global_rank_table_file_path": ""}, "pd": {"register_lease_s": 2}})


def up(c):
    for d in c.daemons:
        d.start()
    wait_for(lambda: all(i.status() is not None for i in c.instances), READY_S, "instances answer")
    wait_for(lambda: "event=listening" in c.coordinator.log(), 20 * SLOW, "the coordinator listens")


def rows(c):
    return {i["id"]: i for i in c.status()["instances"]}


@pytest.fixture(scope="module")
def four():
    c = bare(2, 2)
    try:
        up(c)
        with Controller(c, {n: n[:-1] for n in IDS}) as ctl:
            wait_for(lambda: len(c.serving("prefill")) == len(c.serving("decode")) == 2, READY_S, "all serve")
            yield c, ctl
    finally:
        c.kill_all()


def bodies(n, seed=95000):
    return [MODE.body(made_up_ids(40, seed + i), max_tokens=16) for i in range(n)]


def test_what_is_pushed_serves(four):
    c, _ = four
    assert sorted(rows(c)) == [11, 12, 21, 22] and {i["source"] for i in rows(c).values()} == {"pushed"}
    assert {i["group"] for i in rows(c).values()} == {1} and c.is_ready()
    answers = in_threads([lambda b=b: post(c.base, "/v1/completions", b) for b in bodies(12)])
    assert all(a.status == 200 for a in answers)
    used = {r[k] for r in c.status()["recentRequests"][:12] for k in ("p", "d")}
    assert used == {11, 12, 21, 22}
    with Standalone() as s:
        want = [normal(post(s.base, "/v1/completions", b).body, False) for b in bodies(12)]
    assert [normal(a.body, False) for a in answers] == want
    assert get(c.external, "/metrics").text.count("instance_scrape_up{") == 4
    info = get(c.mgmt, "/v1/coordinator_info").json
    assert {i["id"] for i in info["schedule_info"]} == {11, 12, 21, 22}
    a = post(c.mgmt, "/v1/instances/role", {"id": 11, "role": "decode"})
    assert a.status == 409 and "controller.enabled is false" in a.json["error"]
    assert get(c.mgmt, "/v1/plan").json["decides"] is False


def test_a_switch_of_the_controllers_under_load(four):
    """The steps of 7.5, P becomes D and back, with clients all the while."""
    c, ctl = four
    want = [normal(post(c.base, "/v1/completions", b).body, False) for b in bodies(4, 96000)]
    done = []

    def client(i):
        n = 0
        while not done:
            a = post(c.base, "/v1/completions", bodies(4, 96000)[i])
            assert a.status == 200 and normal(a.body, False) == want[i], a.text
            n += 1
        return n

    def switch(name, role):
        number = IDS[name]
        assert post(c.mgmt, "/v1/instances/offline", {"ids": [number]}).status == 200
        wait_for(lambda: get(c.mgmt, f"/v1/instances/tasks?id={number}").json == {"tasks": [0]}, 20 * SLOW, "its tasks are over")
        if role == "decode":
            for d in (21, 22):
                wait_for(lambda d=d: post(c.mgmt, "/v1/instances/query_tasks", {"p_id": number, "d_id": d, "role_change_type": 0}).json["is_end"],
                         20 * SLOW, "its pairs are over")
        ctl.hidden.add(name)
        wait_for(lambda: number not in rows(c), 10 * SLOW, "it is removed")
        wait_for(lambda: ctl.instance(name).idle(), 20 * SLOW, "it is idle")
        ctl.roles[name] = role
        ctl.post_roles()
        ctl.hidden.discard(name)
        wait_for(lambda: rows(c).get(number, {}).get("state") == "serving" and rows(c)[number]["role"] == role, READY_S, f"it serves as {role}")

    def both():
        try:
            switch("prefill1", "decode")
            switch("prefill1", "prefill")
        finally:
            done.append(True)

    counts = in_threads([lambda i=i: client(i) for i in range(4)] + [both])
    assert min(counts[:4]) >= 1 and c.status()["coordinator"]["requestsFailed"] == 0
    assert {n: r["role"] for n, r in rows(c).items()} == {11: "prefill", 12: "prefill", 21: "decode", 22: "decode"}


@pytest.mark.parametrize("body,text", [
    (b"{", None),
    ({"ids": [1]}, "instances must be an array"),
    ({"ids": "11", "instances": []}, "ids must be an array"),
    ({"ids": list(range(1, 4098)), "instances": []}, "ids must have at most 4096 entries, got 4097"),
    ({"ids": [11], "instances": [{"ip": "127.0.0.1"}]}, "instances[0].id must be an integer from 1 to 4294967295, got null"),
])
def test_wrong_lists_change_nothing(four, body, text):
    c, _ = four
    a = post(c.mgmt, "/v1/instances/refresh", body)
    assert a.status == 400 and (text is None or a.json["error"] == text), a.text
    assert sorted(rows(c)) == [11, 12, 21, 22]


def test_a_wrong_instance_is_passed_over(four):
    c, ctl = four
    entries = [e for e in (ctl.entry(n) for n in ctl.roles) if e]
    bad = {**entries[0], "id": 31, "static_info": {**entries[0]["static_info"], "total_slots_num": 5001}}
    body = {"ids": [e["id"] for e in entries] + [31], "instances": entries + [bad]}
    assert post(c.mgmt, "/v1/instances/refresh", body).status == 200
    assert 31 not in rows(c)
    wait_for(lambda: "(id 31): static_info.total_slots_num must be an integer from 1 to 5000, got 5001" in c.coordinator.log(), 5 * SLOW, "it is logged")


def test_who_dies_is_passed_over(four):
    """Its streams go on at the other D; pushed on by a controller that has not noticed, it is not believed."""
    c, ctl = four
    mode = BY_NAME["completions_stream"]
    body = mode.body(made_up_ids(30, 97000), max_tokens=900, ignore_eos=True, temperature=0.8, seed=1)
    calm = mode.ask(c.base, body)[2]
    s = Stream(c.base, mode.path, body)
    s.read_until(3)
    busy = wait_for(lambda: [n for n in (21, 22) if rows(c)[n]["tasks"]], 5 * SLOW, "a D has it")[0]
    name = next(n for n, i in IDS.items() if i == busy)
    last = ctl.entry(name)
    ctl.instance(name).kill()
    assert normal(s.read_all(), False) == normal(calm, False)
    others = [e for e in (ctl.entry(n) for n in ctl.roles if n != name) if e]
    for _ in range(3):
        post(c.mgmt, "/v1/instances/refresh", {"ids": [e["id"] for e in others] + [busy], "instances": others + [last]})
        time.sleep(0.2)
    assert rows(c)[busy]["life"] == "faulty"
    assert all(a.status == 200 for a in in_threads([lambda b=b: post(c.base, "/v1/completions", b) for b in bodies(6, 98000)]))
    assert busy not in {r["d"] for r in c.status()["recentRequests"][:6]}


def test_a_list_is_refused_where_the_controller_is_our_own():
    with Cluster(1, 1) as c:
        a = post(c.mgmt, "/v1/instances/refresh", {"ids": [], "instances": []})
        assert a.status == 409 and a.json["error"] == "controller.enabled is true: this coordinator keeps the list of instances itself"
        assert len(c.status()["instances"]) == 2
