"""Goal: a self-test is for all who ask: many clients that ask again and again cost the engine next to nothing, and get the truth.
Method: 32 clients in a loop on /health/timed while others stream; the streams' rate with and without them, and how many tests the engine ran."""
import threading
import time

from families import BY_NAME
from harness import SLOW, get, in_threads, post

BODY = BY_NAME["completions"].body([5, 6, 7, 8], max_tokens=120, ignore_eos=True)


def rate(base):
    """Tokens a second of four requests at once."""
    began = time.monotonic()
    answers = in_threads([lambda: post(base, "/v1/completions", BODY) for _ in range(4)])
    assert all(a.status == 200 for a in answers), [a.text for a in answers]
    return 4 * 120 / (time.monotonic() - began)


def test_thirty_two_who_ask(pair):
    calm = max(rate(pair.base) for _ in range(3))
    stop, asked, wrong = threading.Event(), [0] * 32, []

    def ask(i):
        while not stop.is_set():
            a = get(pair.base, "/health/timed")
            asked[i] += 1
            if a.status != 200:
                wrong.append(a)
            time.sleep(0.02)  # it is the engine that is looked at, not the rate of HTTP

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    try:
        time.sleep(0.3)
        beside = max(rate(pair.base) for _ in range(3))
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong, wrong[0].text
    assert sum(asked) > 100, asked
    assert beside > calm / (4 * SLOW), (calm, beside)  # a test for each of them left a thirteenth


def test_an_instance_says_the_same(whole):
    answers = in_threads([lambda: get(whole.base, "/health/timed-5") for _ in range(32)])
    assert all(a.status == 200 and a.json == {"status": "healthy"} for a in answers), [a.text for a in answers]
