"""Goal: one list of models that the clients of OpenAI, vLLM, Anthropic, llama.cpp and Codex read alike (client-apis 2.9), on one instance and split.
Method: each member against what the server says of itself elsewhere; queries, and errors in the shape of who asks.
"""
import datetime
import json
import os

import pytest
from harness import FABLE, get, request

LISTS = ("/v1/models", "/models", "/v3/models", "/v3/v1/models")
CLAUDE = {"anthropic-version": "2023-06-01"}


@pytest.fixture(params=["one", "split"])
def base(request, whole, pair):
    return (whole if request.param == "one" else pair).base


def listed(base, path="/v1/models"):
    a = get(base, path)
    assert a.status == 200, a.text
    return a.json


def test_every_family_finds_what_it_reads(base):
    seen = listed(base)
    assert list(seen) == ["object", "data", "has_more", "first_id", "last_id", "models"]
    assert (seen["object"], seen["has_more"], seen["first_id"], seen["last_id"]) == ("list", False, "fable", "fable")
    [card], [entry] = seen["data"], seen["models"]
    assert card["id"] == card["display_name"] == card["root"] == "fable" and card["object"] == card["type"] == "model" and card["parent"] is None
    assert "name" not in card  # Open WebUI takes a null for a name
    created = datetime.datetime.fromisoformat(card["created_at"].replace("Z", "+00:00"))
    assert created.timestamp() == card["created"] and card["created_at"].endswith("Z")
    info, props, shown = get(base, "/info").json, get(base, "/props").json, request(base + "/api/show", "POST", {"model": "fable"}).json
    assert card["max_model_len"] == card["context_length"] == card["meta"]["n_ctx"] == info["max_total_tokens"] == props["default_generation_settings"]["n_ctx"]
    assert card["max_input_tokens"] == info["max_input_length"] and card["max_tokens"] == get(base, "/v2").json["extensions"]["max_iter_times"]
    with open(os.path.join(FABLE, "config.json")) as f:
        model = json.load(f)
    meta = card["meta"]
    assert (meta["n_ctx_train"], meta["n_vocab"], meta["n_embd"]) == (model["max_position_embeddings"], model["vocab_size"], model["hidden_size"])
    assert meta["n_params"] == shown["model_info"]["general.parameter_count"] and meta["size"] == get(base, "/api/tags").json["models"][0]["size"]
    assert {1: "llama", 2: "gpt2", 3: "bert", 4: "t5"}[meta["vocab_type"]] == shown["model_info"]["tokenizer.ggml.model"] == "gpt2"
    assert entry["name"] == entry["model"] == "fable" and entry["capabilities"] == shown["capabilities"] and entry["details"] == shown["details"]
    assert set(entry) == {"name", "model", "type", "modified_at", "size", "digest", "description", "tags", "capabilities", "parameters", "details"}


def undated(seen):
    return json.dumps([{k: v for k, v in m.items() if k not in ("created", "created_at")} for m in seen["data"]] + [seen["models"], seen["has_more"]])


def test_all_paths_have_the_same_list(base, whole):
    assert {undated(listed(base, path)) for path in LISTS} == {undated(listed(whole.base))}
    card = get(base, "/v1/models/fable").json
    card.pop("model_version_status")
    assert undated({**listed(base), "data": [card]}) == undated(listed(base))


def test_queries(base):
    assert listed(base, "/v1/models?client_version=0.9.1")["models"] == [] and listed(base, "/v1/models?client_version=0.9.1")["data"]
    assert undated(listed(base, "/v1/models?beta=true&order=desc")) == undated(listed(base))
    for query in ("after_id=fable", "before_id=fable"):
        page = listed(base, f"/v1/models?{query}&limit=5")
        assert (page["data"], page["models"], page["has_more"], page["first_id"], page["last_id"]) == ([], [], False, None, None)
    assert listed(base, "/v1/models?limit=1")["has_more"] is False


def test_errors_have_the_shape_of_who_asks(base):
    for query, text in (("limit=0", "limit must be an integer from 1 to 1000, got '0'"), ("limit=x", "limit must be an integer from 1 to 1000, got 'x'"),
                        ("after_id=nope", "after_id must be the id of a model in the list, got 'nope'")):
        a, b = get(base, "/v1/models?" + query, headers=CLAUDE), get(base, "/v1/models?" + query)
        assert a.status == b.status == 400
        assert a.json == {"type": "error", "error": {"type": "invalid_request_error", "message": text}, "request_id": a.headers["request-id"]}
        assert text in b.text and b.json.get("type") != "error"
        assert a.headers["request-id"] == a.headers["X-Request-Id"] and "request-id" not in b.headers
    for name, path in (("nope", "nope"), ("org/nope", "org%2Fnope"), ("org/nope", "org/nope"), ("fablé", "fabl%C3%A9")):
        a, b = get(base, "/v1/models/" + path, headers=CLAUDE), get(base, "/v1/models/" + path)
        assert a.status == b.status == 404 and a.json["error"] == {"type": "not_found_error", "message": f"model: {name}"}
        assert f"Model {name} not found." in b.text
