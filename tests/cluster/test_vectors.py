"""Goal: embeddings, scores and reranks of every form are right, the same on one instance and through the coordinator, and do not depend on what
else is asked. Method: the bundled model (a decoder) on shared servers; an encoder with a head for scores, random and tiny, with the bundled
tokenizer, whose numbers are held against the float64 reference of tests/oracle; shapes and refusals from tables."""
import base64
import json
import math
import os
import re
import shutil
import signal
import struct
import sys
import threading

import pytest
from harness import ANSWER_S, FABLE, ROOT, SLOW, Standalone, request, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
TEXTS = ["Once upon a time", "The fox ran over the hill.", "A king had three sons, and the youngest was a fool."]
TASK = "/api/v1/task/"


def post(base, path, body, status=200):
    a = request(base + path, "POST", body)
    assert a.status == status, (path, a.text)
    return a.json


def vectors(base, body):
    return [d["embedding"] for d in post(base, "/v1/embeddings", {"model": "fable", **body})["data"]]


def length(v):
    return math.sqrt(sum(x * x for x in v))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / length(a) / length(b)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """(server, config, tensors) of a cross-encoder."""
    pytest.importorskip("numpy")
    import make_encoder
    import reference
    folder = str(tmp_path_factory.mktemp("judge"))
    config = dict(make_encoder.FAMILIES["xlm_roberta_score"], vocab_size=4096, max_position_embeddings=130)
    make_encoder.write_encoder(folder, config, seed=5, rooted=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(FABLE, name), folder)
    config, tensors = reference.read_model(folder)
    with Standalone(model=folder, extra={"BatonConfig": {"weightDtype": "f32"}}) as s:
        yield s, config, tensors


def test_embeddings(whole):
    a = post(whole.base, "/v1/embeddings", {"model": "fable", "input": TEXTS})
    assert a["object"] == "list" and a["model"] == "fable" and a["id"].startswith("embd-")
    assert [d["index"] for d in a["data"]] == [0, 1, 2] and {d["object"] for d in a["data"]} == {"embedding"}
    assert a["usage"]["prompt_tokens"] == a["usage"]["total_tokens"] > 10
    got = [d["embedding"] for d in a["data"]]
    assert all(abs(length(v) - 1) < 1e-5 for v in got) and len({len(v) for v in got}) == 1
    packed = post(whole.base, "/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"})["data"]
    for v, d in zip(got, packed):
        raw = base64.b64decode(d["embedding"])
        assert struct.unpack(f"<{len(v)}f", raw) == struct.unpack(f"<{len(v)}f", struct.pack(f"<{len(v)}f", *v))
    short = vectors(whole.base, {"input": TEXTS[0], "dimensions": 16})[0]
    assert len(short) == 16 and abs(length(short) - 1) < 1e-5 and cosine(short, got[0][:16]) > 0.99999
    ids = post(whole.base, "/tokenize", {"prompt": TEXTS[0], "model": "fable"})["tokens"]
    assert vectors(whole.base, {"input": ids})[0] == got[0] == vectors(whole.base, {"input": [ids]})[0]
    raw = post(whole.base, "/pooling", {"input": TEXTS[0]})["data"][0]
    assert raw["object"] == "pooling" and abs(length(raw["data"]) - 1) > 0.1 and cosine(raw["data"], got[0]) > 0.99999


def test_the_coordinator_answers_the_same(whole, pair):
    forms = [("/v1/embeddings", {"input": TEXTS}), ("/v3/embeddings", {"model": "fable", "input": TEXTS[0]}), ("/pooling", {"input": TEXTS}),
             ("/score", {"text_1": TEXTS[0], "text_2": TEXTS}), ("/rerank", {"query": "fox", "documents": TEXTS}),
             (TASK + "embedding-tasks", {"model_id": "fable", "inputs": TEXTS})]
    for path, body in forms:
        for _ in range(2):  # each instance in turn
            one, other = post(whole.base, path, body), post(pair.base, path, body)
            for a in (one, other):
                a.pop("id", None), a.pop("created", None)
            assert one == other, path


def test_numbers_do_not_depend_on_what_else_is_asked(whole):
    alone = vectors(whole.base, {"input": TEXTS[2]})[0]
    many = [f"Story {i}: " + "fox " * (i % 40) for i in range(150)]
    out = []
    threads = [threading.Thread(target=lambda: out.append(vectors(whole.base, {"input": many + [TEXTS[2]]}))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(out) == 4 and all(o[-1] == alone and o == out[0] for o in out)


def test_a_drain_waits_for_vectors():
    """SIGTERM while texts are with the engine: they come, and the process ends then. Its queue is shorter than a body of texts, which is no
    reason to refuse one."""
    with Standalone(extra={"BatonConfig": {"queueMax": 3}}) as s:
        out = []
        many = [f"Story {i}: " + "fox " * 300 for i in range(40)]
        t = threading.Thread(target=lambda: out.append(request(s.base + "/v1/embeddings", "POST", {"input": many})))
        t.start()
        wait_for(lambda: "num_vector_requests_running 1\n" in re.sub(r"{.*}", "", request(s.mgmt + "/metrics").text), ANSWER_S, "it is under way")
        s.instance.process.send_signal(signal.SIGTERM)
        s.instance.killed = True
        t.join(ANSWER_S)
        assert out and out[0].status == 200 and len(out[0].json["data"]) == 40
        assert s.instance.process.wait(30 * SLOW) == 0


def test_scores_and_ranks(whole):
    v = vectors(whole.base, {"input": ["fox"] + TEXTS})
    want = [cosine(v[0], d) for d in v[1:]]
    score = post(whole.base, "/v1/score", {"model": "fable", "text_1": "fox", "text_2": TEXTS})
    assert [d["index"] for d in score["data"]] == [0, 1, 2]
    assert all(abs(d["score"] - w) < 1e-5 for d, w in zip(score["data"], want))
    each = post(whole.base, "/score", {"data_1": TEXTS, "data_2": TEXTS})["data"]
    assert all(abs(d["score"] - 1) < 1e-5 for d in each) and len(each) == 3
    order = sorted(range(3), key=lambda i: -want[i])
    for path, shown in (("/rerank", True), ("/v1/rerank", True), ("/v2/rerank", False), ("/v3/rerank", False)):
        a = post(whole.base, path, {"model": "fable", "query": "fox", "documents": TEXTS})
        assert [r["index"] for r in a["results"]] == order and a["usage"]["total_tokens"] > 0
        assert [r.get("document") for r in a["results"]] == [{"text": TEXTS[i]} if shown else None for i in order]
    top = post(whole.base, "/rerank", {"query": "fox", "documents": TEXTS, "top_n": 1, "return_documents": False})["results"]
    assert len(top) == 1 and top[0]["index"] == order[0] and "document" not in top[0]
    tei = post(whole.base, "/rerank", {"query": "fox", "texts": TEXTS, "return_text": True})
    assert [r["index"] for r in tei] == order and tei[0]["text"] == TEXTS[order[0]]


def test_caikit(whole):
    v = vectors(whole.base, {"input": TEXTS})
    made_by = {"name": "EmbeddingModule", "version": "0.0.1"}
    one = post(whole.base, TASK + "embedding", {"model_id": "fable", "inputs": TEXTS[0]})
    assert set(one) == {"result", "producer_id", "input_token_count"} and one["producer_id"] == made_by
    assert cosine(one["result"]["data"]["values"], v[0]) > 0.99999
    for inputs in (TEXTS, {"texts": TEXTS}):
        many = post(whole.base, TASK + "embedding-tasks", {"model_id": "fable", "inputs": inputs})
        assert [cosine(x["data"]["values"], y) > 0.99999 for x, y in zip(many["results"]["vectors"], v)] == [True] * 3
    near = post(whole.base, TASK + "sentence-similarity",
                {"model_id": "fable", "inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}})["result"]["scores"]
    assert all(abs(s - cosine(v[0], x)) < 1e-5 for s, x in zip(near, v))
    both = post(whole.base, TASK + "sentence-similarity-tasks",
                {"model_id": "fable", "inputs": {"source_sentences": TEXTS[:2], "sentences": TEXTS}})["results"]
    assert len(both) == 2 and both[0]["scores"] == near
    docs = [{"text": t, "n": i} for i, t in enumerate(TEXTS)] + [{"_text": TEXTS[1]}]
    rank = post(whole.base, TASK + "rerank", {"model_id": "fable", "inputs": {"query": TEXTS[1], "documents": docs},
                                              "parameters": {"top_n": 2, "return_text": False}})["result"]
    assert rank["query"] == TEXTS[1] and [s["index"] for s in rank["scores"]] == [1, 3]
    assert rank["scores"][0] == {"document": docs[1], "index": 1, "score": rank["scores"][0]["score"], "text": None}
    ranks = post(whole.base, TASK + "rerank-tasks", {"model_id": "fable", "inputs": {"queries": TEXTS[:2], "documents": docs},
                                                     "parameters": {"return_documents": False, "return_queries": False}})["results"]
    assert [r["query"] for r in ranks] == [None, None] and ranks[1]["scores"][0]["document"] is None and ranks[1]["scores"][0]["text"] == TEXTS[1]


def test_an_encoder_and_its_head(judge):
    import numpy as np
    import reference_encoder
    server, config, tensors = judge
    def ids(t):
        return post(server.base, "/tokenize", {"prompt": t})["tokens"]

    def row(tokens):
        return reference_encoder.rows(config, tensors, tokens)

    got = vectors(server.base, {"input": TEXTS, "model": None})
    for t, v in zip(TEXTS, got):
        want = row(ids(t)).mean(axis=0)
        assert np.allclose(v, want / np.linalg.norm(want), atol=1e-4)
    logits = [post(server.base, "/rerank", {"query": TEXTS[0], "texts": [t], "raw_scores": True})[0]["score"] for t in TEXTS]
    scores = post(server.base, "/score", {"text_1": TEXTS[0], "text_2": TEXTS})["data"]
    assert all(abs(d["score"] - 1 / (1 + math.exp(-x))) < 1e-5 for d, x in zip(scores, logits)) and len(set(logits)) == 3
    a = request(server.base + "/v1/chat/completions", "POST", {"model": "fable", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
    assert a.status >= 400 and "turns texts into vectors" in a.text


@pytest.fixture(scope="module")
def openai():
    with Standalone(extra={"BatonConfig": {"errorStyle": "openai"}}) as s:
        yield s


REFUSED = [
    ("/v1/embeddings", {}, 400, "input must be a string or a list of at least one"),
    ("/v1/embeddings", {"input": []}, 400, "input must be"),
    ("/v1/embeddings", {"input": [[]]}, 400, "input must not be empty"),
    ("/v1/embeddings", {"input": [1, "x"]}, 400, "a token id must be an integer from 0 to 4095"),
    ("/v1/embeddings", {"input": [4096]}, 400, "a token id must be an integer from 0 to 4095"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "int8"}, 400, 'encoding_format must be \\"float\\" or \\"base64\\"'),
    ("/v1/embeddings", {"input": "x", "dimensions": 0}, 400, "dimensions must be an integer from 1 to"),
    ("/v1/embeddings", {"input": "x", "model": "other"}, 404, "does not exist"),
    ("/v1/embeddings", {"input": "fox " * 3000}, 400, "maximum context length"),
    ("/v1/embeddings", {"input": ["x"] * 2049}, 400, "at most 2048 texts can be asked for at once, got 2049"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400, "as many as on the right"),
    ("/score", {"text_1": "a"}, 400, "text_2 must be"),
    ("/v1/embeddings", {"input": "x", "dimensions": 0}, 400, ", got 0"),
    ("/rerank", {"query": "a", "documents": []}, 400, "documents must be"),
    ("/rerank", {"query": ["a"], "documents": ["b"]}, 400, "query must be a string"),
    ("/rerank", {"query": "a", "documents": [1]}, 400, "documents[0] must be a string"),
    ("/rerank", {"query": "a", "documents": ["b"], "top_n": "x"}, 400, "top_n must be an integer"),
    ("/rerank", {"query": "a", "documents": ["b"], "add_special_tokens": False}, 400, "add_special_tokens must be true"),
    ("/v1/embeddings", {"input": "a", "embed_dtype": "float16"}, 400, "embed_dtype must be"),
    ("/v1/embeddings", {"input": "a", "endianness": "big"}, 400, "endianness must be"),
    ("/v3/embeddings", {"input": "a"}, 412, "model field is missing in JSON body"),
    ("/v3/rerank", {"query": "a", "documents": ["b"]}, 412, "model field is missing in JSON body"),
    ("/v3/embeddings", b"{", 412, "The file is not valid json"),
    ("/api/embed", {"model": "fable", "input": 5}, 400, "invalid input type"),
    ("/api/embed", b"", 400, "missing request body"),
    ("/api/chat", b"", 400, "missing request body"),
]


@pytest.mark.parametrize("path,body,param,code", [
    ("/v1/embeddings", {}, "input", "missing_required_parameter"),
    ("/v1/embeddings", {"input": 5}, "input", "invalid_type"),
    ("/v1/embeddings", {"input": ["a", 5]}, "input", "invalid_type"),
    ("/v1/embeddings", {"input": []}, "input", "empty_array"),
    ("/v1/embeddings", {"input": [[]]}, "input", "empty_array"),
    ("/v1/embeddings", {"input": ""}, "input", "empty_string"),
    ("/v1/embeddings", {"input": ["a", ""]}, "input", "empty_string"),
    ("/v1/embeddings", {"input": "x", "dimensions": 9999}, "dimensions", "invalid_value"),
    ("/v1/embeddings", {"input": "x", "dimensions": "9"}, "dimensions", "invalid_type"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "x"}, "encoding_format", "invalid_value"),
    ("/v1/embeddings", {"input": "x", "encoding_format": 5}, "encoding_format", "invalid_type"),
    ("/v1/embeddings", {"input": "x", "model": 5}, "model", "invalid_type"),
    ("/v1/embeddings", {"input": "x", "model": "other"}, "model", "model_not_found"),
    ("/pooling", {"input": [4096]}, "input", "invalid_value"),
    ("/score", {"text_1": "a"}, "text_2", "missing_required_parameter"),
    ("/score", {"text_1": "a", "text_2": 5}, "text_2", "invalid_type"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_2", "invalid_value"),
    ("/rerank", {"query": "a"}, "documents", "missing_required_parameter"),
    ("/rerank", {"query": "a", "documents": []}, "documents", "empty_array"),
    ("/rerank", {"query": "a", "documents": [1]}, "documents", "invalid_type"),
    ("/rerank", {"query": "a", "documents": ["b"], "top_n": "x"}, "top_n", "invalid_type")])
def test_codes_of_openai_s_errors(openai, path, body, param, code):
    a = request(openai.base + path, "POST", body)
    assert a.status == (404 if code == "model_not_found" else 400), a.text
    assert a.json["error"]["type"] == "invalid_request_error" and (a.json["error"]["param"], a.json["error"]["code"]) == (param, code), a.text


def test_an_empty_text_is_no_input_of_openai_s_embeddings_alone(whole):
    for path in ("/v1/embeddings", "/v3/embeddings"):
        a = request(whole.base + path, "POST", {"model": "fable", "input": ""})
        assert a.status == 400 and "input must not be an empty string" in a.text, a.text
    assert request(whole.base + "/score", "POST", {"text_1": "a", "text_2": ["b"]}).status == 200


@pytest.mark.parametrize("path,body,status,says", REFUSED)
def test_refusals(whole, path, body, status, says):
    a = request(whole.base + path, "POST", body)
    assert a.status == status and says in a.text, a.text


@pytest.mark.parametrize("body,status,says", [
    ({"inputs": "x"}, 400, "Please provide model_id in payload"), ({"model_id": "other", "inputs": "x"}, 404, "Model 'other' not loaded"),
    ({"model_id": "fable"}, 400, "inputs is missing"), ({"model_id": "fable", "inputs": "x", "more": 1}, 422, "Extra inputs are not permitted"),
    ({"model_id": "fable", "inputs": 1}, 422, "Input should be a valid string"), ({"model_id": 1, "inputs": "x"}, 422, "Input should be a valid string"),
    ({"model_id": "fable", "inputs": ""}, 400, "the required argument text is missing"),
    ({"model_id": "fable", "inputs": "x", "parameters": {"truncate_input_tokens": "1"}}, 422, "Input should be a valid integer"),
    ({"model_id": "fable", "inputs": "fox " * 3000}, 400, "maximum context length")])
def test_caikit_refusals(whole, body, status, says):
    a = request(whole.base + TASK + "embedding", "POST", body)
    assert a.status == status and set(a.json) - {"additional_info"} == {"details", "code", "id"}, a.text
    assert ("additional_info" in a.json) == (status == 422), a.text
    assert says in a.json["details"] and a.json["code"] == status and len(a.json["id"]) == 32


def test_what_a_model_is_called_and_how_texts_are_read(whole):
    as_it_is = vectors(whole.base, {"input": TEXTS[0]})
    assert vectors(whole.base, {"model": "", "input": TEXTS[0], "embed_dtype": "float32", "endianness": "native", "add_special_tokens": True}) == as_it_is
    ids = request(whole.base + "/tokenize", "POST", {"model": "fable", "prompt": TEXTS[0], "add_special_tokens": False}).json["tokens"]
    plain = vectors(whole.base, {"input": TEXTS[0], "add_special_tokens": False})
    assert plain == vectors(whole.base, {"input": ids}) != as_it_is


def test_a_small_body_cannot_ask_for_everything(whole, pair):
    """Each document is judged, and shown, once for each query."""
    many = {"model_id": "fable", "inputs": {"source_sentences": ["x"] * 50, "sentences": ["y"] * 50}}
    large = {"model_id": "fable", "inputs": {"queries": ["x"] * 40, "documents": [{"text": "word " * 4000}] * 50},
             "parameters": {"truncate_input_tokens": 4}}
    shown = {**large, "parameters": {"truncate_input_tokens": 4, "return_documents": False, "return_text": False}}
    for base in (whole.base, pair.base):
        a = request(base + TASK + "sentence-similarity-tasks", "POST", many)
        assert a.status == 400 and "at most 2048 pairs of texts can be asked for at once, got 2500" in a.text, a.text
        a = request(base + TASK + "rerank-tasks", "POST", large)
        assert a.status == 400 and "more than 67108864 bytes" in a.text, a.text[:300]
        assert len(post(base, TASK + "rerank-tasks", shown)["results"]) == 40


def test_pairs_of_several_queries_are_those_of_each(judge):
    server = judge[0]
    queries, documents = TEXTS[:2], [{"text": t} for t in TEXTS] + [{"text": "fox " * 500}]
    cut = {"parameters": {"truncate_input_tokens": -1}}
    both = post(server.base, TASK + "rerank-tasks", {"model_id": "fable", "inputs": {"queries": queries, "documents": documents}, **cut})
    for query, scores in zip(queries, both["results"]):
        alone = post(server.base, TASK + "rerank", {"model_id": "fable", "inputs": {"query": query, "documents": documents}, **cut})
        assert [(s["index"], s["score"]) for s in scores["scores"]] == [(s["index"], s["score"]) for s in alone["result"]["scores"]]


def test_too_long_a_text_is_cut_when_asked(whole):
    long = "fox " * 3000
    for n in (1, 5, -1):
        assert post(whole.base, "/v1/embeddings", {"input": long, "truncate_prompt_tokens": n})["usage"]["prompt_tokens"] > 0
    a = post(whole.base, TASK + "embedding", {"model_id": "fable", "inputs": long, "parameters": {"truncate_input_tokens": 7}})
    assert 7 <= a["input_token_count"] <= 9
    assert json.dumps(a)
