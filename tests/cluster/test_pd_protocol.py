"""Goal: the wire between coordinator, prefill and decode instance is the one written down (cluster-api 5.1, 5.2, 5.5, 5.7), so that a
coordinator of another make could drive these instances: headers and their errors, P's answer, /dresult frames of both versions with
heartbeat, replacement and replay, attempts, recompute. And ours survives having its result stream taken away.
Method: two instances get their roles by hand; the test is the coordinator. What P and D say for one request, joined, is compared with the
answer of a single instance.
"""
import json

import pytest
from families import BY_NAME, MODES, made_up_ids, normal
from harness import ANSWER_S, SLOW, Stream, get, post, wait_for
from pd_hand import Hand, Listener, tokens

CLOSE_ID = "18446744073709551615"
CLOSE_TEXT = "new connection is to established, close the old one."


@pytest.fixture(scope="module")
def hand():
    with Hand() as h:
        yield h


# ---- before the roles
def test_instances_without_a_role(hand):
    for i in (hand.p, hand.d):
        a = post(i.base, "/generate", {"inputs": "x"}, headers=hand.headers())
        assert a.status == 503
        assert a.json == {"error": "The server cannot process the inference request due to an unknown status. ", "error_type": "Service Unavailable"}
        a = get(i.base, "/dresult")
        assert a.status == 400 and a.json["error"] == "Only the Decode node supports dresult but you send to none"
        assert i.status()["service"] == {"roleStatus": "RoleUnknown", "currentRole": "none"}
        assert get(i.mgmt, "/v2/health/live").status == 200 and get(i.mgmt, "/v2/health/ready").status == 503
    hand.give_roles()
    for i in (hand.p, hand.d):
        assert get(i.mgmt, "/v2/health/ready").status == 200
        assert i.status()["linkStatus"]["peers"] == [{"target": 21 if i is hand.p else 11, "link": "ok"}]


def test_dresult_is_for_decode_instances(hand, whole):
    a = get(hand.p.base, "/dresult")
    assert a.status == 400 and a.json == {"error": "Only the Decode node supports dresult but you send to prefill", "error_type": "Bad Request"}
    a = get(whole.base, "/dresult")
    assert a.status == 400 and a.json == {"error": "Non DMI does not support dresult request", "error_type": "Bad Request"}


# ---- the headers
MISSING = "DMI request must have req-type, req-id, d-target headers"
TARGET = "Parameter d-target must be an IPv4 address"


@pytest.mark.parametrize("change,text", [
    ({"req-type": None}, MISSING), ({"req-id": None}, MISSING), ({"d-target": None}, MISSING),
    ({"req-id": "12-4"}, "Invalid req-id, the character of req-id should be hex char [0-9, a-f, A-F], but got 12-4"),
    ({"req-id": "a" * 1025}, "The length of req-id cannot exceed 1024"),
    ({"req-type": "decode"}, "Parameter req-type must be prefill but got decode"),
    ({"d-target": "somewhere"}, TARGET), ({"d-target": "127.0.0.1;x"}, TARGET), ({"d-target": "127.0.0.256"}, TARGET),
    ({"is-recompute": "yes"}, "Parameter is-recompute is an optional parameter. When it is set, it must be true or false."),
    ({"req-epoch": "-1"}, "Parameter req-epoch must be an integer from 0 to 4294967295 but got -1"),
], ids=str)
def test_headers_are_checked(hand, change, text):
    headers = {k: v for k, v in {**hand.headers(), **change}.items() if v is not None}
    a = post(hand.p.base, "/generate", {"inputs": "x"}, headers=headers)
    assert a.status == 400 and a.json == {"error": text, "error_type": "Bad Request"}


def test_decode_instances_take_no_client(hand):
    a = post(hand.d.base, "/generate", {"inputs": "x"}, headers={**hand.headers(), "d-target": f"127.0.0.1;{hand.p.inter_port}"})
    assert a.status == 400
    assert a.json["error"] == "DMI inference requests can be sent only to the prefill node or p_percentage of the flex node == 0"


def test_a_target_that_is_not_linked(hand):
    a = post(hand.p.base, "/generate", {"inputs": "x"}, headers={**hand.headers(), "d-target": "127.0.0.1;1024"})
    assert a.status == 500 and a.json["error"].startswith("[P Node] Send D request failed!...")


# ---- one request
def long_seed(whole, mode, prompt, n, _found={}):
    """A seed with which the model does not end before n tokens. The same for every family but chat, whose prompt gets a template."""
    key = (mode.family == "chat", str(prompt))
    if key not in _found:
        ask = {"model": "fable", "max_tokens": n, "temperature": 0.8}
        ask |= {"messages": [{"role": "user", "content": prompt}]} if key[0] else {"prompt": prompt}
        path = "/v1/chat/completions" if key[0] else "/v1/completions"
        _found[key] = next(s for s in range(1, 100) if post(whole.base, path, {**ask, "seed": s}).json["usage"]["completion_tokens"] == n
                           and post(whole.base, path, {**ask, "seed": s}).json["choices"][0]["finish_reason"] == "length")
    return _found[key]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_one_request(hand, whole, version, mode):
    """P's answer and D's frames of each family, joined, are the answer of a single instance."""
    prompt = made_up_ids(20, 70000) if "ids_only" in mode.accepts else "The old woman and the fox"
    body = mode.body(prompt, max_tokens=12, temperature=0.8, seed=long_seed(whole, mode, prompt, 12))
    listener = Listener(hand.d.base, version)
    try:
        req_id = next(hand.ids)
        a = post(hand.p.base, mode.path, body, headers=hand.headers(req_id))
        assert a.status == 200 and a.headers["Content-Type"] == "application/json", a.text
        assert a.json["reqId"] == str(req_id) and a.json["isStream"] is mode.stream
        frames = listener.wait_end(req_id)
        if mode.stream:
            assert a.json["isLastResp"] is False
        else:
            assert "output" not in a.json and "isLastResp" not in a.json
        assert [f[3] for f in frames] == ["data"] * (len(frames) - 1) + ["lastData"]
        assert mode.stream or len(frames) == 1
        joined = a.json.get("output", "") + "".join(f[5] for f in frames)
        want = normal(mode.ask(whole.base, body)[2], keep_cached=False)
        if version == 1 and mode.family == "vllm":  # a NUL ends a frame of version 1: it cannot be carried in one
            joined, want = joined.replace("\0", ""), want.replace("\0", "")
        assert normal(joined.encode(), keep_cached=False) == want
        if version == 2:
            assert [f[2] for f in frames] == list(range(len(frames))) and {f[1] for f in frames} == {0}
            said = tokens(a.json["tokens"]) + [t for f in frames for t in f[4]]
            assert len(said) == 12 and [t.finish for t in said] == [0] * 11 + [4]
    finally:
        listener.close()


@pytest.mark.parametrize("mode", [BY_NAME["chat"], BY_NAME["completions_stream"]], ids=str)
def test_a_decode_instance_computes_a_prompt_of_its_own(hand, whole, mode):
    """A request that names the decode instance as its D, sent to itself: prompt and answer are made there, and nothing goes over the link."""
    body = mode.body("The old woman and the fox", max_tokens=12, temperature=0.8, seed=long_seed(whole, mode, "The old woman and the fox", 12))
    listener = Listener(hand.d.base, 2)
    try:
        req_id = next(hand.ids)
        a = post(hand.d.base, mode.path, body, headers=hand.headers(req_id))
        assert a.status == 200 and a.json["reqId"] == str(req_id) and a.json["kvBytes"] == 0, a.text
        frames = listener.wait_end(req_id)
        joined = a.json.get("output", "") + "".join(f[5] for f in frames)
        assert normal(joined.encode(), keep_cached=False) == normal(mode.ask(whole.base, body)[2], keep_cached=False)
    finally:
        listener.close()


@pytest.mark.parametrize("mode", [BY_NAME["chat_stream"], BY_NAME["tgi_generate"]], ids=str)
def test_the_first_token_ends_it(hand, whole, mode):
    body = mode.body("One more", max_tokens=1)
    before = hand.d.idle()
    a = post(hand.p.base, mode.path, body, headers=hand.headers())
    assert a.json["isLastResp"] is True
    assert normal(a.json["output"].encode(), False) == normal(mode.ask(whole.base, body)[2], False)
    wait_for(lambda: hand.d.load() == before, 2 * SLOW, "D forgets what it was offered")


# ---- the stream of results
def ask_p(hand, req_id, n=30, path="/v1/completions", **more):
    body = {"model": "fable", "prompt": made_up_ids(10, 71000), "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True}
    return post(hand.p.base, path, body, headers=hand.headers(req_id, **more))


def test_a_heartbeat_follows_five_quiet_seconds(hand):
    with Hand() as other:
        other.give_roles()
        one, two = Listener(hand.d.base, 1), Listener(other.d.base, 2)
        for listener in (one, two):
            wait_for(lambda: listener.frames() and listener.frames()[-1][3] == "ka", 7.5 * SLOW, "a heartbeat")
            listener.close()
        assert one.raw.endswith(b"ka:heartbeat\0") and two.raw.endswith(b"00000009 - 0 0 ka ")


@pytest.mark.parametrize("version", [1, 2])
def test_a_second_listener_replaces_the_first(hand, version):
    first = Listener(hand.d.base, version)
    second = Listener(hand.d.base, 2)
    wait_for(lambda: first.ended, 5 * SLOW, "the first one is ended")
    assert [(f[0], f[3], f[5]) for f in first.frames()][-1] == (CLOSE_ID, "close", CLOSE_TEXT)
    assert [f[3] for f in first.frames()].count("close") == 1
    req_id = next(hand.ids)
    assert ask_p(hand, req_id).status == 200
    second.wait_end(req_id)
    assert not any(f[0] == str(req_id) for f in first.frames())
    second.close()


def test_results_wait_for_a_listener(hand):
    """Nobody listens while the request runs; version 2 gets all frames again at each connect, version 1 what no socket has taken."""
    early = Listener(hand.d.base, 2)
    early.close()
    wait_for(lambda: hand.d.log().rstrip().endswith("event=listener_lost"), 5 * SLOW, "D knows that nobody listens")
    wanted, late = next(hand.ids), next(hand.ids)
    assert ask_p(hand, wanted).status == 200
    wait_for(lambda: hand.d.load()[3] == 0, 10 * SLOW, "it is done")
    one = Listener(hand.d.base, 1)
    text = "".join(f[5] for f in one.wait_end(wanted))
    one.close()
    two = Listener(hand.d.base, 2)
    frames = two.wait_end(wanted)
    assert [f[2] for f in frames] == list(range(len(frames))) and "".join(f[5] for f in frames) == text
    two.close()
    three = Listener(hand.d.base, 2)
    assert three.wait_end(wanted) == frames
    three.close()
    four = Listener(hand.d.base, 1)
    assert ask_p(hand, late).status == 200
    four.wait_end(late)
    assert not any(f[0] == str(wanted) for f in four.frames())
    four.close()


def test_attempts(hand):
    """The same id again is refused while it runs, a newer attempt takes its place, an older one is not taken back."""
    listener = Listener(hand.d.base, 2)
    req_id = next(hand.ids)
    assert ask_p(hand, req_id, 400, req_epoch="3").status == 200
    wait_for(lambda: any(f[0] == str(req_id) for f in listener.frames()), 5 * SLOW, "it decodes")
    same, older = ask_p(hand, req_id, 400, req_epoch="3"), ask_p(hand, req_id, 400, req_epoch="2")
    assert same.status == older.status == 500 and "[P Node]" in same.json["error"] and "[P Node]" in older.json["error"]
    assert ask_p(hand, req_id, 20, req_epoch="4").status == 200
    frames = listener.wait_end(req_id, 4)
    assert [f[2] for f in frames] == list(range(len(frames)))
    n_old = len([f for f in listener.frames() if f[0] == str(req_id) and f[1] == 3])
    assert not any(f[3] == "lastData" for f in listener.frames() if f[0] == str(req_id) and f[1] == 3)
    wait_for(lambda: hand.d.load()[2:] == (0, 0, 0), 5 * SLOW, "nothing runs")
    assert len([f for f in listener.frames() if f[0] == str(req_id) and f[1] == 3]) == n_old
    listener.close()


@pytest.mark.parametrize("name", ["completions_stream", "chat_stream", "tgi_generate_stream", "vllm_stream", "infer_stream", "triton_generate_stream"])
def test_recompute_goes_on_where_it_stood(hand, name):
    """The body of 5.7: the number of prompt tokens, their ids, and the ids generated so far. Text goes on without a gap or a repetition."""
    mode = BY_NAME[name]
    listener = Listener(hand.d.base, 2)
    body = mode.body("The lion had a thorn in his foot and", max_tokens=20, temperature=0.9, seed=77)
    req_id = next(hand.ids)
    first = post(hand.p.base, mode.path, body, headers=hand.headers(req_id))
    assert first.status == 200, first.text
    frames = listener.wait_end(req_id)
    ids = [t.id for t in tokens(first.json["tokens"])] + [t.id for f in frames for t in f[4]]
    pieces = [first.json["output"]] + [f[5] for f in frames]
    said, k = len(tokens(first.json["tokens"])), 0
    for f in frames[:len(frames) // 2]:  # what a client has got when D dies half-way
        said, k = said + len(f[4]), k + 1
    asked = {k: body[k] for k in ("messages", "prompt") if k in body} or {"prompt": body.get("inputs", body.get("text_input"))}
    prompt = post(hand.p.base, "/tokenize", asked).json["tokens"]
    assert len(prompt) == first.json["promptTokens"]
    numbers = [len(prompt), *prompt, *ids[:said]]
    again = dict(body)
    again[{"chat": "messages", "completions": "prompt", "vllm": "prompt", "tgi": "inputs", "native": "inputs", "triton": "text_input"}[mode.family]] = \
        ",".join(map(str, numbers))
    req_id = next(hand.ids)
    a = post(hand.p.base, mode.path, again, headers=hand.headers(req_id, is_recompute="true"))
    assert a.status == 200, a.text
    rest = a.json["output"] + "".join(f[5] for f in listener.wait_end(req_id))
    assert normal(rest.encode(), False) == normal("".join(pieces[1 + k:]).encode(), False)
    listener.close()


# ---- our coordinator
def test_the_coordinator_gets_its_stream_back(pair):
    """Another one takes the result stream in the middle of a request: ours comes back, and its client sees a pause and nothing else."""
    mode = BY_NAME["chat_stream"]
    body = mode.body("Tell me about the frogs who wanted a king", max_tokens=300, temperature=0.9, seed=8, ignore_eos=True)
    calm = mode.ask(pair.base, body)[2]
    s = Stream(pair.base, mode.path, body)
    s.read_until(5)
    thief = Listener(pair.decodes[0].base, 2)
    wait_for(lambda: thief.frames(), 5 * SLOW, "the thief gets frames")
    assert normal(s.read_all(), False) == normal(calm, False)
    wait_for(lambda: thief.ended, 5 * SLOW, "the thief is told")
    assert thief.frames()[-1][3] == "close"
    wait_for(lambda: "event=replaced" in pair.coordinator.log(), ANSWER_S, "it is logged")
    # Who asks before it has the stream back waits a moment, and is not told that there is no decode instance.
    assert json.loads(post(pair.base, "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 2}).body)["usage"]["completion_tokens"] == 2
