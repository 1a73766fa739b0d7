"""Goal: a program written against Ollama's official client works against Baton when it changes the host alone, on one instance and split.
Method: the npm package ollama, pinned; tests/cluster/npm/ollama_client.mjs runs steps against live daemons and prints what the client gave it;
the judging happens here. What the client saw of one instance and of a cluster is the same, but for times.
"""
import json
import re

import npm_clients
import pytest

STEPS = "models chat chat_stream generate generate_stream format tools embed load errors abort"
_seen = {}  # where: what each step saw there

@pytest.fixture(scope="module", params=["one", "split"])
def where(request):
    return request.param

@pytest.fixture(scope="module")
def seen(where, whole, pair):
    npm_clients.install()
    if where not in _seen:
        _seen[where] = npm_clients.run("ollama_client.mjs", {"one": whole, "split": pair}[where].base, STEPS)
    return _seen[where]

def test_models(seen):
    m = seen["models"]
    for listed in (m["list"]["models"], m["ps"]["models"]):
        (one,) = [x for x in listed if x["name"] == x["model"] == "fable:latest"]
        d = one["details"]
        assert re.fullmatch("[0-9a-f]{64}", one["digest"]) and one["size"] > 1 << 20
        assert all(isinstance(d[k], str) and d[k] for k in ("format", "family", "parameter_size", "quantization_level"))
    assert m["show"]["model_info"]["llama.context_length"] > 100 and "completion" in m["show"]["capabilities"]
    assert all(re.fullmatch(r'\w+\s+("[^"]*"|\S+)', line) for line in m["show"]["parameters"].split("\n"))
    assert [int(x) for x in m["version"]["version"].split(".")]

def test_chat(seen):
    whole, lines = seen["chat"], seen["chat_stream"]
    assert whole["done_reason"] == "length" and whole["eval_count"] == 12 and whole["prompt_eval_count"] > 5
    assert whole["total_duration"] >= whole["eval_duration"] > 0
    assert "".join(p["message"]["content"] for p in lines) == whole["message"]["content"] and len(lines) > 8
    assert all(p["message"]["role"] == "assistant" for p in lines) and [p["done"] for p in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["eval_count"] == 12 and lines[-1]["message"]["content"] == ""

def test_generate(seen):
    g, lines = seen["generate"], seen["generate_stream"]
    first, following = g["first"], g["next"]
    assert "".join(p["response"] for p in lines) == first["response"] and lines[-1]["context"] == first["context"]
    assert following["context"][:len(first["context"])] == first["context"] and following["prompt_eval_count"] > len(first["context"])
    assert g["raw"]["prompt_eval_count"] < first["prompt_eval_count"] and "context" not in g["raw"]

def test_format_and_tools(seen):
    assert seen["format"] in ({"tame": True}, {"tame": False})
    t = seen["tools"]
    (call,) = t["whole"][:1]
    assert call["function"]["name"] == "paint" and call["function"]["arguments"]["colour"] in ("red", "green")
    streamed = [c for p in t["streamed"] for c in p["message"].get("tool_calls", [])]
    assert [c["function"] for c in streamed] == [c["function"] for c in t["whole"]] and t["after"]["message"]["content"]

def test_embeddings(seen):
    e = seen["embed"]
    a, b = e["two"]["embeddings"]
    assert len(a) == len(b) == len(e["old"]["embedding"]) and abs(sum(x * x for x in a) - 1) < 1e-4 and e["none"]["embeddings"] == []
    (cut,) = e["cut"]["embeddings"]
    scale = sum(x * x for x in a[:16]) ** 0.5
    assert len(cut) == 16 and all(abs(x / scale - y) < 1e-5 for x, y in zip(a, cut))
    length = sum(x * x for x in e["old"]["embedding"]) ** 0.5
    assert abs(length - 1) > 1e-3 and all(abs(x / length - y) < 1e-4 for x, y in zip(e["old"]["embedding"], a))

def test_loading(seen):
    assert [x.get("done_reason", x.get("status")) for x in seen["load"]] == ["load", "unload", "success", "success"]

def test_errors_become_the_clients(seen):
    errors = seen["errors"]
    assert {k: e["status"] for k, e in errors.items()} == {**dict.fromkeys(errors, 400), "model": 404, "stream": 404}
    assert errors["model"]["message"] == errors["stream"]["message"] == "model 'nope' not found"
    assert "top_p" in errors["option"]["message"] and errors["think"]["message"] == '"fable" does not support thinking'
    assert all(errors[k]["message"].startswith("not supported") for k in ("pull", "create", "copy", "remove"))
    assert {e["name"] for e in errors.values()} == {"ResponseError"}

def test_abort(seen):
    """900 tokens were asked for."""
    assert 3 <= seen["abort"]["n"] < 450 and seen["abort"]["name"] == "AbortError"

def test_one_and_split_see_the_same(seen, where):
    def same(steps):
        text = json.dumps({k: v for k, v in steps.items() if k not in ("embed", "format", "abort")})
        text = re.sub(r'_duration": \d+', '_duration": 0', re.sub(r'"(created|modified)_at": "[^"]+"', '"at"', text))
        return re.sub(r'"call_\w+"', '"call"', text)
    assert where == "one" or same(_seen["one"]) == same(seen)
