"""Goal: of two coordinators on one etcd exactly one acts, and the other takes its place when it dies, stops, is stopped or gives the lead away: ready
within the lease and a second, with ids, roles and links as they were; a leader that cannot rely on its lease acts no more. Method: real daemons, a
real etcd that is killed, stopped and wiped; facts from status, readiness, the logs of the instances and the keys in etcd.
"""
import base64
import http.client
import json
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest
from etcd_server import LEASE_S, Etcd, HaCluster
from families import made_up_ids
from harness import BUILD, READY_S, SLOW, Daemon, Stream, free_ports, get, merge, post, wait_for
from pki import Pki

BODY = {"model": "fable", "prompt": made_up_ids(30, 9), "max_tokens": 5, "ignore_eos": True, "temperature": 0}
LOCK, STATE = "/coordinator/leader-lock", "/coordinator/state"


@pytest.fixture(scope="module")
def cluster():
    with HaCluster(1, 1) as c:
        yield c


@pytest.fixture
def pair(cluster):
    """The first leads and serves, whatever the test before has left."""
    c = cluster
    if c.etcd.process is None:
        c.etcd.start()
    for d in c.coordinators:
        if not d.alive():
            d.start()
    wait_for(lambda: {c.ha(0).get("role"), c.ha(1).get("role")} == {"leader", "standby"}, READY_S, "one leads")
    lead = 0 if c.ha(0)["role"] == "leader" else 1
    c.use(lead)
    wait_for(lambda: c.ready(lead) and c.all_serve(), READY_S, "it serves")
    wait_for(lambda: c.ha(1 - lead).get("leader") == c.address(lead), READY_S, "the other knows it")
    c.lead, c.other = lead, 1 - lead
    return c


def ids(c):
    return {i["address"]: (i["id"], i["role"]) for i in c.status()["instances"]}


def links_touched(c):
    return [len(re.findall(r" role from=| kv_link peer=\d+ .*state=", d.log())) for d in c.instances]


def answer(c):
    a = post(c.base, "/v1/completions", BODY)
    assert a.status == 200, a.text
    return a.json["choices"][0]["text"]


def role_posts(c, i):
    return len(re.findall(r"role: .*event=taken|role id=\d+ .*event=taken", c.coordinators[i].log()))


def test_a_standby_serves_status_and_refuses_requests(pair):
    c = pair
    base, mgmt, status = (f"http://127.0.0.1:{p}" for p in c.all_ports[c.other][:3])
    a = post(base, "/v1/completions", BODY)
    assert a.status == 503 and a.headers["x-baton-leader"] == c.address(c.lead) and "Retry-After" in a.headers
    assert "standby" in a.text and c.address(c.lead) in a.text
    a = get(status, "/v1/readiness")
    assert a.status == 503 and a.json["reasons"] == [
        {"stage": "standby", "detail": f"This coordinator is a standby; the leader is {c.address(c.lead)}"}]
    assert get(status, "/v1/health").status == 200
    for path in ("/v1/instances/drain", "/v1/instances/role", "/v1/instances/register", "/v1/load_lora_adapter"):
        a = post(mgmt, path, {})
        assert (a.status, a.headers["x-baton-leader"]) == (503, c.address(c.lead)), path
    s = get(mgmt, "/v2/status").json
    assert s["instances"] == [] and s["coordinator"]["ha"]["role"] == "standby" and s["coordinator"]["ha"]["leader"] == c.address(c.lead)
    lead = c.ha(c.lead)
    assert lead["role"] == "leader" and 0 < lead["leaseLeftMs"] <= 1000 * LEASE_S
    assert c.etcd.value(LOCK) == c.address(c.lead)
    assert int(json.loads(c.etcd.value(STATE).splitlines()[0])["term"]) == lead["term"]


def test_the_leader_is_killed(pair):
    c = pair
    before, text, marks, term = ids(c), answer(c), links_touched(c), c.ha(c.lead)["term"]
    streams = [Stream(c.base, "/v1/completions", {**BODY, "max_tokens": 900, "stream": True}) for _ in range(3)]
    for s in streams:
        s.read_until(2)
    began = time.monotonic()
    c.coordinator.kill()
    took = c.took_over(c.other, began)
    print(f"ready {took:.2f} s after the leader was killed, lease {LEASE_S} s")
    c.use(c.other)
    wait_for(c.all_serve, 5 * SLOW, "all serve")
    assert took <= LEASE_S + 1 + 2 * SLOW, took
    assert c.ha(c.other)["term"] > term
    assert ids(c) == before and answer(c) == text
    assert links_touched(c) == marks
    assert "event=taken" not in c.coordinator.log().rsplit("event=leads", 1)[1]  # no role was posted
    for s in streams:
        s.abandon()


def test_the_leader_ends(pair):
    """Its lease goes with it: nobody waits for its end."""
    c = pair
    before, text = ids(c), answer(c)
    began = time.monotonic()
    c.coordinator.process.send_signal(signal.SIGTERM)
    took = c.took_over(c.other, began)
    print(f"ready {took:.2f} s after SIGTERM of the leader, lease {LEASE_S} s")
    assert c.coordinator.process.wait(timeout=30 * SLOW) == 0
    c.coordinator.killed = True
    assert took < LEASE_S, took
    c.use(c.other)
    wait_for(c.all_serve, 5 * SLOW, "all serve")
    assert ids(c) == before and answer(c) == text


def test_a_leader_that_was_stopped_past_its_lease(pair):
    """Whatever reaches it first when it goes on, it acts no more: its clients get an error, no instance takes an order, nobody hears of its term."""
    c = pair
    stopped = c.lead
    old, term = c.coordinators[stopped], c.ha(stopped)["term"]
    streams = [Stream(c.base, "/v1/completions", {**BODY, "max_tokens": 900, "stream": True}) for _ in range(4)]
    old.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        took = c.took_over(c.other, began)
        print(f"ready {took:.2f} s after SIGSTOP of the leader, lease {LEASE_S} s")
        c.use(c.other)
        wait_for(c.all_serve, 5 * SLOW, "all serve")
        text, posts, marks = answer(c), role_posts(c, stopped), links_touched(c)
        refused = []
        asked = threading.Thread(target=lambda: refused.append(post(f"http://{c.address(stopped)}", "/v1/completions", BODY)))
        asked.start()  # in its socket when it goes on
        time.sleep(0.3)
    finally:
        old.process.send_signal(signal.SIGCONT)
    asked.join()
    assert refused[0].status == 503 and "standby" in refused[0].text
    wait_for(lambda: c.ha(stopped).get("leader") == c.address(c.other), READY_S, "it stands by")
    for s in streams:  # one that was whole before may have come
        rest = s.read_all()
        assert b"does not lead any more" in rest or b'"completion_tokens":512' in rest, rest[-500:]
    time.sleep(1)
    assert role_posts(c, stopped) == posts and links_touched(c) == marks and answer(c) == text
    assert c.ha(c.other)["role"] == "leader" and c.ha(c.other)["term"] > term
    alarm = get(f"http://127.0.0.1:{c.all_ports[stopped][1]}", "/v1/alarms").json[0]
    assert alarm["alarmId"] == "0xFC001000" and "was not renewed in time" in alarm["additionalInformation"], alarm
    for seen in c.terms():  # each new term is above those before it
        assert seen == sorted(set(seen)), seen
    assert "event=refused status=409" not in "".join(d.log() for d in c.instances)  # none was even tried


def test_etcd_is_away(pair):
    """For less than the lease: nobody notices. For more: nobody leads, and both say why; the same goes on when it is back."""
    c = pair
    before, text = ids(c), answer(c)
    c.etcd.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_S / 3)
    assert answer(c) == text and c.ha(c.lead)["role"] == "leader"
    c.etcd.process.send_signal(signal.SIGCONT)
    time.sleep(LEASE_S)
    assert c.ha(c.lead)["role"] == "leader" and answer(c) == text
    c.etcd.stop()
    began = time.monotonic()
    wait_for(lambda: c.ha(c.lead)["role"] == "standby", 2 * LEASE_S * SLOW, "it steps down")
    print(f"stood by {time.monotonic() - began:.2f} s after etcd was gone, lease {LEASE_S} s")
    assert time.monotonic() - began <= LEASE_S + 2 * SLOW
    assert c.ha(c.other)["role"] == "standby"
    a = get(c.status_base, "/v1/readiness")
    assert a.status == 503 and a.json["reasons"][0]["stage"] == "standby" and "etcd" in a.json["reasons"][0]["detail"]
    assert post(c.base, "/v1/completions", BODY).status == 503
    c.etcd.start()
    wait_for(lambda: c.ready(0) or c.ready(1), READY_S, "one serves again")
    c.use(0 if c.ready(0) else 1)
    wait_for(c.all_serve, READY_S, "all serve")
    assert ids(c) == before and answer(c) == text


def test_etcd_was_wiped(pair):
    """What the coordinators and the instances know is enough; terms go on rising."""
    c = pair
    before, text, term = ids(c), answer(c), c.ha(c.lead)["term"]
    c.etcd.wipe()
    c.etcd.start()

    def leads_again():  # the old one may take itself for the leader until its next renewal; instances refuse its term
        return [i for i in (0, 1) if (h := c.ha(i)).get("role") == "leader" and h.get("term", 0) > term and c.ready(i)]
    wait_for(leads_again, READY_S, "one leads again")
    c.use(leads_again()[0])
    wait_for(c.all_serve, READY_S, "all serve")
    assert ids(c) == before and answer(c) == text
    assert int(json.loads(c.etcd.value(STATE).splitlines()[0])["term"]) == c.ha(leads_again()[0])["term"]


def test_a_lower_term_is_refused_with_both(pair):
    c = pair
    term = c.ha(c.lead)["term"]
    for d in c.instances:
        a = post(d.mgmt, "/v1/role/decode", {"local": {}}, headers={"coordinator-epoch": str(term - 1)})
        assert a.status == 409 and f"must be at least {term}, which another coordinator has, got {term - 1}" in a.text
        a = post(d.base, "/v1/completions", BODY, headers={"coordinator-epoch": str(term - 1), "req-type": "prefill"})
        assert a.status == 409 and "Another coordinator leads" in a.text
        wait_for(lambda d=d: f"must be at least {term}, which another coordinator has, got {term - 1}" in d.log(), 5 * SLOW, "a line in its log")


def test_instances_that_register(tmp_path):
    """They find whoever leads. 2P2D; the leader dies, and the one after it as well."""
    with HaCluster(2, 2, register=True) as c:
        before, text, marks = ids(c), answer(c), links_touched(c)
        for dead in (0, 1):
            began = time.monotonic()
            c.coordinators[dead].kill()
            took = c.took_over(1 - dead, began)
            print(f"ready {took:.2f} s after the leader was killed, lease {LEASE_S} s, instances register")
            assert took <= LEASE_S + 2 + 2 * SLOW, took
            c.use(1 - dead)
            wait_for(c.all_serve, READY_S, "all serve")
            assert ids(c) == before and answer(c) == text and links_touched(c) == marks
            c.both_again(dead)


def test_a_leader_that_goes_on_without_etcd():
    """pd.ha_keep_on_store_loss: it serves as long as etcd is away, and says so; a lease that has ended meanwhile ends its lead."""
    with HaCluster(1, 1, coord={"pd": {"ha_keep_on_store_loss": True}}) as c:
        text = answer(c)
        c.etcd.stop()
        wait_for(lambda: c.ha(0)["leaseLost"], 3 * LEASE_S * SLOW, "it says that its lease is lost")
        time.sleep(1)
        assert c.ready(0) and answer(c) == text and c.ha(0)["role"] == "leader" and not c.ready(1)
        assert c.ha(0)["etcdTrouble"] != ""
        c.etcd.start()
        wait_for(lambda: any(c.ready(i) and not c.ha(i).get("leaseLost", True) for i in (0, 1)), READY_S, "one leads on a lease")
        c.use(0 if c.ready(0) else 1)
        wait_for(c.all_serve, READY_S, "all serve")
        assert answer(c) == text


def test_a_standby_passes_requests_on():
    """pd.ha_standby_relays: what clients ask of a standby the leader answers, errors and streams as they are; once, and nothing of the management plane.
    A leader that hangs does not hold them: what has begun breaks, what has not is 503, and both go on at whoever leads then."""
    with HaCluster(1, 1, coord={"pd": {"ha_standby_relays": True}}) as c:
        base, mgmt = (f"http://127.0.0.1:{p}" for p in c.all_ports[1][:2])
        text = answer(c)
        a = post(base, "/v1/completions", BODY, headers={"X-Request-Id": "from-a-client"})
        assert a.status == 200 and a.json["choices"][0]["text"] == text, a.text
        assert a.headers["X-Request-Id"] == "from-a-client" and a.headers["RequestUUID"]
        assert get(base, "/v1/models").json["data"][0]["id"] == "fable"
        whole = [Stream(b, "/v1/completions", {**BODY, "max_tokens": 20, "stream": True}).read_all() for b in (c.base, base)]
        texts = [re.findall(rb'"text":("(?:[^"\\]|\\.)*")', w) for w in whole]
        assert texts[0] == texts[1] and len(texts[0]) >= 20 and all(w.rstrip().endswith(b"data: [DONE]") for w in whole), whole
        bad = {**BODY, "max_tokens": -1}
        here, there = post(base, "/v1/completions", bad), post(c.base, "/v1/completions", bad)
        assert (here.status, here.text) == (there.status, there.text) and here.status in (400, 422)
        a = post(base, "/v1/completions", BODY, headers={"x-baton-relayed": "1"})
        assert a.status == 503 and a.headers["x-baton-leader"] == c.address(0)
        assert post(mgmt, "/v1/instances/drain", {}).status == 503
        s = Stream(base, "/v1/completions", {**BODY, "max_tokens": 900, "stream": True})
        s.read_until(2)
        s.abandon()
        wait_for(lambda: c.ha(1)["relayed"] == 0, 10 * SLOW, "whose client has gone is let go")
        streams = [Stream(base, "/v1/completions", {**BODY, "max_tokens": 900, "stream": True}) for _ in range(4)]
        c.coordinators[0].process.send_signal(signal.SIGSTOP)
        try:
            before, hung = c.ha(1)["relayed"], []
            asked = threading.Thread(target=lambda: hung.append(post(base, "/v1/completions", BODY, timeout=60 * SLOW)))
            asked.start()
            wait_for(lambda: c.ha(1)["relayed"] > before or hung or c.ready(1), READY_S, "it is passed on")
            waits = c.ha(1)["relayed"] > before and not hung
            c.took_over(1, time.monotonic())
            asked.join()
            for s in streams:  # one that was whole before may have come
                try:
                    assert s.read_all().rstrip().endswith(b"data: [DONE]")
                except (OSError, http.client.HTTPException):
                    pass
        finally:
            c.coordinators[0].process.send_signal(signal.SIGCONT)
        if waits:  # else the lease ended before it came
            assert hung[0].status == 503 and f"The leader ({c.address(0)}) was lost before it answered" in hung[0].text, hung[0].text
        wait_for(lambda: c.ha(0).get("leader") == c.address(1), READY_S, "the first stands by")
        c.use(1)
        wait_for(c.all_serve, READY_S, "all serve")
        a = post(f"http://{c.address(0)}", "/v1/completions", BODY)
        assert a.status == 200 and a.json["choices"][0]["text"] == text, a.text


EVENTS = ("kill the leader", "end the leader", "stop the leader for long", "stop the leader for a moment", "kill the standby", "stop etcd for a moment",
          "stop etcd for long", "kill etcd", "wipe etcd")


def happen(c, event, lead):
    """One of EVENTS; whoever it ended is started again."""
    d = c.coordinators[lead if "leader" in event else 1 - lead]
    if "etcd" in event and "stop" not in event:
        c.etcd.wipe() if "wipe" in event else c.etcd.stop()
        c.etcd.start()
    elif "stop" in event:
        process = c.etcd.process if "etcd" in event else d.process
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 1 if "long" in event else LEASE_S / 3)
        process.send_signal(signal.SIGCONT)
    else:
        d.kill(signal.SIGKILL if "kill" in event else signal.SIGTERM)
        d.start()


def leads(c):
    """Makes c speak with the coordinator that leads, once etcd says the same and all serve: one whose lock was wiped may still take itself for it."""
    lead = next((i for i in (0, 1) if c.ready(i) and c.etcd.value(LOCK) == c.address(i)), None)
    if lead is None:
        return False
    c.use(lead)
    return c.all_serve()


def test_one_leader_whatever_happens():
    """Every event once, in an order by chance, under load on both: an answer is right or an error, each term is one coordinator's, and terms of orders
    only rise."""
    seed = int(os.environ.get("HA_SEED", random.randrange(1 << 32)))
    order = random.Random(seed).sample(EVENTS, len(EVENTS))
    print(f"HA_SEED={seed}: {order}")
    with HaCluster(1, 1) as c:
        text, before = answer(c), ids(c)
        done, results = threading.Event(), [[], []]

        def ask(i):
            while not done.is_set():
                try:
                    a = post(f"http://{c.address(i)}", "/v1/completions", BODY, timeout=30 * SLOW)
                    results[i].append((a.status, a.json["choices"][0]["text"] if a.status == 200 else a.text))
                except (OSError, http.client.HTTPException):
                    pass
                time.sleep(0.05)

        clients = [threading.Thread(target=ask, args=(i,)) for i in (0, 1)]
        for t in clients:
            t.start()
        try:
            for event in order:
                lead = 0 if c.ready(0) else 1
                began = time.monotonic()
                happen(c, event, lead)
                wait_for(lambda: c.ready(0) != c.ready(1), READY_S, f"one serves after: {event}")
                print(f"{event}: {time.monotonic() - began:.1f} s")
        finally:
            done.set()
            for t in clients:
                t.join()
        wait_for(lambda: leads(c), READY_S, "one leads, and all serve")
        assert ids(c) == before and answer(c) == text
        statuses = [r[0] for r in results[0] + results[1]]
        print({s: statuses.count(s) for s in set(statuses)})
        assert set(statuses) <= {200, 500, 503} and statuses.count(200) > 20
        assert {r[1] for r in results[0] + results[1] if r[0] == 200} == {text}
        led = [int(t) for d in c.coordinators for t in re.findall(r"event=(?:leads|term_raised) term=(\d+)", d.log())]
        assert len(led) == len(set(led)) and len(led) >= 4, led
        for seen in c.terms():
            assert seen == sorted(set(seen)) and set(seen) <= set(led), (seen, led)


def items(pki, plane, name):
    return {"ca_cert": pki.file("cluster", "ca.pem"), "tls_cert": pki.file(plane, name + ".pem"), "tls_key": pki.file(plane, name + ".key"),
            "tls_passwd": pki.file(plane, name + ".pass")}


def b64(text):
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """An etcd with users: "baton" may use /a/, and has the password "good"."""
    e = Etcd(str(tmp_path_factory.mktemp("guarded")))
    e.start()
    try:
        calls = [("user/add", {"name": "root", "password": "r"}), ("role/add", {"name": "root"}), ("user/grant", {"user": "root", "role": "root"}),
                 ("user/add", {"name": "baton", "password": "good"}), ("role/add", {"name": "coordinators"}),
                 ("role/grant", {"name": "coordinators", "perm": {"permType": "READWRITE", "key": b64("/a/"), "range_end": b64("/a0")}}),
                 ("user/grant", {"user": "baton", "role": "coordinators"}), ("enable", {})]
        for path, body in calls:
            assert e.call(f"/v3/auth/{path}", body)[0] == 200, path
        yield e
    finally:
        e.stop()


def candidate(e, folder, prefix, password, more=None):
    """A coordinator alone, without instances."""
    (folder / "table.json").write_text('{"version":"1.0","status":"completed","server_group_list":[{"group_id":"2","server_list":[]}]}')
    user = {}
    if password is not None:
        secret = folder / "password"
        secret.write_text(password + "\n")
        secret.chmod(0o400)
        user = {"etcd_user": "baton", "etcd_password_file": "password"}
    ports = free_ports(4)
    names = ("predict_port", "manage_port", "status_port", "external_port")
    conf = {"coordinator": {"http_config": dict(zip(names, map(str, ports))),
                            "backup_config": {"function_enable": True, "database_server_dns": f"127.0.0.1:{e.port}"}},
            "controller": {"global_rank_table_file_path": str(folder / "table.json")},
            "pd": {"ha_lease_s": LEASE_S, "etcd_prefix": prefix, **user}}
    return Daemon("candidate", "coordinator", merge(conf, more or {}), str(folder)).start()


@pytest.mark.parametrize("prefix, password, line", [
    ("/a/coordinator/", "bad", r'event=etcd_refuses .*key=/a/coordinator/leader-lock detail="/v3/auth/authenticate status 400: .*\(user baton\)"'),
    ("/b/coordinator/", "good", r'event=etcd_refuses .*key=/b/coordinator/leader-lock detail="/v3/kv/range status 403: .*permission denied \(user baton\)"'),
    ("/a/coordinator/", "good", r"event=leads term=\d+"),
])
def test_users_of_etcd(guarded, tmp_path, prefix, password, line):
    """One line says who asked for what, and what etcd answered; it is not said again."""
    d = candidate(guarded, tmp_path, prefix, password)
    try:
        wait_for(lambda: re.search(line, d.log()), 30 * SLOW, line)
        time.sleep(3)
        assert d.log().count("event=etcd_refuses") == (0 if "leads" in line else 1)
        assert d.alive()
    finally:
        d.stop()


def test_etcd_over_tls(tmp_path):
    """Both show certificates; one of another CA is told apart, by either side."""
    with Pki() as pki:
        e = Etcd(str(tmp_path), pki)
        e.start()
        try:
            for (plane, name), line in ((("cluster", "peer"), r"event=leads term=\d+"), (("management", "client"), r"event=etcd_away .*detail=\".+\"")):
                tls = {"coordinator": {"tls_config": {"etcd_server_tls_enable": True, "etcd_server_tls_items": items(pki, plane, name)}}}
                folder = tmp_path / plane
                folder.mkdir()
                d = candidate(e, folder, "/t/", None, tls)
                try:
                    wait_for(lambda d=d, line=line: re.search(line, d.log()), 15 * SLOW, line)
                finally:
                    d.stop()
            assert "bad certificate" in open(e.log_path).read() or "unknown authority" in open(e.log_path).read()
        finally:
            e.stop()


@pytest.mark.parametrize("pd, backup, text", [
    ({"etcd_user": "u"}, {}, 'pd.etcd_user and pd.etcd_password_file must be given both or not at all, got "u" and ""'),
    ({"etcd_prefix": "x/"}, {}, 'begin and end with /, got "x/"'),
    ({"ha_lease_s": 1}, {}, "pd.ha_lease_s must be an integer from 2 to 300, got 1"),
    ({"state_dir": "/tmp"}, {}, 'pd.state_dir must be empty while coordinator.backup_config.function_enable is true, got "/tmp"'),
    ({}, {"database_server_dns": "10.0.0.1"}, '"10.0.0.1" must be a loopback address while coordinator.tls_config.etcd_server_tls_enable is false'),
    ({}, {"database_server_dns": "127.0.0.1:0"}, '"127.0.0.1:0" must have a port from 1 to 65535'),
    ({}, {"database_server_dns": ","}, '"," names no server'),
])
def test_bad_settings(tmp_path, pd, backup, text):
    conf = tmp_path / "c.json"
    conf.write_text(json.dumps({"coordinator": {"backup_config": {"function_enable": True, "database_server_dns": "127.0.0.1", **backup}}, "pd": pd}))
    r = subprocess.run([f"{BUILD}/bin/coordinator", "-c", str(conf), "--check-config"], capture_output=True, text=True)
    assert r.returncode == 2 and text in r.stderr, r.stderr


def test_under_tls_it_needs_a_certificate_for_the_leader(tmp_path):
    """With TLS of the user plane a standby must have something to show to the leader's (tests/chaos/test_tls_hand_over.py has it)."""
    conf = tmp_path / "c.json"
    with Pki() as pki:
        tls = {"request_server_tls_enable": True, "request_server_tls_items": items(pki, "cluster", "peer")}
        for more, code in (({}, 2), ({"leader_client_tls_enable": True, "leader_client_tls_items": items(pki, "cluster", "peer")}, 0)):
            conf.write_text(json.dumps({"coordinator": {"backup_config": {"function_enable": True, "database_server_dns": "127.0.0.1"}, "tls_config": {**tls, **more}},
                                        "pd": {"ha_standby_relays": True}}))
            r = subprocess.run([f"{BUILD}/bin/coordinator", "-c", str(conf), "--check-config"], capture_output=True, text=True)
            text = "coordinator.tls_config.leader_client_tls_enable must be true while pd.ha_standby_relays and coordinator.tls_config.request_server_tls_enable are, got false"
            assert r.returncode == code and (text in r.stderr) == (code == 2), r.stderr
