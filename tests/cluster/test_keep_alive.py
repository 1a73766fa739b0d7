"""Goal: a stream that has nothing to say gets a comment line after sseKeepAliveSeconds, from an instance and from a coordinator, and its events
stay what they are; without the key there is none.
Method: a chat whose role chunk goes out and whose text is then held back to the end: only one token is allowed, and the stop string begins like
everything it can write. So many of such requests are asked at once that it lasts longer than the second asked for, however fast the machine is.
"""
import json

import pytest
from harness import Cluster, Standalone, Stream, in_threads, post

BODY = {"model": "fable", "messages": [{"role": "user", "content": "Once"}], "stream": True, "n": 8, "temperature": 1, "seed": 1, "max_tokens": 600,
        "ignore_eos": True}


def silent(base):
    """The body above with its one token, and a stop string that never ends."""
    token = post(base, "/tokenize", {"prompt": "a", "add_special_tokens": False}).json["tokens"][0]
    text = post(base, "/detokenize", {"tokens": [token]}).json["prompt"]
    return {**BODY, "allowed_token_ids": [token], "stop": (text * 1024)[:1023] + "\n"}


def pieces(base, **more):
    raw = Stream(base, "/v1/chat/completions", {**silent(base), **more}).read_all().decode()
    assert raw.endswith("data: [DONE]\n\n")
    return raw[:-2].split("\n\n")


def until_comments(base, **more):
    """What several such streams at once got, of the smallest number of which one got a comment."""
    for n in (2, 4, 8, 16, 32, 64):
        answers = in_threads([lambda: pieces(base, **more)] * n)
        if any(":" in got for got in answers):
            return answers
    raise AssertionError(f"no comment for {n} streams at once of {len(answers[0])} pieces")


@pytest.mark.parametrize("where", ["instance", "coordinator"])
def test_comments(where):
    on = {"sseKeepAliveSeconds": 1}
    cluster = (Standalone(extra={"BatonConfig": on}) if where == "instance" else
               Cluster(coord={"coordinator": on}))
    with cluster as c:
        for got in until_comments(c.base):
            events = [json.loads(p[6:]) for p in got if p.startswith("data: {")]
            assert len(events) + got.count(":") + 1 == len(got)
            assert sorted(e["choices"][0]["index"] for e in events if e["choices"][0]["finish_reason"]) == list(range(8))


@pytest.mark.parametrize("where", ["instance", "coordinator"])
def test_comments_before_anything_else(where):
    """Requests for all slots: the last of them waits for the others, and gets its head and a comment before it has an event."""
    on, slots = {"sseKeepAliveSeconds": 1}, {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 8}}}
    with (Standalone(extra={"BatonConfig": on, **slots}) if where == "instance" else Cluster(coord={"coordinator": on}, extra=slots)) as c:
        answers = until_comments(c.base, max_tokens=400)
        assert any(got[0] == ":" for got in answers)
        assert all(got[-1] == "data: [DONE]" for got in answers)


def test_none_unless_asked(whole):
    assert ":" not in pieces(whole.base)
