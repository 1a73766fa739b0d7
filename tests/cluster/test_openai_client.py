"""Goal: a program written against the official OpenAI client works against Baton when it changes the base URL alone.
Method: the npm package openai, pinned, installed under the build folder; tests/cluster/npm/openai_client.mjs runs one step against the live cluster
and prints what the client gave it; the judging happens here."""
import npm_clients
import pytest
from harness import ANSWER_S, SLOW, wait_for


@pytest.fixture(scope="module")
def node(pair):
    """node(step) -> what the step printed."""
    npm_clients.install()
    return lambda step: npm_clients.run("openai_client.mjs", pair.base, step)


@pytest.fixture(scope="module")
def told(node):
    """The answer of a plain chat, that others compare with."""
    return node("chat")


def test_models(node):
    seen = node("models")
    assert seen["ids"] == ["fable"] and seen["one"] == "fable"
    assert seen["missing"]["class"] == "NotFoundError" and seen["missing"]["status"] == 404


def test_chat(told):
    choice = told["choices"][0]
    assert told["object"] == "chat.completion" and told["model"] == "fable"
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"] and choice["finish_reason"] == "length"
    usage = told["usage"]
    assert usage["completion_tokens"] == 24 and usage["total_tokens"] == usage["prompt_tokens"] + 24


def test_stream_of_a_chat(node, told):
    chunks = node("chat_stream")["chunks"]
    assert {c["id"] for c in chunks} == {chunks[0]["id"]} and {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert len(chunks) > 10, "one chunk after another, not all at the end"
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == told["choices"][0]["message"]["content"]
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24


def test_the_clients_own_assembling(node, told):
    seen = node("chat_helper")
    assert seen["final"]["choices"][0]["message"]["content"] == seen["pieces"] == told["choices"][0]["message"]["content"]
    assert seen["final"]["choices"][0]["finish_reason"] == "length"


def test_completions(node):
    seen = node("completions")
    choice = seen["whole"]["choices"][0]
    assert seen["whole"]["object"] == "text_completion" and choice["finish_reason"] == "length"
    assert "".join(c["choices"][0]["text"] for c in seen["chunks"]) == choice["text"] and choice["text"]
    assert len(choice["logprobs"]["tokens"]) == 24 and all(len(t) in (2, 3) for t in choice["logprobs"]["top_logprobs"])


def test_errors_become_the_clients_exceptions(node):
    seen = node("errors")
    assert seen["range"]["class"] == seen["stream"]["class"] == seen["model"]["class"] == "UnprocessableEntityError"
    assert seen["range"]["status"] == 422 and "top_p must be in (0.0,1.0], got 1.5" in seen["range"]["message"]
    assert "Model not found" in seen["model"]["message"]
    assert seen["path"]["class"] == "NotFoundError"


@pytest.mark.parametrize("step", ["leave", "abort"])
def test_a_client_that_stops(pair, node, step):
    before = pair.loads()
    seen = node(step)
    if step == "leave":
        assert seen["pieces"] == 3
    else:
        assert seen["error"]["class"] == "APIUserAbortError"
    wait_for(lambda: pair.status()["recentRequests"][0]["status"] == 499, ANSWER_S, "the coordinator noticed that the client left")
    pair.wait_idle(before, 5 * SLOW)
