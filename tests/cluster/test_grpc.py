"""Goal: clients of gRPC find the services of docs/api.md on a coordinator and on an instance alone: messages, statuses, trailers, deadlines,
cancellation, compression, keys; and a split answer is the one of one instance.
Method: python3-grpcio with messages that protoc makes of proto/grpc/ (grpc_client.py), curl for what a client library hides, the golden
vectors of kserve-runtimes 16 as bytes.
"""
import os
import subprocess
import time

import grpc
import pytest
from grpc_client import PROTO, Grpc, make, message, shown
from h2_frames import H2, fields
from harness import SLOW, get, post, wait_for

TGIS = "/fmaas.GenerationService/"
HEALTH = "/grpc.health.v1.Health/"
ONCE = "Once upon a time"
SIX = {"stopping": {"max_new_tokens": 6}}
ALL = {"generated_tokens": True, "input_tokens": True, "token_logprobs": True, "token_ranks": True, "top_n_tokens": 2}


@pytest.fixture(scope="module", params=["split", "alone"])
def any_base(request, pair, whole):
    return {"split": pair, "alone": whole}[request.param]


def curl(base, path, body, *more):
    r = subprocess.run(["curl", "-sv", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers", *more, "--data-binary", "@-",
                        base + path], input=body, capture_output=True, timeout=30 * SLOW)
    return r.stdout, [line[2:].rstrip() for line in r.stderr.decode().splitlines() if line.startswith("< ")]


def framed(data):
    return b"\0" + len(data).to_bytes(4, "big") + data


# ---- what is on the wire
def test_an_answer_has_its_status_in_the_trailers(any_base):
    body, heads = curl(any_base.base, HEALTH + "Check", framed(b""))
    assert body == bytes.fromhex("00000000020801")
    assert heads[0] == "HTTP/2 200" and "content-type: application/grpc" in heads and "grpc-accept-encoding: identity,gzip" in heads
    assert heads.index("grpc-status: 0") > heads.index("")  # behind the end of the head
    assert not any(h.startswith("content-length") for h in heads)


def test_a_failure_is_a_head_alone(any_base):
    body, heads = curl(any_base.base, HEALTH + "Check", framed(bytes.fromhex("0a03c3a425")))  # service "ä%"
    assert body == b"" and heads[0] == "HTTP/2 200" and "grpc-status: 5" in heads
    assert "grpc-message: there is no service %C3%A4%25" in heads and heads.index("grpc-status: 5") < heads.index("")


@pytest.mark.parametrize("body,status", [(b"", 13), (b"\0\0\0\0\1", 13), (framed(b"") + framed(b""), 13), (b"\7\0\0\0\0", 13),
                                         (framed(b"\x0a\x05"), 13), (b"\1\0\0\0\1x", 13)])
def test_what_is_no_message(any_base, body, status):
    for path in (HEALTH + "Check", TGIS + "Generate"):
        assert f"grpc-status: {status}" in curl(any_base.base, path, body)[1], path


def test_encodings_of_messages(any_base):
    assert "grpc-status: 12" in curl(any_base.base, TGIS + "Generate", b"\1\0\0\0\1x", "-H", "grpc-encoding: snappy")[1]
    with Grpc(any_base.base) as g:
        plain = g.call(TGIS + "Generate", {"requests": [{"text": ONCE}], "params": SIX})
        for way in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            assert g.call(TGIS + "Generate", {"requests": [{"text": ONCE}], "params": SIX}, compression=way) == plain


def test_other_framings_are_refused(any_base):
    def status(path, kind):
        return subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"content-type: {kind}", "--data-binary", "{}",
                               any_base.base + path], capture_output=True, text=True, timeout=30 * SLOW).stdout
    assert status(TGIS + "Generate", "application/json") == "415"
    assert status(HEALTH + "Check", "application/grpc-web") == "415"
    with Grpc(any_base.base) as g:
        for path, text in (("/v1/completions", "/v1/completions is no method of gRPC"), ("/a.B/C", "unknown method C for service a.B"),
                           (TGIS + "Nothing", "unknown method Nothing for service fmaas.GenerationService")):
            with pytest.raises(grpc.RpcError) as e:
                g.channel.unary_unary(path)(b"", timeout=10 * SLOW)
            assert (e.value.code(), e.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, text)


# ---- health
def test_health(any_base):
    with Grpc(any_base.base) as g:
        assert g.call(HEALTH + "Check", {}).status == g.call(HEALTH + "Check", {"service": "fmaas.GenerationService"}).status == 1
        assert g.refusal(HEALTH + "Check", {"service": "a.B"})[0] == grpc.StatusCode.NOT_FOUND
        assert set(g.call(HEALTH + "List", {}).statuses) >= {"", "fmaas.GenerationService", "grpc.health.v1.Health"}
        watch = g.call(HEALTH + "Watch", {"service": "a.B"})
        assert next(watch).status == 3  # SERVICE_UNKNOWN, and the stream stays
        watch.cancel()
        watch = g.call(HEALTH + "Watch", {})
        assert next(watch).status == 1
        watch.cancel()


# ---- TGIS
TEXTS = [
    {"requests": [{"text": ONCE}], "params": SIX},
    {"requests": [{"text": ONCE}]},
    {"requests": [{"text": ONCE}, {"text": "The cat"}, {"text": "hé \U0001f600"}], "params": {**SIX, "response": {"input_text": True}}},
    {"requests": [{"text": "Once upon"}, {"text": "The"}], "params": {**SIX, "response": ALL}},
    {"requests": [{"text": ONCE}], "params": {**SIX, "method": "SAMPLE", "sampling": {"seed": 7, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "typical_p": 0.95}}},
    {"requests": [{"text": ONCE}], "params": {"stopping": {"max_new_tokens": 40, "stop_sequences": ["."]}}},
    {"requests": [{"text": ONCE}], "params": {"stopping": {"max_new_tokens": 40, "stop_sequences": [".", "\n"], "include_stop_sequence": False}}},
    {"requests": [{"text": "a" + " b" * 60}], "params": {**SIX, "truncate_input_tokens": 10, "response": {"input_tokens": True}}},
    {"requests": [{"text": "Is it?"}], "params": {**SIX, "decoding": {"choice": {"choices": ["yes", "no"]}}}},
    {"requests": [{"text": "Is it?"}], "params": {**SIX, "decoding": {"regex": "[0-9]{3}"}}},
    {"requests": [{"text": ONCE}], "params": {"stopping": {"max_new_tokens": 100}, "decoding": {"length_penalty": {"start_index": 3, "decay_factor": 2}}}},
    {"requests": [{"text": ONCE}], "params": {**SIX, "decoding": {"repetition_penalty": 1.3}}},
]


@pytest.mark.parametrize("body", TEXTS, ids=range(len(TEXTS)))
def test_split_is_whole(split, alone, body):
    """Byte for byte, as one message and as a stream; and the stream says what the message says."""
    a, b = (g.call(TGIS + "Generate", body) for g in (split, alone))
    assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
    one = {"request": body["requests"][0], "params": body.get("params", {})}
    streams = [list(g.call(TGIS + "GenerateStream", one)) for g in (split, alone)]
    assert streams[0] == streams[1]
    pieces, single = streams[0], a.responses[0]
    first, last = pieces[0], pieces[-1]
    assert first.input_token_count == single.input_token_count and first.generated_token_count == 0 and first.stop_reason == 0
    assert list(first.input_tokens) == list(single.input_tokens) and first.seed == single.seed
    assert "".join(p.text for p in pieces) == single.text
    assert [t for p in pieces for t in p.tokens] == list(single.tokens)
    assert (last.stop_reason, last.generated_token_count, last.stop_sequence) == (single.stop_reason, single.generated_token_count, single.stop_sequence)
    counts = [p.generated_token_count for p in pieces]
    assert counts == sorted(counts) and all(p.stop_reason == 0 for p in pieces[:-1])


def test_what_an_answer_says(split):
    def one(body):
        return shown(split.call(TGIS + "Generate", body))["responses"][0]
    assert one(TEXTS[0]) == {"generated_token_count": 6, "text": " there lived a king who had", "input_token_count": 5, "stop_reason": "MAX_TOKENS"}
    assert one(TEXTS[1])["generated_token_count"] == 20
    assert one(TEXTS[4])["seed"] == "7"
    assert one(TEXTS[5])["stop_reason"] == "STOP_SEQUENCE" and one(TEXTS[5])["stop_sequence"] == "." and one(TEXTS[5])["text"].endswith(".")
    assert not one(TEXTS[6])["text"].endswith(".")
    assert one(TEXTS[7])["input_token_count"] == 10 and len(one(TEXTS[7])["input_tokens"]) == 10
    assert one(TEXTS[8])["text"] in ("yes", "no") and one(TEXTS[8])["stop_reason"] == "EOS_TOKEN"
    assert one(TEXTS[10])["stop_reason"] == "EOS_TOKEN" and one(TEXTS[10])["generated_token_count"] < 30
    details = split.call(TGIS + "Generate", TEXTS[3]).responses[0]
    assert [t.text for t in details.input_tokens] == ["<|begin_of_text|>", "Once", "Ġupon"]
    assert details.input_tokens[0].logprob == 0 and details.input_tokens[1].logprob < 0 and details.input_tokens[1].rank >= 1
    for t in details.tokens:  # greedy: the likeliest, which is the first of its alternatives
        assert t.rank == 1 and len(t.top_tokens) == 2 and t.top_tokens[0].text == t.text and t.top_tokens[0].logprob == t.logprob
    ranks = one({"requests": [{"text": ONCE}], "params": {**SIX, "method": "SAMPLE", "sampling": {"seed": 3, "temperature": 5.0},
                                                          "response": {"generated_tokens": True, "token_ranks": True}}})
    assert max(t["rank"] for t in ranks["tokens"]) > 1 and "logprob" not in ranks["tokens"][0]
    random = [one({"requests": [{"text": ONCE}], "params": {**SIX, "method": "SAMPLE"}})["seed"] for _ in range(2)]
    assert random[0] != random[1] and all(0 < int(s) < 1 << 32 for s in random)


REFUSED = [
    ({"method": "SAMPLE", "sampling": {"top_p": 1.5}}, "top_p must be > 0.0 and <= 1.0"),
    ({"method": "SAMPLE", "sampling": {"typical_p": 1.5}}, "typical_p must be <= 1.0"),
    ({"method": "SAMPLE", "sampling": {"temperature": -1}}, "temperature must be >= 0.0"),
    ({"decoding": {"repetition_penalty": -1}}, "repetition_penalty must be > 0.0"),
    ({"decoding": {"length_penalty": {"start_index": 1, "decay_factor": 11}}}, "length_penalty must be >= 1.0 and <= 10.0"),
    ({"stopping": {"max_new_tokens": 100000}}, "max_new_tokens must be <= 512"),
    ({"stopping": {"max_new_tokens": 3, "min_new_tokens": 4}}, "min_new_tokens must be <= max_new_tokens"),
    ({"stopping": {"stop_sequences": list("abcdefg")}}, "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"),
    ({"stopping": {"stop_sequences": [""]}}, "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"),
    ({"stopping": {"stop_sequences": ["é" * 121]}}, "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"),
    ({"decoding": {"json_schema": "{"}}, "Parameter json_schema must be a JSON schema: an object, or a string that holds one"),
    ({"decoding": {"choice": {"choices": []}}}, "choice must have at least one of choices"),
    ({"response": {"token_ranks": True}}, "must request input and/or generated tokens to request extra token detail"),
    ({"response": {"generated_tokens": True, "top_n_tokens": 11}}, "top_n_tokens must be <= 10"),
]


def test_refusals(split, alone):
    for g in (split, alone):
        for params, text in REFUSED:
            assert g.refusal(TGIS + "Generate", {"requests": [{"text": ONCE}], "params": params}) == (grpc.StatusCode.INVALID_ARGUMENT, text)
            assert g.refusal(TGIS + "GenerateStream", {"request": {"text": ONCE}, "params": params}) == (grpc.StatusCode.INVALID_ARGUMENT, text)
        for body, text in (({"requests": [{"text": "Once " * 2000}]}, "input tokens (4001) plus prefix length (0) must be < 1024"),
                           ({"requests": [{"text": "Once " * 400}], "params": {"stopping": {"max_new_tokens": 300, "min_new_tokens": 300}}},
                            "input tokens (801) plus prefix length (0) plus min_new_tokens (300) must be <= 1024"),
                           ({"requests": [{"text": ""}]}, "text must have 1 to"),
                           ({"requests": [{"text": ONCE}], "prefix_id": "p"}, "can't retrieve prompt prefix with id 'p'"),
                           ({"requests": [{"text": ONCE}] * 129}, "the number of requests must be at most 128, got 129")):
            code, details = g.refusal(TGIS + "Generate", body)
            assert code == grpc.StatusCode.INVALID_ARGUMENT and details.startswith(text), details
        assert g.refusal(TGIS + "GenerateStream", {}) == (grpc.StatusCode.INVALID_ARGUMENT, "missing request")
        assert "adapter" in g.refusal(TGIS + "Generate", {"requests": [{"text": ONCE}], "adapter_id": "a"})[1]


def test_no_requests_have_no_responses(split, alone):
    for g in (split, alone):
        for body in ({}, {"requests": []}, {"model_id": "fable", "params": {"stopping": {"max_new_tokens": 3}}}):
            assert g.call(TGIS + "Generate", body) == make("fmaas.BatchedGenerationResponse", {})
        assert g.refusal(TGIS + "Generate", {"params": {"stopping": {"max_new_tokens": 100000}}})[1] == "max_new_tokens must be <= 512"


def test_the_limit_of_the_model(split):
    long = split.call(TGIS + "Generate", {"requests": [{"text": "Once " * 500}], "params": {"stopping": {"max_new_tokens": 500, "min_new_tokens": 1}}}).responses[0]
    if long.stop_reason == 6:  # TOKEN_LIMIT
        assert long.input_token_count + long.generated_token_count == 1024
    else:
        assert message("fmaas.GenerationResponse").DESCRIPTOR.fields_by_name["stop_reason"].enum_type.values_by_number[long.stop_reason].name == "EOS_TOKEN"


def test_tokenize_and_model_info(split, alone):
    body = {"requests": [{"text": ONCE}, {"text": "hé llo"}, {"text": ""}], "return_tokens": True, "return_offsets": True, "truncate_input_tokens": 3}
    assert split.call(TGIS + "Tokenize", body) == alone.call(TGIS + "Tokenize", body)
    first = split.call(TGIS + "Tokenize", body).responses[0]
    assert list(first.tokens) == ["Ġupon", "Ġa", "Ġtime"] and [(o.start, o.end) for o in first.offsets] == [(4, 9), (9, 11), (11, 16)] and first.token_count == 3
    assert split.call(TGIS + "Tokenize", {}) == make("fmaas.BatchedTokenizeResponse", {})
    assert split.call(TGIS + "ModelInfo", {"model_id": "x"}) == alone.call(TGIS + "ModelInfo", {}) == \
        make("fmaas.ModelInfoResponse", {"max_sequence_length": 1024, "max_new_tokens": 512})


def test_golden_vectors_are_taken(split):
    for vector, path in (("1a041202686952041a020805", "Generate"),
                         ("1a0412026869521c080112090d0000003f100328071a07080522010a2800220410012001", "GenerateStream")):
        answer = split.call(TGIS + path, bytes.fromhex(vector))
        assert (list(answer)[-1] if path == "GenerateStream" else answer.responses[0]).generated_token_count >= 1


# ---- Caikit
NLP = "/caikit.runtime.Nlp.NlpService/"
MODEL = (("mm-model-id", "fable"),)
TASKS = [  # method, message, REST path, its body's inputs and parameters
    ("EmbeddingTaskPredict", {"text": ONCE}, "embedding", ONCE, {}),
    ("EmbeddingTasksPredict", {"texts": [ONCE, "The cat"], "truncate_input_tokens": 2}, "embedding-tasks", [ONCE, "The cat"], {"truncate_input_tokens": 2}),
    ("SentenceSimilarityTaskPredict", {"source_sentence": ONCE, "sentences": ["a", "The cat"]}, "sentence-similarity",
     {"source_sentence": ONCE, "sentences": ["a", "The cat"]}, {}),
    ("SentenceSimilarityTasksPredict", {"source_sentences": [ONCE, "b"], "sentences": ["a", "The cat"]}, "sentence-similarity-tasks",
     {"source_sentences": [ONCE, "b"], "sentences": ["a", "The cat"]}, {}),
    ("RerankTaskPredict", {"query": ONCE, "documents": [{"text": "a", "n": 1.5, "l": [None, True, {"x": "y"}]}, {"_text": "The cat"}], "top_n": 1}, "rerank",
     {"query": ONCE, "documents": [{"text": "a", "n": 1.5, "l": [None, True, {"x": "y"}]}, {"_text": "The cat"}]}, {"top_n": 1}),
    ("RerankTasksPredict", {"queries": [ONCE, "b"], "documents": [{"text": "a"}], "return_queries": False, "return_text": False}, "rerank-tasks",
     {"queries": [ONCE, "b"], "documents": [{"text": "a"}]}, {"return_queries": False, "return_text": False}),
]


@pytest.mark.parametrize("method,body,path,inputs,params", TASKS, ids=[t[0] for t in TASKS])
def test_caikits_tasks_are_those_of_rest(pair, whole, split, alone, method, body, path, inputs, params):
    answers = [g.call(NLP + method, body, metadata=MODEL) for g in (split, alone)]
    assert answers[0].SerializeToString(deterministic=True) == answers[1].SerializeToString(deterministic=True)
    rest = post(whole.base, "/api/v1/task/" + path, {"model_id": "fable", "inputs": inputs, "parameters": params}).json

    def plain(value):  # as the message has it: no null but in a document, another name of a vector
        if isinstance(value, dict):
            return {("data_npfloat32sequence" if k == "data" else k): (v if k == "document" else plain(v)) for k, v in value.items() if v is not None}
        return [plain(v) for v in value] if isinstance(value, list) else value

    assert answers[0] == make(split.method(NLP + method).output_type.full_name, plain(rest))


def test_caikits_refusals(split):
    assert split.refusal(NLP + "EmbeddingTaskPredict", {"text": "a"}) == (grpc.StatusCode.INVALID_ARGUMENT, "Please provide model_id in payload")
    assert split.refusal(NLP + "EmbeddingTaskPredict", {"text": "a"}, metadata=(("mm-model-id", "x"),)) == \
        (grpc.StatusCode.NOT_FOUND, "Model 'x' not loaded")
    assert split.refusal(NLP + "RerankTaskPredict", {"query": "a"}, metadata=MODEL)[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert split.refusal(NLP + "EmbeddingTaskPredict", {"text": "a " * 2000}, metadata=MODEL)[0] == grpc.StatusCode.INVALID_ARGUMENT


# ---- the files
def test_files_are_served(any_base):
    names = get(any_base.base, "/proto").text.split()
    assert {"generation.proto", "google/protobuf/struct.proto", "caikit_nlp_service.proto"} <= set(names)
    for name in names:
        with open(os.path.join(PROTO, name), "rb") as f:
            assert get(any_base.base, "/proto/" + name).body == f.read()
    assert get(any_base.base, "/proto/none.proto").status == 404


# ---- time, and clients who leave
LONG = {"stopping": {"max_new_tokens": 500, "min_new_tokens": 500}}


def idle(pair):
    return lambda: all(i.load()[2:] == (0, 0, 0) for i in pair.prefills + pair.decodes)


def test_a_deadline_ends_the_work(pair, split):
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as e:
        split.call(TGIS + "Generate", {"requests": [{"text": ONCE}] * 8, "params": LONG}, timeout=0.3)
    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - began < 3 * SLOW
    wait_for(idle(pair), 10 * SLOW, "nothing runs any more")
    # The server says it by itself: curl has no deadline of its own.
    heads = curl(pair.base, TGIS + "Generate", framed(make("fmaas.BatchedGenerationRequest", {"requests": [{"text": ONCE}], "params": LONG}).SerializeToString()),
                 "-H", "grpc-timeout: 200m")[1]
    assert "grpc-status: 4" in heads and "grpc-message: the deadline of the call is over" in heads
    with H2(pair.base) as c:  # refused before its body has come, which curl does not always show
        c.head(1, fields("POST", HEALTH + "Check", ("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "soon")), end=False)
        assert c.answer(1)["fields"]["grpc-status"] == "3"
    wait_for(idle(pair), 10 * SLOW, "nothing runs any more")


def test_a_cancelled_stream_ends_the_work(pair, split):
    stream = split.call(TGIS + "GenerateStream", {"request": {"text": ONCE}, "params": LONG})
    next(stream)
    next(stream)
    stream.cancel()
    wait_for(idle(pair), 10 * SLOW, "nothing runs any more")


def test_a_time_limit_keeps_what_there_is(split, alone):
    for g in (split, alone):
        answer = g.call(TGIS + "Generate", {"requests": [{"text": ONCE}] * 16, "params": {"stopping": {**LONG["stopping"], "time_limit_millis": 300}}})
        reasons = {r.stop_reason for r in answer.responses}
        assert reasons <= {1, 4} and (4 in reasons or all(r.generated_token_count == 500 for r in answer.responses))


# ---- TLS and keys
def test_over_tls_with_a_key(tls_pair, tls_whole, pki):
    for base in (tls_pair.base, tls_whole.base):
        with Grpc(base, pki) as g:
            assert g.call(TGIS + "Generate", TEXTS[0]).responses[0].text == " there lived a king who had"
            assert len(list(g.call(TGIS + "GenerateStream", {"request": {"text": ONCE}, "params": SIX}))) == 7
            g.metadata = ()
            assert g.call(HEALTH + "Check", {}).status == 1  # probes have no key
            assert g.refusal(TGIS + "Generate", TEXTS[0]) == \
                (grpc.StatusCode.UNAUTHENTICATED, "No API key was given. Send it as Authorization: Bearer KEY.")
            g.metadata = (("authorization", "Bearer wrong"),)
            assert g.refusal(TGIS + "ModelInfo", {})[0] == grpc.StatusCode.UNAUTHENTICATED
