"""Goal: a request that nobody wants any more holds nothing, wherever it is: waiting in the coordinator, waiting at the prefill instance,
being prefilled, being decoded. Within two seconds slots, blocks and KV leases on both sides are back at their start values. The same for
requests ended by stopInfer, by a time limit, and by /stopService.
Method: a client closes its socket (or stops its request) at a point the loads tell; loads as the instances report them, and the tasks and
bookings of the coordinator, before and after.
"""
import contextlib
import http.client
import json
import random
import signal
import time
import urllib.parse

import pytest
from families import BY_NAME, MODES, made_up_ids
from harness import SLOW, Cluster, Standalone, Stream, events, get, in_threads, post, wait_for

BACK_S = 2 * SLOW
MOST = 900  # tokens: more than a fast machine makes while a client asks for something else
LONG = {"max_tokens": 480, "ignore_eos": True, "temperature": 0.9, "seed": 5}


@pytest.fixture(scope="module")
def cluster():
    """One token a chunk: a prompt of 900 tokens takes long. Four slots: the fifth request waits. Links outlive a second of sleep."""
    with Cluster(1, 1, extra={"BatonConfig": {"chunkTokens": 1, "kvHeartbeatMs": 2000},
                              "BackendConfig": {"ScheduleConfig": {"maxBatchSize": 4, "maxPrefillBatchSize": 4, "maxIterTimes": 1000}}},
                 coord={"pd": {"heartbeat_ms": 10000}}) as c:
        yield c


@pytest.fixture
def start(cluster):
    loads = cluster.idle()
    yield loads
    cluster.wait_idle(loads, BACK_S)

    def booked():
        return [(i["tasks"], i["bookedSlots"], i["bookedBlocks"]) for i in cluster.status()["instances"]]

    wait_for(lambda: booked() == [(0, 0, 0)] * 2, BACK_S, "no booking is left")
    assert cluster.status()["coordinator"]["requestsInFlight"] == 0


def stream_of(cluster, salt, n=20, **params):
    mode = BY_NAME["completions_stream"]
    return Stream(cluster.base, mode.path, mode.body(made_up_ids(n, 50000 + salt), **{**LONG, **params}))


def open_request(cluster, body):
    """Sends a request whose head is not waited for: it is still on its way when the client leaves."""
    u = urllib.parse.urlsplit(cluster.base)
    conn = http.client.HTTPConnection(u.hostname, u.port, timeout=30 * SLOW)
    conn.request("POST", "/v1/completions", body=json.dumps(body).encode())
    return conn


def body_of(salt, n, stream):
    return {"model": "fable", "prompt": made_up_ids(n, 51000 + salt), "stream": stream, **LONG}


# ---- the client goes
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_client_leaves_in_decode(cluster, start, stream):
    conn = open_request(cluster, body_of(1, 20, stream))
    wait_for(lambda: cluster.decodes[0].load()[3] == 1, 5 * SLOW, "D decodes")
    conn.close()
    cluster.wait_idle(start, BACK_S)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_client_leaves_in_prefill(cluster, start, stream):
    conn = open_request(cluster, body_of(10 + stream, 900, stream))
    wait_for(lambda: cluster.prefills[0].load()[3] == 1, 5 * SLOW, "P computes")
    conn.close()
    cluster.wait_idle(start, BACK_S)
    assert "client_gone" in cluster.coordinator.log()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_client_leaves_in_the_queue(cluster, start, stream):
    """All slots of D are taken, so the coordinator keeps the sixth and seventh request."""
    running = [stream_of(cluster, 20 + i) for i in range(4)]
    for s in running:
        s.read_until(1)
    waiting = [open_request(cluster, body_of(30 + i, 20, stream)) for i in range(3)]
    wait_for(lambda: cluster.status()["coordinator"]["requestsQueued"] >= 2, 5 * SLOW, "requests wait in the coordinator")
    for conn in waiting:
        conn.close()
    wait_for(lambda: cluster.status()["coordinator"]["requestsInFlight"] == 4, BACK_S, "those that left are gone")
    for s in running:
        s.abandon()


def test_clients_leave_at_any_time(cluster, start):
    """Twelve clients at once, some with long prompts, each gone after a random number of bytes; three times."""
    rng = random.Random(20240613)
    for _ in range(3):
        plans = [(i, rng.choice([3, 20, 300, 700]), rng.choice([0, 1, 200, 2000]), rng.random() < 0.7) for i in range(12)]

        def leave(i, n, n_bytes, stream):
            conn = open_request(cluster, body_of(100 + i, n, stream))
            if n_bytes > 0 and stream:
                response = conn.getresponse()
                while n_bytes > 0:
                    piece = response.read1(n_bytes)
                    n_bytes -= len(piece) or n_bytes
            conn.close()

        in_threads([lambda p=p: leave(*p) for p in plans])
        cluster.wait_idle(start, BACK_S)


def test_client_leaves_a_single_instance():
    with Standalone(extra={"BatonConfig": {"chunkTokens": 1}}) as s:
        before = s.instance.idle()
        for n, stream in ((20, True), (20, False), (900, True), (900, False)):
            conn = open_request(s, body_of(200 + n, n, stream))
            wait_for(lambda: s.instance.load()[3] == 1, 5 * SLOW, "it runs")
            conn.close()
            wait_for(lambda: s.instance.load() == before, BACK_S, "everything is given back")


# ---- stopInfer
STOP = "/v2/models/fable/stopInfer"


def stop_by(base, req_id):
    return post(base, STOP, {"id": req_id})


def check_second_stop(base, req_id):
    a = stop_by(base, req_id)
    assert a.status == 404 and a.json == {"error": f"Stop request id {req_id} not found.", "error_type": "NotFoundError"}


@pytest.mark.parametrize("via", ["coordinator", "prefill_then_decode", "decode"])
def test_stop_a_stream_by_its_internal_id(cluster, start, via):
    s = stream_of(cluster, 60)
    s.read_until(2)
    req_id = events(s.raw)[0]["id"]
    assert s.response.getheader("RequestUUID") == req_id
    if via == "prefill_then_decode":  # P has handed it over and knows it no more
        check_second_stop(cluster.prefills[0].base, req_id)
    base = cluster.base if via == "coordinator" else cluster.decodes[0].base
    a = stop_by(base, req_id)
    assert a.status == 200 and a.json == {"id": req_id}
    raw = s.read_all()
    last = events(raw)[-1]
    assert raw.endswith(b"data: [DONE]\n\n") and last["choices"][0]["finish_reason"] == "stop"
    assert 0 < last["usage"]["completion_tokens"] < 480
    check_second_stop(cluster.base, req_id)
    check_second_stop(cluster.decodes[0].base, req_id)


@pytest.mark.parametrize("name", ["triton_generate_stream", "triton_generate"])
def test_stop_by_the_clients_own_id(cluster, start, name):
    mode = BY_NAME[name]
    body = mode.body("One day a fox", max_tokens=MOST, details=True, temperature=0.9, seed=2)
    body["id"] = f"my-own_id-{name}"

    def stop():
        wait_for(lambda: cluster.decodes[0].load()[3] == 1, 5 * SLOW, "D decodes")
        dup = post(cluster.base, mode.path, body)  # an id may be in use once
        assert dup.status == 400 and dup.json["error"] == "Duplicate request id"
        return stop_by(cluster.base, body["id"])

    (status, _, raw), stopped = in_threads([lambda: mode.ask(cluster.base, body), stop])
    assert status == 200 and stopped.status == 200 and stopped.json == {"id": body["id"]}
    last = mode.frames(raw)[-1]
    assert last["id"] == body["id"] and last["details"]["finish_reason"] == "stop_sequence"
    assert 0 < last["details"]["generated_tokens"] < MOST
    check_second_stop(cluster.base, body["id"])


@pytest.mark.parametrize("via", ["coordinator", "prefill"])
def test_stop_in_prefill(cluster, start, via):
    """Nothing was generated: the request ends with an error that says so."""
    mode = BY_NAME["triton_generate"]
    body = mode.body(" ".join(f"{via[0]}{i}" for i in range(150)), max_tokens=480)
    body["id"] = f"in-prefill-{via}"

    def stop():
        wait_for(lambda: cluster.prefills[0].load()[3] == 1, 5 * SLOW, "P computes")
        return stop_by(cluster.base if via == "coordinator" else cluster.prefills[0].base, body["id"])

    (status, _, raw), stopped = in_threads([lambda: mode.ask(cluster.base, body), stop])
    assert stopped.status == 200 and stopped.json == {"id": body["id"]}
    assert status == 424 and json.loads(raw)["error_type"] == "Generation Error", raw
    check_second_stop(cluster.base, body["id"])


def test_stop_on_a_single_instance(whole):
    before = whole.instance.idle()
    mode = BY_NAME["chat_stream"]
    s = Stream(whole.base, mode.path, mode.body("Tell me a story", **LONG))
    s.read_until(3)
    req_id = events(s.raw)[0]["id"]
    assert stop_by(whole.base, req_id).status == 200
    assert events(s.read_all())[-1]["choices"][0]["finish_reason"] == "stop"
    check_second_stop(whole.base, req_id)
    wait_for(lambda: whole.instance.load() == before, BACK_S, "everything is given back")


@pytest.mark.parametrize("body,status,text", [
    (b"{", 422, "Failed to parse context to json body."),
    (b"[]", 422, "Failed to parse context to json body."),
    ({}, 422, "Not found id."),
    ({"id": None}, 422, "Not found id."),
    ({"id": 7}, 422, "Not found id."),
    ({"id": ""}, 422, "The id can contain only digits, letters, underscores(_), hyphens(-) and no more than 256 words in length."),
    ({"id": "a b"}, 422, "The id can contain only digits, letters, underscores(_), hyphens(-) and no more than 256 words in length."),
    ({"id": "a" * 257}, 422, "The id can contain only digits, letters, underscores(_), hyphens(-) and no more than 256 words in length."),
    ({"id": "a" * 256}, 404, f"Stop request id {'a' * 256} not found."),
    ({"id": "unknown-1"}, 404, "Stop request id unknown-1 not found."),
])
def test_stop_refuses(pair, whole, body, status, text):
    for base in (pair.base, whole.base, pair.prefills[0].base, pair.decodes[0].base):
        a = post(base, STOP, body)
        assert (a.status, a.json["error"]) == (status, text), base


def test_stop_of_an_unknown_model(pair, whole):
    for base in (pair.base, whole.base):
        a = post(base, "/v2/models/nope/stopInfer", {"id": "x"})
        assert a.status == 404 and a.json == {"error": "Model nope not found.", "error_type": "NotFoundError"}


# ---- time limits: a process that sleeps makes the others wait, whatever the speed of the machine
@contextlib.contextmanager
def asleep(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


NATIVE = {"input_id": made_up_ids(20, 55555), "parameters": {"timeout": 1, "max_new_tokens": 480, "do_sample": False}}


def test_the_requests_own_limit_at_p(cluster, start):
    """P cannot hand the request over to a D that sleeps."""
    with asleep(cluster.decodes[0]):
        a = post(cluster.base, "/infer", NATIVE)
    assert a.status == 424 and a.json == {"error": "Engine callback timeout.", "error_type": "Generation Error"}
    wait_for(cluster.all_serve, 10 * SLOW, "the link is well")


def test_the_requests_own_limit_at_d(cluster, start):
    def sleep():
        wait_for(lambda: cluster.decodes[0].load()[3] == 1, 5 * SLOW, "D decodes")
        with asleep(cluster.decodes[0]):
            time.sleep(1.1)  # longer than the limit of the request

    a = in_threads([lambda: post(cluster.base, "/infer", NATIVE), sleep])[0]
    assert a.status == 500 and a.json == {"error": "Engine callback timeout: client timeout", "error_type": "Incomplete Generation"}, a.text
    wait_for(cluster.all_serve, 10 * SLOW, "the link is well")


@pytest.fixture(scope="module")
def limited():
    """One slot, and a second for everything."""
    limits = {"schedule_timeout": 1, "first_token_timeout": 1, "infer_timeout": 2}
    with Cluster(1, 1, extra={"BatonConfig": {"kvHeartbeatMs": 2000},
                              "BackendConfig": {"ScheduleConfig": {"maxBatchSize": 1, "maxPrefillBatchSize": 1}}},
                 coord={"coordinator": {"exception_config": limits}, "pd": {"heartbeat_ms": 10000}}) as c:
        yield c


def test_no_first_token_in_time(limited):
    before = limited.idle()
    jobs = [(m, m.body("first token", max_tokens=2)) for m in (BY_NAME["tgi_generate"], BY_NAME["triton_generate_stream"])]
    with asleep(limited.prefills[0]):
        for m, b in jobs:
            a = post(limited.base, m.path, b)
            assert (a.status, a.json) == (408, {"error": "Request first token timeout", "error_type": "Request Timeout"})
    limited.wait_idle(before, BACK_S)


def test_no_room_in_time_and_no_end_in_time(limited):
    """The stream that holds the only slot sleeps with its D: the next request gets no slot, and the stream itself no end."""
    wait_for(limited.all_serve, 10 * SLOW, "both serve")
    before = limited.idle()
    s = stream_of(limited, 90)
    s.read_until(2)
    with asleep(limited.decodes[0]):
        a = post(limited.base, "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "x"}]})
        assert a.status == 408 and a.json["error"] == "Request schedule timeout" and a.json["code"] == 408
        raw = s.read_all()
    last = events(raw)[-1]
    assert raw.endswith(b"data: [DONE]\n\n") and last["error"] == "Request inference timeout" and last["code"] == 408
    limited.wait_idle(before, BACK_S)


# ---- /stopService
def test_drain_and_force():
    """What a forced stop cuts short waits two seconds for another D, then ends with an error."""
    with Cluster(1, 2, coord={"coordinator": {"exception_config": {"schedule_timeout": 2 * SLOW}}}) as c:
        first, second = c.decodes
        streams = [stream_of(c, 80 + i) for i in range(4)]
        for s in streams:
            s.read_until(2)
        wait_for(lambda: first.load()[3] >= 1, 5 * SLOW, "the first D decodes")
        answers = in_threads([lambda: get(first.mgmt, "/stopService", timeout=60 * SLOW)] + [s.read_all for s in streams])
        assert answers[0].status == 200 and answers[0].body == b""
        for raw in answers[1:]:  # running requests end as they would have
            assert events(raw)[-1]["usage"]["completion_tokens"] == 480, events(raw)[-1]
        assert first.process.wait(timeout=10 * SLOW) == 0
        first.killed = True
        # The other one goes on alone; forced, it goes within five seconds whatever runs.
        assert post(c.base, "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 2}).status == 200
        s = stream_of(c, 85)
        s.read_until(2)
        assert get(second.mgmt, "/stopService?mode=Force").status == 200
        assert get(second.mgmt, "/stopService").status == 500
        for path in ("/v1/status", "/v2/health/live", "/v2/health/ready", "/health"):
            a = get(second.mgmt, path)
            assert a.status == 503 and a.json == {"error": "The service has been stopped.", "error_type": "Service Unavailable"}, path
        assert get(second.mgmt, "/health/timed-1").json == {"status": "healthy"}
        assert second.process.wait(timeout=10 * SLOW) == 0
        second.killed = True
        assert b"[DONE]" in s.read_all()


def test_stopped_instance_refuses_requests(tmp_path):
    with Standalone() as s:
        running = Stream(s.base, "/v1/completions", body_of(250, 20, True))
        running.read_until(1)

        def refuse():
            wait_for(lambda: get(s.mgmt, "/v1/status").status == 503, 5 * SLOW, "it is stopping")
            return [post(s.base, m.path, m.body([1, 2] if "ids" in m.accepts else "x")) for m in MODES]

        _, refused, _ = in_threads([lambda: get(s.mgmt, "/stopService", timeout=60 * SLOW), refuse, running.read_all])
        assert all((a.status, a.json["error"]) == (503, "The service has been stopped") for a in refused)
        assert events(running.raw)[-1]["usage"]["completion_tokens"] == LONG["max_tokens"]
        assert s.instance.process.wait(timeout=10 * SLOW) == 0
        s.instance.killed = True
