"""Goal: a client that asks for everything does not make another wait for it. Method: 16 prompts x 8 choices x 512 tokens from one address,
short streams from another, alone and meanwhile: time to the first token, to the end, and the gaps between tokens; in a cluster and alone."""
import contextlib
import http.client
import json
import re
import socket
import threading
import time
import urllib.parse

from attack import TIMED
from harness import SLOW, Cluster, Standalone, get, wait_for

HEAVY = {"model": "fable", "prompt": [f"Once upon a time number {i}" for i in range(16)], "n": 8, "max_tokens": 512, "temperature": 1.0, "seed": 1,
         "ignore_eos": True}
LIGHT = {"model": "fable", "prompt": "The cat", "max_tokens": 20, "stream": True, "ignore_eos": True}
SLOTS = 32


def ask(base, address, body):
    """A POST under way, from a loopback address of one's own."""
    u = urllib.parse.urlsplit(base)
    conn = http.client.HTTPConnection(u.hostname, u.port, timeout=120, source_address=(address, 0))
    conn.request("POST", "/v1/completions", body=json.dumps(body).encode())
    return conn


def light(base):
    """Seconds to the first token and to the end of a short stream."""
    began, times, raw = time.monotonic(), [], b""
    conn = ask(base, "127.0.0.3", LIGHT)
    r = conn.getresponse()
    while piece := r.read1(65536):
        times.append(time.monotonic() - began)
        raw += piece
    conn.close()
    assert r.status == 200 and raw.rstrip().endswith(b"[DONE]"), raw[:500]
    return times[0], times[-1]


class Heavy:
    """The large request from another address, read until the end of the block; then its client leaves."""

    def __init__(self, base):
        self.conn = ask(base, "127.0.0.2", {**HEAVY, "stream": True})
        self.sock = self.conn.sock

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            r = self.conn.getresponse()
            while r.read1(65536):
                pass

    def __enter__(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.lasted = self.thread.is_alive()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.conn.close()


def tokens(instance):
    """Made so far, for anybody; an instance alone counts each, one that decodes for others those of an answer that has ended."""
    return float(re.search(r"^generation_tokens_total(?:{.*})? (\S+)$", get(instance.mgmt, "/metrics").text, re.M)[1])


def held_up(base, instance, busy, idle):
    light(base)
    calm = sorted(light(base) for _ in range(5))[2]
    with Heavy(base) as h:
        wait_for(busy, 30 * SLOW, "the large request fills the batch")
        before, began = tokens(instance), time.monotonic()
        crowded = [light(base) for _ in range(3)]
        rate = (tokens(instance) - before) / (time.monotonic() - began)
    assert h.lasted, "the large request ended before it was measured"
    wait_for(idle, 10 * SLOW, "everything is given back")
    return calm, crowded, rate


def check(calm, crowded, rate):
    """A step of 32 sequences takes up to ten times as long as that of one; what must not show is how many more there are, or their length.
    rate: tokens a second of an instance alone. The stream has one of every step, so that at most 32 are made in the time; twice that is too
    much."""
    first, end = (max(c[i] for c in crowded) for i in (0, 1))
    step = sorted((e - f) * rate for f, e in crowded)[1] / (LIGHT["max_tokens"] - 1)
    print(f"calm {calm}, first {first:.3f}, end {end:.3f}, {step:.1f} tokens made for one of the stream")
    assert step < 2 * SLOTS, (calm, crowded, rate)
    assert not TIMED or (first < 3 * calm[0] + 0.5 and end < 20 * calm[1] + 0.5), (calm, crowded)


def test_one_instance():
    """The batch is full."""
    with Standalone(extra={"BatonConfig": {"kvCacheMiB": 96}}) as s:
        check(*held_up(s.base, s.instance, lambda: s.instance.load()[0] == 0, lambda: s.instance.load()[0] == 32))


def test_a_cluster():
    """The KV pool is full, but for what a tenant leaves to others."""
    with Cluster() as c:
        check(*held_up(c.base, c.decodes[0], lambda: c.decodes[0].load()[0] <= 8, lambda: [x[0] for x in c.loads()] == [32, 32]))
