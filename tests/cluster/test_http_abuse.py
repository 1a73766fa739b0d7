"""Goal: no client, however broken or hostile, hangs a daemon, ends it or leaks from it: each story ends with a status or a close.
Method: bytes on raw sockets against a standard instance, a coordinator and a prefill instance, each story with a deadline; after all of them
the service answers an ordinary request and slots and blocks are those of the start."""
import contextlib
import json
import re
import socket
import threading
import time

import pytest
from harness import SLOW, Cluster, Standalone, get, post, wait_for

DEADLINE_S = 20 * SLOW
BODY = json.dumps({"model": "fable", "prompt": "Once upon a time", "max_tokens": 4}).encode()


def head(path="/v1/completions", method="POST", length=len(BODY), more=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: x"] + ([f"Content-Length: {length}"] if length is not None else []) + list(more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Raw:
    def __init__(self, base):
        host, port = base.split("//")[1].split(":")
        self.s = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self.got = b""

    def send(self, data):
        """False: the server has closed on us, which it may."""
        try:
            self.s.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def read_to_end(self):
        """Everything until the server closes; a reset is a close too. Fails by time-out when it does neither."""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.s.recv(65536):
                self.got += piece
        return self.got

    def answer(self):
        """(status, body) of one answer with a length or chunks; what follows stays in self.got."""
        def more():
            piece = self.s.recv(65536)
            assert piece, f"closed in the middle of an answer: {self.got[:200]}"
            self.got += piece
        while b"\r\n\r\n" not in self.got:
            more()
        top, _, self.got = self.got.partition(b"\r\n\r\n")
        status = int(top.split(b" ")[1])
        if status == 100:
            return self.answer()
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", top)
        if length:
            n = int(length[1])
            while len(self.got) < n:
                more()
            body, self.got = self.got[:n], self.got[n:]
            return status, body
        while b"0\r\n\r\n" not in self.got:
            more()
        body, _, self.got = self.got.partition(b"0\r\n\r\n")
        return status, body

    def close(self):
        self.s.close()


@pytest.fixture(scope="module", params=["standard", "coordinator", "prefill"])
def daemon(request):
    """(base URL, check): check() says whether the service is alive and at rest."""
    short = {"coordinator": {"http_config": {"http_timeout_seconds": 3}}}
    with contextlib.ExitStack() as stack:
        if request.param == "standard":
            one = stack.enter_context(Standalone())
            start, base = one.instance.idle(), one.base
            loads, ask = one.instance.load, one.base
        else:
            c = stack.enter_context(Cluster(coord=short))
            start, base = c.idle(), c.base if request.param == "coordinator" else c.prefills[0].base
            loads, ask = c.loads, c.base

        def check():
            a = post(ask, "/v1/completions", BODY)
            assert a.status == 200, a.text
            wait_for(lambda: loads() == start, 30 * SLOW, f"loads back at {start}, now {loads()}")

        yield base, check, request.param
        check()


def statuses(raw):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)]


REFUSED = {
    "a request line of nothing": b"\r\n\r\n\r\nx\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "almost HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + b"\0" * 190 + b"\r\n\r\n",
    "a NUL in the path": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an escaped NUL in the path": b"GET /v1/models/%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a NUL in a field": b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "a bare LF": b"GET /health HTTP/1.1\nHost: x\n\n",
    "a bare CR": b"GET /health HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a folded field": b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "a space before the colon": b"GET /health HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "length and chunks": head(more=["Transfer-Encoding: chunked"]) + BODY,
    "chunks and length": head(length=None, more=["Transfer-Encoding: chunked", "Content-Length: 5"]) + b"0\r\n\r\n",
    "two lengths": head(more=["Content-Length: 5"]) + BODY,
    "two lengths in one": head(length="5, 6") + BODY,
    "a negative length": head(length=-1),
    "a length with a sign": head(length="+5"),
    "a length beyond 64 bits": head(length="99999999999999999999999999"),
    "a length that is none": head(length="0x10"),
    "chunked twice": head(length=None, more=["Transfer-Encoding: chunked, chunked"]),
    "an unknown coding": head(length=None, more=["Transfer-Encoding: gzip, chunked"]),
    "a chunk size that is none": head(length=None, more=["Transfer-Encoding: chunked"]) + b"xyz\r\n",
    "a chunk size beyond 64 bits": head(length=None, more=["Transfer-Encoding: chunked"]) + b"fffffffffffffffff\r\n",
    "a negative chunk size": head(length=None, more=["Transfer-Encoding: chunked"]) + b"-5\r\n",
    "a chunk longer than it says": head(length=None, more=["Transfer-Encoding: chunked"]) + b"2\r\nabc\r\n0\r\n\r\n",
    "an expectation of more": head(more=["Expect: 200-maybe"]),
    "a method that is none": b"GE(T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a huge URL": b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a huge field": b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100000 + b"\r\n\r\n",
    "a huge length": head(length=1 << 40),
}


@pytest.mark.parametrize("story", REFUSED)
def test_what_is_no_request_gets_a_4xx_or_5xx_and_a_close(daemon, story):
    r = Raw(daemon[0])
    r.send(REFUSED[story])
    raw = r.read_to_end()
    got = statuses(raw)
    assert got == [] or (len(got) == 1 and (400 <= got[0] < 500 or got[0] in (501, 505))), raw[:300]
    assert got or "TLS" in story or "nothing" in story, "closed without a word"


def test_a_million_fields_are_cut_short(daemon):
    r = Raw(daemon[0])
    r.send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    sent, piece = 0, b"".join(b"x-%d: 1\r\n" % i for i in range(10000))
    while sent < 100 and r.send(piece):
        sent += 1
    assert statuses(r.read_to_end()) in ([431], [])
    assert get(daemon[0], "/v1/models").status == 200


def test_six_bytes_a_chunk(daemon):
    base, _, kind = daemon
    r = Raw(base)
    r.send(head(length=None, more=["Transfer-Encoding: chunked"]))
    for i in range(0, len(BODY), 6):
        piece = BODY[i:i + 6]
        r.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    r.send(b"0\r\nX-Trailer: 1\r\n\r\n")
    status, _ = r.answer()
    assert status == (400 if kind == "prefill" else 200)
    r.close()


def test_a_byte_at_a_time(daemon):
    base, _, kind = daemon
    r = Raw(base)
    for b in head(more=["X-Slow: yes"]) + BODY:
        r.send(bytes([b]))
    assert r.answer()[0] == (400 if kind == "prefill" else 200)
    r.close()


def test_expect_100_continue(daemon):
    base, _, kind = daemon
    r = Raw(base)
    r.send(head(more=["Expect: 100-continue"]))
    line = b""
    while not line.endswith(b"\r\n\r\n"):
        line += r.s.recv(1)
    assert line == b"HTTP/1.1 100 Continue\r\n\r\n"
    r.send(BODY)
    assert r.answer()[0] == (400 if kind == "prefill" else 200)
    r.close()
    late = Raw(base)  # too large: the refusal comes in place of the 100
    late.send(head(length=1 << 40, more=["Expect: 100-continue"]))
    assert statuses(late.read_to_end()) == [413]


def test_fifty_requests_in_one_write(daemon):
    base, _, kind = daemon
    r = Raw(base)
    r.send((head("/v1/models", "GET", None) + head() + BODY) * 25)
    got = [r.answer()[0] for _ in range(50)]
    assert got == [200, 400 if kind == "prefill" else 200] * 25
    r.close()


def test_pipelined_requests_after_a_bad_one_are_not_served(daemon):
    r = Raw(daemon[0])
    r.send(head("/v1/models", "GET", None) + head(length="zwei") + head("/v1/models", "GET", None) * 3)
    assert statuses(r.read_to_end()) == [200, 400]


def test_a_client_that_only_shuts_its_sending_side(daemon):
    r = Raw(daemon[0])
    r.send(head() + BODY)
    r.s.shutdown(socket.SHUT_WR)
    got = statuses(r.read_to_end())
    assert got in ([], [200], [400])


@pytest.mark.parametrize("part", [b"", b"P", b"POST /v1/comp", head()[:-2], head(), head() + BODY[:5],
                                  head(length=None, more=["Transfer-Encoding: chunked"]) + b"5\r\nab"])
def test_a_client_that_goes_in_the_middle(daemon, part):
    for how in ("close", "half", "reset"):
        r = Raw(daemon[0])
        r.send(part)
        if how == "half":
            r.s.shutdown(socket.SHUT_WR)
            assert not [s for s in statuses(r.read_to_end()) if s < 400]
        elif how == "reset":
            r.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        r.close()


def test_streams_that_are_left(daemon):
    base, check, kind = daemon
    if kind == "prefill":
        pytest.skip("clients do not stream from a prefill instance")
    body = json.dumps({"model": "fable", "prompt": "Once", "max_tokens": 400, "stream": True, "ignore_eos": True}).encode()
    for i in range(8):
        r = Raw(base)
        r.send(head(length=len(body)) + body)
        while i % 2 and b"data:" not in r.got:
            r.got += r.s.recv(4096)
        r.close()
    check()


def test_slow_heads_and_bodies_do_not_hold_others_up(daemon):
    base, check, kind = daemon
    slow = [Raw(base) for _ in range(40)]
    for i, r in enumerate(slow):
        r.send(head()[:20 + i % 20] if i % 2 else head() + BODY[:i % 20])
    began = time.monotonic()
    for _ in range(5):
        assert get(base, "/v1/models").status == 200
    check()
    assert time.monotonic() - began < DEADLINE_S
    if kind == "coordinator":  # whose limit is short here: 408 and a close
        assert [statuses(r.read_to_end()) for r in slow] == [[408]] * len(slow)
    for r in slow:
        r.close()


def test_a_drip_feed_ends_at_the_limit():
    """A head that always makes progress, a byte a tenth of the limit, still has one deadline in all."""
    with Cluster(coord={"coordinator": {"http_config": {"http_timeout_seconds": 1}}}) as c:
        r = Raw(c.base)
        began = time.monotonic()
        for b in head(more=["X-Pad: " + "a" * 200]):
            if time.monotonic() - began > 10 or not r.send(bytes([b])):
                break
            time.sleep(0.1)
        assert time.monotonic() - began < 10
        assert statuses(r.read_to_end()) in ([408], [])


def test_many_connections_at_once(daemon):
    base, check, _ = daemon
    socks = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            socks.append(Raw(base))
    answers = []

    def one(r):
        with contextlib.suppress(OSError, AssertionError):
            r.send(head("/v1/models", "GET", None))
            answers.append(r.answer()[0])

    threads = [threading.Thread(target=one, args=(r,)) for r in socks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(answers) == 300 and set(answers) == {200}
    for r in socks:
        r.close()
    check()


def test_every_plane_refuses_garbage(daemon):
    """The management and metrics planes have the same door."""
    _, check, _ = daemon
    with Standalone() as one:
        for story in ("two lengths", "a huge URL", "a NUL in a field", "length and chunks"):
            r = Raw(one.mgmt)
            r.send(REFUSED[story])
            assert 400 <= statuses(r.read_to_end())[0] < 500
        assert get(one.mgmt, "/metrics").status == 200
    check()
