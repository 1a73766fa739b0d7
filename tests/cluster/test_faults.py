"""Goal: a process that dies or hangs costs no accepted request its answer where another one can give it, and never more than one clear error
where none can; what comes back serves again.
Method: clusters with one process to spare; SIGKILL, SIGSTOP and SIGCONT at known points (the loads the instances report say when), answers
compared with those given in peace, loads compared with the start.
"""
import random
import signal
import time

import pytest
from deaths import restart
from families import BY_NAME, made_up_ids, normal
from harness import SLOW, Cluster, Stream, events, get, in_threads, post, request, wait_for

LONG = {"max_tokens": 600, "ignore_eos": True, "temperature": 0.9, "seed": 11}
PLAIN, STREAM = BY_NAME["completions"], BY_NAME["completions_stream"]


def long_prompt(salt, n=600):
    return made_up_ids(n, 20000 + salt)


def ask(base, mode, prompt, **params):
    return mode.ask(base, mode.body(prompt, **params))


def same(a, b):
    return a[:2] == b[:2] and normal(a[2], keep_cached=False) == normal(b[2], keep_cached=False)


def wait_known_idle(cluster):
    """Until the coordinator has heard that nothing runs: what it schedules by is up to a second old."""
    wait_for(lambda: all(i["runningRequests"] == 0 and i["blocksFree"] == i["blocksTotal"] for i in cluster.status()["instances"]),
             5 * SLOW, "the coordinator knows the instances idle")


def instance_id(cluster, daemon):
    return next(i["id"] for i in cluster.status()["instances"] if i["address"].endswith(f":{daemon.port}"))


def row(cluster, inst_id):
    return next(i for i in cluster.status()["instances"] if i["id"] == inst_id)


# ---- the prefill instance
@pytest.fixture(scope="module")
def two_p():
    """Prompts are computed two tokens at a time, so that a prefill lasts long enough to be killed in; polls give up early."""
    with Cluster(2, 1, extra={"BatonConfig": {"chunkTokens": 2}}, coord={"controller": {"http_timeout_seconds": SLOW, "http_retries": 1}}) as c:
        yield c


def finish_through_the_other(two_p, salt, strike):
    """Four requests, two streaming, spread over both prefill instances; strike() hits the first; all answers must be those of peace."""
    jobs = [(PLAIN if i % 2 else STREAM, long_prompt(salt + i)) for i in range(4)]
    d_start = two_p.decodes[0].idle()
    before = two_p.status()["coordinator"]
    answers = in_threads([lambda m=m, p=p: ask(two_p.base, m, p, max_tokens=30) for m, p in jobs] + [strike])[:4]
    wait_for(lambda: two_p.decodes[0].load() == d_start, 5 * SLOW, "D gives back what the dead P had begun")
    after = two_p.status()["coordinator"]
    assert after["requestsFailed"] == before["requestsFailed"]
    calm = [ask(two_p.base, m, p, max_tokens=30) for m, p in jobs]
    for a, b in zip(answers, calm):
        assert a[0] == 200 and same(a, b), a


def test_p_dies_in_the_middle_of_a_prefill(two_p):
    victim = two_p.prefills[0]

    def strike():
        wait_for(lambda: victim.load()[3] > 0, 10 * SLOW, "the first P computes")
        victim.kill()

    finish_through_the_other(two_p, 0, strike)
    assert get(two_p.status_base, "/v1/readiness").status == 200
    wait_for(lambda: row(two_p, instance_id(two_p, victim))["state"] == "health", 30 * SLOW, "the dead P shows as such")
    restart(two_p, victim)
    wait_known_idle(two_p)

    def it_serves():
        in_threads([lambda n=random.getrandbits(30): ask(two_p.base, PLAIN, long_prompt(n), max_tokens=2) for _ in range(4)])
        return instance_id(two_p, victim) in {r["p"] for r in two_p.status()["recentRequests"][:4]}
    wait_for(it_serves, 60 * SLOW, "the one that came back serves")


def test_p_hangs_before_it_begins_and_is_killed(two_p):
    victim = two_p.prefills[0]
    victim.process.send_signal(signal.SIGSTOP)
    number = instance_id(two_p, victim)

    def strike():
        wait_for(lambda: row(two_p, number)["tasks"] > 0, 10 * SLOW, "a request waits at the hanging P")
        victim.kill()

    retried = two_p.status()["coordinator"]["requestsRetried"]
    finish_through_the_other(two_p, 10, strike)
    assert two_p.status()["coordinator"]["requestsRetried"] > retried
    restart(two_p, victim)


def test_p_refuses_connections(two_p):
    """Dead for so short a time that the coordinator may not have noticed."""
    victim = two_p.prefills[1]
    victim.kill()
    finish_through_the_other(two_p, 20, lambda: None)
    restart(two_p, victim)


def test_p_hangs_for_good(two_p):
    """Nothing refuses and nothing answers: only its silence tells."""
    victim = two_p.prefills[0]
    victim.process.send_signal(signal.SIGSTOP)
    try:
        finish_through_the_other(two_p, 30, lambda: None)
    finally:
        victim.process.send_signal(signal.SIGCONT)
    wait_for(two_p.all_serve, 30 * SLOW, "the P that woke up serves again")
    a, b = (ask(two_p.base, PLAIN, long_prompt(39), max_tokens=8) for _ in range(2))
    assert a[0] == 200 and same(a, b)
    wait_for(lambda: victim.load()[2:] == (0, 0, 0), 5 * SLOW, "it dropped what it slept over")


# ---- the decode instance
@pytest.fixture(scope="module")
def two_d():
    with Cluster(1, 2) as c:
        yield c


def test_d_dies(two_d):
    """Requests without a stream are computed again, with guesses by prompt lookup this time; streams go on where they were."""
    prompts = [made_up_ids(10, 30000 + i) * 2 for i in range(8)]
    guessing = {**LONG, "prompt_lookup_num_tokens": 8}
    calm = in_threads([lambda m=PLAIN if i < 4 else STREAM, p=p: ask(two_d.base, m, p, **LONG) for i, p in enumerate(prompts)])
    start = {d: d.idle() for d in two_d.instances}
    wait_known_idle(two_d)
    victims = []
    streams = [Stream(two_d.base, STREAM.path, STREAM.body(p, **LONG)) for p in prompts[4:]]

    def strike():
        for s in streams:
            s.read_until(3)
        victims.append(wait_for(lambda: next((d for d in two_d.decodes if (d.load() or (0,) * 5)[3] >= 2), None), 10 * SLOW, "a D decodes two or more"))
        victims[0].kill()

    plain = in_threads([lambda p=p: ask(two_d.base, PLAIN, p, **guessing) for p in prompts[:4]] + [strike])[:4]
    for a, b in zip(plain, calm):
        assert a[0] == 200 and same(a, b), a
    for s, want in zip(streams, calm[4:]):
        assert normal(s.read_all(), False) == normal(want[2], False)
    victim, = victims
    status = two_d.status()
    assert all(r["status"] == 200 for r in status["recentRequests"])
    assert status["coordinator"]["requestsRetried"] >= 2 and status["coordinator"]["requestsInFlight"] == 0
    wait_for(lambda: all(d.load() == start[d] for d in two_d.instances if d is not victim), 10 * SLOW, "nothing is held for the dead")
    # One D is left: it serves, and the one that comes back too.
    assert ask(two_d.base, PLAIN, prompts[0], max_tokens=20)[0] == 200
    restart(two_d, victim)
    wait_known_idle(two_d)

    def it_serves():
        fresh = [made_up_ids(10, random.getrandbits(30)) for _ in range(4)]  # the other one has the prompts of before in its cache
        in_threads([lambda p=p: ask(two_d.base, PLAIN, p, max_tokens=40, ignore_eos=True) for p in fresh])
        return instance_id(two_d, victim) in {r["d"] for r in two_d.status()["recentRequests"][:4]}
    wait_for(it_serves, 60 * SLOW, "the one that came back serves")


ERROR_EVENTS = {
    "chat_stream": (b"data: {", b"}\n\ndata: [DONE]\n\n"),
    "tgi_generate_stream": (b"data: {", b"}\n\n"),
    "vllm_stream": (b"\0{", b"}\0"),
    "infer_stream": (b"data: {", b"}\n\n"),
    "triton_generate_stream": (b"data:{", b"}\n\n"),
}


def long_body(c, mode):
    """A request of the family whose stream is still under way when it has given two pieces: the model may end an answer early."""
    for seed in range(3, 40):
        body = mode.body("Once there was a fox", max_tokens=400, temperature=0.9, seed=seed)
        raw = Stream(c.base, mode.path, body).read_all()
        if raw.count(b"\0" if mode.family == "vllm" else b"\n\n") > 100:
            return body
    raise AssertionError(f"no long answer of {mode.name}")


def test_the_only_d_dies():
    """Nobody can go on in time: streams end with one error event in each family's framing, and readiness says why."""
    with Cluster(1, 1, coord={"coordinator": {"exception_config": {"schedule_timeout": 2}}}) as c:
        jobs = [(BY_NAME[name], long_body(c, BY_NAME[name])) for name in ERROR_EVENTS]
        streams = [Stream(c.base, m.path, b) for m, b in jobs]
        for (m, _), s in zip(jobs, streams):
            s.read_until(2, b"\0" if m.family == "vllm" else b"\n\n")
        c.decodes[0].kill()
        for (m, _), s in zip(jobs, streams):
            raw = s.read_all()
            head, tail = ERROR_EVENTS[m.name]
            assert raw.count(b'"error_type":"Request Timeout"') == 1 and raw.endswith(tail), raw[-300:]
            last = raw[:-len(tail) + 1]
            assert head + b'"error":' in last[last.rindex(b'"error":') - len(head):], raw[-300:]
        wait_for(lambda: not c.is_ready(), 30 * SLOW, "the coordinator is not ready")
        a = get(c.status_base, "/v1/readiness")
        assert a.status == 503 and a.json["ready"] is False
        assert {"stage": "role", "detail": "no decode instance serves"} in a.json["reasons"]
        assert [r["stage"] for r in a.json["reasons"] if r.get("id") == instance_id(c, c.decodes[0])] == ["health"]
        refused = post(c.base, "/v1/completions", {"model": "fable", "prompt": "x"})
        assert refused.status == 503 and refused.headers["Retry-After"] and refused.json["error_type"] == "Service Unavailable"
        restart(c, c.decodes[0])
        wait_for(c.is_ready, 30 * SLOW, "ready again")
        assert post(c.base, "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 3}).status == 200


@pytest.fixture(scope="module")
def one_pair():
    """The coordinator has more patience than the link."""
    with Cluster(1, 1, coord={"pd": {"heartbeat_ms": min(3000 * SLOW, 10000)}}) as c:
        yield c


def test_d_sleeps_for_less_than_the_heartbeat_limit(one_pair):
    """Three heartbeats of 500 ms may be missed; 0.8 s is a pause to the client and nothing else."""
    prompt = made_up_ids(20, 40000)
    calm = ask(one_pair.base, STREAM, prompt, **LONG)
    s = Stream(one_pair.base, STREAM.path, STREAM.body(prompt, **LONG))
    s.read_until(3)
    d = one_pair.decodes[0].process
    d.send_signal(signal.SIGSTOP)
    time.sleep(0.8 * SLOW)  # the length of the pause is the fault itself
    d.send_signal(signal.SIGCONT)
    assert normal(s.read_all(), False) == normal(calm[2], False)
    links = [link["link"] for i in one_pair.status()["instances"] for link in i["links"]]
    assert links == ["ok", "ok"] and one_pair.status()["coordinator"]["requestsRetried"] == 0


def test_d_sleeps_for_longer_than_the_heartbeat_limit(one_pair):
    """The link fails and comes back by itself; the stream that ran goes on where it was."""
    prompt = made_up_ids(20, 40000)
    calm = ask(one_pair.base, STREAM, prompt, **LONG)
    s = Stream(one_pair.base, STREAM.path, STREAM.body(prompt, **LONG))
    s.read_until(3)
    p, d = one_pair.prefills[0], one_pair.decodes[0].process
    d.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: [x["link"] for x in p.status()["linkStatus"]["peers"]] != ["ok"], 10 * SLOW, "P misses the heartbeats")
    finally:
        d.send_signal(signal.SIGCONT)
    assert normal(s.read_all(), False) == normal(calm[2], False)
    wait_for(one_pair.all_serve, 30 * SLOW, "the link is up again")
    again = ask(one_pair.base, STREAM, prompt, **LONG)
    assert same(again, calm)


# ---- the coordinator
def test_the_coordinator_dies(one_pair):
    """Its clients lose their connections; instances keep their roles, drop nothing that ran, and the next coordinator serves."""
    start = one_pair.idle()
    s = Stream(one_pair.base, STREAM.path, STREAM.body(made_up_ids(20, 40001), **LONG))
    s.read_until(3)
    one_pair.coordinator.kill()
    restart(one_pair, one_pair.coordinator)
    wait_for(one_pair.is_ready, 30 * SLOW, "the new coordinator is ready")
    assert "role_kept" in one_pair.coordinator.log()
    one_pair.wait_idle(start, 10 * SLOW)
    assert ask(one_pair.base, PLAIN, made_up_ids(20, 40001), **LONG)[0] == 200


def test_the_coordinator_ends_when_its_requests_have(one_pair):
    """SIGTERM: not ready at once, no new requests, those in flight are answered in full, exit 0."""
    prompt = made_up_ids(20, 40002)
    calm = ask(one_pair.base, STREAM, prompt, **LONG)
    s = Stream(one_pair.base, STREAM.path, STREAM.body(prompt, **LONG))
    s.read_until(2)
    one_pair.coordinator.process.send_signal(signal.SIGTERM)
    wait_for(lambda: get(one_pair.status_base, "/v1/readiness").status == 503, 5 * SLOW, "not ready while it drains")
    assert post(one_pair.base, "/v1/completions", {"model": "fable", "prompt": "x"}).status == 503
    assert normal(s.read_all(), False) == normal(calm[2], False)
    assert one_pair.coordinator.process.wait(timeout=10 * SLOW) == 0
    restart(one_pair, one_pair.coordinator)


def test_a_request_in_flight_is_answered_when_the_service_is_stopped_twice(one_pair):
    """A second SIGTERM does not wait: the stream ends with an error event, and the exit status is still 0."""
    s = Stream(one_pair.base, STREAM.path, STREAM.body(made_up_ids(20, 40003), **LONG))
    s.read_until(2)
    seen = one_pair.coordinator.log().count("event=draining")
    one_pair.coordinator.process.send_signal(signal.SIGTERM)
    wait_for(lambda: one_pair.coordinator.log().count("event=draining") > seen, 5 * SLOW, "the first signal is taken")
    one_pair.coordinator.process.send_signal(signal.SIGTERM)
    last = events(s.read_all())[-1]
    assert last["error"] == "The service has been stopped." and last["code"] == 503
    assert one_pair.coordinator.process.wait(timeout=10 * SLOW) == 0
    restart(one_pair, one_pair.coordinator)
    assert request(one_pair.base + "/v1/models").status == 200
