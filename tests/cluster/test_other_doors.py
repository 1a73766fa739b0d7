"""Goal: paths that clients of other runtimes ask for beside their own families (kserve-runtimes 3, 9, 12; client-apis 0.1): vLLM's /invocations and
/classify, llama.cpp's /responses, OpenVINO's versions and metadata of a model, what Caikit refuses before a task sees it; and that names which errors
repeat are cut between characters. On one instance and split.
Method: each path's answer is that of the path it stands for; refusals by status, shape and words.
"""
import json
import re

import pytest
from families import normal
from harness import Stream, get, post, request

STATE = [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": "OK"}}]
TASK = "/api/v1/task/"


@pytest.fixture(params=["one", "split"])
def base(request, whole, pair):
    return (whole if request.param == "one" else pair).base


def same(a):
    raw = re.sub(r'"id":"(embd|score|rerank)-[0-9a-f]+"', '"id":"#"', normal(a.body, keep_cached=False))
    return a.status, re.sub(r'"created":\d+', '"created":0', raw)


# ---- vLLM
BODIES = [
    ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 4, "temperature": 0, "request_id": "r1"}),
    ("/v1/chat/completions", {"model": "fable", "prompt": None, "messages": [], "max_tokens": 4}),
    ("/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4, "temperature": 0, "request_id": "r2"}),
    ("/v1/completions", {"model": "nope", "prompt": "Once"}),
    ("/v1/embeddings", {"model": "fable", "input": ["a", "b"], "dimensions": 8}),
    ("/v1/embeddings", {"model": "fable", "input": "a", "dimensions": 100000}),
    ("/score", {"text_1": "a", "text_2": ["b", "c"]}),
    ("/score", {"queries": "a", "items": ["b"]}),
    ("/rerank", {"query": "a", "documents": ["b", "c"]}),
]


@pytest.mark.parametrize("path,body", BODIES, ids=range(len(BODIES)))
def test_an_invocation_is_what_its_body_says(base, path, body):
    assert same(post(base, "/invocations", body)) == same(post(base, path, body))


def test_an_invocation_streams(base):
    body = {**BODIES[2][1], "stream": True}
    whole = post(base, "/v1/completions", body)
    with_s = Stream(base, "/invocations", body)
    assert with_s.response.status == 200 and with_s.response.getheader("Content-Type").startswith("text/event-stream")
    raw = with_s.read_all()
    assert normal(raw, keep_cached=False) == normal(whole.body, keep_cached=False) and raw.endswith(b"data: [DONE]\n\n") and raw.count(b"data: ") > 4


def test_an_invocation_of_nothing(base):
    for raw in (b"", b"{}", b"[]", b'{"model":"fable"}', b'{"messages":null}', b'{"a":{"messages":[]}}', b'{"prompt":'):
        a = post(base, "/invocations", raw)
        assert a.status == 422 and "one of messages, prompt, input, text_1, data_1, queries or query" in a.text, (raw, a.text)
    a = get(base, "/invocations")
    assert a.status == 405 and a.headers["Allow"] == "POST"


def test_health_where_llama_cpp_has_it(whole, pair):
    a = get(whole.base, "/v1/health")
    assert a.status == 200 and a.json == {"status": "ok"} == get(whole.base, "/health").json
    assert get(pair.base, "/v1/health").status == 200


def test_there_are_no_classes(base):
    a = post(base, "/classify", {"model": "fable", "input": "a fox"})
    assert a.status == 404 and "does not support Classification API" in a.text and "/score" in a.text


def test_tokens_want_a_model_that_is_a_name(base):
    for path, body in (("/tokenize", {"prompt": "a fox"}), ("/tokenize", {"messages": [{"role": "user", "content": "x"}]}), ("/detokenize", {"tokens": [300]})):
        plain = post(base, path, body)
        assert plain.status == 200 and same(post(base, path, {**body, "model": None})) == same(post(base, path, {**body, "model": "fable"})) == same(plain)
        for model, got in ((5, "5"), (["fable"], '["fable"]'), ({"a": 1}, '{"a":1}'), (True, "true"), (1.5, "1.5")):
            a = post(base, path, {**body, "model": model})
            assert a.status == 422 and a.json["error"] == f"model must be a string, got {got}", a.text
        assert post(base, path, {**body, "model": "nope"}).status == 404


def test_names_are_cut_between_characters(base):
    """Names longer than any model's, of characters of two to four bytes, beginning at every offset: each error is UTF-8 and has the name's beginning."""
    for letter in "é€😀":
        for start in range(4):
            name = "x" * start + letter * 300
            for path, body in (("/tokenize", {"prompt": "a", "model": name}), ("/v3/tokenize", {"text": "a", "model": name}), ("/v1/embeddings", {"input": "a", "model": name}),
                               (TASK + "embedding", {"inputs": "a", "model_id": name}), (TASK + "tokenization", {"inputs": "a", "model_id": name}),
                               ("/api/show", {"model": name}), ("/api/embed", {"model": name, "input": "a"}), ("/api/chat", {"model": name, "messages": []})):
                a = post(base, path, body)
                assert a.status == 404, (path, a.status, a.body)
                said = json.loads(a.body.decode("utf-8", "strict"))
                assert "x" * start + letter * 20 in json.dumps(said, ensure_ascii=False) and "\ufffd" not in a.body.decode(), (path, said)


# ---- llama.cpp
def test_responses_without_the_version(base):
    body = {"input": "Tell me a story.", "max_output_tokens": 4, "temperature": 0, "store": False}
    a, b = post(base, "/responses", body), post(base, "/v1/responses", body)
    assert a.status == b.status == 200 and a.json["output"][0]["content"] == b.json["output"][0]["content"] and a.json["object"] == "response"
    kept = post(base, "/responses", {**body, "store": True}).json["id"]
    assert get(base, f"/v1/responses/{kept}").json["id"] == kept
    assert post(base, "/responses", {**body, "previous_response_id": kept}).json["previous_response_id"] == kept
    assert post(base, "/responses", {**body, "model": "nope"}).json["error"]["code"] == "model_not_found"


# ---- OpenVINO
def test_versions_of_a_model(base):
    assert get(base, "/v1/models/fable/versions/1").json == {"model_version_status": STATE}
    for path, text in (("fable/versions/2", "Model with requested version is not found"), ("fable/versions/0/metadata", "Model with requested version is not found"),
                       ("nope/versions/1", "Model nope/versions/1 not found."), ("nope/metadata", "Model nope/metadata not found."), ("fable/versions/x", "not found"),
                       ("fable/versions", "not found"), ("fable/versions/1/x", "not found"), ("fable/metadata/x", "not found")):
        a = get(base, "/v1/models/" + path)
        assert a.status == 404 and text in a.text, (path, a.text)
    assert request(base + "/v1/models/fable/versions/1", "HEAD").status == 200 and post(base, "/v1/models/fable/versions/1", {}).status == 405


def test_metadata_of_a_model(base):
    a = get(base, "/v1/models/fable/metadata").json
    assert a == get(base, "/v1/models/fable/versions/1/metadata").json
    assert a["modelSpec"] == {"name": "fable", "signatureName": "", "version": "1"}
    signature = a["metadata"]["signature_def"]["signatureDef"]["serving_default"]
    (taken, told), (given, made) = list(signature["inputs"].items())[0], list(signature["outputs"].items())[0]
    assert told["dtype"] == made["dtype"] == "DT_STRING" and (told["name"], made["name"]) == (taken, given)
    a = post(base, "/v2/models/fable/infer", {"inputs": [{"name": taken, "datatype": "BYTES", "shape": [1], "data": ["Once"]}], "outputs": [{"name": given}],
                                              "parameters": {"max_tokens": 2}})
    assert a.status == 200 and a.json["outputs"][0]["name"] == given, a.text


# ---- Caikit
def test_caikit_reads_json(base):
    body = {"model_id": "fable", "inputs": "Once upon a time"}
    for path in ("tokenization", "embedding", "text-generation"):
        raw = json.dumps({**body, **({"parameters": {"max_new_tokens": 2}} if path == "text-generation" else {})}).encode()
        plain = post(base, TASK + path, raw)
        assert plain.status == 200
        for good in ("application/json", "application/json; charset=utf-8", "Application/Json;x=y"):
            assert same(post(base, TASK + path, raw, headers={"Content-Type": good})) == same(plain), good
        for bad in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonl", "text/json"):
            a = post(base, TASK + path, raw, headers={"Content-Type": bad})
            assert a.status == 415 and a.json == {"detail": f"Unsupported media type: {bad}."}, a.text
    a = post(base, "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 1}, headers={"Content-Type": "text/plain"})
    assert a.status == 200  # it is Caikit that looks


def test_what_caikit_s_framework_says(base):
    for method, path, status in (("POST", TASK + "token-classification", 404), ("POST", TASK + "text-classification", 404), ("GET", TASK + "embedding", 405),
                                 ("DELETE", TASK + "rerank", 405), ("GET", "/management/models", 405), ("POST", "/info/models", 405), ("GET", "/info/nothing", 404)):
        a = request(base + path, method, {} if method == "POST" else None)
        assert a.status == status and list(a.json) == ["detail"], (path, a.text)


def test_caikit_s_models_are_those_it_has(base):
    for method in ("POST", "DELETE"):
        a = request(base + "/management/models", method, {"model_id": "x"} if method == "POST" else None)
        assert a.status == 501 and a.json["code"] == 501 and re.fullmatch("[0-9a-f]{32}", a.json["id"]) and "not deployed" in a.json["details"], a.text


# ---- Ollama
def test_ollama_s_log_probabilities(base):
    body = {"model": "fable", "prompt": "Once", "stream": False, "options": {"num_predict": 3, "temperature": 0}}
    for top in (-1, 21, 2**40):
        for path, more in (("/api/generate", {}), ("/api/chat", {"messages": [{"role": "user", "content": "x"}]})):
            a = post(base, path, {**body, **more, "top_logprobs": top})
            assert a.status == 400 and a.json == {"error": "top_logprobs must be between 0 and 20"}, a.text
    assert "logprobs" not in post(base, "/api/generate", {**body, "top_logprobs": 3}).json
    assert "logprobs" not in post(base, "/api/generate", {**body, "logprobs": False, "top_logprobs": 3}).json
    seen = post(base, "/api/generate", {**body, "logprobs": True, "top_logprobs": 20}).json["logprobs"]
    assert len(seen) == 3 and {len(t["top_logprobs"]) for t in seen} == {20}
