"""Goal: console and chat are served whole, with a policy that lets nothing else in, to browsers and to nobody who asks for JSON; what they ask is there,
bounded, and costs next to nothing; a page of another site can neither read nor order anything. In a real browser: tests/console.
Method: the files as the server sends them, read by node; answers against a schema; requests as browsers and clients make them.
"""
import re
import subprocess

import jsonschema
import pytest
from harness import ANSWER_S, SLOW, Cluster, Standalone, get, in_threads, post, request, wait_for

PAGE = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}  # Chromium's
DATA = {"type": "object"}
NUMBER, TEXT, BOOL = {"type": "number"}, {"type": "string"}, {"type": "boolean"}


def members(required, **optional):
    return {"type": "object", "properties": {**required, **optional}, "required": list(required), "additionalProperties": False}


LINK = members({"to": NUMBER}, rttMs=NUMBER, capacityBytesPerS=NUMBER, bytesPerS=NUMBER, transferMs=NUMBER, n=NUMBER, error=TEXT, detail=TEXT, breaker=TEXT)
INSTANCE = members({"id": NUMBER, "name": TEXT, "address": TEXT, "group": NUMBER, "role": TEXT, "state": TEXT, "model": TEXT, "slotsTotal": NUMBER, "slotsFree": NUMBER,
                    "blocksTotal": NUMBER, "blocksFree": NUMBER, "waiting": NUMBER, "running": NUMBER, "kvLeases": NUMBER, "tasks": NUMBER, "tokensPerS": NUMBER, "rttMs": NUMBER},
                   links={"type": "array", "items": LINK}, lastError=TEXT, breaker=TEXT, embedsOnly=BOOL, wantedRole=TEXT, standsIn=BOOL, backInS=NUMBER, draining=TEXT)
COORDINATOR = members({"version": TEXT, "commit": TEXT, "boot": TEXT, "startedUnixMs": NUMBER, "model": TEXT, "leads": BOOL, "ready": BOOL, "reasons": {"type": "array"},
                       "needs": DATA, "requestsInFlight": NUMBER, "requestsQueued": NUMBER, "requestsReceived": NUMBER, "requestsFinished": NUMBER,
                       "requestsFailed": NUMBER, "requestsRetried": NUMBER,
                       "requestsCancelled": NUMBER, "requestsRefused": NUMBER, "userPlane": DATA, "targets": members({"ttftMs": NUMBER, "gapMs": NUMBER})}, ha=DATA)
MOVING = members({"id": TEXT, "state": TEXT, "p": NUMBER, "d": NUMBER})
CLUSTER = members({"coordinator": COORDINATOR, "instances": {"type": "array", "items": INSTANCE}, "moving": {"type": "array", "items": MOVING, "maxItems": 64}})
RECORD = members({"id": TEXT, "path": TEXT, "state": TEXT, "stream": BOOL, "attempt": NUMBER, "p": NUMBER, "d": NUMBER, "pName": TEXT, "dName": TEXT, "promptTokens": NUMBER,
                  "cachedTokens": NUMBER, "outputTokens": NUMBER, "kvBytes": NUMBER, "kvBlocks": NUMBER, "kvBlocksHeld": NUMBER, "kvTransferMs": NUMBER, "kvExposedMs": NUMBER,
                  "startedUnixMs": NUMBER, "queueMs": NUMBER, "prefillQueueMs": NUMBER, "prefillMs": NUMBER, "ttftMs": NUMBER, "totalMs": NUMBER, "lostAttempts": {"type": "array"}},
                 status=NUMBER, cause=TEXT, tenant=TEXT, adapter=TEXT)
REQUESTS = members({"running": {"type": "array", "items": RECORD, "maxItems": 128}, "recent": {"type": "array", "items": RECORD, "maxItems": 128}, "nRunning": NUMBER, "nEnded": NUMBER})


def ask(c, prompt="Once upon a time", **more):
    a = post(c.base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": 8, **more})
    assert a.status == 200, a.text
    return a


def files_of(base, page):
    """Everything that a page names, and what that names: {name: answer}."""
    files, left = {}, [""]
    while left:
        name = left.pop()
        if name in files:
            continue
        a = files[name] = get(base, f"/{page}/{name}")
        assert a.status == 200, (page, name, a.status)
        folder = name[:name.rfind("/") + 1]
        left += re.findall(r'(?:src|href)="([\w./]+\.\w+)"', a.text) if name == "" else [folder + f for f in re.findall(r'from "\./([\w.]+)"', a.text)]
    return files


@pytest.fixture(params=["console", "chat", "alone"])
def page(request, pair):
    if request.param == "alone":
        with Standalone() as s:
            yield s.base, "chat"
    else:
        yield (pair.mgmt if request.param == "console" else pair.base), request.param


def test_every_file_is_served_under_a_strict_policy(page):
    base, name = page
    files = files_of(base, name)
    folder = "web/" if name == "chat" else ""
    assert set(files) >= {""} | {folder + f for f in ("style.css", "icon.svg", "ui.js", f"{name}.js")} and len(files) >= 6
    types = {"": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml", "js": "text/javascript; charset=utf-8"}
    for f, a in files.items():
        policy = dict(p.strip().split(" ", 1) for p in a.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'", f
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'" and "unsafe" not in str(policy)
        assert a.headers["X-Content-Type-Options"] == "nosniff" and a.headers["Content-Type"] == types[f.rsplit(".", 1)[-1]], f
        again = get(base, f"/{name}/{f}", headers={"If-None-Match": a.headers["ETag"]})
        assert (again.status, again.body) == (304, b"") and again.headers["ETag"] == a.headers["ETag"], f
        assert request(base + f"/{name}/{f}", "HEAD").headers["Content-Length"] == str(len(a.body))
    html = files[""].text
    assert not re.search(r"<style|<script[^>]*>[^<]|\son\w+=|\sstyle=|https?://", html), "something inline, or from elsewhere"
    assert all(not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage", a.text) for a in files.values())
    assert get(base, f"/{name}/nothing.js").status == 404
    moved = get(base, f"/{name}")
    assert moved.status == 308 and moved.headers["Location"] == f"{name}/"


def test_node_reads_every_script(pair):
    for base, name in ((pair.mgmt, "console"), (pair.base, "chat")):
        for f, a in files_of(base, name).items():
            if f.endswith(".js"):
                done = subprocess.run(["node", "--check", "--input-type=module"], input=a.text, capture_output=True, text=True, timeout=ANSWER_S)
                assert done.returncode == 0, (f, done.stderr)


def test_only_a_browser_is_led_to_a_page(pair):
    with Standalone() as alone:
        for base, to in ((pair.base, "chat/"), (pair.mgmt, "console/"), (alone.base, "chat/")):
            a = get(base, "/", headers=PAGE)
            assert (a.status, a.headers["Location"], a.headers["Vary"]) == (302, to, "Accept")
            assert request(base + "/", "HEAD", headers=PAGE).status == 302
        for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):  # Ollama's clients look whether it is there
            for base in (pair.base, alone.base):
                a = get(base, "/", headers=headers)
                assert (a.status, a.text) == (200, "Ollama is running")
        a = post(pair.base, "/", {"inputs": "Once", "parameters": {"max_new_tokens": 3}}, headers=PAGE)  # TGI's clients
        assert a.status == 200 and a.json[0]["generated_text"]
        assert get(pair.base, "/chat/web/server.json").json == {"split": True} and get(alone.base, "/chat/web/server.json").json == {"split": False}
        assert get(pair.status_base, "/", headers=PAGE).status == 404


def test_the_page_is_open_and_what_it_asks_is_not(tmp_path):
    (tmp_path / "keys").write_text("a-key-of-some-length-01\nanother-key-of-length-02\n")
    (tmp_path / "keys").chmod(0o600)
    with Cluster(coord={"coordinator": {"apiKeysFile": str(tmp_path / "keys")}}) as c:
        mine, other = ({"Authorization": f"Bearer {k}"} for k in (tmp_path / "keys").read_text().split())
        assert get(c.base, "/", headers=PAGE).status == 302 and get(c.base, "/chat/").status == 200 and get(c.base, "/").status == 401
        assert get(c.base, "/v1/models").status == 401
        a = post(c.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4}, headers=mine)
        record = f"/v2/requests/{a.headers['RequestUUID']}"
        assert get(c.base, record).status == 401 and get(c.base, record, headers=other).status == 404
        assert get(c.base, record, headers=mine).json["outputTokens"] == 4


def test_another_site_can_neither_read_nor_order(pair):
    me = pair.status()["instances"][0]["id"]
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        for path in ("/console/", "/v2/console", "/v2/console/requests", "/v2/console/history"):
            assert get(pair.mgmt, path, headers=headers).status == 403, (path, headers)
        assert post(pair.mgmt, "/v1/instances/drain", {"id": me, "force": True}, headers=headers).status == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}  # of a wiki, say: to the page, and to nothing else
    assert get(pair.mgmt, "/console/", headers=link).status == 200
    assert {get(pair.mgmt, p, headers=link).status for p in ("/v2/console", "/v2/status", "/console/ui.js")} == {403}
    assert get(pair.mgmt, "/console/", headers={**link, "Sec-Fetch-Dest": "iframe"}).status == get(pair.mgmt, "/console/", headers={**link, "Host": "evil.example"}).status == 403
    assert get(pair.mgmt, "/v2/console", headers={"Origin": pair.mgmt, "Sec-Fetch-Site": "same-origin"}).status == 200
    assert all(i["state"] == "serving" for i in pair.status()["instances"])


def test_the_snapshot_says_what_is(pair):
    ids = [ask(pair).headers["RequestUUID"] for _ in range(3)]
    ended = wait_for(lambda: (s := pair.status()["coordinator"])["requestsInFlight"] == 0 and s["requestsFinished"], 20 * SLOW, "all ended")
    measured = lambda s: all("rttMs" in link for i in s["instances"] for link in i.get("links", []))  # noqa: E731
    snapshot = wait_for(lambda: (s := get(pair.mgmt, "/v2/console").json)["coordinator"]["requestsFinished"] == ended and measured(s) and s, 20 * SLOW, "it is made anew")
    jsonschema.validate(snapshot, CLUSTER)
    c, status = snapshot["coordinator"], pair.status()
    assert c["ready"] and c["leads"] and c["reasons"] == [] and c["model"] == "fable" and c["targets"] == {"ttftMs": 1000, "gapMs": 50}
    assert c["userPlane"]["port"] == int(pair.base.rsplit(":", 1)[1])
    for mine, theirs in zip(snapshot["instances"], status["instances"]):
        assert all(mine[k] == theirs[k] for k in ("id", "name", "role", "state", "group", "slotsTotal", "blocksTotal"))
    p, d = (next(i for i in snapshot["instances"] if i["role"] == r) for r in ("prefill", "decode"))
    (link,) = p["links"]
    assert link["to"] == d["id"] and link["n"] >= 3 and "error" not in link and "links" not in d and p["rttMs"] > 0 and 0 < link["rttMs"] < 1000
    assert re.search(r'^pd_link_rtt_seconds\{[^}]*peer="%d"\} [0-9.e-]+$' % d["id"], get(pair.prefills[0].mgmt, "/metrics").text, re.M)
    said = get(pair.mgmt, "/v2/console/requests").json
    jsonschema.validate(said, REQUESTS)
    for i in ids:
        record = next(r for r in said["recent"] if r["id"] == i)
        assert (record["state"], record["status"], record["p"], record["d"], record["outputTokens"]) == ("ended", 200, p["id"], d["id"], 8)
        assert record["prefillMs"] > 0 and record["kvBytes"] > 0 and record["totalMs"] >= record["ttftMs"]
        assert get(pair.base, f"/v2/requests/{i}").json == record
    assert get(pair.base, "/v2/requests/0").status == get(pair.base, "/v2/requests/x").status == 404


def test_the_hour_counts_what_came(pair):
    def counted(name):
        h = get(pair.mgmt, "/v2/console/history").json["history"]
        return sum(v or 0 for v in h["series"][name])
    before = pair.status()["coordinator"]["requestsFinished"]
    for _ in range(4):
        ask(pair)
    ids = [i["id"] for i in pair.status()["instances"]]
    wait_for(lambda: counted("answered") >= before + 4, 20 * SLOW, "the step with them is over")
    answer = get(pair.mgmt, f"/v2/console/history?instances={ids[0]},{ids[1]}").json
    h = answer["history"]
    n = h["next"] - h["from"]
    assert answer["boot"] == get(pair.mgmt, "/v2/console").json["coordinator"]["boot"] and 0 <= h["ageMs"] and h["stepMs"] == 5000
    assert len(h["series"]) == 19 and all(len(s) == n for s in h["series"].values())
    assert set(h["instances"]) == {str(i) for i in ids} and all(len(s) == n for i in h["instances"].values() for s in i.values())
    for name in ("outputTokens", "promptTokens", "kvBytes", "ttftMs50", "gapMs50", "gapMs99"):
        assert any(v for v in h["series"][name]), name
    assert all(a is None or a <= b <= c for a, b, c in zip(*(h["series"][f"ttftMs{p}"] for p in (50, 90, 99))))
    later = get(pair.mgmt, f"/v2/console/history?since={h['next']}").json["history"]
    assert later["from"] == h["next"] and later["instances"] == {}
    for query, said in (("since=-1", "since"), ("since=x", "since"), ("instances=1,,2", "instances"), ("instances=a", "instances"), ("instances=" + ",".join(map(str, range(1, 34))), "32")):
        a = get(pair.mgmt, "/v2/console/history?" + query)
        assert a.status == 422 and said in a.text, (query, a.text)


def test_viewers_are_bounded_and_share_what_is_made():
    with Cluster() as c:
        answers = in_threads([lambda: [get(c.mgmt, "/v2/console") for _ in range(40)] for _ in range(4)])
        codes = [a.status for one in answers for a in one]
        assert set(codes) <= {200, 429} and codes.count(200) >= 64
        refused = next((a for one in answers for a in one if a.status == 429), None)
        assert refused is None or (refused.headers["Retry-After"] == "1" and "viewers" in refused.text)

        def same():
            """One that has it already is told so, also while others are refused."""
            a = get(c.mgmt, "/v2/console")
            return a.status == 200 and get(c.mgmt, "/v2/console", headers={"If-None-Match": a.headers["ETag"]}).status == 304
        wait_for(same, 20 * SLOW, "an answer stays for a moment")
        assert c.is_ready()


def test_what_is_not_ready_is_said():
    c = Cluster()
    try:
        c.coordinator.start()
        wait_for(lambda: "event=listening" in c.coordinator.log(), 20 * SLOW, "the coordinator listens")
        snapshot = wait_for(lambda: (a := get(c.mgmt, "/v2/console")).status == 200 and a.json["coordinator"]["reasons"] and a.json, 20 * SLOW, "it says why")
        jsonschema.validate(snapshot, CLUSTER)
        assert not snapshot["coordinator"]["ready"] and {i["state"] for i in snapshot["instances"]} == {"online"}
        assert {r.get("name") for r in snapshot["coordinator"]["reasons"]} >= {i["name"] for i in snapshot["instances"]}
    finally:
        c.kill_all()
