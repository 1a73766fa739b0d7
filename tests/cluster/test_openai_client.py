"""Goal: a program written against the official OpenAI client works against Baton when it changes the base URL alone, on one instance and split.
Method: the npm package openai, pinned, installed under the build folder; tests/cluster/npm/openai_client.mjs runs steps against live daemons
and prints what the client gave it; the judging happens here. What the client saw of one instance and of a cluster is the same.
"""
import base64
import glob
import json
import os
import re
import signal
import struct
import subprocess

import npm_clients
import pytest
from harness import ANSWER_S, ROOT, SLOW, Cluster, Standalone, get, post, request, wait_for

STEPS = "models responses chat chat_stream chat_helper completions prompts structured logprobs choices embeddings errors"
_seen = {}  # where: what each step saw there


@pytest.fixture(scope="module", params=["one", "split"])
def where(request):
    return request.param


@pytest.fixture(scope="module")
def server(where, whole, pair):
    npm_clients.install()
    return {"one": whole, "split": pair}[where]


@pytest.fixture(scope="module")
def seen(server, where):
    """{step: what it printed}; one run of the client."""
    if where not in _seen:
        _seen[where] = npm_clients.run("openai_client.mjs", server.base, STEPS)
    return _seen[where]


@pytest.fixture
def told(seen):
    """The answer of a plain chat, that others compare with."""
    return seen["chat"]


def test_models(seen):
    models = seen["models"]
    assert models["ids"] == ["fable"] and models["one"] == "fable"
    assert models["missing"]["class"] == "NotFoundError" and models["missing"]["status"] == 404


def test_responses(seen):
    r = seen["responses"]
    whole, helper = r["whole"], r["helper"]
    text = whole["output"][0]["content"][0]["text"]
    assert whole["output_text"] == text == helper["output"][0]["content"][0]["text"] and whole["status"] == "incomplete"
    assert r["types"][0] == "response.created" and r["types"][-1] == "response.incomplete" and r["types"].count("response.output_text.delta") > 5
    assert set(r["parsed"]) == {"name", "age", "tame"} and set(r["arguments"]) == {"tame"} and type(r["arguments"]["tame"]) is bool
    assert r["called"]["status"] == "completed" and r["after"]["previous_response_id"] == r["called"]["id"] and r["after"]["output_text"]
    assert r["again"]["output"] == whole["output"] and [i["content"][0]["text"] for i in r["items"]] == ["Tell me a story about a fox."]
    assert r["seen"] >= 5
    assert (r["gone"]["class"], r["gone"]["status"]) == ("NotFoundError", 404)
    assert (r["refused"]["class"], r["refused"]["code"], r["refused"]["param"]) == ("BadRequestError", "unsupported_value", "tools[0].type")
    assert (r["behind"]["class"], r["behind"]["code"], r["behind"]["param"]) == ("BadRequestError", "previous_response_not_found", "previous_response_id")


def test_chat(told):
    choice = told["choices"][0]
    assert told["object"] == "chat.completion" and told["model"] == "fable"
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"] and choice["finish_reason"] == "length"
    usage = told["usage"]
    assert usage["completion_tokens"] == 24 and usage["total_tokens"] == usage["prompt_tokens"] + 24


def test_stream_of_a_chat(seen, told):
    chunks = seen["chat_stream"]["chunks"]
    assert {c["id"] for c in chunks} == {chunks[0]["id"]} and {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert len(chunks) > 10, "one chunk after another, not all at the end"
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == told["choices"][0]["message"]["content"]
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24


def test_the_clients_own_assembling(seen, told):
    helper = seen["chat_helper"]
    assert helper["final"]["choices"][0]["message"]["content"] == helper["pieces"] == told["choices"][0]["message"]["content"]
    assert helper["final"]["choices"][0]["finish_reason"] == "length"


def test_completions(seen):
    completions = seen["completions"]
    choice = completions["whole"]["choices"][0]
    assert completions["whole"]["object"] == "text_completion" and choice["finish_reason"] == "length"
    assert "".join(c["choices"][0]["text"] for c in completions["chunks"]) == choice["text"] and choice["text"]
    assert len(choice["logprobs"]["tokens"]) == 24 and all(len(t) in (2, 3) for t in choice["logprobs"]["top_logprobs"])


def test_lists_of_prompts_and_of_ids(seen):
    prompts = seen["prompts"]
    assert [c["text"].startswith(p) for c, p in zip(prompts["texts"]["choices"], ["Once", "The fox"])] == [True, True]
    assert prompts["texts"]["usage"]["completion_tokens"] == prompts["several"]["usage"]["completion_tokens"] == 12
    assert prompts["ids"]["usage"]["prompt_tokens"] == prompts["several"]["usage"]["prompt_tokens"] == 3
    assert [c["index"] for c in prompts["several"]["choices"]] == [0, 1]


def is_person(p):
    return set(p) == {"name", "age", "tame"} and isinstance(p["name"], str) and 0 <= p["age"] <= 99 and isinstance(p["tame"], bool)


def test_structured_output(seen):
    """`parsed` is the client's own reading of the answer."""
    s = seen["structured"]
    assert is_person(s["whole"]["parsed"]) and s["whole"]["parsed"] == json.loads(s["whole"]["content"]) == s["streamed"]["parsed"]
    assert s["object"].startswith("{")
    assert s["call"]["name"] == "keep" and is_person(s["call"]["parsed_arguments"])
    assert s["cut"]["class"] == "LengthFinishReasonError"
    assert s["schema"]["class"] == "UnprocessableEntityError" and "unsupported type 'odd' at 'schema'" in s["schema"]["message"]


def test_logprobs(seen, told):
    lp = seen["logprobs"]
    items = lp["whole"]["logprobs"]["content"]
    assert len(items) == 24 and "".join(i["token"] for i in items) == told["choices"][0]["message"]["content"]
    assert all(len(i["top_logprobs"]) == 3 and i["top_logprobs"][0]["logprob"] == i["logprob"] for i in items), "greedy takes the likeliest"
    assert lp["items"] == items == lp["final"]["logprobs"]["content"], "a stream brings the same"


def test_several_choices(seen):
    several = seen["choices"]
    assert [c["index"] for c in several["whole"]] == [0, 1, 2] and len({c["message"]["content"] for c in several["whole"]}) > 1
    assert [c["message"]["content"] for c in several["streamed"]] == [c["message"]["content"] for c in several["whole"]]
    assert several["usage"]["completion_tokens"] <= 72


def test_embeddings(seen):
    """The client asks for base64 of its own accord and decodes it: the same numbers as in JSON, to the last bit."""
    e = seen["embeddings"]
    vectors = [d["embedding"] for d in e["plain"]["data"]]
    assert [d["index"] for d in e["plain"]["data"]] == [0, 1] and all(abs(sum(x * x for x in v) - 1) < 1e-4 for v in vectors) and vectors[0] != vectors[1]
    coded = [d["embedding"] for d in e["base64"]["data"]]
    raw = [base64.b64decode(c, validate=True) for c in coded]
    assert [list(struct.unpack(f"<{len(r) // 4}f", r)) for r in raw] == vectors
    written = [struct.pack(f"<{len(v)}f", *v) for v in (d["embedding"] for d in e["float"]["data"])]
    assert written == raw and e["plain"]["usage"] == e["float"]["usage"] and e["plain"]["usage"]["prompt_tokens"] > 4
    (cut,) = [d["embedding"] for d in e["cut"]["data"]]
    scale = sum(x * x for x in vectors[0][:16]) ** 0.5
    assert len(cut) == 16 and all(abs(x / scale - y) < 1e-5 for x, y in zip(vectors[0], cut))
    assert (e["model"]["class"], e["model"]["status"]) == ("NotFoundError", 404) and "nope" in e["model"]["message"]
    assert e["dimensions"]["class"] == "BadRequestError" and "dimensions" in e["dimensions"]["message"]


def test_errors_become_the_clients_exceptions(seen):
    errors = seen["errors"]
    for name in ("range", "stream", "model", "completion"):
        assert (errors[name]["class"], errors[name]["status"]) == ("UnprocessableEntityError", 422), errors[name]
    assert "top_p must be in (0.0,1.0], got 1.5" in errors["range"]["message"]
    assert "Model not found" in errors["model"]["message"] and "suffix is not supported" in errors["completion"]["message"]
    assert (errors["path"]["class"], errors["path"]["status"]) == ("NotFoundError", 404)


def test_the_same_everywhere():
    """But for ids, clocks, the prefix cache, what comes while a client aborts, and what a coordinator says of an unknown path."""
    def even(value):
        if isinstance(value, list):
            return [even(v) for v in value]
        if isinstance(value, str):
            return re.sub(r"\bresp_\w+", "resp_", value)
        if not isinstance(value, dict):
            return value
        of_each = ("id", "created", "created_at", "call_id", "previous_response_id", "prompt_tokens_details", "seen")
        return {k: even(v) for k, v in value.items() if k not in of_each}

    if len(_seen) < 2:
        pytest.fail("run the whole file")
    one, split = even(_seen["one"]), even(_seen["split"])
    for seen_there in (one, split):
        del seen_there["errors"]["path"]
    assert one == split


@pytest.mark.parametrize("step", ["leave", "abort"])
def test_a_client_that_stops(server, where, pair, step):
    loads, idle = (server.instance.load, server.instance.idle) if where == "one" else (server.loads, server.idle)
    before = idle()
    seen_now = npm_clients.run("openai_client.mjs", server.base, step)
    if step == "leave":
        assert seen_now["pieces"] == 3
    else:
        assert seen_now["error"]["class"] == "APIUserAbortError"
    if where == "split":
        wait_for(lambda: pair.status()["recentRequests"][0]["status"] == 499, ANSWER_S, "the coordinator noticed that the client left")
    wait_for(lambda: loads() == before, 5 * SLOW, "everything is given back")


# ---- OpenAI's manner, as the shipped configurations have it
def shipped(name):
    """What a configuration of cluster-conf says of the manner."""
    with open(os.path.join(ROOT, "cluster-conf", name)) as f:
        conf = json.load(f)
    block = conf["coordinator"] if "coordinator" in conf else conf["BatonConfig"]
    return {k: block[k] for k in ("errorStyle", "corsAllowOrigin") if k in block}


REFUSED = {  # class, status, code, param
    "model": ("NotFoundError", 404, "model_not_found", "model"),
    "range": ("BadRequestError", 400, "decimal_above_max_value", "top_p"),
    "type": ("BadRequestError", 400, "invalid_type", "max_tokens"),
    "missing": ("BadRequestError", 400, "missing_required_parameter", "messages"),
    "role": ("BadRequestError", 400, "missing_required_parameter", "messages[0].role"),
    "long": ("BadRequestError", 400, "context_length_exceeded", "messages"),
    "suffix": ("BadRequestError", 400, "unsupported_parameter", "suffix"),
    "retrieve": ("NotFoundError", 404, "model_not_found", "model"),
    "path": ("NotFoundError", 404, "unknown_url", None),
    "far": ("NotFoundError", 404, "unknown_url", None),
}


def test_the_shipped_manner_is_openais():
    """What OpenAI's own service takes is taken, and what is wrong becomes the exception that programs look for."""
    npm_clients.install()
    with Standalone(extra={"BatonConfig": shipped("standard/instance.json")}) as one, \
            Cluster(extra={"BatonConfig": shipped("1p1d/prefill.json")}, coord={"coordinator": shipped("1p1d/coordinator.json")}) as split:
        seen = [npm_clients.run("openai_client.mjs", base, "manner") for base in (split.base, one.base)]
        for base in (split.base, one.base):
            page = {"Origin": "http://localhost:5173"}
            assert get(base, "/v1/models", headers=page).headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
            a = request(base + "/v1/chat/completions", "OPTIONS", headers={**page, "Access-Control-Request-Headers": "authorization"})
            assert (a.status, a.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
            a = request(base + "/v1/chat/completions", "OPTIONS", headers={"Origin": "https://evil.example"})
            assert a.status == 204 and not [h for h in a.headers if h.startswith("Access-Control")]
            assert post(base, "/generate", {"prompt": "x", "top_k": 0}).json["error_type"] == "Input Validation Error", "other families stay"
    assert seen[0] == seen[1], "split or not"
    assert {k: len(v) for k, v in seen[0]["taken"].items()} == {"n": 2, "top_k": 1, "top_p": 1, "seed": 1, "content": 1}
    refused = seen[0]["refused"]
    assert {k: (e["class"], e["status"], e["code"], e["param"]) for k, e in refused.items()} == REFUSED
    assert {e["type"] for e in refused.values()} == {"invalid_request_error"}
    assert "gpt-4o" in refused["model"]["message"] and "/v1/models" in refused["model"]["message"]
    assert "got 1.5" in refused["range"]["message"] and "maximum context length" in refused["long"]["message"]
    assert "near it: POST /v1/chat/completions" in refused["path"]["message"] and "near it" not in refused["far"]["message"]


def test_every_shipped_configuration_has_the_manner():
    for path in glob.glob(os.path.join(ROOT, "cluster-conf", "*", "*.json")):
        if os.path.basename(path) not in ("rank_table.json", "dashboard.json"):
            assert shipped(path)["errorStyle"] == "openai", path


@pytest.fixture(scope="module")
def strict():
    """One request at a time, in the manner of cluster-conf/1p1d; a stream waits two seconds for a D to go on."""
    npm_clients.install()
    with Cluster(extra={"BatonConfig": shipped("1p1d/prefill.json")},
                 coord={"coordinator": {"request_limit": {"max_requests": 1}, "exception_config": {"schedule_timeout": 2},
                                        **shipped("1p1d/coordinator.json")}}) as c:
        yield c


def test_too_many_is_a_rate_limit(strict):
    error = npm_clients.run("openai_client.mjs", strict.base, "overload")["error"]
    assert (error["class"], error["status"], error["code"]) == ("RateLimitError", 429, "rate_limit_exceeded")
    assert "Too many requests" in error["message"]


def test_a_stream_that_breaks_and_a_service_that_is_not_ready(strict):
    wait_for(lambda: strict.status()["coordinator"]["requestsInFlight"] == 0, 5 * SLOW, "nothing runs")
    client = subprocess.Popen(["node", "openai_client.mjs", strict.base, "broken"], cwd=npm_clients.FOLDER, env=os.environ, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stderr.readline() == "three\n"
    strict.decodes[0].kill(signal.SIGKILL)
    out, err = client.communicate(timeout=ANSWER_S)
    assert client.returncode == 0, err
    broken = json.loads(out)
    assert broken["pieces"] >= 3 and broken["error"]["class"] == "APIError", broken
    wait_for(lambda: not strict.is_ready(), 30 * SLOW, "no decode instance is left")
    r = npm_clients.start("openai_client.mjs", strict.base, "chat")
    assert r.returncode != 0 and "InternalServerError: 503" in r.stderr, r.stderr
