"""Goal: Caikit's text generation, tokens and information (kserve-runtimes 3, 4, 6) over REST and gRPC, on a coordinator and on an instance alone:
the same words in both, its own errors by kind and by value, its events, and what it says of its models.
Method: what caikit-nlp-client sends, made by hand: JSON bodies, its parser of event lines, reflection v1alpha by its four symbols.
"""
import json

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_client import make, message, shown
from harness import ANSWER_S, get, post, request

ONCE = "Once upon a time"
KING = " there lived a king who had"
NLP, INFO = "/caikit.runtime.Nlp.NlpService/", "/caikit.runtime.info.InfoService/"
TEXT, STREAM = "/api/v1/task/text-generation", "/api/v1/task/server-streaming-text-generation"
MODEL = (("mm-model-id", "fable"),)
SIX = {"max_new_tokens": 6}
ALL = {"input_tokens": True, "generated_tokens": True, "token_logprobs": True, "token_ranks": True}
PRODUCER = {"name": "Text Generation", "version": "0.1.0"}


def body(inputs=ONCE, model_id="fable", **parameters):
    return {"model_id": model_id, "inputs": inputs, "parameters": parameters}


def events(a):
    """As caikit-nlp-client reads lines: event names it knows, and the objects of data lines."""
    assert a.status == 200 and a.headers["Content-Type"].startswith("text/event-stream"), a.text
    out, names = [], []
    for line in a.text.split("\r\n"):
        if line.startswith("event: "):
            names.append(line[7:])
        elif line.startswith("data: "):
            out.append(json.loads(line[6:]))
        else:
            assert line == "" or line.startswith(":"), line
    assert len(names) == len(out) and set(names) <= {"message", "error"}
    return list(zip(names, out))


ASKED = [
    SIX,
    {},
    {**SIX, **ALL},
    {**SIX, "preserve_input_text": True},
    {**SIX, "decoding_method": "SAMPLING", "seed": 7, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "typical_p": 0.95},
    {"max_new_tokens": 40, "stop_sequences": ["."]},
    {"max_new_tokens": 40, "stop_sequences": ["."], "include_stop_sequence": False},
    {"max_new_tokens": 100, "exponential_decay_length_penalty": {"start_index": 3, "decay_factor": 2.0}},
    {**SIX, "min_new_tokens": 6, "repetition_penalty": 1.3, "truncate_input_tokens": 3, "input_tokens": True},
    {**SIX, "decoding_method": "GREEDY", "temperature": 1, "top_k": 0, "top_p": 1.0, "seed": None, "max_time": 60.0},
]


@pytest.mark.parametrize("parameters", ASKED, ids=range(len(ASKED)))
def test_the_same_everywhere(pair, whole, split, alone, parameters):
    """Split is whole, a stream says what an answer says, gRPC what REST says."""
    a, b = (post(x.base, TEXT, body(**parameters)) for x in (pair, whole))
    assert a.status == 200 and a.body == b.body, a.text
    one = a.json
    assert list(one) == ["generated_text", "generated_tokens", "finish_reason", "producer_id", "input_token_count", "seed", "tokens", "input_tokens"]
    assert one["producer_id"] == PRODUCER and one["seed"] == parameters.get("seed")
    assert len(one["tokens"]) == (one["generated_tokens"] if parameters.get("generated_tokens") else 0)
    c, d = (post(x.base, STREAM, body(**parameters)) for x in (pair, whole))
    assert c.body == d.body
    told = events(c)
    assert {name for name, _ in told} == {"message"}
    pieces = [p for _, p in told]
    first, last = pieces[0], pieces[-1]
    assert list(first) == ["generated_text", "tokens", "details", "producer_id", "input_tokens"]
    assert first["details"] == {"finish_reason": "NOT_FINISHED", "generated_tokens": 0, "seed": one["seed"], "input_token_count": one["input_token_count"]}
    assert first["input_tokens"] == one["input_tokens"] and "".join(p["generated_text"] for p in pieces) == one["generated_text"]
    assert [t for p in pieces for t in p["tokens"]] == one["tokens"]
    assert (last["details"]["finish_reason"], last["details"]["generated_tokens"]) == (one["finish_reason"], one["generated_tokens"])
    asked = {"text": ONCE, **{k: v for k, v in parameters.items() if v is not None}}
    e, f = (g.call(NLP + "TextGenerationTaskPredict", asked, metadata=MODEL) for g in (split, alone))
    assert e.SerializeToString(deterministic=True) == f.SerializeToString(deterministic=True)
    assert e == make("caikit_data_model.nlp.GeneratedTextResult", {k: v for k, v in one.items() if v is not None})
    g, h = (list(x.call(NLP + "ServerStreamingTextGenerationTaskPredict", asked, metadata=MODEL)) for x in (split, alone))
    assert g == h and "".join(p.generated_text for p in g) == one["generated_text"] and g[-1].details.finish_reason == e.finish_reason


def test_what_an_answer_says(pair):
    def one(**parameters):
        return post(pair.base, TEXT, body(**parameters)).json
    assert one(**SIX) == {"generated_text": KING, "generated_tokens": 6, "finish_reason": "MAX_TOKENS", "producer_id": PRODUCER, "input_token_count": 5,
                          "seed": None, "tokens": [], "input_tokens": []}
    assert one()["generated_tokens"] == 20 and one(**SIX, preserve_input_text=True)["generated_text"] == ONCE + KING
    listed = one(**SIX, **ALL)
    assert listed["tokens"][0]["text"] == "Ġthere" and listed["tokens"][0]["rank"] == 1 and listed["tokens"][0]["logprob"] < 0
    assert len(listed["input_tokens"]) == 5 and one(**SIX, generated_tokens=True)["tokens"][0] == {"text": "Ġthere", "logprob": 0.0, "rank": 0}
    assert one(**{**SIX, "max_new_tokens": 40, "stop_sequences": ["."]})["finish_reason"] == "STOP_SEQUENCE"


VALUES = [  # 400
    ({"max_new_tokens": 3, "min_new_tokens": 4}, "min_new_tokens must be <= max_new_tokens"),
    ({"max_new_tokens": -1}, "max_new_tokens must be >= 0"),
    ({"max_new_tokens": 100000}, "max_new_tokens must be <= 512"),
    ({"decoding_method": "BEAM"}, "decoding_method must be GREEDY or SAMPLING"),
    ({"temperature": 0.7}, "sampling parameters (temperature/top_k/top_p/typical_p/seed) are not applicable in greedy mode"),
    ({"seed": 3}, "sampling parameters (temperature/top_k/top_p/typical_p/seed) are not applicable in greedy mode"),
    ({"decoding_method": "SAMPLING", "temperature": 0.01}, "temperature must be >= 0.05"),
    ({"decoding_method": "SAMPLING", "top_p": 1.5}, "top_p must be > 0.0 and <= 1.0"),
    ({"decoding_method": "SAMPLING", "top_p": 0}, "top_p must be > 0.0 and <= 1.0"),
    ({"decoding_method": "SAMPLING", "typical_p": 1.5}, "typical_p must be <= 1.0"),
    ({"repetition_penalty": 0}, "repetition_penalty must be > 0.0"),
    ({"max_time": 0}, "max_time must be > 0.0 and <= 4000000.0 seconds"),
    ({"exponential_decay_length_penalty": {"start_index": 1, "decay_factor": 11.0}}, "length_penalty must be >= 1.0 and <= 10.0"),
    ({"stop_sequences": list("abcdefg")}, "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"),
    ({"token_ranks": True}, "must request input and/or generated tokens to request extra token detail"),
]
KINDS = [  # 422
    {"max_new_tokens": "6"}, {"max_new_tokens": 1.5}, {"temperature": True}, {"preserve_input_text": 1}, {"stop_sequences": "."}, {"stop_sequences": [1]},
    {"decoding_method": 1}, {"nothing": 1}, {"exponential_decay_length_penalty": {"start_index": "x"}}, {"exponential_decay_length_penalty": {"x": 1}},
]


def refused(a, status, text=None):
    assert a.status == status and a.json["code"] == status and len(a.json["id"]) == 32, a.text
    assert text is None or a.json["details"] == text, a.text
    return True


def test_refusals(pair, whole, split):
    for base in (pair.base, whole.base):
        for parameters, text in VALUES:
            refused(post(base, TEXT, body(**parameters)), 400, text)
            [(name, error)] = events(post(base, STREAM, body(**parameters)))
            assert name == "error" and (error["code"], error["details"]) == (400, text)
        for parameters in KINDS:
            for path in (TEXT, STREAM):
                a = post(base, path, body(**parameters))
                assert refused(a, 422) and a.json["additional_info"][0]["loc"] == list(parameters) and a.json["additional_info"][0]["msg"] == a.json["details"]
        for path in (TEXT, STREAM, "/api/v1/task/tokenization"):
            assert refused(post(base, path, {**body(), "x": 1}), 422, "Extra inputs are not permitted")
            assert refused(request(base + path, "POST", b"{no"), 422)
            assert refused(post(base, path, {**body(), "inputs": ["a"]}), 422)
        for wrong, status, text in (({"inputs": ONCE}, 400, "Please provide model_id in payload"), (body(model_id="x"), 404, "Model 'x' not loaded"),
                                    ({"model_id": "fable"}, 400, None), (body(inputs="Once " * 2000), 400, "input tokens (4001) plus prefix length (0) must be < 1024")):
            refused(post(base, TEXT, wrong), status, text)
            [(name, error)] = events(post(base, STREAM, wrong))
            assert name == "error" and error["code"] == status and (text is None or error["details"] == text)
    for parameters, text in VALUES:
        for method in ("TextGenerationTaskPredict", "ServerStreamingTextGenerationTaskPredict"):
            assert split.refusal(NLP + method, {"text": ONCE, **parameters}, metadata=MODEL) == (grpc.StatusCode.INVALID_ARGUMENT, text)
    assert split.refusal(NLP + "TextGenerationTaskPredict", {"text": ONCE}) == (grpc.StatusCode.INVALID_ARGUMENT, "Please provide model_id in payload")
    assert split.refusal(NLP + "TextGenerationTaskPredict", {"text": ONCE}, metadata=(("mm-model-id", "x"),)) == (grpc.StatusCode.NOT_FOUND, "Model 'x' not loaded")
    with pytest.raises(grpc.RpcError) as e:
        split.channel.unary_unary(NLP + "TokenClassificationTaskPredict")(b"", timeout=ANSWER_S)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_tokenization(pair, whole, split, alone):
    for text in (ONCE, "hé llo \U0001f600", ""):
        a, b = (post(x.base, "/api/v1/task/tokenization", {"model_id": "fable", "inputs": text}) for x in (pair, whole))
        assert a.status == 200 and a.body == b.body, a.text
        assert a.json["token_count"] == len(a.json["results"]) and "".join(t["text"] for t in a.json["results"]) == text
        assert all(text[t["start"]:t["end"]] == t["text"] for t in a.json["results"])
        for g in (split, alone):
            assert g.call(NLP + "TokenizationTaskPredict", {"text": text}, metadata=MODEL) == make("caikit_data_model.nlp.TokenizationResults", a.json)


def test_information(pair, whole, split, alone):
    for base, g in ((pair.base, split), (whole.base, alone)):
        runtime = get(base, "/info/version").json
        assert runtime == get(base, "/info/runtime").json and set(runtime["python_packages"]) == {"caikit", "caikit_nlp"}
        assert shown(g.call(INFO + "GetRuntimeInfo", {}))["python_packages"] == runtime["python_packages"]
        models = get(base, "/info/models").json
        assert models == get(base, "/info/models?model_ids=fable&model_ids=f%61ble").json and len(models["models"]) == 1
        one = models["models"][0]
        assert one["name"] == "fable" and one["loaded"] is True and one["metadata"]["max_seq_length"] == 1024 and one["model_path"] and one["size"] > 1 << 20
        assert one["module_id"] and one["module_metadata"] == PRODUCER
        assert g.call(INFO + "GetModelsInfo", {}) == g.call(INFO + "GetModelsInfo", {"model_ids": ["fable"]}) == \
            make("caikit_data_model.common.runtime.ModelInfoResponse", models)
        for known in (1, 80):
            refused(get(base, "/info/models?" + "model_ids=fable&" * known + "model_ids=x"), 404, "Model x is not loaded")
        assert g.refusal(INFO + "GetModelsInfo", {"model_ids": ["x"]}) == (grpc.StatusCode.NOT_FOUND, "Model x is not loaded")


def test_a_client_finds_its_symbols_and_its_parameters(pair, split):
    """caikit-nlp-client: four symbols by v1alpha, parameters by /openapi.json."""
    kind = message("grpc.reflection.v1alpha.ServerReflectionResponse")
    ask = split.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None, kind.FromString)
    symbols = ["caikit.runtime.Nlp.TextGenerationTaskRequest", "caikit.runtime.Nlp.ServerStreamingTextGenerationTaskRequest",
               "caikit_data_model.nlp.GeneratedTextResult", "caikit.runtime.info.InfoService"]
    for symbol, answer in zip(symbols, ask(iter([make("grpc.reflection.v1alpha.ServerReflectionRequest", {"file_containing_symbol": s}).SerializeToString()
                                                 for s in symbols]), timeout=ANSWER_S)):
        f = descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
        assert symbol.rsplit(".", 1)[1] in [m.name for m in f.message_type] + [s.name for s in f.service]
    doc = get(pair.base, "/openapi.json").json
    properties = doc["paths"][TEXT]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    name = properties["parameters"]["allOf"][0]["$ref"].rsplit("/", 1)[1]
    parameters = doc["components"]["schemas"][name]["properties"]
    fields = {f.name for f in message("caikit.runtime.Nlp.TextGenerationTaskRequest").DESCRIPTOR.fields}
    assert set(parameters) == fields - {"text"} and all("type" in p or "allOf" in p for p in parameters.values())
