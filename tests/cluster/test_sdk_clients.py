"""Goal: programs written against @anthropic-ai/sdk, Vercel's AI SDK (@ai-sdk/openai, whose default model speaks Responses) and @langchain/openai work
against a cluster when they change the base URL alone: whole answers, streams, tools, errors, aborts.
Method: the npm packages, pinned; a program of tests/cluster/npm each runs all its steps in one process, the three side by side, and prints what
the client gave it; the judging happens here. What an abort leaves is waited for.
"""
import npm_clients
import pytest
from harness import ANSWER_S, get, in_threads, wait_for

STEPS = {"anthropic_client.mjs": "whole stream tools count models errors abort",
         "ai_sdk_client.mjs": "whole chat stream tools object embed errors abort",
         "langchain_client.mjs": "whole responses stream tools embed errors abort"}


@pytest.fixture(scope="module")
def seen(pair):
    """{program: {step: what it printed}}."""
    npm_clients.install()
    told = in_threads([lambda p=p, s=s: npm_clients.run(p, pair.base, s) for p, s in STEPS.items()])
    return dict(zip(STEPS, told))


@pytest.fixture
def anthropic(seen):
    return seen["anthropic_client.mjs"]


@pytest.fixture
def ai(seen):
    return seen["ai_sdk_client.mjs"]


@pytest.fixture
def langchain(seen):
    return seen["langchain_client.mjs"]


def test_all_have_the_same_answer(anthropic, ai, langchain):
    """Greedy, of one prompt, over Messages, Responses and chats."""
    text = anthropic["whole"]["content"][0]["text"]
    assert len(text) > 20 and {text} == {ai["whole"]["text"], ai["chat"], langchain["whole"]["text"], langchain["responses"]}
    assert anthropic["whole"]["stop_reason"] == "max_tokens" and ai["whole"]["reason"] == langchain["whole"]["reason"] == "length"
    assert ai["whole"]["provider"] == "openai.responses"
    used = anthropic["whole"]["usage"]
    n = used["input_tokens"] + used["cache_read_input_tokens"]
    assert n == anthropic["count"] == ai["whole"]["usage"]["inputTokens"] == langchain["whole"]["usage"]["input_tokens"]
    assert used["output_tokens"] == ai["whole"]["usage"]["outputTokens"] == langchain["whole"]["usage"]["output_tokens"] == 12


def test_streams_add_up(anthropic, ai, langchain):
    text = anthropic["whole"]["content"][0]["text"]
    for pieces in (anthropic["stream"]["texts"], ai["stream"]["texts"], langchain["stream"]):
        assert "".join(pieces) == text and len([p for p in pieces if p]) > 8
    s = anthropic["stream"]
    assert s["message"]["content"][0]["text"] == text and s["message"]["stop_reason"] == "max_tokens"
    assert s["types"][:2] == ["message_start", "content_block_start"] and s["types"][-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert ai["stream"]["reason"] == "length" and ai["stream"]["usage"]["outputTokens"] == 12 and ai["stream"]["kinds"][-1] == "finish"


def test_tools(anthropic, ai, langchain):
    calls = [(b["name"], b["input"]) for s in ("whole", "streamed") for b in anthropic["tools"][s]]
    calls += [(c["toolName"], c["input"]) for s in ("whole", "streamed") for c in ai["tools"][s]]
    calls += [(c["name"], c["args"]) for s in ("whole", "streamed") for c in langchain["tools"][s]]
    assert len(calls) >= 6 and all(name == "paint" and args["colour"] in ("red", "green") for name, args in calls)
    assert anthropic["tools"]["reason"] == "tool_use" and ai["tools"]["reason"] == "tool-calls"
    assert anthropic["tools"]["after"]["content"][0]["text"] and ai["object"]["colour"] in ("red", "green")


def test_embeddings(ai, langchain):
    assert ai["embed"] == langchain["embed"] and len(ai["embed"]) == 2 and ai["embed"][0] > 100


def test_models(anthropic, pair):
    """The list that all families read has what Anthropic's client wants of it; errors come in its own shape."""
    seen = anthropic["models"]
    [card] = get(pair.base, "/v1/models").json["data"]
    same = {k: card[k] for k in ("id", "type", "display_name", "created_at", "max_input_tokens", "max_tokens")}
    assert seen["listed"] == [{**card, "created": seen["listed"][0]["created"], "created_at": seen["listed"][0]["created_at"]}]
    assert {**same, "created_at": seen["one"]["created_at"]}.items() <= seen["one"].items() and seen["page"] == {"has_more": False, "ids": ["fable"]}
    m, r = seen["missing"], seen["range"]
    assert (m["class"], m["status"], m["type"]) == ("NotFoundError", 404, "not_found_error") and "model: org/nope" in m["message"]
    assert (r["class"], r["status"], r["type"]) == ("BadRequestError", 400, "invalid_request_error") and "limit must be an integer" in r["message"]


def test_errors(anthropic, ai, langchain):
    e = anthropic["errors"]
    assert (e["model"]["class"], e["model"]["status"], e["model"]["type"]) == ("NotFoundError", 404, "not_found_error")
    assert (e["range"]["class"], e["range"]["status"]) == ("BadRequestError", 400) and "max_tokens" in e["range"]["message"]
    assert e["stream"]["class"] == "NotFoundError"
    e = ai["errors"]
    assert [e[k]["name"] for k in e] == ["AI_APICallError"] * 2 and e["model"]["status"] == 404 and "nope" in e["model"]["message"]
    assert e["range"]["status"] == 400 and "top_p" in e["range"]["message"]
    e = langchain["errors"]
    assert e["model"]["status"] == e["range"]["status"] == 422 and "top_p" in e["range"]["message"]  # of the reference's manner


def test_aborts_free_their_places(anthropic, ai, langchain, pair):
    assert anthropic["abort"]["class"] == "APIUserAbortError" and ai["abort"] == "abort"
    assert langchain["abort"]["pieces"] >= 2 and langchain["abort"]["error"]["name"] in ("AbortError", "ModelAbortError")
    wait_for(lambda: get(pair.base, "/load").json == {"server_load": 0}, ANSWER_S, "nothing of it is under way")
