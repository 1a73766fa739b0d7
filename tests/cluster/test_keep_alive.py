"""Goal: a stream that has nothing to say gets a comment line after sseKeepAliveSeconds, from an instance and from a coordinator, and its events
stay what they are; without the key there is none.
Method: the engine is held (cluster-api 3.12) while a stream is under way, and while one waits behind it for its slots, until both have their comments.
Of the first one only the role chunk goes out before its end: one token is allowed, and the stop string begins like everything it can write.
"""
import contextlib
import json
import threading
import time

import pytest
from harness import ANSWER_S, Cluster, Standalone, Stream, post, wait_for

PAUSE, START = 0, 2
SLOTS = 3
BODY = {"model": "fable", "messages": [{"role": "user", "content": "Once"}], "stream": True, "n": SLOTS, "temperature": 1, "seed": 1, "max_tokens": 200,
        "ignore_eos": True}


def silent(base):
    """The body above with its one token, and a stop string that never ends."""
    token = post(base, "/tokenize", {"prompt": "a", "add_special_tokens": False}).json["tokens"][0]
    text = post(base, "/detokenize", {"tokens": [token]}).json["prompt"]
    return {**BODY, "allowed_token_ids": [token], "stop": (text * 1024)[:1023] + "\n"}


class Reader:
    """A stream that a thread reads to its end; raw grows meanwhile."""

    def __init__(self, base, body):
        self.stream = None
        self.thread = threading.Thread(target=self.read, args=(base, body), daemon=True)
        self.thread.start()

    def read(self, base, body):
        self.stream = Stream(base, "/v1/chat/completions", body)
        self.stream.read_all()

    @property
    def raw(self):
        return self.stream.raw if self.stream else b""

    def pieces(self):
        self.thread.join(ANSWER_S)
        text = self.raw.decode()
        assert text.endswith("data: [DONE]\n\n"), text[-300:]
        return text[:-2].split("\n\n")


@contextlib.contextmanager
def held(instance):
    """Its engine takes no step."""
    def command(cmd):
        a = post(instance.mgmt, "/v1/engine-server/fault-handling-command", {"cmd": cmd})
        assert a.status == 200 and a.json["status"], a.text
    command(PAUSE)
    try:
        yield
    finally:
        command(START)


def two_held(base, engine, body):
    """What a stream for all slots got that was held in its middle, and one that waited behind it; None when the first one was faster than we are."""
    first = Reader(base, body)
    wait_for(lambda: b"\n\n" in first.raw, ANSWER_S, "the role chunk")
    with held(engine):
        second = Reader(base, body)
        ended = lambda: b"[DONE]" in first.raw  # noqa: E731
        wait_for(lambda: ended() or (b"\n\n:\n\n" in first.raw and second.raw.startswith(b":\n\n")), ANSWER_S, f"comments: {first.raw}, {second.raw}")
        too_late = ended()
    answers = first.pieces(), second.pieces()
    return None if too_late else answers


@pytest.mark.parametrize("where", ["instance", "coordinator"])
def test_comments(where):
    """The second one gets its head and a comment before it has an event."""
    on, slots = {"sseKeepAliveSeconds": 1}, {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": SLOTS, "maxPrefillBatchSize": SLOTS}}}
    with (Standalone(extra={"BatonConfig": on, **slots}) if where == "instance" else Cluster(coord={"coordinator": on}, extra=slots)) as c:
        body = silent(c.base)
        engine = c.instance if where == "instance" else c.decodes[0]
        first, second = wait_for(lambda: two_held(c.base, engine, body), 3 * ANSWER_S, "a stream is held in its middle")
        assert second[0] == ":" and first[0].startswith("data: {") and ":" in first
        for got in first, second:
            events = [json.loads(p[6:]) for p in got if p.startswith("data: {")]
            assert len(events) + got.count(":") + 1 == len(got)
            assert sorted(e["choices"][0]["index"] for e in events if e["choices"][0]["finish_reason"]) == list(range(SLOTS))


def test_none_unless_asked(whole):
    first = Reader(whole.base, silent(whole.base))
    wait_for(lambda: b"\n\n" in first.raw, ANSWER_S, "the role chunk")
    with held(whole.instance):
        time.sleep(1.3)  # longer than the others waited for theirs
    assert ":" not in first.pieces()
