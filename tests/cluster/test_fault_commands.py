"""Goal: an operator's fault handling (cluster-api 3.12) holds the engine, tests it and lets it go, in any role; nothing is lost meanwhile.
Method: every command in every state against the table; a stream under way while its engine is held makes no token and then ends as if
nothing had been; health, status and the coordinator say what is so."""
import time

import pytest
from harness import ANSWER_S, READY_S, Standalone, Stream, events, get, in_threads, post, wait_for

PAUSE, REINIT, START, PAUSE_ROCE = 0, 1, 2, 3
READY_STATE, NORMAL, ABNORMAL, PAUSED, INIT, BUSY = range(6)
WRONG = {"error": "Command is not consistent with current status.", "error_type": "Bad Request"}
DONE = {"status": True, "message": "", "reason": [{"device_id": 0, "result": True, "message": ""}]}
SMALL = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 2, "maxPrefillBatchSize": 2}}}


@pytest.fixture(scope="module")
def one():
    with Standalone(extra=SMALL) as s:
        yield s


@pytest.fixture(autouse=True)
def lets_go(request):
    """Whatever a test left held goes on."""
    yield
    if "one" in request.fixturenames:
        at = request.getfixturevalue("one")
        if status(at) != NORMAL:
            command(at, START)


def command(at, cmd):
    return post(at.mgmt, "/v1/engine-server/fault-handling-command", {"cmd": cmd})


def obeys(at, cmd):
    a = command(at, cmd)
    assert (a.status, a.json) == (200, DONE), a.text


def status(at):
    a = get(at.mgmt, "/v1/engine-server/running-status")
    assert a.status == 200 and set(a.json) == {"status", "errors"} and a.json["errors"] == [], a.text
    return a.json["status"]


def completion(n=8, **more):
    return {"model": "fable", "prompt": "Once upon a time", "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}


WAYS = {"NORMAL": [], "PAUSE": [PAUSE], "READY": [PAUSE, REINIT]}
AFTER = {("NORMAL", PAUSE): PAUSED, ("NORMAL", PAUSE_ROCE): PAUSED, ("PAUSE", REINIT): READY_STATE, ("PAUSE", START): NORMAL, ("READY", START): NORMAL}
CODES = {"NORMAL": NORMAL, "PAUSE": PAUSED, "READY": READY_STATE}


@pytest.mark.parametrize("state", list(WAYS))
@pytest.mark.parametrize("cmd", [PAUSE, REINIT, START, PAUSE_ROCE])
def test_every_command_in_every_state(one, state, cmd):
    for step in WAYS[state]:
        obeys(one, step)
    assert status(one) == CODES[state]
    a = command(one, cmd)
    after = AFTER.get((state, cmd))
    if after is None:
        assert (a.status, a.json) == (400, WRONG)
        assert status(one) == CODES[state]
    else:
        assert (a.status, a.json) == (200, DONE) and status(one) == after


@pytest.mark.parametrize("body,text", [
    (b"{", "Req body converts to json fail."), (b"[0]", "Req body converts to json fail."), (b"", "Req body converts to json fail."),
    (b"{}", "Parameter cmd must be necessary and must be integer type."), (b'{"cmd":null}', "Parameter cmd must be necessary and must be integer type."),
    (b'{"cmd":"0"}', "Parameter cmd must be necessary and must be integer type."),
    (b'{"cmd":0.5}', "Parameter cmd must be necessary and must be integer type."),
    (b'{"cmd":-1}', "Parameter cmd must be in [0,3], got -1."), (b'{"cmd":4}', "Parameter cmd must be in [0,3], got 4.")])
def test_what_is_no_command(one, body, text):
    a = post(one.mgmt, "/v1/engine-server/fault-handling-command", body)
    assert (a.status, a.json) == (422, {"error": text, "error_type": "Input Validation Error"})
    assert status(one) == NORMAL


def test_a_held_engine_makes_no_token_and_loses_none(one):
    want = post(one.base, "/v1/completions", completion(400)).json["choices"][0]["text"]
    s = Stream(one.base, "/v1/completions", completion(400, stream=True))
    s.read_until(3)
    obeys(one, PAUSE)
    steps = generated(one)
    late = in_threads_later(lambda: post(one.base, "/v1/completions", completion()))
    wait_for(lambda: sum(one.instance.load()[2:4]) == 2, ANSWER_S, "the second request is there")
    time.sleep(0.5)  # time in which a free engine makes hundreds
    assert generated(one) == steps and late.is_alive()
    obeys(one, REINIT)
    assert generated(one) == steps and late.is_alive()
    obeys(one, START)
    raw = s.read_all()
    assert raw.endswith(b"data: [DONE]\n\n")
    assert "".join(c["text"] for e in events(raw) for c in e["choices"]) == want
    assert late.answer().status == 200


def generated(at):
    return next(float(line.split()[-1]) for line in get(at.mgmt, "/metrics").text.splitlines() if line.startswith("generation_tokens_total{"))


def in_threads_later(job):
    import threading
    out = []
    t = threading.Thread(target=lambda: out.extend(in_threads([job])))

    def answer():
        t.join(ANSWER_S)
        return out[0]

    t.answer = answer
    t.start()
    return t


def test_health_tells(one):
    before = one.instance.status()
    assert "engineHeld" not in before["service"]
    obeys(one, PAUSE)
    for path in ("/v2/health/live", "/v2/health/ready"):
        a = get(one.base, path)
        assert (a.status, a.json) == (500, {"message": "Service is abnormal"}), path
    a = get(one.base, "/health")
    assert (a.status, a.json["error"]) == (500, "Failed to get health status.")
    assert get(one.base, "/v2/models/fable/ready").status == 500
    a = get(one.mgmt, "/health/timed-3")
    assert (a.status, a.json["error"]) == (500, "Health status changed during health detector")
    assert one.instance.status()["service"]["engineHeld"] is True
    obeys(one, START)
    assert get(one.base, "/v2/health/live").status == get(one.base, "/v2/health/ready").status == get(one.mgmt, "/health/timed-3").status == 200
    assert one.instance.status() == before


def test_busy_is_a_state_that_can_be_held(one):
    streams = [Stream(one.base, "/v1/completions", completion(900, stream=True)) for _ in range(2)]
    for s in streams:
        s.read_until(1)
    assert status(one) == BUSY
    obeys(one, PAUSE)
    assert status(one) == PAUSED
    streams[0].abandon()
    wait_for(lambda: one.instance.load()[0] == 1, ANSWER_S, "the slot of a client that left is free while the engine is held")
    obeys(one, START)
    assert streams[1].read_all().endswith(b"[DONE]\n\n")


def test_the_path_belongs_to_the_management_plane(one, pair):
    for path in ("/v1/engine-server/running-status", "/v1/engine-server/fault-handling-command"):
        assert get(one.base, path).status == get(pair.base, path).status == get(pair.mgmt, path).status == 404
    a = get(one.mgmt, "/v1/engine-server/fault-handling-command")
    assert a.status == 405 and a.headers["Allow"] == "POST"


def alarms(cluster, inst, alarm_id):
    """Those of one instance, newest first: [cleared, ..]."""
    return [a["cleared"] for a in get(cluster.mgmt, "/v1/alarms").json if a["alarmId"] == alarm_id and a["moi"].endswith(f":{inst.port}")]


def test_split_a_held_instance_gets_no_new_work(pair):
    """Prefill, then decode: what is under way waits and ends well; the coordinator sends nothing new, says why, and raises an alarm until it goes
    on."""
    want = post(pair.base, "/v1/completions", completion(300)).json["choices"][0]["text"]
    for held in (pair.decodes[0], pair.prefills[0]):
        s = Stream(pair.base, "/v1/completions", completion(300, stream=True))
        s.read_until(2)
        before = alarms(pair, held, "0xFC001002")
        obeys(held, PAUSE)
        wait_for(lambda: not pair.is_ready(), READY_S, "the coordinator has heard")
        wait_for(lambda: alarms(pair, held, "0xFC001002") == [0, *before], READY_S, "its alarm is raised")
        role = held.binary
        state = next(i for i in pair.status()["instances"] if i["role"] == role)["state"]
        assert state != "serving"
        assert post(pair.base, "/v1/completions", completion()).status == 503
        obeys(held, START)
        wait_for(pair.is_ready, READY_S, "the coordinator has heard")
        wait_for(lambda: alarms(pair, held, "0xFC001002") == [1, 0, *before], READY_S, "its alarm is cleared")
        assert "".join(c["text"] for e in events(s.read_all()) for c in e["choices"]) == want
        assert post(pair.base, "/v1/completions", completion()).status == 200


def test_a_stop_ends_a_held_instance():
    """A drain under way ends when the engine goes on."""
    with Standalone(extra=SMALL) as s:
        st = Stream(s.base, "/v1/completions", completion(200, stream=True))
        st.read_until(1)
        obeys(s, PAUSE)
        stopping = in_threads_later(lambda: get(s.mgmt, "/stopService"))
        wait_for(lambda: get(s.mgmt, "/v1/status").status == 503, ANSWER_S, "it stops")
        assert post(s.base, "/v1/completions", completion()).status == 503
        obeys(s, START)
        assert st.read_all().endswith(b"[DONE]\n\n")
        assert stopping.answer().status == 200
        s.instance.process.wait(timeout=ANSWER_S)
        s.instance.killed = True
