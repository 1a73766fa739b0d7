"""Goal: an instance whose requests fail while its polls are fine gets no work until one request, the probe, was served by it; what clients do wrong
never counts. Method: two P, one of them behind a front that fails requests when told to, and counts all it sees."""
import contextlib
import http.server
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from harness import SLOW, Cluster, in_threads, post, wait_for

pytestmark = pytest.mark.slow
OPEN_S, FAULTS = 1.5 * SLOW, 5
HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}


class Front:
    """Before the business port of an instance; broken: answers 500 to inference by itself."""

    def __init__(self, port):
        front = self
        self.broken, self.seen = False, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                if self.path == "/dresult":
                    return self.pass_on()
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                front.seen += "req-type" in self.headers
                if front.broken and "req-type" in self.headers:
                    return self.answer(500, {"Content-Type": "application/json"}, b'{"error":"engine"}')
                r = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", body or None, dict(self.headers), method=self.command)
                try:
                    with urllib.request.urlopen(r, timeout=60 * SLOW) as a:
                        return self.answer(a.status, a.headers, a.read())
                except urllib.error.HTTPError as e:
                    return self.answer(e.code, e.headers, e.read())

            def pass_on(self):
                """A stream, as it comes."""
                self.close_connection = True
                with socket.create_connection(("127.0.0.1", port)) as to, contextlib.suppress(OSError):
                    to.sendall(f"GET {self.path} HTTP/1.1\r\n{self.headers}".encode())
                    while piece := to.recv(65536):
                        self.wfile.write(piece)

            def answer(self, status, headers, body):
                self.send_response(status)
                for k, v in headers.items():
                    if k.lower() not in HOP:
                        self.send_header(k, v)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def fronted():
    c = Cluster(2, 1, coord={"pd": {"breaker_faults": FAULTS, "breaker_open_ms": int(OPEN_S * 1000)}})
    front = Front(c.prefills[0].port)
    table = os.path.join(c.folder, "rank_table.json")
    with open(table) as f:
        ranks = json.load(f)
    ranks["server_group_list"][0]["server_list"][0]["predict_port"] = str(front.port)
    with open(table, "w") as f:
        json.dump(ranks, f)
    try:
        with c:
            yield c, front
    finally:
        front.server.shutdown()


def ask(c, **more):
    return post(c.base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0, **more}).status


def breaker(c, front):
    return next(i["breaker"] for i in c.status()["instances"] if i["address"].endswith(f":{front.port}"))


def test_a_breaker(fronted):
    c, front = fronted
    assert [ask(c) for _ in range(6)] == [200] * 6
    assert front.seen == 3  # by turns

    # clients: wrong bodies, and those that leave
    assert {ask(c, max_tokens=-1) for _ in range(2 * 16)} <= {400, 422}
    assert front.seen >= 16 and breaker(c, front) == {**breaker(c, front), "state": "closed", "faults": 0}

    front.broken = True
    statuses = []
    while breaker(c, front)["state"] == "closed" and len(statuses) < 4 * FAULTS:
        statuses.append(ask(c))
    opened, seen = time.monotonic(), front.seen
    state = breaker(c, front)
    assert state["state"] == "open" and state["faults"] == FAULTS and "500" in state["cause"], state
    assert set(statuses) <= {200, 500}

    # open: the other serves all
    assert [ask(c) for _ in range(8)] == [200] * 8
    if time.monotonic() - opened < OPEN_S * 0.9:
        assert front.seen == seen

    # half-open: of twelve at once one goes there, and its client is served by the other
    time.sleep(max(0, opened + OPEN_S - time.monotonic()) + 0.1)
    answers, before = [], front.seen
    in_threads([lambda: answers.append(ask(c)) for _ in range(12)])
    assert answers == [200] * 12
    assert front.seen - before == 1, "exactly one probe"
    assert breaker(c, front)["state"] == "open"
    failed = time.monotonic()

    # well again: the next probe, twice as long after, closes it
    front.broken = False
    before = front.seen
    while time.monotonic() - failed < 2 * OPEN_S * 0.8:
        assert ask(c) == 200
        time.sleep(0.05)
    assert front.seen == before
    wait_for(lambda: ask(c) == 200 and breaker(c, front)["state"] == "closed", 3 * OPEN_S, "the breaker closes")
    before = front.seen
    assert [ask(c) for _ in range(8)] == [200] * 8
    assert 3 <= front.seen - before <= 5
