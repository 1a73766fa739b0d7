"""Goal: a client that asks for much more than there is takes its share of slots and places, and no other client waits for all of it.
Method: two addresses of loopback are two clients. One asks for 40 x 8 sequences at once; the other's 20-token streams are timed before, during and
after."""
import http.client
import json
import re
import threading
import time
import urllib.parse

import pytest
from deaths import within
from harness import ANSWER_S, SLOW, Cluster, get, wait_for

GREEDY, OTHER = "127.0.0.1", "127.0.0.2"
MINE = "addr-" + GREEDY


@pytest.fixture(scope="module")
def small():
    with Cluster(coord={"coordinator": {"request_limit": {"max_requests": 40}}}) as c:
        yield c


def ask(cluster, ip, body, give_up=None):
    """One request from an address; its status and its whole answer. give_up: an Event that ends it."""
    u = urllib.parse.urlsplit(cluster.base)
    conn = http.client.HTTPConnection(u.hostname, u.port, timeout=ANSWER_S, source_address=(ip, 0))
    try:
        conn.request("POST", "/v1/completions", json.dumps({"model": "fable", "prompt": "Once upon a time", **body}))
        if give_up is not None:
            while not give_up.is_set():
                conn.sock.settimeout(0.2)
                try:
                    return conn.sock.recv(1)
                except TimeoutError:
                    pass
            return None
        r = conn.getresponse()
        return r.status, r.read()
    finally:
        conn.close()


def stream_s(cluster):
    """Seconds of a stream of 20 tokens of the other client."""
    began = time.monotonic()
    status, raw = ask(cluster, OTHER, {"max_tokens": 20, "stream": True, "ignore_eos": True, "temperature": 0})
    assert status == 200 and raw.count(b"data: ") >= 20 and b"[DONE]" in raw, raw[-300:]
    return time.monotonic() - began


def tenants(cluster):
    return {t["tenant"]: t for t in cluster.status()["coordinator"]["tenants"]}


class Greedy:
    """n requests for eight answers each, given up at the end."""

    def __init__(self, cluster, n):
        self.cluster, self.n, self.stop = cluster, n, threading.Event()
        body = {"max_tokens": 128, "n": 8, "ignore_eos": True, "temperature": 0.9, "seed": 1}
        self.threads = [threading.Thread(target=ask, args=(cluster, GREEDY, body, self.stop)) for _ in range(n)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        wait_for(lambda: tenants(self.cluster).get(MINE, {}).get("requests") == self.n, 20 * SLOW, "all are there")
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()
        wait_for(lambda: not self.cluster.status()["coordinator"]["requestsInFlight"], 10 * SLOW, "what was given up is gone")


def test_a_stream_beside_ten_rounds_of_answers(small):
    """The greedy one has 40 x 8 sequences for 32 slots, which are ten rounds, and all forty places. The other one waits for one round at most,
    and comes in: the greedy one's youngest that waits makes room. One more of the greedy one's own is refused."""
    calm = max(stream_s(small) for _ in range(3))
    with Greedy(small, 40):
        held = lambda: {k: tenants(small)[MINE][k] for k in ("slots", "queued")}  # noqa: E731
        wait_for(lambda: held() == {"slots": 32, "queued": 36}, 20 * SLOW, "alone it has all, and the rest waits here, not at D")
        a = ask(small, GREEDY, {"max_tokens": 1})
        assert a[0] == 429 and b"Too many requests" in a[1], a
        took = stream_s(small)
        left = tenants(small)[MINE]
    assert took < 15 * SLOW, (calm, took)
    assert left["requests"] < 40 and left["queued"] >= 26, (took, left)  # most of the greedy one's came after the stream
    within(2 * SLOW, lambda: stream_s(small))  # all is as before, at once
    text = get(small.external, "/metrics").text
    refused = float(re.search(r'^coordinator_limit_refused_total{reason="requests"} (\S+)$', text, re.M)[1])
    assert refused >= 2, text  # the one more, and the one that was pushed out
