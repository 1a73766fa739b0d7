"""Goal: inference.GRPCInferenceService (kserve-runtimes 8.5, 8.7, 11) serves Triton's clients on a coordinator and on an instance alone: probes,
metadata, tensors typed and raw by every name, extra outputs, several requests on one stream; a split answer is the one of one instance.
Method: python3-grpcio; what tritonclient sends (raw tensors, int64 and double parameters) made by hand; golden vectors of 16 as bytes.
"""
import json
import queue
import struct

import grpc
import pytest
from grpc_client import Grpc, make, message, shown
from harness import ANSWER_S, post, wait_for

SERVICE = "/inference.GRPCInferenceService/"
ONCE = "Once upon a time"
KING = " there lived a king who had"


def strings(*texts):
    return b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)


def unpacked(raw):
    out = []
    while raw:
        n = struct.unpack("<I", raw[:4])[0]
        out.append(raw[4:4 + n].decode())
        raw = raw[4 + n:]
    return out


RAW = {"BYTES": strings, "INT32": lambda *v: struct.pack(f"<{len(v)}i", *v), "INT64": lambda *v: struct.pack(f"<{len(v)}q", *v),
       "UINT32": lambda *v: struct.pack(f"<{len(v)}I", *v), "UINT64": lambda *v: struct.pack(f"<{len(v)}Q", *v),
       "FP32": lambda *v: struct.pack(f"<{len(v)}f", *v), "FP64": lambda *v: struct.pack(f"<{len(v)}d", *v), "BOOL": lambda *v: bytes(v)}
TYPED = {"BYTES": "bytes_contents", "INT32": "int_contents", "INT64": "int64_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
         "FP32": "fp32_contents", "FP64": "fp64_contents", "BOOL": "bool_contents"}


def infer(*tensors, outputs=(), typed=False, parameters=None, shapes=None, **more):
    """A ModelInferRequest of (name, datatype, values..); greedy where nothing is said."""
    m = message("inference.ModelInferRequest")(model_name="fable", **more)
    if not {"temperature", "sampling_parameters"} & {t[0] for t in tensors}:
        parameters = {"temperature": 0.0, **(parameters or {})}
    for k, v in (parameters or {}).items():
        setattr(m.parameters[k], {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(v)], v)
    for i, (name, kind, *values) in enumerate(tensors):
        t = m.inputs.add(name=name, datatype=kind, shape=(shapes or {}).get(name, [len(values)]))
        if typed:
            getattr(t.contents, TYPED[kind]).extend([v.encode() for v in values] if kind == "BYTES" else values)
        else:
            m.raw_input_contents.append(RAW[kind](*values))
    for o in outputs:
        m.outputs.add(name=o)
    return m


def text(*prompts, **kw):
    return infer(("text_input", "BYTES", *prompts), **kw)


def out(answer, name="text_output"):
    """The values of an output; its bytes are raw, as tritonclient reads them."""
    assert len(answer.outputs) == len(answer.raw_output_contents) and not any(o.HasField("contents") for o in answer.outputs)
    for o, raw in zip(answer.outputs, answer.raw_output_contents):
        if o.name != name:
            continue
        n = 1
        for d in o.shape:
            n *= d
        if o.datatype == "BYTES":
            values = unpacked(raw)
        else:
            code = {"INT32": "i", "INT64": "q", "UINT32": "I", "UINT64": "Q", "FP32": "f"}[o.datatype]
            values = list(struct.unpack(f"<{n}{code}", raw))
        assert len(values) == n
        return values
    raise AssertionError(f"no output {name} in {shown(answer)}")


def stream(g, *requests, **kw):
    """The answers to requests on one call, in the order in which they came."""
    call = g.channel.stream_stream(SERVICE + "ModelStreamInfer", None, message("inference.ModelStreamInferResponse").FromString)
    return list(call(iter([r.SerializeToString() for r in requests]), timeout=ANSWER_S, metadata=g.metadata, **kw))


SIX = {"max_tokens": 6}


# ---- probes and metadata
def test_probes_and_metadata(split, alone):
    for g in (split, alone):
        assert g.call(SERVICE + "ServerLive", {}).live and g.call(SERVICE + "ServerReady", {}).ready
        assert g.call(SERVICE + "ModelReady", {"name": "fable"}).ready and not g.call(SERVICE + "ModelReady", {"name": "x"}).ready
        assert [g.call(SERVICE + "ModelReady", {"name": n, "version": v}).ready for n, v in (("fable", "1"), ("fable", "7"), ("fable\0x", ""))] == [True, False, False]
        about = g.call(SERVICE + "ModelMetadata", {"name": "fable", "version": "1"})
        assert list(about.versions) == ["1"] and "text_input" in [t.name for t in about.inputs] and about.outputs[0].shape == [-1]
        config = g.call(SERVICE + "ModelConfig", {"name": "fable"}).config
        assert config.model_transaction_policy.decoupled and config.input[0].data_type == 13 and config.version_policy.latest.num_versions == 1
        assert "parameters" in g.call(SERVICE + "ServerMetadata", {}).extensions
        assert [(m.name, m.state) for m in g.call(SERVICE + "RepositoryIndex", {}).models] == [("fable", "READY")]
        g.call(SERVICE + "RepositoryModelLoad", {"model_name": "fable"})
        for name in ("SystemSharedMemoryStatus", "CudaSharedMemoryStatus"):
            assert not g.call(SERVICE + name, {}).regions
        assert g.refusal(SERVICE + "ModelMetadata", {"name": "fable\0x"})[0] == grpc.StatusCode.NOT_FOUND
        for name, body in (("ModelMetadata", {"name": "x"}), ("ModelConfig", {"name": "x"})):
            assert g.refusal(SERVICE + name, body) == (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found")
        assert g.refusal(SERVICE + "ModelMetadata", {"name": "fable", "version": "7"}) == \
            (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'fable' version 7 is not found")
        with pytest.raises(grpc.RpcError) as e:
            g.channel.unary_unary(SERVICE + "Nothing")(b"", timeout=ANSWER_S)
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_what_is_loaded_stays(split, alone, pair, whole):
    """Over gRPC in the words of REST, whose 400 is INVALID_ARGUMENT."""
    for g, s in ((split, pair), (alone, whole)):
        for what, name in (("Load", "nope"), ("Load", "fable\0x"), ("Unload", "nope"), ("Unload", "fable"), ("Unload", "")):
            code, text = g.refusal(SERVICE + "RepositoryModel" + what, {"model_name": name})
            assert code == grpc.StatusCode.INVALID_ARGUMENT and text.startswith(f"failed to {what.lower()} '{name.split(chr(0))[0]}': ")
            if name.isalpha():
                a = post(s.base, f"/v2/repository/models/{name}/{what.lower()}", {})
                assert (a.status, a.json["error"]) == (400, text)
        assert g.call(SERVICE + "ModelReady", {"name": "fable"}).ready


def test_what_is_refused_says_why(split, alone, whole):
    setting = {"settings": {"trace_level": {"value": ["TIMESTAMPS"]}}}
    for name, body, path in (("TraceSetting", setting, "/v2/trace/setting"), ("TraceSetting", {}, "/v2/trace/setting"),
                             ("LogSettings", {"settings": {"log_verbose_level": {"uint32_param": 1}}}, "/v2/logging"),
                             ("SystemSharedMemoryRegister", {"name": "a", "key": "/a", "byte_size": 8}, "/v2/systemsharedmemory/region/a/register"),
                             ("SystemSharedMemoryUnregister", {}, "/v2/systemsharedmemory/unregister"),
                             ("CudaSharedMemoryRegister", {"name": "a", "byte_size": 8}, "/v2/cudasharedmemory/region/a/register"),
                             ("CudaSharedMemoryUnregister", {"name": "a"}, "/v2/cudasharedmemory/region/a/unregister")):
        a = post(whole.base, path, {})
        assert a.status == 501 and "not supported" in a.json["error"]
        for g in (split, alone):
            assert g.refusal(SERVICE + name, body) == (grpc.StatusCode.UNIMPLEMENTED, a.json["error"])


def test_probes_need_no_key(tls_pair, pki):
    with Grpc(tls_pair.base, pki) as g:
        assert out(g.call(SERVICE + "ModelInfer", text(ONCE, parameters=SIX))) == [KING]
        assert "".join(out(a.infer_response)[0] for a in stream(g, text(ONCE, parameters={**SIX, "stream": True}))) == KING
        g.metadata = ()
        assert g.call(SERVICE + "ServerLive", {}).live and g.call(SERVICE + "ServerReady", {}).ready
        assert g.refusal(SERVICE + "ModelInfer", text(ONCE))[0] == grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as e:
            stream(g, text(ONCE))
        assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED


# ---- one answer
IDS = [128000, 12805, 5304]
ANSWERED = {
    "text": text(ONCE, parameters=SIX),
    "sixteen tokens": text(ONCE),
    "typed": text(ONCE, typed=True, parameters=SIX, id="an id/1"),
    "a batch": text(ONCE, "The cat", "hé \U0001f600", parameters=SIX),
    "options as tensors": infer(("prompt", "BYTES", ONCE), ("request_output_len", "INT32", 6), ("runtime_top_k", "INT64", 20), ("runtime_top_p", "FP32", 0.9),
                                ("temperature", "FP64", 0.8), ("random_seed", "UINT64", 7), ("repetition_penalty", "FP32", 1.2), ("pad_id", "INT32", 0)),
    "options in a text": infer(("text_input", "BYTES", ONCE), ("sampling_parameters", "BYTES", json.dumps({"max_tokens": 6, "temperature": 0.8, "seed": 7})),
                               ("exclude_input_in_output", "BOOL", False)),
    "stop": infer(("text_input", "BYTES", ONCE), ("stop_words", "BYTES", ".", "!"), ("max_tokens", "INT32", 40)),
    "an unknown name": infer(("my_text", "BYTES", ONCE), parameters=SIX),
    "another output": text(ONCE, outputs=["answer", "finish_reason"], parameters=SIX),
    "all outputs": text(ONCE, outputs=["text_output", "finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"], parameters=SIX),
    "two answers": text(ONCE, parameters={**SIX, "n": 2, "temperature": 1.2, "seed": 3}),
    "guided": text("Is it?", parameters={**SIX, "guided_regex": "[0-9]{3}"}),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_split_is_whole(split, alone, name):
    a, b = (g.call(SERVICE + "ModelInfer", ANSWERED[name]) for g in (split, alone))
    assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
    assert (a.model_name, a.model_version, a.id) == ("fable", "1", ANSWERED[name].id) and not a.parameters


def test_what_an_answer_says(split):
    def one(request, name="text_output"):
        return out(split.call(SERVICE + "ModelInfer", request), name)
    assert one(ANSWERED["text"]) == one(ANSWERED["typed"]) == one(ANSWERED["an unknown name"]) == one(ANSWERED["another output"], "answer") == [KING]
    assert len(one(ANSWERED["a batch"])) == 3 and one(ANSWERED["a batch"])[0] == KING
    assert one(ANSWERED["options in a text"])[0].startswith(ONCE)
    assert one(ANSWERED["another output"], "finish_reason") == ["length"]
    assert one(ANSWERED["stop"])[0][-1:] not in ".!" and len(one(ANSWERED["two answers"])) == 2
    assert one(ANSWERED["guided"])[0].isdigit()
    every = split.call(SERVICE + "ModelInfer", ANSWERED["all outputs"])
    assert out(every, "num_input_tokens") == [5] and out(every, "num_output_tokens") == [6] and out(every, "finish_reason") == ["length"]
    told = json.loads(out(every, "logprobs")[0])
    assert len(told) == 6 and "".join(next(iter(t.values()))["decoded_token"] for t in told) == KING
    assert out(every, "cumulative_logprob")[0] == pytest.approx(sum(next(iter(t.values()))["logprob"] for t in told), rel=1e-5)


@pytest.mark.parametrize("kind", ["INT64", "INT32", "UINT64", "UINT32"])
def test_ids_are_answered_with_ids_of_their_type(split, alone, pair, kind):
    ids = post(pair.base, "/tokenize", {"model": "fable", "prompt": ONCE}).json["tokens"]
    request = infer(("input_ids", kind, *ids), ("attention_mask", "INT64", *[1] * len(ids)), shapes={"input_ids": [1, len(ids)]}, parameters=SIX)
    answers = [g.call(SERVICE + "ModelInfer", request) for g in (split, alone)]
    assert answers[0] == answers[1] and answers[0].outputs[0].datatype == kind and list(answers[0].outputs[0].shape) == [1, 6]
    made = post(pair.base, "/detokenize", {"model": "fable", "tokens": out(answers[0], "output_ids")}).json["prompt"]
    assert made.strip() == KING.strip()


REFUSED = {
    "there is no such model": (make("inference.ModelInferRequest", {"model_name": "x"}), grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found"),
    "no input": (infer(), None, "model 'fable' expects 1 to 64 inference inputs"),
    "no prompt": (infer(("temperature", "FP32", 1)), None, "expected inference input 'text_input' or 'input_ids' for model 'fable'"),
    "an unknown input": (infer(("text_input", "BYTES", ONCE), ("nothing", "FP32", 1)), None, "unexpected inference input 'nothing' for model 'fable'"),
    "two prompts": (infer(("text_input", "BYTES", ONCE), ("prompt", "BYTES", ONCE)), None, "unexpected inference input 'prompt' for model 'fable'"),
    "a shape that lies": (text(ONCE, shapes={"text_input": [2]}), None, "inference input 'text_input': the raw bytes have another number"),
    "a type that lies": (infer(("text_input", "INT32", 1)), None, "inference input 'text_input' for model 'fable' has the wrong datatype"),
    "a reserved parameter": (text(ONCE, parameters={"triton_x": True}), None, "parameter keys starting with 'triton_' are reserved"),
    "a stream that is none": (text(ONCE, parameters={"stream": True}), None, "stream must be false here"),
    "a value": (text(ONCE, parameters={"top_p": 1.5}), None, "Parameter top_p must be in"),
    "beams": (text(ONCE, parameters={"beam_width": 4}), None, "beam_width must be 1"),
    "an unknown member": (infer(("text_input", "BYTES", ONCE), ("sampling_parameters", "BYTES", '{"x":1}')), None, "sampling_parameters: unexpected member 'x'"),
    "too long": (text("Once " * 2000), None, "the prompt has 4001 tokens, the model takes at most"),
    "an unknown output": (text(ONCE, outputs=["a", "b"]), None, "unexpected inference output 'b'"),
    "no data": (make("inference.ModelInferRequest", {"model_name": "fable", "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": ["1"]}]}), None,
                "unable to find data for input tensor 'text_input' for model 'fable' in request."),
    "data of another type": (make("inference.ModelInferRequest", {"model_name": "fable", "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": ["1"], "contents": {"int_contents": [1]}}]}), None,
        "inference input 'text_input': contents of BYTES must be in bytes_contents"),
    "both": (make("inference.ModelInferRequest", {"model_name": "fable", "raw_input_contents": ["AAAAAA=="], "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": ["1"], "contents": {"bytes_contents": ["aGk="]}}]}), None,
        "contents field must not be specified when using raw_input_contents for 'text_input' for model 'fable'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(split, alone, name):
    request, status, want = REFUSED[name]
    for g in (split, alone):
        code, said = g.refusal(SERVICE + "ModelInfer", request)
        assert code == (status or grpc.StatusCode.INVALID_ARGUMENT) and said.startswith(want), said
        failed = stream(g, request) if "stream" not in name else []
        for a in failed:  # and the stream ends well
            assert a.error_message == said and not a.infer_response.outputs


# ---- streams
def final(a):
    return a.infer_response.parameters["triton_final_response"].bool_param


def test_a_stream_of_one(split, alone):
    for parameters in ({**SIX, "stream": True}, {**SIX, "stream": True, "temperature": 0.9, "seed": 4}):
        request = text(ONCE, parameters=parameters, id="r1", outputs=["text_output", "num_output_tokens"])
        a, b = stream(split, request), stream(alone, request)
        assert a == b and len(a) >= 2 and {x.infer_response.id for x in a} == {"r1"}
        assert [final(x) for x in a] == [False] * (len(a) - 1) + [True] and not any(x.error_message for x in a)
        assert sum(out(x.infer_response, "num_output_tokens")[0] for x in a) == 6
        whole = out(split.call(SERVICE + "ModelInfer", text(ONCE, parameters={k: v for k, v in parameters.items() if k != "stream"})))
        assert ["".join(out(x.infer_response)[0] for x in a)] == whole


def test_the_last_may_be_empty(split, alone):
    for g in (split, alone):
        for many in (True, False):
            a = stream(g, text(ONCE, parameters={**SIX, "stream": many, "triton_enable_empty_final_response": True}))
            assert "".join(out(x.infer_response)[0] for x in a[:-1]) == KING and not a[-1].infer_response.outputs
            assert [final(x) for x in a] == [False] * (len(a) - 1) + [True] and (len(a) == 2) == (not many)


def test_without_stream_it_is_one_piece(split, alone):
    a = stream(split, text(ONCE, "The cat", parameters=SIX))
    assert a == stream(alone, text(ONCE, "The cat", parameters=SIX)) and len(a) == 1 and final(a[0]) and len(out(a[0].infer_response)) == 2


def test_many_requests_on_one_stream(split, alone):
    """Each by its id what it is alone; one that is refused says so, and the others go on."""
    def told(g):
        requests = [text(f"Once upon a {w}", id=f"r{i}", parameters={**SIX, "stream": True}) for i, w in enumerate(["time", "hill", "day", "king"] * 10)]
        requests.insert(3, text(ONCE, id="bad", parameters={"top_p": 2.0}))
        by_id, refused = {}, []
        for a in stream(g, *requests):
            i = a.infer_response.id
            if a.error_message:
                refused.append(i)
            else:
                by_id[i] = by_id.get(i, "") + out(a.infer_response)[0]
        assert refused == ["bad"] and len(by_id) == 40
        return by_id
    a = told(split)
    assert a == told(alone) and a["r0"] == KING and all(a[f"r{i}"] == a[f"r{i % 4}"] for i in range(40))


def test_an_answer_comes_while_the_client_still_asks(split):
    asked = queue.Queue()
    call = split.channel.stream_stream(SERVICE + "ModelStreamInfer", None, message("inference.ModelStreamInferResponse").FromString)(iter(asked.get, None), timeout=ANSWER_S)
    for i in range(3):
        asked.put(text(ONCE, id=str(i), parameters=SIX).SerializeToString())
        a = next(call)
        assert a.infer_response.id == str(i) and out(a.infer_response) == [KING]
    asked.put(None)
    assert list(call) == [] and call.code() == grpc.StatusCode.OK


def test_a_client_who_leaves_ends_all_its_requests(pair, split):
    call = split.channel.stream_stream(SERVICE + "ModelStreamInfer", None, None)
    long = [text(ONCE, parameters={"max_tokens": 500, "min_tokens": 500, "stream": True}).SerializeToString()] * 8
    running = call(iter(long), timeout=ANSWER_S)
    next(running)
    running.cancel()
    wait_for(lambda: all(i.load()[2:] == (0, 0, 0) for i in pair.prefills + pair.decodes), ANSWER_S, "nothing runs any more")


def test_golden_vectors(split):
    """What clients send and get, byte for byte (kserve-runtimes 16); the model there is "m"."""
    hi = bytes.fromhex("0a016d2a160a0a746578745f696e707574120542595445531a01013a06020000006869")
    assert split.refusal(SERVICE + "ModelInfer", hi) == (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
    ours = b"\x0a\x05fable" + hi[3:] + bytes.fromhex("22100a0a6d61785f746f6b656e7312021005")  # max_tokens 5
    answer = split.channel.unary_unary(SERVICE + "ModelInfer")(ours, timeout=ANSWER_S)
    said = unpacked(message("inference.ModelInferResponse").FromString(answer).raw_output_contents[0])[0].encode()
    raw = struct.pack("<I", len(said)) + said
    assert answer == b"\x0a\x05fable" + bytes.fromhex("1201312a170a0b746578745f6f7574707574120542595445531a0101") + b"\x32" + bytes([len(raw)]) + raw
    last = split.channel.stream_stream(SERVICE + "ModelStreamInfer")
    empty = list(last(iter([text("hi", parameters={"max_tokens": 1, "triton_enable_empty_final_response": True}).SerializeToString()]), timeout=ANSWER_S))[-1]
    assert empty == bytes([0x12, len(empty) - 2]) + b"\x0a\x05fable\x12\x011" + bytes.fromhex("221b0a15747269746f6e5f66696e616c5f726573706f6e736512020801")
