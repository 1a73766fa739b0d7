"""Goal: a client that floods the text pool with slow templates and long prompts does not hold up another's short requests before they reach the
engine. Method: one thread reads texts; sixteen connections of one address keep templates of their full time and prompts of megabytes coming,
another address asks for the tokens of a chat and for one token of an answer, calm and meanwhile."""
import contextlib
import http.client
import json
import threading
import time
import urllib.parse

import pytest
from harness import SLOW, Standalone, wait_for

TEMPLATE_MS = 100 * SLOW
SLOW_TEMPLATE = {"model": "fable", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1,
                 "chat_template": "{% set s = 'ab' * 3000000 %}{% for i in range(99999) %}{{ 'xy' in s }}{% endfor %}"}
LONG_PROMPT = {"prompt": "Once upon a time there was a fox. " * 20000}  # a text of 680 KB, tokenised only
SHORT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 1}


def ask(base, address, path, body):
    u = urllib.parse.urlsplit(base)
    with contextlib.closing(http.client.HTTPConnection(u.hostname, u.port, timeout=60 * SLOW, source_address=(address, 0))) as conn:
        conn.request("POST", path, body=body)
        r = conn.getresponse()
        return r.status, r.read()


def took(base):
    body, began = json.dumps(SHORT).encode(), time.monotonic()
    status, text = ask(base, "127.0.0.3", "/v1/chat/completions", body)
    assert status == 200, text[:300]
    return time.monotonic() - began


class Flood:
    """Sixteen connections that always have a request under way."""

    def __init__(self, base, path, body):
        self.base, self.path, self.body = base, path, json.dumps(body).encode()
        self.n, self.ended = 0, threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(16)]

    def run(self):
        while not self.ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(self.base, "127.0.0.2", self.path, self.body)
                self.n += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for t in self.threads:
            t.join()


@pytest.fixture(scope="module")
def one():
    with Standalone(extra={"BackendConfig": {"tokenizerProcessNumber": 1}, "BatonConfig": {"limits": {"templateMs": TEMPLATE_MS}}}) as s:
        took(s.base)
        yield s


@pytest.mark.parametrize("path, body", [pytest.param("/v1/chat/completions", SLOW_TEMPLATE, marks=pytest.mark.slow), ("/tokenize", LONG_PROMPT)])
def test_short_requests_wait_for_one_job_at_most(one, path, body):
    """In turns: behind the job that runs, and not behind the sixteen that wait."""
    calm = sorted(took(one.base) for _ in range(5))[2]
    began = time.monotonic()
    ask(one.base, "127.0.0.2", path, json.dumps(body).encode())
    job = time.monotonic() - began
    with Flood(one.base, path, body) as flood:
        wait_for(lambda: flood.n >= 4, 30 * SLOW, "the flood flows")
        crowded = sorted(took(one.base) for _ in range(5))
    print(f"{path}: calm {calm:.3f}, a job {job:.3f}, crowded {crowded}")
    # the job that runs, and one more that may have begun beside it; FIFO would wait for fifteen
    assert crowded[2] < 3 * calm + 3 * job, (calm, job, crowded)
