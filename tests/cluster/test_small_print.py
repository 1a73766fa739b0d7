"""Goal: what the families' own documents say in passing is so: types of bodies, ids in errors, where and what of a wrong value, ranks, durations, refusals by
name, and the path that is meant.
Method: one request for each, on a cluster and on an instance alone; both say the same.
"""
import re

import pytest
from harness import Cluster, free_ports, get, post, request

CAIKIT = "/api/v1/task/"
HEX = re.compile("[0-9a-f]{32}")


@pytest.fixture(params=["one", "split"])
def base(request, pair, whole):
    return {"one": whole, "split": pair}[request.param].base


def test_types_of_bodies(base):
    """415 on vLLM's own paths, and nowhere else but Caikit's."""
    texts = {"model": "fable", "text_1": "a", "text_2": "b"}
    for path, body in (("/pooling", {"model": "fable", "input": "a"}), ("/score", texts), ("/v1/score", texts), ("/invocations", {"model": "fable", "input": "a"}),
                       ("/v2/rerank", {"model": "fable", "query": "a", "documents": ["b"]}),
                       ("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "a"}]})):
        for kind, status in (("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/json; charset=utf-8", 200)):
            a = post(base, path, body, headers={"Content-Type": kind})
            assert a.status == status, (path, kind, a.text)
            assert status == 200 or "Unsupported Media Type: Only 'application/json' is allowed" in a.text
        assert post(base, path, body).status == 200
    for path, body in (("/v1/embeddings", {"model": "fable", "input": "a"}), ("/tokenize", {"prompt": "a"}), ("/rerank", {"query": "a", "documents": ["b"]})):
        assert post(base, path, body, headers={"Content-Type": "text/plain"}).status == 200


def test_errors_of_messages_have_their_request_s_id(base):
    for path, body, status in (("/v1/messages", {}, 400), ("/v1/messages", b"{", 400), ("/v1/messages/count_tokens", {"model": "fable"}, 400), ("/v1/messages/none", {}, 404),
                               ("/v1/messages", {"model": "nobody", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}, 404)):
        for headers in ({}, {"X-Request-Id": "my-own_id"}):
            a = post(base, path, body, headers=headers)
            assert a.status == status and list(a.json) == ["type", "error", "request_id"], a.text
            assert a.json["request_id"] == a.headers["request-id"] == headers.get("X-Request-Id", a.headers["request-id"])
            assert headers or HEX.fullmatch(a.json["request_id"])
    a = get(base, "/v1/models/nobody", headers={"anthropic-version": "2023-06-01"})
    assert a.json["type"] == "error" and a.json["request_id"] == a.headers["request-id"]
    assert "request_id" not in post(base, "/v1/chat/completions", {}).json


KINDS = [("embedding", {"inputs": 5}, "inputs", 5, "string_type"), ("embedding", {"inputs": "x", "nobody": [1]}, "nobody", [1], "extra_forbidden"),
         ("rerank", {"inputs": {"query": "a", "documents": ["b", "c"]}}, "documents", ["b", "c"], "dict_type"),
         ("rerank", {"inputs": {"query": "a", "documents": [{"text": "b"}]}, "parameters": {"top_n": "x"}}, "top_n", "x", "int_type"),
         ("text-generation", {"inputs": "x", "parameters": {"temperature": "hot"}}, "temperature", "hot", "float_type"),
         ("text-generation", {"inputs": "x", "parameters": {"nobody": True}}, "nobody", True, "extra_forbidden"),
         ("text-generation", {"inputs": "x", "parameters": {"stop_sequences": "y"}}, "stop_sequences", "y", "list_type"),
         ("text-generation", {"inputs": ["x"]}, "inputs", ["x"], "string_type")]


def test_caikit_says_where_and_what(base):
    for task, body, loc, got, kind in KINDS:
        a = post(base, CAIKIT + task, {"model_id": "fable", **body})
        one, = a.json["additional_info"]
        assert a.status == 422 and one == {"type": kind, "loc": [loc], "msg": a.json["details"], "input": got}, a.text
    one, = post(base, CAIKIT + "text-generation", b"{").json["additional_info"]
    assert one["type"] == "json_invalid" and one["loc"] == [] and "input" not in one
    one, = post(base, CAIKIT + "embedding", {"model_id": "fable", "inputs": [1] * 5000}).json["additional_info"]
    assert one["loc"] == ["inputs"] and "input" not in one  # too much of it


def test_prompt_tokens_have_their_ranks(base):
    a = post(base, "/v1/completions", {"model": "fable", "prompt": "Once upon a zebra", "max_tokens": 1, "prompt_logprobs": 1})
    first, *rest = a.json["choices"][0]["prompt_logprobs"]
    assert first is None and rest
    for position in rest:
        own, *others = position.values()
        assert own["rank"] >= 1 and [o["rank"] for o in others] == ([] if own["rank"] == 1 else [1])
        assert own["rank"] == 1 or own["logprob"] <= others[0]["logprob"]
    assert max(next(iter(p.values()))["rank"] for p in rest) > 2


def test_durations(base):
    ask = {"/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 1}}, "/api/embed": {"input": "x"}, "/api/embeddings": {"prompt": "x"},
           "/api/chat": {"messages": [{"role": "user", "content": "x"}], "stream": False, "options": {"num_predict": 1}}}
    for path, body in ask.items():
        for good in (0, -1, 2.5, "5m", "1h30m", "300ms", "-1.5s", "0", ".5h", None):
            assert post(base, path, {"model": "fable", **body, "keep_alive": good}).status == 200, (path, good)
        for bad, shown in (("soon", '"soon"'), ("5", '"5"'), ("5x", '"5x"'), ("", '""'), ("1h30", '"1h30"'), (True, "true"), ([5], "[5]"), ("5m\0", '"5m')):
            a = post(base, path, {"model": "fable", **body, "keep_alive": bad})
            assert a.status == 400 and a.json["error"].startswith("keep_alive must be a number of seconds or a duration") and shown in a.json["error"], (path, bad, a.text)


def test_blobs_are_refused(base):
    for method in ("GET", "HEAD", "POST"):
        a = request(base + "/api/blobs/sha256:" + "a" * 64, method, b"x" if method == "POST" else None)
        assert a.status == 400 and (method == "HEAD" or a.json["error"].startswith("not supported")), (method, a.text)
    assert request(base + "/api/blobs/x", "PUT", b"x").status == 405


def test_compact_is_refused_by_name(base):
    a = post(base, "/v1/responses/compact", {"model": "fable", "input": "x"})
    assert a.status == 404 and a.json["error"]["type"] == "invalid_request_error" and "/v1/responses/compact is not served" in a.json["error"]["message"]


TEXT = {"model": "fable", "input": "x"}
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


@pytest.mark.parametrize("path, body, param, code", [
    ("/v1/responses", {**TEXT, "temperature": 2.5}, "temperature", "decimal_above_max_value"),
    ("/v1/responses", {**TEXT, "temperature": -0.5}, "temperature", "decimal_below_min_value"),
    ("/v1/responses", {**TEXT, "max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ("/v1/responses", {**TEXT, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ("/v1/responses", {**TEXT, "text": {"verbosity": "loud"}}, "text.verbosity", "invalid_value"),
    ("/v1/responses", {**TEXT, "text": {"verbosity": 1}}, "text.verbosity", "invalid_type"),
])
def test_how_a_value_of_responses_is_wrong(base, path, body, param, code):
    a = post(base, path, body)
    error = a.json["error"]
    assert a.status == 400 and (error["param"], error["code"]) == (param, code), a.text


def test_what_messages_take(base):
    for more, want in (({"temperature": 2.1}, "temperature must be in [0,2], got 2.1"), ({"output_config": {"effort": "utmost"}}, "output_config.effort: Input should be low"),
                       ({"output_config": {"effort": 1}}, "output_config.effort: Input should be low")):
        a = post(base, "/v1/messages", {**CHAT, **more})
        assert a.status == 400 and want in a.json["error"]["message"], a.text
    for more in ({"temperature": 2}, {"output_config": {"effort": "max"}}):
        assert post(base, "/v1/messages", {**CHAT, **more}).status == 200


def test_an_id_that_is_not_there_has_no_code(base):
    for method, path in (("GET", "/v1/responses/resp_0"), ("DELETE", "/v1/responses/resp_0"), ("POST", "/v1/responses/resp_0/cancel"), ("GET", "/v1/responses/resp_0/input_items")):
        a = request(base + path, method, {} if method == "POST" else None)
        assert a.status == 404 and a.json["error"] == {"message": "Response with id 'resp_0' not found.", "type": "invalid_request_error", "param": None, "code": None}


def test_several_answers_of_llama_cpp(base):
    ask = {"prompt": "Once", "n_predict": 4, "temperature": 1, "seed": 7}
    for name in ("n_cmpl", "n"):
        several = post(base, "/completion", {**ask, name: 2}).json
        assert [a["index"] for a in several] == [0, 1] and all(len(a["tokens"]) == 4 for a in several)
    one = post(base, "/completion", {**ask, "n_cmpl": 1}).json
    assert one["index"] == 0 and one["tokens_predicted"] == 4
    for bad in (0, 9000):
        a = post(base, "/completion", {**ask, "n_cmpl": bad})
        assert a.status == 400 and "n_cmpl must be in [1, 8192]" in a.json["error"]["message"], a.text
    a = post(base, "/completion", {**ask, "lora": [{"id": 0, "scale": 1}]})
    assert a.status == 400 and a.json["error"]["message"].startswith("lora: adapters are not mixed here")
    assert post(base, "/completion", {**ask, "lora": []}).status == 200


def test_the_text_of_a_document_without_one_is_empty(base):
    docs = [{"text": "a wolf"}, {"x": 1}, {"_text": "a fox"}, {"text": 5}]
    a = post(base, CAIKIT + "rerank", {"model_id": "fable", "inputs": {"query": "a fox", "documents": docs}})
    assert {s["index"]: s["text"] for s in a.json["result"]["scores"]} == {0: "a wolf", 1: "", 2: "a fox", 3: ""}


def test_what_caikit_does_not_have(base):
    assert post(base, CAIKIT + "nothing", {}).json == {"detail": "Not Found"} and get(base, CAIKIT + "embedding").json == {"detail": "Method Not Allowed"}


def test_the_path_that_is_meant(base):
    for path, body, want in (("/detokenize", {"prompt": "x"}, "A body with `prompt` goes to POST /tokenize."),
                             ("/detokenize", {"messages": []}, "A body with `messages` goes to POST /tokenize or /v1/messages/count_tokens."),
                             ("/v1/embeddings", {"model": "fable", "inputs": ["x"]}, "A body with `inputs` goes to POST /api/v1/task/embedding."),
                             ("/v1/embeddings", {"model": "fable", "texts": ["x"]}, "A body with `texts` goes to POST /api/v1/task/embedding-tasks, as `inputs`."),
                             ("/v1/tokenizer", {"tokens": [1]}, "A body with `tokens` goes to POST /detokenize.")):
        a = post(base, path, body)
        assert 400 <= a.status <= 422 and want in a.text, (path, a.text)
    a = post(base, "/detokenize", {"tokens": "x", "prompt": "y"})
    assert "goes to" not in a.text


def test_metrics_are_on_the_user_s_port_where_the_operator_wants_it(pair):
    assert get(pair.base, "/metrics").status == 404
    ports = free_ports(10)
    ports[3] = ports[0]
    with Cluster(ports=ports) as c:
        a = get(c.base, "/metrics")
        assert a.status == 200 and a.headers["Content-Type"].startswith("text/plain") and "vllm:" in a.text
        assert post(c.base, "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 1}).status == 200
