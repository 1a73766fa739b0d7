"""Goal: an instance that can prefill and decode does both for others and serves alone, at the same time, and its answers are those of any
other way (cluster-api 3.4, 5.1): a request of a client itself, one that it hands to another, one that another hands to it, one whose D it is
itself; also behind what an earlier attempt sent.
Method: two instances get the role flex by hand, linked once; the test is the coordinator of both. Answers, joined, are compared with those of
a single instance.
"""
import json

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import SLOW, get, in_threads, post, wait_for
from pd_hand import Hand, Listener, node, record, tokens

ASKS = [("completions", {}), ("completions_stream", {"temperature": 0.8, "seed": 3, "logprobs": 2}), ("chat_stream", {}),
        ("completions_stream", {"n": 3, "temperature": 0.9, "seed": 5}), ("completions", {"n": 2, "best_of": 4, "temperature": 0.9, "seed": 5}),
        ("tgi_generate_stream", {"details": True, "temperature": 0.7, "seed": 4}), ("completions", {"use_beam_search": True, "n": 2}), ("completions_stream", {"max_tokens": 1}),
        ("completions_stream", {"stop": [" the"], "max_tokens": 60})]


class Flex(Hand):
    """Both instances can do both."""

    def give_roles(self):
        for me, peer in (((self.p, 11), (self.d, 21)), ((self.d, 21), (self.p, 11))):
            a = post(me[0].mgmt, "/v1/role/flex", {"local": {**node(*me), "p_percentage": 50}, "peers": [node(*peer)]})
            assert a.status == 200 and a.json == {"result": "ok"}, a.text
        for i in (self.p, self.d):
            wait_for(lambda: i.status()["service"]["roleStatus"] == "RoleReady" and i.status()["linkStatus"]["peers"], 20 * SLOW, f"{i.name} is linked")
        self.listeners = {i.name: Listener(i.base, 2) for i in (self.p, self.d)}

    def split(self, p, d, mode, body, req_id=None, epoch=0, raw=None, more=None):
        """(what the client gets of P, then of D; P's answer; D's frames)"""
        req_id = req_id or str(next(self.ids))
        head = {"req-type": "prefill", "req-id": req_id, "d-target": f"127.0.0.1;{d.inter_port}", "req-epoch": str(epoch), **(more or {})}
        a = post(p.base, mode.path, raw if raw is not None else body, headers=head)
        assert a.status == 200, a.text
        if a.json.get("isLastResp"):
            return a.json["output"], a.json, []
        frames = self.listeners[d.name].wait_end(req_id, epoch)
        assert frames[-1][3] == "lastData" and all(f[3] == "data" for f in frames[:-1])
        return a.json.get("output", "") + "".join(f[5] for f in frames), a.json, frames


@pytest.fixture(scope="module")
def flex():
    with Flex() as f:
        f.give_roles()
        yield f


def ways(flex):
    return [(flex.p, flex.d), (flex.d, flex.p), (flex.p, flex.p), (flex.d, flex.d)]


def idle(flex):
    for i in (flex.p, flex.d):
        wait_for(lambda: not any(i.status()["resource"][k] for k in ("waitingRequestNum", "runningRequestNum", "kvLeases")), 10 * SLOW, "idle again")


def test_its_status_says_what_it_is(flex):
    for i, other in ((flex.p, 21), (flex.d, 11)):
        assert i.status()["service"] == {"roleStatus": "RoleReady", "currentRole": "flex", "p_percentage": 50}
        assert i.status()["linkStatus"]["peers"] == [{"target": other, "link": "ok"}]
        assert get(i.mgmt, "/v2/health/ready").status == 200


@pytest.mark.parametrize("name,params", ASKS, ids=str)
def test_every_way_is_the_same_answer(flex, whole, name, params):
    mode = BY_NAME[name]
    body = mode.body(made_up_ids(33, 91000) if mode.family == "completions" else "Once upon a time", **params)
    status, _, want = mode.ask(whole.base, body)
    assert status == 200, want
    want = normal(want, False)
    for i in (flex.p, flex.d):
        status, _, got = mode.ask(i.base, body)
        assert status == 200 and normal(got, False) == want
    for p, d in ways(flex):
        got, answer, _ = flex.split(p, d, mode, body)
        assert normal(got.encode(), False) == want, (p.name, d.name)
        assert p is not d or not answer.get("kvBytes"), "nothing is sent to itself"
    idle(flex)


def test_all_at_once(flex, whole):
    mode = BY_NAME["completions_stream"]
    bodies = [mode.body(made_up_ids(20 + i, 92000 + i), max_tokens=40, temperature=0.7, seed=i) for i in range(24)]
    want = [normal(mode.ask(whole.base, b)[2], False) for b in bodies]

    def ask(i):
        if i % 6 < 4:
            p, d = ways(flex)[i % 6]
            return normal(flex.split(p, d, mode, bodies[i])[0].encode(), False)
        return normal(mode.ask((flex.p, flex.d)[i % 6 - 4].base, bodies[i])[2], False)

    assert in_threads([lambda i=i: ask(i) for i in range(24)]) == want
    idle(flex)


def test_behind_what_an_earlier_attempt_sent(flex):
    """A stream that was begun by one way goes on by another, at any token."""
    mode = BY_NAME["completions_stream"]
    body = mode.body(made_up_ids(25, 93000), max_tokens=12, temperature=0.7, seed=9)
    calm, answer, frames = flex.split(flex.p, flex.d, mode, body)
    parts = [(answer["output"], tokens(answer["tokens"]))] + [(f[5], f[4]) for f in frames]
    raw = json.dumps(body).encode()
    for cut in range(1, len(parts)):
        sent = [t for _, ts in parts[:cut] for t in ts]
        rec = record(sent, answer["created"], int(answer["seed"]), answer["cachedTokens"])
        p, d = ways(flex)[cut % 4]
        got, again, _ = flex.split(p, d, mode, None, epoch=cut, raw=raw + rec, more={"baton-replay": str(len(rec))})
        assert normal(("".join(t for t, _ in parts[:cut]) + got).encode(), False) == normal(calm.encode(), False), cut
        assert again["created"] == answer["created"]
    idle(flex)


def test_stopped_while_it_decodes_for_itself(flex):
    mode = BY_NAME["completions_stream"]
    body = mode.body(made_up_ids(20, 94000), max_tokens=2000, ignore_eos=True)
    req_id = str(next(flex.ids))
    head = {"req-type": "prefill", "req-id": req_id, "d-target": f"127.0.0.1;{flex.p.inter_port}"}
    assert post(flex.p.base, mode.path, body, headers=head).status == 200
    assert post(flex.p.base, "/v2/models/fable/stopInfer", {"id": req_id}).status == 200
    frames = flex.listeners[flex.p.name].wait_end(req_id)
    assert frames[-1][3] == "lastData" and frames[-1][5].endswith("data: [DONE]\n\n") and sum(len(f[4]) for f in frames) < 1500
    idle(flex)


def test_one_capability_goes_and_comes_back(flex, whole):
    """To a P alone while its decode part is idle; what it cannot do any more it says."""
    mode = BY_NAME["completions"]
    body = mode.body(made_up_ids(20, 95000))
    peers = [node(flex.d, 21)]
    assert post(flex.p.mgmt, "/v1/role/prefill", {"local": node(flex.p, 11), "peers": peers}).status == 200
    wait_for(lambda: flex.p.status()["service"] == {"roleStatus": "RoleReady", "currentRole": "prefill"}, 10 * SLOW, "a P")
    a = post(flex.p.base, mode.path, body)
    assert a.status == 400 and "DMI request must have req-type" in a.text
    a = post(flex.p.base, mode.path, body, headers={"req-type": "prefill", "req-id": "77", "d-target": f"127.0.0.1;{flex.p.inter_port}"})
    assert a.status == 500 and "[P Node] Send D request failed!" in a.text
    want = normal(mode.ask(whole.base, body)[2], False)
    wait_for(lambda: [(p["target"], p["link"]) for p in flex.p.status()["linkStatus"]["peers"]] == [(21, "ok")], 10 * SLOW, "linked")
    assert normal(flex.split(flex.p, flex.d, mode, body)[0].encode(), False) == want
    a = post(flex.p.mgmt, "/v1/role/flex", {"local": {**node(flex.p, 11), "p_percentage": 50}, "peers": peers})
    assert a.status == 200
    flex.listeners[flex.p.name] = Listener(flex.p.base, 2)
    wait_for(lambda: flex.p.status()["service"]["roleStatus"] == "RoleReady" and flex.p.status()["linkStatus"]["peers"], 10 * SLOW, "a flex again")
    for p, d in ways(flex):
        assert normal(flex.split(p, d, mode, body)[0].encode(), False) == want


def test_neither_waits_for_the_other(whole):
    """Both hand over to each other, at once, more than both pools can hold: who has blocks for a prompt never waits for blocks that are held for
    one which waits for his. So all are answered, and none is given up for want of room."""
    mode = BY_NAME["completions_stream"]
    small = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 4, "maxPrefillBatchSize": 4, "enablePrefixCache": False}},
             "BatonConfig": {"kvCacheMiB": 1, "chunkTokens": 64, "handoverTimeoutSeconds": 20 * SLOW}}
    with Flex(extra=small) as f:
        f.give_roles()
        blocks = [i.load()[1] for i in (f.p, f.d)]
        long = 16 * (blocks[0] // 2) - 40  # two of them fill a pool
        bodies = [mode.body(made_up_ids(long, 96000 + i), max_tokens=8, temperature=0.7, seed=i) for i in range(12)]
        want = [normal(mode.ask(whole.base, b)[2], False) for b in bodies[:2]]
        got = in_threads([lambda i=i: f.split(*ways(f)[i % 2], mode, bodies[i])[0] for i in range(12)])
        assert [normal(t.encode(), False) for t in got[:2]] == want
        idle(f)
        assert [i.load()[1] for i in (f.p, f.d)] == blocks
