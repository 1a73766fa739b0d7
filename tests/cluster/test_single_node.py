"""Goal: with deploy_mode single_node each instance behind the coordinator serves whole requests (cluster-api 8.1, 8.3): answers are those of one
process, a conversation goes on where it was (cache_affinity), nobody has a role to be switched from, and a stream whose instance dies goes on
at another one, no token lost or said twice.
Method: three instances, killed and started again; every answer compared with that of an instance alone.
"""
import contextlib
import http.client
import json
import re

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import READY_S, SLOW, Cluster, Stream, events, get, post, wait_for
from test_roles import batonctl

MODE = {"digs_scheduler_config": {"deploy_mode": "single_node", "scheduler_type": "default_scheduler", "algorithm_type": "cache_affinity"}}
STREAM = BY_NAME["completions_stream"]


class Single(Cluster):
    def all_serve(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return len(self.serving("flex")) == self.n_p + self.n_d
        return False


@pytest.fixture(scope="module")
def single():
    with Single(1, 2, coord={"coordinator": MODE}) as c:
        yield c


def who(c, n=1):
    """The pairs of the last requests, the newest first."""
    return [(r["p"], r["d"]) for r in c.status()["recentRequests"]][:n]


def test_what_is_said_of_them(single):
    s = single.status()
    assert s["coordinator"]["deployMode"] == "single_node"
    assert [(i["role"], i["wantedRole"], i["state"], i["links"]) for i in s["instances"]] == 3 * [("flex", "flex", "serving", [])]
    assert get(single.status_base, "/v1/readiness").json == {"ready": True, "prefill": 3, "decode": 3, "reasons": []}
    plan = get(single.mgmt, "/v1/plan").json
    assert plan["changes"] == [] and plan["unmet"] == [] and plan["singleNode"]
    assert batonctl(single, "plan").stdout == "nothing changes (single_node: every instance does both)\n"
    a = post(single.mgmt, "/v1/instances/role", {"id": s["instances"][0]["id"], "role": "decode"})
    assert a.status == 409 and "deploy_mode is single_node" in a.text, a.text


@pytest.mark.parametrize("name,params", [("completions", {}), ("completions_stream", {"temperature": 0.8, "seed": 3, "n": 2}), ("chat_stream", {}),
                                         ("tgi_generate_stream", {"details": True, "temperature": 0.7, "seed": 4}), ("completions_stream", {"max_tokens": 1})], ids=str)
def test_answers_are_those_of_one_process(single, whole, name, params):
    mode = BY_NAME[name]
    body = mode.body(made_up_ids(70, 61000) if mode.family == "completions" else "Once upon a time", **params)
    status, _, want = mode.ask(whole.base, body)
    assert status == 200
    for _ in range(3):
        status, _, got = mode.ask(single.base, body)
        assert status == 200 and normal(got, False) == normal(want, False)
    pairs = who(single, 3)
    assert all(p == d for p, d in pairs) and len(set(pairs)) == 3, "they take turns, and none is a pair of two"


def test_a_conversation_stays_where_it_was(single):
    """Its next turn begins with all of the one before; others, and the same one asked anew, take turns."""
    def ask(messages):
        a = post(single.base, "/v1/chat/completions", {"model": "fable", "messages": messages, "max_tokens": 8})
        assert a.status == 200, a.text
        return a.json["choices"][0]["message"], who(single)[0]

    chats = {i: [{"role": "user", "content": f"{i}: tell me of the fox and the grapes"}] for i in range(3)}
    at = {}
    for i, m in chats.items():
        said, at[i] = ask(m)
        m.append({"role": "assistant", "content": said["content"]})
    assert len(set(at.values())) == 3
    for turn in range(3):
        for i in (2, 0, 1):
            chats[i].append({"role": "user", "content": f"and then? {turn}"})
            said, there = ask(chats[i])
            assert there == at[i], (turn, i)
            chats[i].append({"role": "assistant", "content": said["content"]})
    assert len({ask(chats[0][:1])[1] for _ in range(3)}) == 3


def test_metrics_count_them(single):
    text = get(single.external, "/metrics").text
    alone = re.search(r'coordinator_routed_total\{how="alone"\} (\d+)', text)
    pair = re.search(r'coordinator_routed_total\{how="pair"\} (\d+)', text)
    assert alone and int(alone[1]) > 10 and (pair is None or int(pair[1]) == 0), text


def test_a_stream_goes_on_when_its_instance_dies(single):
    body = STREAM.body(made_up_ids(40, 62000), max_tokens=400, temperature=0.7, seed=5, ignore_eos=True)
    calm = normal(STREAM.ask(single.base, body)[2], False)
    s = Stream(single.base, STREAM.path, body)
    s.read_until(10)
    moving = get(single.mgmt, "/debug/state").json["requests"]
    victim = single.instance_of(moving[0]["d"])
    victim.kill()
    raw = s.read_all()
    assert normal(raw, False) == calm
    assert events(raw)
    r = single.status()["recentRequests"][0]
    assert r["p"] == r["d"] and len(r["lostAttempts"]) == 1, json.dumps(r)
    assert single.status()["coordinator"]["requestsFailed"] == 0
    victim.start()
    wait_for(single.all_serve, READY_S, "it serves again")
    wait_for(lambda: all(single.idle()), 20 * SLOW, "nothing is left")
