"""Goal: the paths of OpenVINO Model Server, and Triton's repository, do what chapters 9 and 10 of the protocol say, through the coordinator and on one instance: OpenAI's families
under /v3/ with errors {"error": text}, its own /tokenize, models and their state. Method: the same questions to both; what is generated under
/v3/ is what /v1/ generates."""
import json

import pytest
from harness import get, request

CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 6, "temperature": 0}
TEXT = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}


@pytest.fixture(params=["one", "split"])
def base(request, whole, pair):
    return (whole if request.param == "one" else pair).base


def post(base, path, body):
    a = request(base + path, "POST", body)
    assert a.status == 200, a.text
    return a.json


def events(a):
    assert a.status == 200 and a.headers["Content-Type"].startswith("text/event-stream"), a.text
    return [e.removeprefix("data: ") for e in a.text.split("\n\n") if e.startswith("data: ")]


def said(answer):
    return [c.get("message", {}).get("content") or c.get("text") for c in answer["choices"]]


def test_generation_is_that_of_v1(base):
    for path, body in (("chat/completions", CHAT), ("completions", TEXT)):
        old, new = post(base, "/v1/" + path, body), post(base, "/v3/" + path, body)
        assert said(old) == said(new) and said(new)[0] and new["usage"]["completion_tokens"] == 6
    chunks = events(request(base + "/v3/chat/completions", "POST", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}))
    assert chunks[-1] == "[DONE]" and json.loads(chunks[-2])["choices"] == []
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in map(json.loads, chunks[:-2]) if c["choices"])
    assert text == said(post(base, "/v1/chat/completions", CHAT))[0]
    r = post(base, "/v3/responses", {"model": "fable", "input": "Tell me a story.", "max_output_tokens": 4})
    assert r["object"] == "response" and get(base, "/v1/responses/" + r["id"]).json["id"] == r["id"]


REFUSED = [
    ("/v3/chat/completions", b"{", 412, "The file is not valid json"),
    ("/v3/completions", b"[]", 412, "The file is not valid json"),
    ("/v3/chat/completions", {"messages": CHAT["messages"]}, 412, "model field is missing in JSON body"),
    ("/v3/tokenize", {"text": "x"}, 412, "model field is missing in JSON body"),
    ("/v3/tokenize", b"nonsense", 412, "The file is not valid json"),
    ("/v3/chat/completions", {**CHAT, "model": "nope"}, 404, "nope"),
    ("/v3/embeddings", {"model": "nope", "input": "x"}, 404, "nope"),
    ("/v3/tokenize", {"model": "nope", "text": "x"}, 404, "nope"),
    ("/v3/chat/completions", {**CHAT, "temperature": -1}, 400, "temperature must be at least 0, got -1"),
    ("/v3/completions", {**TEXT, "stream": True, "max_tokens": 0}, 400, "max_tokens"),
    ("/v3/completions", {**TEXT, "prompt": "word " * 3000}, 400, "maximum context length"),
    ("/v3/embeddings", {"model": "fable", "input": 5}, 400, "input must be"),
    ("/v3/rerank", {"model": "fable", "query": "x"}, 400, "documents must be"),
    ("/v3/responses", {"model": "fable", "input": 5}, 400, "input"),
    ("/v3/tokenize", {"model": "fable"}, 400, "text is missing"),
    ("/v3/tokenize", {"model": "fable", "text": ["a", 5]}, 400, "text must be a string or a list of strings"),
    ("/v3/tokenize", {"model": "fable", "text": "a", "max_length": 0}, 400, "max_length must be an integer from 1"),
    ("/v3/tokenize", {"model": "fable", "text": "a", "add_special_tokens": 1}, 400, "add_special_tokens must be a boolean"),
    ("/v3/tokenize", {"model": "fable", "text": "a", "pad_to_max_length": True}, 400, "pad_to_max_length is not supported"),
]


def test_errors_are_a_text(base):
    for path, body, status, text in REFUSED:
        a = request(base + path, "POST", body)
        assert a.status == status and list(a.json) == ["error"] and text in a.json["error"], (path, body, a.status, a.text)
    assert request(base + "/v3/nope", "POST", {}).status == 404 and list(get(base, "/v3/models/nope").json) == ["error"]


def test_tokens_of_texts(base):
    texts = ["Once upon a time", "The fox ran."]
    ids = [post(base, "/tokenize", {"prompt": t})["tokens"] for t in texts]
    for path in ("/v3/tokenize", "/v1/tokenize"):
        assert post(base, path, {"model": "fable", "text": texts[0]}) == {"tokens": ids[0]}
        assert post(base, path, {"model": "fable", "text": texts}) == {"tokens": ids}
        assert post(base, path, {"model": "fable", "text": texts, "max_length": 2}) == {"tokens": [i[:2] for i in ids]}
        assert post(base, path, {"model": "fable", "text": []}) == {"tokens": []}
    plain = post(base, "/tokenize", {"prompt": texts[0], "add_special_tokens": False})["tokens"]
    assert post(base, "/v3/tokenize", {"model": "fable", "text": texts[0], "add_special_tokens": False}) == {"tokens": plain}


def test_models_and_their_state(base):
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": "OK"}}
    assert get(base, "/v1/config").json == {"fable": {"model_version_status": [state]}}
    assert post(base, "/v1/config/reload", {}) == {"fable": {"model_version_status": [state]}}
    assert get(base, "/v1/models/fable").json["model_version_status"] == [state]
    for path in ("/v3/models", "/v3/v1/models"):
        listed, old = get(base, path).json, get(base, "/v1/models").json
        for m in listed["data"] + old["data"]:
            del m["created"], m["created_at"]  # each instance has been loaded at a time of its own
        assert listed == old
    assert get(base, "/v3/models/fable").json["id"] == "fable"


def test_the_repository_of_triton(base):
    assert post(base, "/v2/repository/index", {"ready": True}) == [{"name": "fable", "version": "1", "state": "READY", "reason": ""}]
    a = request(base + "/v2/repository/models/fable/load", "POST", b"")
    assert a.status == 200 and a.body == b""
    for path, text in (("nope/load", "failed to load 'nope': LoRA adapters are loaded over the management plane"),
                       ("nope/unload", "failed to unload 'nope': it is not loaded"), ("fable/unload", "the model is served as long as the server runs")):
        a = request(f"{base}/v2/repository/models/{path}", "POST", {})
        assert a.status == 400 and text in a.json["error"], a.text
    for kind in ("system", "cuda"):
        assert get(base, f"/v2/{kind}sharedmemory/status").json == get(base, f"/v2/{kind}sharedmemory/region/r/status").json == []
        a = request(f"{base}/v2/{kind}sharedmemory/region/r/register", "POST", {})
        assert a.status == 501 and "shared memory is not supported" in a.json["error"]
    for path in ("/v2/trace/setting", "/v2/models/fable/trace/setting", "/v2/logging"):
        assert get(base, path).status == request(base + path, "POST", {}).status == 501
