"""Goal: nobody comes in by another spelling of a path, another name of a host, or a header that says something else than the body.
Method: each such request on raw connections, against a coordinator and an instance."""
import http.client
import json
import os
import shutil
import subprocess

import pytest
from attack import limits_of
from harness import ANSWER_S, Cluster, connect, get, post, request

M = "/v2/models/fable"


def ask(base, path, headers, method="GET", body=None):
    """The path to the byte, and no header but these."""
    conn, _ = connect(base, ANSWER_S)
    try:
        conn.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            conn.putheader(name, value)
        if body is not None:
            conn.putheader("Content-Length", str(len(body)))
        conn.endheaders(body)
        r = conn.getresponse()
        return r.status, r.read().decode()
    finally:
        conn.close()


NEED_A_KEY = ["/v1/models", f"{M}/versions/ready", f"{M}/versions/1/config", f"{M}/ready/../config", "/health/../v1/models",
              "/v2/health/%2e%2e/%2E./v1/models", "/v2/health/..%2f..%2fv1/models", "//v1/models", "/./v1/./models", "/health/timed", "/health/timed-1",
              "/health/x", "/v2/health/x", "/HEALTH", "/Health", "/health%20", "/health//x", "/ready", "/v2/models/ready", "/%2568ealth", "/no/such/ready"]
OPEN = ["/health", "/health/", "//health", "/./health", "/%68ealth", "/x/../health", "/v2//health/%6cive", f"{M}/ready", f"{M}/versions/1/ready", "/docs"]


@pytest.mark.parametrize("fixture", ["tls_pair", "tls_whole"])
def test_a_path_has_one_spelling(fixture, request):
    base = request.getfixturevalue(fixture).base
    for path in NEED_A_KEY:
        assert ask(base, path, {"Host": "h"})[0] == 401, path
    for path in OPEN:
        assert ask(base, path, {"Host": "h"})[0] == 200, path
    for path in ("/..", "/health/../../v1/models", "/%2e%2e/health"):
        status, text = ask(base, path, {"Host": "h"})
        assert status == 400 and "above its root" in text, (path, text)
    assert get(base, "//v1/./models").status == 200, "with a key"


GOOD = ["127.0.0.1", "127.0.0.1:1026", "10.0.0.7", "[::1]:1026", "localhost", "LOCALHOST:1", "metrics.example", "a.svc.example:9"]
BAD = ["evil.example", "evil.example:1026", "localhost.evil.example", "metrics.example.evil", "svc.example", "2130706433", ""]


@pytest.fixture(scope="module")
def named():
    names = "metrics.example .svc.example"
    with Cluster(coord={"coordinator": {"managementHosts": names, "prometheus_metrics_config": {"reuse_time": 0}}},
                 extra={"BatonConfig": {"managementHosts": names}}) as c:
        yield c


def test_planes_without_clients_check_who_is_meant(named):
    c = named
    planes = [(c.mgmt, "/v2/status"), (c.status_base, "/v1/readiness"), (c.external, "/metrics"), (c.prefills[0].mgmt, "/v2/status"),
              (c.prefills[0].mgmt, "/metrics")]
    for base, path in planes:
        for host in GOOD:
            assert ask(base, path, {"Host": host})[0] == 200, (base, host)
            if host[0] != "[":
                assert ask(base, path, {"Host": host, "Origin": f"http://{host}"})[0] == 200, (base, host)
        for host in BAD:
            status, text = ask(base, path, {"Host": host})
            assert status == 403 and "managementHosts" in text and "Host" in text and host in text, (base, host, text)
        for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example"):
            status, text = ask(base, path, {"Host": "127.0.0.1", "Origin": origin})
            assert status == 403 and "Origin" in text and origin in text, (base, origin, text)
        assert ask(base, path, {"Host": "127.0.0.1", "Sec-Fetch-Site": "cross-site"})[0] == 403, "an image of another site"
        assert ask(base, path, {"Host": "127.0.0.1", "Sec-Fetch-Site": "none"})[0] == 200, "typed by hand"
    assert ask(c.prefills[0].mgmt, "/stopService", {"Host": "127.0.0.1", "Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask(c.mgmt, "/v1/instances/role", {"Host": "evil.example"}, "POST", b'{"id": 1, "role": "decode"}')[0] == 403
    assert limits_of(c.external)["foreign_origin"]["refused_total"] >= 3 * (len(BAD) + 4)
    assert limits_of(c.prefills[0].mgmt, "instance")["foreign_origin"]["refused_total"] >= 2 * (len(BAD) + 4)


def test_clients_may_use_any_name(named):
    for headers in ({"Host": "llm.example"}, {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}):
        assert ask(named.base, "/v1/models", headers)[0] == 200


def test_a_url_has_at_most_4096_bytes(pair, whole):
    for base in (pair.base, whole.base, pair.status_base):
        assert ask(base, "/" + "a" * 4095, {"Host": "127.0.0.1"})[0] == 404
        assert ask(base, "/" + "a" * 4096, {"Host": "127.0.0.1"})[0] == 414
        assert ask(base, "/v1/readiness?" + "a" * 4083, {"Host": "127.0.0.1"})[0] == 414


def test_a_target_that_grows_too_long_on_its_way(pair):
    """What the coordinator escapes may be three times as long."""
    a = get(pair.base, "/v1/models/" + ":" * 200 + "?" + "a" * 3800)
    assert a.status == 414 and "must have at most 4095 bytes as they go on to an instance, got 211 and 3800 before" in a.text, a.text
    assert get(pair.base, "/v1/models/" + ":" * 200 + "?" + "a" * 3400).status == 404


def test_binary_tensors_that_are_none_are_refused_with_words(pair, whole):
    body = {"inputs": [{"name": "input0", "shape": [1, 3], "datatype": "UINT32", "data": [1, 2, 3]}], "outputs": [{"name": "output0"}]}
    raw = json.dumps(body).encode()
    for base in (pair.base, whole.base):
        for path in (f"{M}/infer", f"{M}/versions/1/infer"):
            assert post(base, path, body).status == 200
            a = request(base + path, "POST", raw + b"\0\0\0\0", {"Inference-Header-Content-Length": str(len(raw))})
            assert a.status == 400 and a.json["error"].startswith("unexpected additional input data"), a.text
            for said in (str(len(raw) + 1), "-1", "x", "9" * 40):
                a = request(base + path, "POST", raw, {"Inference-Header-Content-Length": said})
                assert a.status == 400 and a.json["error"].startswith("Inference-Header-Content-Length must be 0 to"), a.text
        a = request(base + f"{M}/generate", "POST", b'{"text_input":"x"}', {"Inference-Header-Content-Length": "18"})
        assert a.status == 422 and "Inference-Header-Content-Length is for the tensors of /infer" in a.json["error"]


AGENT = """
const http = require("http");
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
const body = JSON.stringify({ model: "fable", prompt: "Once", max_tokens: 2 });
const tell = { statuses: {}, errors: [], sockets: new Set() };
function one() {
    return new Promise((done) => {
        const r = http.request(process.argv[2] + "/v1/completions", { method: "POST", agent, headers: { "Content-Type": "application/json" } },
            (a) => {
                tell.statuses[a.statusCode] = (tell.statuses[a.statusCode] || 0) + 1;
                a.resume().on("end", done);
            });
        r.on("socket", (s) => tell.sockets.add(s));
        r.on("error", (e) => { tell.errors.push(String(e)); done(); });
        r.end(body);
    });
}
(async () => {
    await Promise.all(Array.from({ length: 4 }, async () => { for (let i = 0; i < 25; i++) await one(); }));
    console.log(JSON.stringify({ statuses: tell.statuses, errors: tell.errors, sockets: tell.sockets.size }));
    agent.destroy();
})();
"""


def test_a_node_agent_never_sees_the_end_of_a_connection(tmp_path):
    """100 requests of a keep-alive agent with four sockets, where a connection serves seven."""
    node = shutil.which("node")
    assert node, "node is missing: `make deps-test` installs it"
    script = os.path.join(tmp_path, "agent.js")
    with open(script, "w") as f:
        f.write(AGENT)
    with Cluster(coord={"coordinator": {"request_limit": {"max_requests": 7}}}) as c:
        r = subprocess.run([node, script, c.base], capture_output=True, text=True, timeout=2 * ANSWER_S)
        told = json.loads(r.stdout)
        assert told["statuses"] == {"200": 100} and told["errors"] == [], told
        assert 100 / 7 <= told["sockets"] <= 30, told
        conn = http.client.HTTPConnection(c.base.split("//")[1])
        said = []
        for _ in range(7):
            conn.request("GET", "/v1/startup")
            a = conn.getresponse()
            a.read()
            said.append(a.getheader("connection"))
        assert said == [None] * 6 + ["close"]
