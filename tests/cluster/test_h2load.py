"""Goal: nghttp2's load generator, which shares no line with our client, gets every answer of the user plane over HTTP/2, in clear and under TLS: answers in
one piece and event streams, many streams on few connections.
Method: h2load with prior knowledge, or ALPN; its counts: all succeeded, none failed, and as many bytes as whole answers have.
"""
import json
import re
import subprocess

import pytest
from harness import ANSWER_S, Cluster, get, post, wait_for

CONNECTIONS, STREAMS = 4, 32  # streams of each connection
ASKED = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 3, "temperature": 0, "ignore_eos": True}
REQUESTS = {
    "one piece": ("/v1/completions", ASKED),
    "stream": ("/v1/completions", {**ASKED, "stream": True}),
    "chat, stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "lines": ("/api/generate", {"model": "fable", "prompt": "Once upon a time", "options": {"num_predict": 3, "temperature": 0}}),
}


@pytest.fixture(scope="module", params=["clear", "TLS"])
def cluster(request, pki):
    """h2load has no certificate of its own, so a key is enough."""
    keys_do = {"coordinator": {"tls_config": {"client_certificates": "optional"}}}
    with Cluster(**({"pki": pki, "coord": keys_do} if request.param == "TLS" else {})) as c:
        yield c


def h2load(cluster, pki, path, body_path, n):
    head = [x for key, value in (pki.headers() if cluster.base.startswith("https") else {}).items() for x in ("-H", f"{key}: {value}")]
    r = subprocess.run(["h2load", "-n", str(n), "-c", str(CONNECTIONS), "-m", str(STREAMS), "-N", str(ANSWER_S), "-H", "content-type: application/json", *head,
                        "-d", body_path, cluster.base + path], capture_output=True, text=True, timeout=2 * ANSWER_S)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_answered(cluster, pki, tmp_path, name):
    path, body = REQUESTS[name]
    body_path, n = str(tmp_path / "body.json"), CONNECTIONS * STREAMS * 5 // 4
    with open(body_path, "w") as f:
        json.dump(body, f)
    one = post(cluster.base, path, body)
    assert one.status == 200, one.text
    seen = h2load(cluster, pki, path, body_path, n)
    counts = {name: int(count) for line in re.findall(r"(?m)^(?:requests|status codes): (.*)$", seen) for count, name in re.findall(r"(\d+) (\w+)", line)}
    assert counts == {**dict.fromkeys(("total", "started", "done", "succeeded", "2xx"), n),
                      **dict.fromkeys(("failed", "errored", "timeout", "3xx", "4xx", "5xx"), 0)}, seen
    assert ("Application protocol: h2c" if cluster.base.startswith("http:") else "Application protocol: h2\n") in seen
    data = int(re.search(r"\((\d+)\) data", seen)[1])
    assert 0.95 * len(one.body) < data / n < 1.1 * len(one.body), (len(one.body), seen)
    wait_for(lambda: get(cluster.base, "/load").json == {"server_load": 0}, ANSWER_S, "nothing of it is under way")
