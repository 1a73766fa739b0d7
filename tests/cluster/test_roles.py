"""Goal: roles are what the controller says, and can be changed while the cluster serves: prefill to decode and back, refused while busy,
forced when asked, given again to an instance that restarts; wrong role bodies change nothing and say what is wrong; instances that do not fit
together are refused at hello with both values named; instances may announce themselves.
Method: batonctl and POST /v1/instances/role against real clusters; role bodies by hand against an instance without a coordinator (cluster-api
3.4, 3.5); requests before, during and after every change.
"""
import contextlib
import json
import os
import re
import subprocess

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import BUILD, FABLE, READY_S, ROOT, SLOW, Cluster, Instance, Stream, free_ports, get, in_threads, merge, post, wait_for

ASK = BY_NAME["completions"].body([5, 6, 7, 8], max_tokens=6)


def batonctl(cluster, *args):
    return subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", cluster.mgmt, *args], capture_output=True, text=True, timeout=30 * SLOW)


def roles(cluster):
    return {i["id"]: i["role"] for i in cluster.status()["instances"]}


def serve_as(cluster, n_p, n_d):
    wait_for(lambda: len(cluster.serving("prefill")) == n_p and len(cluster.serving("decode")) == n_d, READY_S, f"{n_p} P and {n_d} D serve")


IN_TURN = {"pd": {"routing": "reference"}}  # equals take turns, however fast each has measured itself to be on a busy machine


def flows(cluster, n=8):
    """Requests are answered, and every instance that has a role is used."""
    bodies = [BY_NAME["completions"].body(made_up_ids(40, 80000 + i), max_tokens=12) for i in range(n)]
    answers = in_threads([lambda b=b: post(cluster.base, "/v1/completions", b) for b in bodies])
    assert all(a.status == 200 and a.json["usage"]["completion_tokens"] for a in answers), [a.text for a in answers]
    used = {r[k] for r in cluster.status()["recentRequests"][:n] for k in ("p", "d")}
    assert used == set(roles(cluster)), used
    return [normal(a.body, False) for a in answers]


# ---- changes at run time
@pytest.fixture(scope="module")
def four():
    with Cluster(2, 2, coord=IN_TURN) as c:
        yield c


def test_there_and_back_while_idle(four):
    want = flows(four)
    before = roles(four)
    p, d = (next(i for i, r in before.items() if r == role) for role in ("prefill", "decode"))
    out = batonctl(four, "role", str(p), "decode")
    assert out.returncode == 0 and f"instance {p} becomes decode" in out.stdout, out
    serve_as(four, 1, 3)
    assert flows(four) == want
    assert post(four.mgmt, "/v1/instances/role", {"id": p, "role": "prefill"}).json == {"result": "ok"}
    serve_as(four, 2, 2)
    assert roles(four) == before and flows(four) == want
    # and the other way round
    assert post(four.mgmt, "/v1/instances/role", {"id": d, "role": "prefill"}).status == 200
    serve_as(four, 3, 1)
    assert flows(four) == want
    assert batonctl(four, "role", str(d), "decode").returncode == 0
    serve_as(four, 2, 2)
    assert roles(four) == before and flows(four) == want
    table = batonctl(four, "status")
    assert table.returncode == 0
    for i, role in before.items():
        assert any(line.split()[1:4] == [str(i), role, "serving"] for line in table.stdout.splitlines()), table.stdout
    assert json.loads(batonctl(four, "status", "--json").stdout)["coordinator"]["ready"] is True
    told = batonctl(four, "request")
    assert told.returncode == 0 and "(P)" in told.stdout and "(D)" in told.stdout and "KV moved" in told.stdout


def test_a_switch_waits_for_running_requests(four):
    """The stream of the instance that is to change ends in full, and only then the role changes; new requests go elsewhere meanwhile."""
    mode = BY_NAME["completions_stream"]
    body = mode.body(made_up_ids(20, 81000), max_tokens=900, ignore_eos=True, temperature=0.8, seed=1)
    calm = mode.ask(four.base, body)[2]
    s = Stream(four.base, mode.path, body)
    s.read_until(3)
    busy = wait_for(lambda: [i["id"] for i in four.status()["instances"] if i["role"] == "decode" and i["tasks"]], 5 * SLOW, "a D has the request")[0]
    assert post(four.mgmt, "/v1/instances/role", {"id": busy, "role": "prefill"}).status == 200
    row = next(i for i in four.status()["instances"] if i["id"] == busy)
    assert row["state"] == "draining" and row["role"] == "decode" and row["wantedRole"] == "prefill"
    assert post(four.base, "/v1/completions", ASK).status == 200
    assert normal(s.read_all(), False) == normal(calm, False)
    serve_as(four, 3, 1)
    assert post(four.mgmt, "/v1/instances/role", {"id": busy, "role": "decode"}).status == 200
    serve_as(four, 2, 2)
    flows(four)


def test_no_request_is_lost_by_switches_under_load(four):
    want = {i: normal(post(four.base, "/v1/completions", BY_NAME["completions"].body(made_up_ids(30, 82000 + i), max_tokens=20)).body, False)
            for i in range(8)}
    p = next(i for i, r in roles(four).items() if r == "prefill")
    done = []

    def client(i):
        while not done:
            a = post(four.base, "/v1/completions", BY_NAME["completions"].body(made_up_ids(30, 82000 + i), max_tokens=20))
            assert a.status == 200 and normal(a.body, False) == want[i], a.text

    def switch():
        try:
            for role, shape in (("decode", (1, 3)), ("prefill", (2, 2))):
                assert post(four.mgmt, "/v1/instances/role", {"id": p, "role": role}).status == 200
                serve_as(four, *shape)
        finally:
            done.append(True)

    in_threads([lambda i=i: client(i) for i in range(8)] + [switch])
    assert four.status()["coordinator"]["requestsFailed"] == 0


@pytest.mark.parametrize("body,status,text", [
    ({"id": 99, "role": "decode"}, 404, "id must be a known instance, got 99"),
    ({"id": "1", "role": "decode"}, 422, "id must be the number of an instance (GET /v2/status lists them)"),
    ({"role": "decode"}, 422, "id must be the number of an instance (GET /v2/status lists them)"),
    ({"id": 1, "role": "flex"}, 422, 'role must be "prefill" or "decode"'),
    ({"id": 1}, 422, 'role must be "prefill" or "decode"'),
    ({"id": 1, "role": "decode", "force": "yes"}, 422, "force must be a boolean"),
    ({"id": 1, "role": "decode", "for_s": 0}, 422, "for_s must be an integer from 1 to 604800, got 0"),
    ({"id": 1, "role": "decode", "for_s": "1"}, 422, 'for_s must be an integer from 1 to 604800, got "1"'),
    ({"id": 1, "role": "decode", "for_s": 604801}, 422, "for_s must be an integer from 1 to 604800, got 604801"),
    ({"id": 1, "role": "auto", "for_s": 5}, 422, 'for_s must not be there with the role "auto"'),
    ({"id": 99, "role": "auto"}, 404, "id must be a known instance, got 99"),
])
def test_wrong_switches(four, body, status, text):
    a = post(four.mgmt, "/v1/instances/role", body)
    assert (a.status, a.json["error"]) == (status, text)
    assert sorted(roles(four).values()) == ["decode", "decode", "prefill", "prefill"]


def test_batonctl_says_what_is_wrong(four):
    for args, code in ((["role", "99", "decode"], 1), (["role", "x", "decode"], 1), (["role", "x y", "decode"], 2), (["role", "1", "flex"], 2), (["nonsense"], 2), ([], 2)):
        out = batonctl(four, *args)
        assert out.returncode == code and out.stderr.strip() and not out.stdout, (args, out)
    nobody = subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", f"http://127.0.0.1:{free_ports(1)[0]}", "status"],
                            capture_output=True, text=True, timeout=30 * SLOW)
    assert nobody.returncode == 1 and "127.0.0.1" in nobody.stderr


def test_a_role_for_a_while(four):
    """It goes back by itself, or when it is told to; meanwhile the plan leaves it."""
    before = roles(four)
    p = next(i for i, r in before.items() if r == "prefill")
    out = batonctl(four, "role", str(p), "decode", "--for", "3")
    assert out.returncode == 0 and "after 3 s it goes back" in out.stdout, out
    serve_as(four, 1, 3)
    row = next(i for i in four.status()["instances"] if i["id"] == p)
    assert row["override"]["role"] == "decode" and row["override"]["back"] == "prefill" and 0 <= row["override"]["secondsLeft"] <= 3
    serve_as(four, 2, 2)
    assert roles(four) == before and all("override" not in i for i in four.status()["instances"])
    flows(four)
    assert post(four.mgmt, "/v1/instances/role", {"id": p, "role": "decode", "for_s": 600}).status == 200
    serve_as(four, 1, 3)
    assert batonctl(four, "role", str(p), "auto").returncode == 0
    serve_as(four, 2, 2)
    assert roles(four) == before
    a = post(four.mgmt, "/v1/instances/role", {"id": p, "role": "auto"})
    assert (a.status, a.json["error"]) == (409, f"instance {p} has no override that could end")
    for args in (["--for", "0"], ["--for", "x"], ["--for"], ["--for", "604801"]):
        assert batonctl(four, "role", str(p), "decode", *args).returncode == 2
    assert batonctl(four, "role", str(p), "auto", "--dry-run").returncode == 2


def test_the_last_of_a_role_needs_force():
    with Cluster(1, 1, coord=IN_TURN) as c:
        p = c.serving("prefill")[0]
        a = post(c.mgmt, "/v1/instances/role", {"id": p, "role": "decode"})
        assert a.status == 409 and a.json["error"] == f'instance {p} is the last prefill instance; "force": true switches it all the same'
        assert batonctl(c, "role", str(p), "decode").returncode == 1
        assert batonctl(c, "role", str(p), "decode", "--force").returncode == 0
        wait_for(lambda: not c.is_ready(), 10 * SLOW, "no P is left")
        assert {"stage": "role", "detail": "no prefill instance serves"} in get(c.status_base, "/v1/readiness").json["reasons"]
        assert post(c.mgmt, "/v1/instances/role", {"id": p, "role": "prefill", "force": True}).status == 200
        serve_as(c, 1, 1)
        wait_for(c.is_ready, 10 * SLOW, "ready again")
        flows(c, 1)
        # An instance that restarts at once has lost its role, and gets it again.
        c.decodes[0].kill()
        c.decodes[0].start()
        wait_for(lambda: (c.decodes[0].status() or {"service": {}})["service"].get("currentRole") == "decode", READY_S, "it is D again")
        serve_as(c, 1, 1)
        flows(c, 1)


# ---- role bodies at an instance
def node(number, port, **more):
    return {"server_ip": "127.0.0.1", "id": number, "host_ip": "127.0.0.1", "inter_comm_port": str(port),
            "device": [{"device_id": "0", "device_logical_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}], **more}


def node_v2(number, port):
    return [{"server_ip": "127.0.0.1", "host_ip": "127.0.0.1", "inter_comm_port": str(port), "sp_size": 1, "cp_size": 1,
             "dp_inst_list": [{"dp_inst_id": number * 10000, "device": node(number, port)["device"]}]}]


def without(d, key):
    return {k: v for k, v in d.items() if k != key}


@pytest.fixture(scope="module")
def lone(tmp_path_factory):
    """An instance of a cluster, without one; its peers are ports nobody listens on."""
    folder = tmp_path_factory.mktemp("lone")
    inst = Instance("decode1", "decode", str(folder), free_ports(3))
    inst.start()
    wait_for(inst.load, READY_S, "it answers")
    yield inst
    inst.stop()


GONE = free_ports(1)[0]
GOOD = {"local": node(21, 1121), "peers": [node(11, GONE)]}
GOOD_V2 = {"local": node_v2(21, 1121), "peers": [node_v2(11, GONE)]}
V1_BAD = "Req body converts to json fail. Reset to previous node status."
V2_BAD = "Parse req json failed. Reset to previous node status."
REFUSED = "Update pd info failed. Reset to previous node status."
DEVICE = GOOD["local"]["device"][0]


def local(**change):
    return {**GOOD, "local": {**GOOD["local"], **change}}


BAD_BODIES = [
    (b"{", 422, V1_BAD, None),
    (b"[]", 422, V1_BAD, "the body must be an object"),
    ({}, 422, V1_BAD, "local is missing"),
    ({"local": without(GOOD["local"], "server_ip"), "peers": GOOD["peers"]}, 422, V1_BAD, "local.server_ip must be a string"),
    (local(server_ip="host"), 422, V1_BAD, 'local.server_ip must be an IPv4 address, got "host"'),
    (local(id=-1), 422, V1_BAD, "local.id must be an unsigned integer up to 4294967295"),
    ({**GOOD, "local": without(GOOD["local"], "host_ip")}, 422, V1_BAD, "local.id and local.host_ip must be both present or both absent"),
    ({**GOOD, "local": without(GOOD["local"], "device")}, 422, V1_BAD, "local.device must be a non-empty array"),
    (local(device=[]), 422, V1_BAD, "local.device must be a non-empty array"),
    (local(device=[DEVICE, DEVICE]), 422, V1_BAD, "local.device must have 1 entries (worldSize), got 2"),
    (local(device=[{**DEVICE, "device_id": "x"}]), 422, V1_BAD,
     'local.device[0].device_id must be decimal digits of at most 23 characters, got "x"'),
    (local(device=[without(DEVICE, "device_ip")]), 422, V1_BAD, "local.device[0].device_ip must be a string"),
    (local(p_percentage=101), 422, V1_BAD, "local.p_percentage must be an integer from 0 to 100"),
    ({**GOOD, "peers": {}}, 422, V1_BAD, "peers must be an array"),
    ({**GOOD, "peers": [node(21, GONE)]}, 422, V1_BAD, "peers[0].id must not be the own id 21"),
    ({**GOOD, "force": 1}, 422, V1_BAD, "force must be a boolean"),
    ({**GOOD, "peers": []}, 503, REFUSED, "peers must not be empty when a role is given for the first time"),
    (without(GOOD, "peers"), 503, REFUSED, "peers must not be empty when a role is given for the first time"),
]


@pytest.mark.parametrize("body,status,text,detail", BAD_BODIES, ids=[str(i) for i in range(len(BAD_BODIES))])
def test_wrong_role_bodies(lone, body, status, text, detail):
    a = post(lone.mgmt, "/v1/role/decode", body)
    assert (a.status, a.json["error"]) == (status, text)
    assert a.json["error_type"] == {422: "Input Validation Error", 503: "Service Unavailable"}[status]
    assert detail is None or a.json["detail"] == detail, a.text
    assert lone.status()["service"] == {"roleStatus": "RoleUnknown", "currentRole": "none"}


@pytest.mark.parametrize("body", [b"{", {}, {**GOOD_V2, "local": []}, {**GOOD_V2, "local": node(21, 1)},
                                  {**GOOD_V2, "local": [without(GOOD_V2["local"][0], "dp_inst_list")]}, {**GOOD_V2, "peers": [node(11, GONE)]}],
                         ids=["cut", "empty", "no local", "no peers form", "no dp_inst_list", "version 1 peers"])
def test_wrong_role_bodies_of_version_2(lone, body):
    a = post(lone.mgmt, "/v2/role/decode", body)
    assert a.status == 503 and a.json["error"] == V2_BAD and a.json["error_type"] == "Service Unavailable"


def test_unknown_roles(lone):
    for path in ("/v1/role/nonsense", "/v2/role/nonsense", "/v2/role/flex", "/v1/role/none", "/v1/role/mixed"):
        assert post(lone.mgmt, path, GOOD).status == 404, path
    assert post(lone.base, "/v1/role/decode", GOOD).status == 404  # not on the business plane
    a = get(lone.mgmt, "/v1/role/decode")
    assert a.status == 405 and "POST" in a.headers["Allow"]


def test_a_standard_instance_takes_no_role(whole):
    for path in ("/v1/role/decode", "/v2/role/prefill"):
        a = post(whole.mgmt, path, GOOD)
        assert a.status == 400 and a.json["error_type"] == "Bad Request" and "inferMode must be dmi" in a.json["detail"]
    assert whole.instance.status()["service"] == {"roleStatus": "RoleReady", "currentRole": "none"}


def test_a_role_is_taken_at_once_and_linked_in_the_background(lone):
    """Both body versions; the identical body again is harmless; a peer that is not there keeps the role from being ready."""
    for version, body in ((1, GOOD), (1, GOOD), (2, GOOD_V2), (1, merge(GOOD, {"force": True}))):
        a = post(lone.mgmt, f"/v{version}/role/decode", body)
        assert a.status == 200 and a.json == {"result": "ok"}, a.text
        assert lone.status()["service"] == {"roleStatus": "RoleSwitching", "currentRole": "decode"}
    assert get(lone.mgmt, "/v1/status").json["linkStatus"] == {"peers": []}  # a link still being built is not listed
    assert get(lone.mgmt, "/v2/health/ready").status == 503
    # Idle, so the other role is taken without force; and back, with the old form without ids.
    assert post(lone.mgmt, "/v1/role/prefill", GOOD).status == 200
    assert lone.status()["service"]["currentRole"] == "prefill"
    plain = {"local": without(without(node(0, 1121), "id"), "host_ip"), "peers": [{**without(without(node(0, GONE), "id"), "host_ip"), "server_ip": "127.0.0.2"}]}
    assert post(lone.mgmt, "/v1/role/decode", plain).status == 200
    assert post(lone.mgmt, "/v1/role/flex", merge(GOOD, {"local": {"p_percentage": 100}})).status == 200
    assert lone.status()["service"] == {"roleStatus": "RoleSwitching", "currentRole": "flex", "p_percentage": 100}
    assert post(lone.mgmt, "/v1/role/flex", merge(GOOD, {"local": {"p_percentage": 40}})).status == 200
    assert lone.status()["service"] == {"roleStatus": "RoleSwitching", "currentRole": "flex", "p_percentage": 40}
    a = post(lone.mgmt, "/v1/role/flex", GOOD)
    assert a.status == 422 and a.json["detail"] == "local.p_percentage must be an integer from 0 to 100, got none"


def test_a_busy_instance_keeps_its_role_unless_forced():
    with Cluster(1, 1, coord={"controller": {"enabled": True}, **IN_TURN}) as c:
        s = Stream(c.base, "/v1/completions", {"model": "fable", "prompt": [5], "max_tokens": 400, "ignore_eos": True, "stream": True, "temperature": 0})
        s.read_until(2)
        d, body = c.decodes[0], {"local": node(2, c.decodes[0].inter_port), "peers": [node(1, c.prefills[0].inter_port)]}
        a = post(d.mgmt, "/v1/role/prefill", body)
        assert a.status == 409 and a.json["error"] == REFUSED and a.json["detail"].startswith("decode to prefill needs an idle instance: "), a.text
        assert d.status()["service"] == {"roleStatus": "RoleReady", "currentRole": "decode"}
        assert post(d.mgmt, "/v1/role/decode", body).status == 200  # its own role again is no change
        assert post(d.mgmt, "/v1/role/prefill", {**body, "force": True}).status == 200
        raw = s.read_all()  # forced out of there, it goes on when there is a D again
        assert raw.endswith(b"data: [DONE]\n\n") and b'"error"' not in raw
        # The coordinator finds it in a role it did not give, and puts it right.
        serve_as(c, 1, 1)
        wait_for(c.is_ready, READY_S, "ready again")
        flows(c, 1)


# ---- who is there
def test_instances_announce_themselves():
    with Cluster(1, 1, register=True, coord={"pd": {"register_lease_s": 4, **IN_TURN["pd"]}}) as c:  # instances renew every 3 s
        assert {i["source"] for i in c.status()["instances"]} == {"registered"}
        assert c.prefills[0].status()["service"]["currentRole"] == "prefill"  # each begins as what its program is named
        flows(c, 1)
        a = post(c.mgmt, "/v1/instances/register", {"server_ip": "127.0.0.1"})
        assert a.status == 422 and a.json["error"] == "body.device must be a non-empty array"
        # One that goes away is forgotten when its lease is over, and is welcome when it comes back.
        c.decodes[0].kill()
        wait_for(lambda: len(c.status()["instances"]) == 1, 30 * SLOW, "the dead one is forgotten")
        c.decodes[0].start()
        serve_as(c, 1, 1)
        flows(c, 1)


def test_who_registers_keeps_the_role_of_its_program():
    """Two decode instances are there long before the prefill instance: neither becomes it, though the ratio asks for one of each."""
    c = Cluster(1, 2, register=True, coord=IN_TURN)
    try:
        for d in (c.coordinator, *c.decodes):
            d.start()

        def there():
            with contextlib.suppress(OSError):
                return [i["wantedRole"] for i in c.status()["instances"]]

        wait_for(lambda: there() == ["decode", "decode"], READY_S, "both are decode instances")
        assert not c.is_ready()
        c.prefills[0].start()
        serve_as(c, 1, 2)
        flows(c, 4)
        c.killed = [d.stop() for d in c.daemons]
    finally:
        c.kill_all()


def test_readiness_names_what_is_missing():
    c = Cluster(1, 1, coord=IN_TURN)
    try:
        c.coordinator.start()
        wait_for(lambda: _answers(c), READY_S, "the coordinator answers")

        def reasons():
            a = get(c.status_base, "/v1/readiness")
            assert a.status == 503 and a.json["ready"] is False
            return {r["stage"] for r in a.json["reasons"] if "id" in r}, {r["detail"] for r in a.json["reasons"] if "id" not in r}

        assert reasons() == ({"online"}, {"no prefill instance serves", "no decode instance serves"})
        for path in ("/v1/startup", "/v1/health", "/v2/health/live"):
            assert get(c.status_base, path).status == get(c.mgmt, path).status == 200
        for path in ("/v2/health/ready", "/v2/models/fable/ready"):
            a = get(c.status_base, path)
            assert a.status == 503 and a.body == b""
        c.prefills[0].start()
        wait_for(lambda: reasons()[0] == {"online", "role"}, READY_S, "one is online and waits for a role")
        c.decodes[0].start()
        wait_for(c.is_ready, READY_S, "ready")
        a = get(c.status_base, "/v1/readiness")
        assert a.status == 200 and a.json == {"ready": True, "prefill": 1, "decode": 1, "reasons": []}
        assert get(c.status_base, "/v2/health/ready").body == b""  # as the reference has it
        c.killed = [d.stop() for d in c.daemons]
    finally:
        c.kill_all()


def _answers(c):
    try:
        return get(c.status_base, "/v1/health").status == 200
    except OSError:
        return False


# ---- who fits together
@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests", "oracle", "make_model.py"), str(out), "--set", "vocab_size=4096",
                    "--tokenizer", os.path.join(FABLE, "tokenizer.json")], check=True)
    return str(out)


@pytest.mark.parametrize("what,extra", [("model configuration", None), ("block tokens", {"BackendConfig": {"ScheduleConfig": {"cacheBlockSize": 32}}})])
def test_instances_that_do_not_fit_are_refused_at_hello(other_model, what, extra):
    """Both ends, readiness, the cluster status and batonctl name both values."""
    c = Cluster(1, 1, coord=IN_TURN)
    other = {"maxSeqLen": 512, "maxInputTokenLen": 511, "ModelConfig": [{"modelName": "fable", "worldSize": 1, "modelWeightPath": other_model}]}
    c.decodes[0].conf = merge(c.decodes[0].conf, extra or {"BackendConfig": {"ModelDeployConfig": other}})
    try:
        for d in c.daemons:
            d.start()

        def links():
            return [link for i in c.instances for link in (i.status() or {"linkStatus": {"peers": []}})["linkStatus"]["peers"]]

        both = wait_for(lambda: (t := links()) and len(t) == 2 and t, READY_S, "both ends list the link")
        assert all(link["link"] in ("failed : 2", "failed : 5") for link in both), both
        told = {link["detail"] for link in both}
        by_address = {i["address"]: i["id"] for i in c.status()["instances"]}
        ids = [by_address[f"127.0.0.1:{i.port}"] for i in c.instances]
        for text in told:
            first, second = (int(w) for w in re.findall(r"instance (\d+) has", text))
            values = re.findall(r"has (\w+)", text)
            assert text.startswith(what + ": ") and {first, second} == set(ids) and values[0] != values[1], text
            assert extra is None or dict(zip((first, second), values)) == {ids[0]: "16", ids[1]: "32"}, text
        assert not c.is_ready()

        def reasons():
            return [r for r in get(c.status_base, "/v1/readiness").json["reasons"] if r["stage"] == "link" and what in r["detail"]]

        wait_for(lambda: len(reasons()) == 2, 10 * SLOW, "readiness names the difference")
        assert what in batonctl(c, "status").stdout
        for d in c.daemons:
            d.stop()
    finally:
        c.kill_all()
