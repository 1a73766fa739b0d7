"""Goal: who runs a cluster sees what it does: a line of JSON for each request, on an instance and on a coordinator, in a file that may be moved
away; levels of the log that change while daemons run; traces that go on a client's and reach a collector, whatever becomes of it.
Method: requests of every end against a 1P1D and a standalone instance; a collector written here that can refuse, and be away."""
import http.server
import json
import os
import re
import subprocess
import threading

import pytest
from harness import ANSWER_S, BUILD, SLOW, Cluster, Daemon, Standalone, Stream, get, post, wait_for

BODY = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f.read().splitlines()]


@pytest.fixture(params=["instance", "coordinator"])
def logged(request, tmp_path):
    """(base, path of the access log, is_cluster)"""
    path = str(tmp_path / "access.jsonl")
    if request.param == "instance":
        with Standalone(extra={"BatonConfig": {"accessLog": path}}) as s:
            yield s.base, path, False
    else:
        with Cluster(coord={"coordinator": {"log_info": {"access_log": path}}}) as c:
            yield c.base, path, True


def test_a_line_for_each_request(logged):
    base, path, split = logged

    def line_of(name):
        return wait_for(lambda: next((x for x in lines(path) if x["request_id"] == name), None), ANSWER_S, f"a line of {name}")
    a = post(base, "/v1/completions?key=secret", BODY, headers={"X-Request-Id": "whole", "Authorization": "Bearer sk-hidden"})
    assert a.status == 200
    Stream(base, "/v1/completions", {**BODY, "stream": True}, headers={"X-Request-Id": "stream"}).read_all()
    assert post(base, "/v1/completions", {**BODY, "max_tokens": 0.5}, headers={"X-Request-Id": "wrong"}).status == 422
    assert get(base, "/v1/models", headers={"X-Request-Id": "models"}).status == 200
    assert get(base, "/nowhere", headers={"X-Request-Id": "nowhere"}).status == 404
    gone = Stream(base, "/v1/completions", {**BODY, "stream": True, "max_tokens": 900}, headers={"X-Request-Id": "gone"})
    gone.read_until(2)
    gone.abandon()
    for name, method, status in (("whole", "POST", 200), ("stream", "POST", 200), ("wrong", "POST", 422), ("models", "GET", 200), ("nowhere", "GET", 404)):
        x = line_of(name)
        assert (x["method"], x["status"], x["protocol"]) == (method, status, "http/1.1") and "broken" not in x, x
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", x["time"]) and x["ms"] > 0 and x["peer"].startswith("127.0.0.1:")
    assert line_of("gone")["broken"] is True and line_of("gone")["status"] == 200
    whole = line_of("whole")
    assert whole["path"] == "/v1/completions" and whole["out_bytes"] == len(a.body) and whole["in_bytes"] > 50
    if split:
        assert whole["prefill"] and whole["decode"] and (whole["attempts"], whole["tokens"]) == (1, 6) and whole["ttft_ms"] > 0, whole
        assert line_of("gone")["cause"] == "client_gone" and line_of("wrong")["cause"] == "request"
    text = open(path).read()
    assert "secret" not in text and "sk-hidden" not in text and "Once upon" not in text
    # Rotated: by renaming.
    os.rename(path, path + ".1")

    def new_line():
        get(base, "/v1/models", headers={"X-Request-Id": "after"})
        return any(x["request_id"] == "after" for x in lines(path))
    wait_for(new_line, ANSWER_S, "the file is made anew")


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    s = Standalone(extra={"BatonConfig": {"accessLog": str(tmp_path / "no" / "folder")}})
    s.instance.start()
    s.instance.process.wait(30 * SLOW)
    assert s.instance.process.returncode != 0
    assert f"BatonConfig.accessLog: {tmp_path}/no/folder: No such file or directory" in s.instance.log()


def test_levels_while_it_runs(pair):
    for daemon, mgmt in ((pair.coordinator, pair.mgmt), (pair.prefills[0], pair.prefills[0].mgmt)):
        assert isinstance(daemon, Daemon)
        assert get(mgmt, "/v1/log").json == {"level": "info", "rules": []}
        a = post(mgmt, "/v1/log", {"level": "debug", "area": "relay", "minutes": 3})
        assert a.status == 200 and a.json["rules"][0]["area"] == "relay" and 170 <= a.json["rules"][0]["seconds"] <= 180
        assert post(mgmt, "/v1/log", {"level": "error"}).json["rules"][1]["level"] == "error"
        wait_for(lambda daemon=daemon: "event=level area=relay level=debug" in daemon.log(), ANSWER_S, "the change is logged")
        for body, text in (({}, 'level must be debug, info, warn, error, none or default, got ""'),
                           ({"level": "loud"}, 'level must be debug, info, warn, error, none or default, got "loud"'),
                           ({"level": "info", "area": 3}, "area must be a string of at most 31 characters"),
                           ({"level": "info", "area": "a b"}, "area must be of a-z, 0-9 and _, at most 31 of them"),
                           ({"level": "info", "minutes": -1}, "minutes must be in [0, 10080], 0 for no end"),
                           ([], 'the body must be an object like {"level":"debug"}')):
            a = post(mgmt, "/v1/log", body)
            assert a.status == 422 and a.json["error"] == text, a.text
        for area in ("relay", ""):
            assert post(mgmt, "/v1/log", {"level": "default", "area": area}).status == 200
        assert get(mgmt, "/v1/log").json["rules"] == []


class Collector(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.server.got.append((status, self.path, dict(self.headers), json.loads(body)))
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture
def collector():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.got, server.statuses = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def spans(collector):
    """Of the batches that were taken: {name: span} of each trace."""
    traces = {}
    for status, _, _, body in list(collector.got):
        if status == 200:
            for s in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
                traces.setdefault(s["traceId"], {})[s["name"]] = s
    return traces


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_traces_go_on_and_reach_the_collector(collector):
    collector.statuses[:] = [503]  # the first batch is sent again
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b",
           "OTEL_SERVICE_NAME": "door", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    with Cluster(1, 2, env=env) as c:
        assert post(c.base, "/v1/completions", BODY, headers={"traceparent": PARENT, "X-Request-Id": "traced"}).status == 200
        assert post(c.base, "/v1/completions", BODY, headers={"traceparent": PARENT[:-2] + "00"}).status == 200
        s = Stream(c.base, "/v1/completions", {**BODY, "stream": True, "max_tokens": 900})
        s.read_until(3)
        busy = wait_for(lambda: [i["id"] for i in c.status()["instances"] if i["role"] == "decode" and i["slotsFree"] < i["slotsTotal"]], ANSWER_S, "D is seen")[0]
        c.instance_of(busy).kill()
        assert s.read_all().count(b"data: [DONE]") == 1
        got = wait_for(lambda: (t := spans(collector)) and len(t) >= 2 and t, ANSWER_S, "two traces")
        mine = got.pop("4bf92f3577b34da6a3ce929d0e0e4736")
        root = mine["/v1/completions"]
        assert root["parentSpanId"] == "00f067aa0ba902b7" and root["kind"] == 2 and {"prefill", "decode", "kv_transfer"} <= set(mine), mine
        assert all(x["parentSpanId"] == root["spanId"] for n, x in mine.items() if n != "/v1/completions")
        assert all(root["startTimeUnixNano"] <= x["startTimeUnixNano"] <= x["endTimeUnixNano"] <= root["endTimeUnixNano"] for x in mine.values())
        assert attributes(root)["gen_ai.usage.output_tokens"] == "6" and attributes(root)["baton.prefill_instance"] == f"127.0.0.1:{c.prefills[0].port}"
        own = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{root['spanId']}-01"
        wait_for(lambda: f"traceparent={own}" in c.prefills[0].log(), ANSWER_S, "P goes on below the coordinator's span")
        (other,) = got.values()  # what was not sampled is not there
        assert "recover" in other and attributes(other["recover"])["baton.cause"] == "d_lost", other
        assert attributes(other["/v1/completions"])["baton.attempts"] == "2"
    status, path, headers, body = collector.got[0]
    assert (status, path, headers["api-key"], headers["Content-Type"]) == (503, "/v1/traces", "a b", "application/json")
    assert collector.got[1][3] == body, "what was refused for now is sent again"
    resource = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
    assert resource["service.name"] == "door" and resource["deployment.environment"] == "test" and resource["service.version"]


def test_a_collector_that_is_away_or_refuses_harms_nobody(collector):
    url = f"http://127.0.0.1:{collector.server_port}/other"
    collector.statuses[:] = [400]
    with Cluster(coord={"pd": {"otlp_url": url}}) as c:
        assert post(c.base, "/v1/completions", BODY).status == 200
        wait_for(lambda: re.search(r'coordinator_limit_refused_total\{[^}]*reason="spans"[^}]*\} 1\b', get(c.external, "/metrics").text), ANSWER_S, "it is counted")
        collector.shutdown()
        collector.server_close()
        assert post(c.base, "/v1/completions", BODY).status == 200
        wait_for(lambda: "otlp event=not_taken" in c.coordinator.log(), ANSWER_S, "and said, when it is away")
        assert post(c.base, "/v1/completions", BODY).status == 200
    assert collector.got[0][1] == "/other"


@pytest.mark.parametrize("url,text", [
    ("https://127.0.0.1:4318/v1/traces", "pd.otlp_url must be http://ADDRESS:PORT/PATH"),
    ("http://10.0.0.1:4318/v1/traces", "pd.otlp_url must have a loopback address while TLS is off"),
])
def test_urls_that_are_refused(url, text):
    c = Cluster(coord={"pd": {"otlp_url": url}})
    c.coordinator.start()
    c.coordinator.process.wait(30 * SLOW)
    assert c.coordinator.process.returncode == 2 and text in c.coordinator.log(), c.coordinator.log()


def test_batonctl_log(pair):
    def log(*args):
        p = subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", pair.mgmt, "log", *args], capture_output=True, text=True, timeout=ANSWER_S)
        return p.returncode, p.stdout + p.stderr
    name = str(pair.serving("prefill")[0])
    assert log() == (0, "info\n")
    assert re.fullmatch(r"info\nkv: debug, for \d+ s more\n", log("debug", "kv", "--on", name, "--minutes", "5")[1])
    assert log() == (0, "info\n")
    assert log("default", "kv", "--on", name) == (0, "info\n")
    assert log("loud")[0] == 1 and 'got "loud"' in log("loud")[1]
    assert log("info", "--on", "nobody") == (1, "batonctl: no instance is called nobody\n")


def test_the_state_of_each_process():
    with Cluster() as c:
        secret = "a word that nobody else has"
        stream = Stream(c.base, "/v1/completions", {**BODY, "prompt": secret, "max_tokens": 400, "stream": True})
        stream.read_until(2)
        whole = get(c.mgmt, "/debug/state")
        assert whole.json["coordinator"]["requestsInFlight"] == 1 and len(whole.json["instances"]) == 2, whole.text
        assert [r["state"] for r in whole.json["requests"]] == ["decoding"], whole.text
        texts = [whole.text]
        for daemon, n in ((c.prefills[0], 0), (c.decodes[0], 1)):
            a = get(daemon.mgmt, "/debug/state")
            texts.append(a.text)
            assert a.json["loaded"] and len(a.json["requests"]) == a.json["requestsInAll"] == n, a.text
            assert a.json["links"][0]["ok"] and a.json["engine"]["slots"] > a.json["engine"]["running"] == n, a.text
        r = a.json["requests"][0]
        assert (r["role"], r["phase"], r["choices"]) == ("decode", "running", 1) and r["promptTokens"] > 5 and r["ageMs"] >= r["silentMs"], r
        for text in texts:
            p = json.loads(text)["process"]
            assert p["threads"] > 1 and p["memory"]["residentBytes"] > p["memory"]["mallocInUseBytes"] and p["descriptors"]["open"] > 5, p
            assert p["memory"]["mallocInUseBytes"] > 0 or SLOW > 1, p  # the allocator of a sanitizer counts elsewhere
            assert {x["reason"] for x in p["limits"]} >= {"connections"} and p["log"]["level"] == "info", p
            assert secret not in text and " nobody" not in text
        stream.abandon()
