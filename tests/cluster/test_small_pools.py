"""Goal: requests that together need many times the KV pools and slots of P and of D all finish, without one time-out, and in the order of
need and arrival that keeps every one of them moving: P offers only what it has blocks for, D serves offers in order.
Method: one P and one D with pools of a few prompts each, a hand-over that must be granted before a client gives up, 64 clients at
once with several prompts, several choices, short and long, streamed or not; each answer must be what one instance says to it alone. Large
requests among many small ones must not be passed for ever. Loads and logs afterwards."""
import pytest
from families import made_up_ids, normal
from harness import ANSWER_S, SLOW, Cluster, Stream, events, in_threads, post

CLIENTS = 64 if SLOW == 1 else 12
SMALL = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 6, "maxPrefillBatchSize": 6}},
         "BatonConfig": {"kvCacheMiB": 1, "chunkTokens": 64, "handoverTimeoutSeconds": 45 * SLOW}}


@pytest.fixture(scope="module")
def narrow():
    with Cluster(extra=SMALL) as c:
        yield c


def body_of(i):
    """From one short prompt to five of up to 200 tokens with six choices in all."""
    n_prompts, n = [(1, 1), (3, 1), (1, 6), (2, 3), (5, 1), (1, 2), (4, 2), (1, 1)][i % 8]
    length = [3, 40, 120, 200, 17, 90][i % 6]
    prompts = [made_up_ids(length + 7 * k, 500 + 16 * i + k) for k in range(n_prompts)]
    return {"model": "fable", "prompt": prompts if n_prompts > 1 else prompts[0], "n": n, "max_tokens": 2 + (i * 5) % 15, "ignore_eos": True,
            "temperature": 0.8, "seed": i, "stream": i % 3 == 0}


def ask(cluster, body):
    if not body["stream"]:
        return post(cluster.base, "/v1/completions", body)
    s = Stream(cluster.base, "/v1/completions", body)
    s.read_all()
    return s


def test_all_finish_without_a_time_out(narrow, whole):
    start = narrow.idle()
    assert all(load[0] == 6 for load in start), start
    jobs = [body_of(i) for i in range(CLIENTS)]
    answers = in_threads([lambda b=b: ask(narrow, b) for b in jobs])
    for body, a in zip(jobs, answers):
        raw = a.raw if body["stream"] else a.body
        assert a.status == 200 and b'"error"' not in raw, raw[-500:]
        n = body["n"] * (len(body["prompt"]) if isinstance(body["prompt"][0], list) else 1)
        if body["stream"]:
            ends = [c["index"] for e in events(raw) for c in e["choices"] if c["finish_reason"]]
            assert sorted(ends) == list(range(n)), raw[-500:]
        elif body["seed"] % 4 == 1:
            assert normal(raw, False) == normal(post(whole.base, "/v1/completions", body).body, False), body
    narrow.wait_idle(start, 5 * SLOW)
    status = narrow.status()["coordinator"]
    assert status["requestsFailed"] == status["requestsRetried"] == 0, narrow.logs()
    for daemon in narrow.instances:
        log = daemon.log()
        assert "no room" not in log and "lease ran out" not in log and "event=failed" not in log, log[-3000:]


def test_a_large_request_is_not_passed_for_ever(narrow):
    """All slots at once, while small requests keep coming until it is served."""
    start = narrow.idle()
    served = []

    def small(i):
        n = 0
        while not served and n < 400:
            a = post(narrow.base, "/v1/completions", {"model": "fable", "prompt": f"{i} {n}", "max_tokens": 12, "ignore_eos": True})
            assert a.status == 200, a.text
            n += 1
        return n

    def large():
        try:
            a = post(narrow.base, "/v1/completions", {"model": "fable", "prompt": made_up_ids(150, 77), "n": 6, "max_tokens": 20,
                                                      "ignore_eos": True, "temperature": 1.0, "seed": 1})
        finally:
            served.append(True)
        assert a.status == 200 and len(a.json["choices"]) == 6, a.text

    counts = in_threads([large] + [lambda i=i: small(i) for i in range(8)])[1:]
    assert max(counts) < 400, counts
    narrow.wait_idle(start, 5 * SLOW)


def test_a_request_longer_than_the_hand_over_time_waits_for_itself():
    """Its later prompts wait until its earlier ones are decoded, which takes longer than any other request would wait for room."""
    extra = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 2, "maxPrefillBatchSize": 2}}, "BatonConfig": {"handoverTimeoutSeconds": 1}}
    with Cluster(extra=extra) as c:
        prompts = [f"Tale {i}" for i in range(6)]
        a = post(c.base, "/v1/completions", {"model": "fable", "prompt": prompts, "n": 2, "max_tokens": 1000, "ignore_eos": True,
                                              "temperature": 0.8, "seed": 1}, timeout=4 * ANSWER_S)
        assert a.status == 200, a.text
        assert [x["finish_reason"] for x in a.json["choices"]] == ["length"] * 2 * len(prompts)
        assert c.status()["coordinator"]["requestsRetried"] == 0, c.logs()
