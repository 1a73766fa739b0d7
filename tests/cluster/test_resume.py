"""Goal: a client that comes back gets the rest of its answer, token for token, from the coordinator that had it or from the one that leads after its
death; a retry with the same Idempotency-Key gets the same answer; nobody gets what is another's, and hostile ids and floods of keys cost no more than
the memory that is set aside. Method: real daemons, a real etcd; connections that are cut in the middle; a leader that is killed with streams under way.
"""
import http.client
import json
import os
import re
import signal
import subprocess
import time

import npm_clients
import pytest
from etcd_server import LEASE_S, Etcd, HaCluster
from families import made_up_ids
from harness import READY_S, ROOT, SLOW, Cluster, Daemon, Stream, events, free_ports, get, in_threads, merge, post, set_door, wait_for
from pki import Pki

ON = {"pd": {"replicate_requests": True}}
N_STREAMS = 20
TOKENS = 90


def body(i=0, **more):
    """Another prompt and seed for each i."""
    return {"model": "fable", "prompt": made_up_ids(20, 90 + i), "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0.8, "seed": i, "stream": True,
            **more}


def ids_of(raw):
    return [int(n) for n in re.findall(rb"^id: (?:resp_)?\d+:(\d+)\r?$", raw, re.M)]


def last_id(raw):
    return re.findall(rb"^id: ((?:resp_)?\d+:\d+)\r?$", raw, re.M)[-1].decode()


def whole_events(raw):
    """Up to the end of the last one that is whole, as a client that reads events has it."""
    ends = [m.end() for m in re.finditer(rb"\r?\n\r?\n", raw)]
    return raw[:ends[-1]] if ends else b""


def texts(raw):
    return [c["text"] for e in events(raw) for c in e.get("choices", [])]


def read_broken(s):
    """What came before the connection broke."""
    try:
        s.read_all()
    except (OSError, http.client.HTTPException):
        pass
    return whole_events(s.raw)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alices-key-0123456789\nbobs-key-0123456789abc\n")
    keys.chmod(0o400)
    with Cluster(coord={"coordinator": {"apiKeysFile": str(keys)}, "pd": {**ON["pd"], "replicate_mib": 2}}) as c:
        yield c


ALICE, BOB = ({"Authorization": f"Bearer {k}"} for k in ("alices-key-0123456789", "bobs-key-0123456789abc"))
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 40, "stream": True}
PATHS = {
    "/v1/completions": body(max_tokens=40),
    "/v1/chat/completions": {**CHAT, "stream_options": {"include_usage": True}},
    "/v1/messages": CHAT,
    "/v1/responses": {"model": "fable", "input": "Tell me a story", "max_output_tokens": 40, "stream": True},
    "/generate_stream": {"inputs": "Tell me a story", "parameters": {"max_new_tokens": 40, "do_sample": False}},
    "/v2/models/fable/generate_stream": {"text_input": "Tell me a story", "parameters": {"max_new_tokens": 40, "do_sample": False}},
    "/api/v1/task/server-streaming-text-generation": {"model_id": "fable", "inputs": "Tell me a story", "parameters": {"max_new_tokens": 40}},
}


@pytest.mark.parametrize("path", PATHS)
def test_the_connection_of_a_stream_is_cut(one, path):
    """Every event has an id, numbered without a gap; the rest comes to whoever shows the last one, while it runs and when it has ended."""
    s = Stream(one.base, path, PATHS[path], headers=ALICE)
    got = whole_events(s.read_until(3, b"\r\n\r\n" if path.startswith("/api") else b"\n\n"))
    s.abandon()
    back = {**ALICE, "Last-Event-ID": last_id(got)}
    rest = Stream(one.base, path, PATHS[path], headers=back).read_all()
    n = len(re.findall(rb"\r?\n\r?\n", got + rest))
    assert ids_of(got + rest) == list(range(n)) and n > 3, (got + rest)[-500:]
    again = post(one.base, path, b"", headers=back)  # with no body too, and as often as it likes
    assert again.status == 200 and again.body == rest
    assert again.headers["Content-Type"] == s.response.getheader("Content-Type")
    nothing = post(one.base, path, PATHS[path], headers={**ALICE, "Last-Event-ID": last_id(rest)})
    assert (nothing.status, nothing.body) == (200, b"")


def test_who_may_come_back(one):
    """Nobody but its owner, with the same request; what is no id of a stream here is 404, in the family's shape."""
    raw = Stream(one.base, "/v1/completions", body(1), headers=ALICE).read_all()
    last = last_id(raw)
    number = last.split(":")[0]

    def come(last, headers=ALICE, path="/v1/completions", what=body(1)):
        return post(one.base, path, what, headers={**headers, "Last-Event-ID": last})
    bad = ["x", ":", "1", "1:", ":1", "1:1", f"{number}:-1", f"{number}: 1", f"{number}:1x", f"{number}:{TOKENS + 5}", f"{number}:99999999999", f"0{number}x:1",
           "9" * 19 + ":1", "9" * 400, f"resp_resp_{number}:1", f"{number}:1,{number}:2", "\u00ff:1", "0:0", "%00:1"]
    for text in bad:
        a = come(text)
        assert a.status == 404 and "Last-Event-ID must be the id of an event" in a.text, (text, a.text)
    a = come(last, BOB)
    assert a.status == 404 and "there is no such stream" in a.text
    assert come(last, path="/v1/chat/completions", what=CHAT).status == 404
    for path in PATHS:
        a = come("1:1", path=path, what=PATHS[path])
        plain = post(one.base, path, b"{", headers=ALICE)  # an error of that family
        assert a.status == 404 and a.json and set(a.json) <= set(plain.json), (path, a.text, plain.text)
    a = come(last, what=body(2))
    assert a.status == 422 and a.headers["x-should-retry"] == "false"
    assert come(last).status == 200


def test_a_newer_connection_takes_the_stream(one):
    first = Stream(one.base, "/v1/completions", body(3), headers=ALICE)
    got = whole_events(first.read_until(3))
    second = Stream(one.base, "/v1/completions", body(3), headers={**ALICE, "Last-Event-ID": last_id(got)})
    rest = second.read_all()
    assert ids_of(got + rest) == list(range(TOKENS + 1))
    old = read_broken(first)
    assert not old.endswith(b"data: [DONE]\n\n") and ids_of(old) == list(range(len(ids_of(old))))


def test_a_response_is_kept_whose_client_came_back(one):
    """As one whose client stayed; what is cancelled ends, and is not come back to."""
    what = {"model": "fable", "input": "Tell me a story", "max_output_tokens": 60, "stream": True}
    s = Stream(one.base, "/v1/responses", what, headers=ALICE)
    got = whole_events(s.read_until(4))
    s.abandon()
    whole = got + Stream(one.base, "/v1/responses", what, headers={**ALICE, "Last-Event-ID": last_id(got)}).read_all()
    name = "resp_" + last_id(got).split("_")[1].split(":")[0]
    kept = get(one.base, f"/v1/responses/{name}", headers=ALICE)
    assert kept.status == 200 and kept.json["status"] in ("completed", "incomplete"), kept.text
    assert kept.json == events(whole)[-1]["response"]
    assert get(one.base, f"/v1/responses/{name}?stream=true", headers=ALICE).body == whole
    loads = one.loads()
    s = Stream(one.base, "/v1/responses", {**what, "max_output_tokens": 500, "ignore_eos": True}, headers=ALICE)
    last = last_id(whole_events(s.read_until(4)))
    name = "resp_" + last.split("_")[1].split(":")[0]
    assert post(one.base, f"/v1/responses/{name}/cancel", b"", headers=ALICE).json["status"] == "cancelled"
    one.wait_idle(loads, 5 * SLOW)  # and not as long as one whose client may come back
    assert post(one.base, "/v1/responses", b"", headers={**ALICE, "Last-Event-ID": last}).status == 404
    assert b"response.completed" not in read_broken(s)


def test_a_client_that_stays_away(one):
    """It is not worked for without end; what ran ends, and is forgotten."""
    with Cluster(coord={"pd": {**ON["pd"], "resume_grace_s": 1, "resume_keep_s": 1}}) as c:
        loads = c.loads()
        s = Stream(c.base, "/v1/completions", body(max_tokens=500))
        last = last_id(s.read_until(3))
        s.abandon()
        c.wait_idle(loads, 20 * SLOW)
        wait_for(lambda: post(c.base, "/v1/completions", body(max_tokens=500), headers={"Last-Event-ID": last}).status == 404, 10 * SLOW, "forgotten")
        done = last_id(Stream(c.base, "/v1/completions", body(4, max_tokens=3)).read_all())
        wait_for(lambda: post(c.base, "/v1/completions", b"", headers={"Last-Event-ID": done}).status == 404, 10 * SLOW, "an answer is forgotten")


def test_a_retry_with_the_same_key(one):
    plain = body(5, stream=False)

    def ask(key, what=plain, who=ALICE, path="/v1/completions"):
        return post(one.base, path, what, headers={**who, "Idempotency-Key": key})
    first = ask("k-1")
    assert first.status == 200 and "idempotent-replayed" not in first.headers
    for key in ("k-1", '"k-1"'):  # a string of structured fields, or as it is
        again = ask(key)
        assert (again.status, again.body, again.headers["idempotent-replayed"]) == (200, first.body, "true")
        assert again.headers["Content-Type"] == first.headers["Content-Type"] and again.headers["RequestUUID"] == first.headers["RequestUUID"]
    a = ask("k-1", body(6, stream=False))
    assert a.status == 422 and "Idempotency-Key was used for a request with another body" in a.text and a.headers["x-should-retry"] == "false"
    others = ask("k-1", who=BOB), ask("k-2")
    for other in others:
        assert other.status == 200 and other.json["id"] != first.json["id"] and "idempotent-replayed" not in other.headers
        assert other.json["choices"] == first.json["choices"]
    for bad in ("", '""', "a b", "x" * 256, "\u00e9"):
        a = ask(bad)
        assert a.status == 400 and "Idempotency-Key must have from 1 to 255 visible ASCII characters" in a.text, (bad, a.text)
    for path, what in (("/api/chat", {**CHAT, "stream": False, "options": {"num_predict": 9}}), ("/generate", {"prompt": "Tell me", "max_tokens": 9, "stream": False})):
        one_piece = [ask(f"k{path}", what, path=path) for _ in range(2)]  # families whose streams have no ids
        assert [a.status for a in one_piece] == [200, 200] and one_piece[0].body == one_piece[1].body and one_piece[1].headers["idempotent-replayed"] == "true", path
    refused = ask("k-3", body(7, stream=False, max_tokens=-1))
    assert refused.status in (400, 422) and ask("k-3", body(7, stream=False)).status == 200  # an error is none of its answers


def test_a_retry_while_the_first_runs(one):
    """Its client is there: 409. It has gone: the retry gets the answer that it waited for."""
    plain = json.dumps(body(8, stream=False, max_tokens=400)).encode()
    conn = http.client.HTTPConnection(one.base[7:], timeout=60 * SLOW)
    conn.request("POST", "/v1/completions", plain, {**ALICE, "Idempotency-Key": "k-9"})
    wait_for(lambda: get(one.base, "/load", headers=ALICE).json["server_load"] > 0, 10 * SLOW, "it runs")
    a = post(one.base, "/v1/completions", plain, headers={**ALICE, "Idempotency-Key": "k-9"})
    assert a.status == 409 and a.headers["Retry-After"] == "1" and "is still running" in a.text, a.text
    conn.close()
    a = wait_for(lambda: (r := post(one.base, "/v1/completions", plain, headers={**ALICE, "Idempotency-Key": "k-9"})).status != 409 and r, 30 * SLOW, "an answer")
    assert a.status == 200 and a.json["usage"]["completion_tokens"] == 400
    stream = Stream(one.base, "/v1/completions", body(9), headers={**ALICE, "Idempotency-Key": "k-10"})
    got = whole_events(stream.read_until(3))
    stream.abandon()
    raw = Stream(one.base, "/v1/completions", body(9), headers={**ALICE, "Idempotency-Key": "k-10"}).read_all()
    assert raw.startswith(got) and ids_of(raw) == list(range(TOKENS + 1))


def test_a_flood_of_keys(one):
    """One client's keys cost the memory set aside and no more, and not another's answer."""
    mine = post(one.base, "/v1/completions", body(10, stream=False, max_tokens=2), headers={**BOB, "Idempotency-Key": "mine"})

    def flood(i):
        for k in range(40):
            big = body(11, stream=False, max_tokens=1, padding="x" * 60000)
            assert post(one.base, "/v1/completions", big, headers={**ALICE, "Idempotency-Key": f"f-{i}-{k}"}).status == 200
    in_threads([lambda i=i: flood(i) for i in range(4)])
    used = [int(float(m)) for m in re.findall(r'coordinator_limit_used{reason="journal_bytes"} (\S+)', get(one.external, "/metrics").text)]
    assert used and used[0] <= 2 << 20, used
    again = post(one.base, "/v1/completions", body(10, stream=False, max_tokens=2), headers={**BOB, "Idempotency-Key": "mine"})
    assert again.body == mine.body


def test_it_is_off_unless_asked_for(pair):
    raw = Stream(pair.base, "/v1/completions", body(max_tokens=5)).read_all()
    assert b"id: " not in raw
    a = post(pair.base, "/v1/completions", body(), headers={"Last-Event-ID": "1:1"})
    assert a.status == 404 and "pd.replicate_requests is false" in a.text
    plain = [post(pair.base, "/v1/completions", body(stream=False, max_tokens=3), headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert plain[0].json["id"] != plain[1].json["id"]
    assert get(pair.mgmt, "/v2/journal").status == 404


# ---- the journal between coordinators
def lone(folder, name, etcd, pki, replica):
    """A coordinator without instances, over TLS; replica: (plane, name) of the certificate that it shows to the leader, or None."""
    (folder / "table.json").write_text('{"version":"1.0","status":"completed","server_group_list":[{"group_id":"2","server_list":[]}]}')
    ports = dict(zip(("predict_port", "manage_port", "status_port", "external_port"), map(str, free_ports(4))))
    set_door(int(ports["manage_port"]), pki.context("management"))
    tls = {}
    if replica:
        tls = {"replica_client_tls_enable": True, "replica_client_tls_items": {
            "ca_cert": pki.file("management", "ca.pem"), "tls_cert": pki.file(replica[0], replica[1] + ".pem"),
            "tls_key": pki.file(replica[0], replica[1] + ".key"), "tls_passwd": pki.file(replica[0], replica[1] + ".pass")}}
    conf = merge(pki.coordinator(), {
        "coordinator": {"http_config": ports, "tls_config": tls,
                        "backup_config": {"function_enable": True, "database_server_dns": f"127.0.0.1:{etcd.port}"}},
        "controller": {"global_rank_table_file_path": str(folder / "table.json")}, "pd": {"ha_lease_s": LEASE_S, "replicate_requests": True}})
    return Daemon(name, "coordinator", conf, str(folder)), f"https://127.0.0.1:{ports['manage_port']}"


def test_who_may_read_the_journal(tmp_path):
    """Over TLS: one with a certificate of the management plane; none that may only register, of another plane, or without one."""
    with Pki() as pki:
        etcd = Etcd(str(tmp_path))
        etcd.start()
        daemons = []
        try:
            first, mgmt = lone(tmp_path, "first", etcd, pki, ("management", "client"))
            daemons.append(first.start())
            wait_for(lambda: "event=leads" in first.log(), READY_S, "the first leads")
            for name, cert, line in (("good", ("management", "client"), r"journal event=synced leader=127.0.0.1:\d+ term=\d+ entries=0"),
                                     ("limited", ("register", "client"), r"journal event=not_followed .*status 403"),
                                     ("foreign", ("status", "client"), r"journal event=not_followed .*why=\".+\"")):
                d, _ = lone(tmp_path, name, etcd, pki, cert)
                daemons.append(d.start())
                wait_for(lambda d=d, line=line: re.search(line, d.log()), READY_S, line)
            assert get(mgmt, "/v2/status").json["coordinator"]["ha"]["journal"]["copiesSynced"] == 1
            d, _ = lone(tmp_path, "none", etcd, pki, None)
            with open(d.conf_path, "w") as f:
                json.dump(d.conf, f)
            r = subprocess.run(d.command() + ["--check-config"], capture_output=True, text=True)
            assert r.returncode == 2 and "replica_client_tls_enable must be true while pd.replicate_requests" in r.stderr, r.stderr
        finally:
            for d in daemons:
                d.stop()
            etcd.stop()


# ---- the leader dies
@pytest.fixture(scope="module")
def both():
    with HaCluster(1, 1, coord=ON) as c:
        wait_for(lambda: c.ha(1).get("journal", {}).get("synced"), READY_S, "the second has a copy")
        yield c


def come_back(base, path, what, got, deadline):
    """As a client does it: again and again until somebody answers."""
    headers = {"Last-Event-ID": last_id(got)} if got else {}
    while True:
        try:
            s = Stream(base, path, what, headers=headers)
            if s.status == 200:
                return got + s.read_all()
            assert s.status == 503, (s.status, s.read_all())
        except (OSError, http.client.HTTPException):
            pass
        assert time.monotonic() < deadline, "nobody answers"
        time.sleep(0.1)


def npm_chats(c, n=4):
    """OpenAI's client over the fetch of the docs; runs until it has been waited for."""
    bases = ",".join(f"http://{c.address(i)}" for i in (0, 1))
    return subprocess.Popen(["node", "resume_client.mjs", bases, str(n), "80"], cwd=npm_clients.FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def chats_of(p):
    out, err = p.communicate(timeout=120 * SLOW)
    assert p.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def test_the_docs_have_the_fetch_that_is_tested():
    with open(os.path.join(ROOT, "docs", "high-availability.md")) as page, open(os.path.join(npm_clients.SOURCE, "resuming_fetch.mjs")) as code:
        assert f"```js\n{code.read()}```\n" in page.read()


def test_the_leader_is_killed_with_streams(both):
    """Streams, some of several choices, answers with a key, and the npm client of the docs: all of them complete, as in a calm run."""
    c = both
    npm_clients.install()
    lead = 0 if c.ready(0) else 1
    other = 1 - lead
    wait_for(lambda: c.ha(other).get("journal", {}).get("synced"), READY_S, "the other has a copy")
    kinds = [body(i, n=2 if i % 5 == 4 else 1) for i in range(N_STREAMS)]
    plain = body(77, stream=False, max_tokens=300)
    calm = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b).read_all() for b in kinds])
    calm_chats = chats_of(npm_chats(c))
    calm_plain = post(c.base, "/v1/completions", plain).json["choices"]
    done = post(c.base, "/v1/completions", body(78, stream=False), headers={"Idempotency-Key": "done"})
    chats = npm_chats(c)
    assert chats.stdout.readline() == "streaming\n"
    streams = [Stream(c.base, "/v1/completions", b) for b in kinds]
    slow = http.client.HTTPConnection(c.base[7:], timeout=60 * SLOW)
    slow.request("POST", "/v1/completions", json.dumps(plain), {"Idempotency-Key": "slow"})
    for s in streams:
        s.read_until(8)
    began = time.monotonic()
    c.coordinators[lead].kill()
    got = [read_broken(s) for s in streams]
    took = c.took_over(other, began)
    c.use(other)
    deadline = time.monotonic() + 60 * SLOW
    raw = in_threads([lambda b=b, g=g: come_back(c.base, "/v1/completions", b, g, deadline) for b, g in zip(kinds, got)])
    print(f"ready {took:.2f} s after the leader was killed, lease {LEASE_S} s; all complete after {time.monotonic() - began:.2f} s")
    assert took <= LEASE_S + 1 + 2 * SLOW, took
    for i, (now, before) in enumerate(zip(raw, calm)):
        assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(b"data: [DONE]\n\n"), i
        for choice in range(kinds[i]["n"]):
            one = [[x["text"] for e in events(r) for x in e.get("choices", []) if x["index"] == choice] for r in (now, before)]
            assert one[0] == one[1], i
    again = post(c.base, "/v1/completions", body(78, stream=False), headers={"Idempotency-Key": "done"})
    assert again.body == done.body and again.headers["idempotent-replayed"] == "true"
    assert chats_of(chats) == calm_chats
    rest = post(c.base, "/v1/completions", plain, headers={"Idempotency-Key": "slow"})
    assert rest.status == 200 and rest.json["choices"] == calm_plain
    c.both_again(lead)


def test_the_leader_ends_as_planned(both):
    """The lead goes over at once, with streams under way; their clients stay where they are and see a pause, and so do those that wait for a whole
    answer, with a key or without. Then the old one ends."""
    c = both
    lead = 0 if c.ready(0) else 1
    other = 1 - lead
    c.use(lead)
    wait_for(lambda: c.ha(lead).get("journal", {}).get("copiesSynced") and c.ha(other)["journal"]["synced"], READY_S, "the other has a copy")
    kinds = [body(i, max_tokens=150, n=2 if i == 3 else 1) for i in range(6)]
    plain = [body(20 + i, stream=False, max_tokens=150) for i in range(2)]
    keys = [{}, {"Idempotency-Key": "planned"}]
    calm = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b).read_all() for b in kinds])
    calm_plain = in_threads([lambda b=b: post(c.base, "/v1/completions", b).json["choices"] for b in plain])
    streams = [Stream(c.base, "/v1/completions", b) for b in kinds]
    waiting = [http.client.HTTPConnection(c.base[7:], timeout=60 * SLOW) for _ in plain]
    for conn, b, k in zip(waiting, plain, keys):
        conn.request("POST", "/v1/completions", json.dumps(b), k)
    for s in streams:
        s.read_until(5)
    wait_for(lambda: get(c.base, "/load").json["server_load"] == len(streams) + len(waiting), 10 * SLOW, "all are taken")
    began = time.monotonic()
    c.coordinator.process.send_signal(signal.SIGTERM)
    took = c.took_over(other, began)
    raw = in_threads([s.read_all for s in streams])
    answers = [conn.getresponse() for conn in waiting]
    print(f"ready {took:.2f} s after SIGTERM with {len(kinds)} streams, lease {LEASE_S} s; all complete after {time.monotonic() - began:.2f} s")
    assert c.coordinator.process.wait(timeout=30 * SLOW) == 0
    c.coordinator.killed = True
    assert took <= 2 * SLOW + 1, took
    for i, (now, before) in enumerate(zip(raw, calm)):
        assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(b"data: [DONE]\n\n"), i
        for choice in range(kinds[i]["n"]):
            one = [[x["text"] for e in events(r) for x in e.get("choices", []) if x["index"] == choice] for r in (now, before)]
            assert one[0] == one[1], i
    assert [a.status for a in answers] == [200, 200]
    assert [json.loads(a.read())["choices"] for a in answers] == calm_plain
    c.use(other)
    assert "event=goes_on" in c.coordinator.log()
    c.both_again(lead)
