"""Goal: a program written against Hugging Face's inference client works against Baton's TGI paths, split and whole.
Method: the npm package @huggingface/inference, pinned; tests/cluster/npm/tgi_client.mjs runs one step against the live server and prints what the
client gave it; the judging happens here."""
import npm_clients
import pytest


@pytest.fixture(params=["pair", "whole"])
def node(request):
    npm_clients.install()
    base = request.getfixturevalue(request.param).base
    return lambda step: npm_clients.run("tgi_client.mjs", base, step)


def test_text_and_details(node):
    text = node("whole")["generated_text"]
    assert text
    told = node("details")
    assert told["generated_text"] == text
    details = told["details"]
    assert details["finish_reason"] == "length" and details["generated_tokens"] == 12 == len(details["tokens"])
    assert "".join(t["text"] for t in details["tokens"]) == text and all(t["logprob"] <= 0 for t in details["tokens"])
    assert len(details["prefill"]) == details["prompt_tokens"] and details["prefill"][0]["logprob"] is None


def test_stream(node):
    events = node("stream")["events"]
    assert len(events) == 12 and [e["generated_text"] for e in events[:-1]] == [None] * 11
    assert "".join(e["token"]["text"] for e in events) == events[-1]["generated_text"] == node("whole")["generated_text"]
    assert events[-1]["details"]["finish_reason"] == "length"


def test_errors_reach_the_caller(node):
    seen = node("error")
    assert "top_p must be in (0.0,1.0], got 1.5" in str(seen), seen
