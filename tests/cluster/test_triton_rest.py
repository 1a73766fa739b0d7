"""Goal: POST /v2/models/{m}/infer is ModelInfer over REST (kserve-runtimes 8.2 to 8.7): the same tensors, as JSON and as bytes behind it, have the
answer that gRPC gives, on a cluster and on an instance alone.
Method: the requests of test_grpc_infer.py as bodies of REST in both forms, and what tritonclient sends, by hand.
"""
import gzip
import json
import struct

import pytest
from harness import get, post, request
from test_grpc_infer import ANSWERED, KING, ONCE, RAW, SERVICE, infer, out, strings, text, unpacked

INFER = "/v2/models/fable/infer"
HEADER = "Inference-Header-Content-Length"
CODES = {"INT32": "i", "INT64": "q", "UINT32": "I", "UINT64": "Q", "FP32": "f", "FP64": "d", "BOOL": "?"}


def values(kind, raw):
    return unpacked(raw) if kind == "BYTES" else list(struct.unpack(f"<{len(raw) // struct.calcsize(CODES[kind])}{CODES[kind]}", raw))


def bodies(m, binary):
    """A ModelInferRequest as (body, headers) of REST."""
    body = {"inputs": [], "parameters": {k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in m.parameters.items()}}
    tail = b""
    for i, t in enumerate(m.inputs):
        raw = m.raw_input_contents[i] if m.raw_input_contents else strings(*[v.decode() for v in t.contents.bytes_contents])
        one = {"name": t.name, "datatype": t.datatype, "shape": list(t.shape)}
        if binary:
            tail += raw
            one["parameters"] = {"binary_data_size": len(raw)}
        else:
            one["data"] = values(t.datatype, raw)
        body["inputs"].append(one)
    if m.id:
        body["id"] = m.id
    if m.outputs:
        body["outputs"] = [{"name": o.name, "parameters": {"binary_data": binary}} for o in m.outputs]
    elif binary:
        body["parameters"]["binary_data_output"] = True
    head = json.dumps(body).encode()
    return (head + tail, {HEADER: str(len(head))}) if binary else (head, {})


def outputs(answer, binary):
    """{name: values} of an answer; its bytes are all taken."""
    size = int(answer.headers[HEADER]) if binary else len(answer.body)
    assert (HEADER in answer.headers) == binary
    assert answer.headers["Content-Type"].startswith("application/octet-stream" if binary else "application/json")
    head, tail, said = json.loads(answer.body[:size]), answer.body[size:], {}
    assert (head["model_name"], head["model_version"]) == ("fable", "1")
    for o in head["outputs"]:
        if binary:
            n = o["parameters"]["binary_data_size"]
            said[o["name"]], tail = values(o["datatype"], tail[:n]), tail[n:]
        else:
            said[o["name"]] = o["data"]
        n = 1
        for d in o["shape"]:
            n *= d
        assert n == len(said[o["name"]])
    assert tail == b""
    return said


@pytest.mark.parametrize("binary", [False, True])
def test_rest_is_grpc(pair, whole, split, binary):
    for name, m in ANSWERED.items():
        of_grpc = split.call(SERVICE + "ModelInfer", m)
        body, headers = bodies(m, binary)
        a, b = (post(s.base, INFER, body, headers=headers) for s in (pair, whole))
        assert a.status == 200 and a.body == b.body, (name, a.text, b.text)
        said = outputs(a, binary)
        assert outputs(b, binary) == said
        for o in of_grpc.outputs:
            want = out(of_grpc, o.name)
            assert said[o.name] == (pytest.approx(want) if o.datatype == "FP32" else want), name


def test_what_tritonclient_sends(pair, whole):
    """Probes, then an inference whose body has no type, and whose bytes are the tensors'."""
    raw = strings(ONCE)
    head = json.dumps({"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}},
                                  {"name": "max_tokens", "shape": [1], "datatype": "INT32", "parameters": {"binary_data_size": 4}}],
                       "parameters": {"binary_data_output": True, "temperature": 0.0}}).encode()
    for s in (pair, whole):
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/fable/ready", "/v2/models/fable/versions/1/ready"):
            assert get(s.base, path).status == 200
        a = post(s.base, "/v2/models/fable/versions/1/infer", head + raw + RAW["INT32"](6), headers={HEADER: str(len(head))})
        assert outputs(a, True) == {"text_output": [KING]}
        plain = post(s.base, INFER, raw, headers={HEADER: "0"})
        assert plain.status == 200 and len(outputs(plain, True)["text_output"]) == 1
        curl = request(s.base + INFER, "POST", json.dumps({"model_name": "fable", "inputs": [
            {"name": "my_text", "shape": [1, 1], "datatype": "BYTES", "data": [[ONCE]]}], "parameters": {"max_tokens": 6, "temperature": 0.0}}).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert outputs(curl, False) == {"text_output": [KING]}


def test_outputs_are_those_that_are_named(pair, whole, split, alone):
    """Over gRPC, REST as JSON and as bytes; and of a stream."""
    m = text(ONCE, outputs=["finish_reason", "num_output_tokens"], parameters={"max_tokens": 5})
    want = {"finish_reason": ["length"], "num_output_tokens": [5]}
    for g, s in ((split, pair), (alone, whole)):
        a = g.call(SERVICE + "ModelInfer", m)
        assert {o.name: out(a, o.name) for o in a.outputs} == want
        for binary in (False, True):
            body, headers = bodies(m, binary)
            assert outputs(post(s.base, INFER, body, headers=headers), binary) == want


def test_a_seed_of_64_bits(pair, whole):
    """As raw bytes, as JSON and over gRPC the same seed draws the same text; over 2^63 too."""
    said = set()
    for seed in (2**63 + 11, 2**64 - 1):
        for s in (pair, whole):
            for binary in (False, True):
                m = infer(("text_input", "BYTES", ONCE), ("seed", "UINT64", seed), ("max_tokens", "INT32", 12), parameters={"temperature": 1.0})
                body, headers = bodies(m, binary)
                said.add((seed, outputs(post(s.base, INFER, body, headers=headers), binary)["text_output"][0]))
    assert len(said) == 2


def test_compressed_bodies_are_refused(pair, whole):
    body = gzip.compress(json.dumps({"text_input": ONCE}).encode())
    for s in (pair, whole):
        for path in ("infer", "generate", "generate_stream"):
            a = post(s.base, f"/v2/models/fable/{path}", body, headers={"Content-Encoding": "gzip"})
            assert (a.status, a.json["error"]) == (400, "Unsupported content-encoding, only 'identity' is supported.")


def test_refusals(pair, whole):
    for s in (pair, whole):
        for body, headers, status, want in (
                ({"inputs": [{"name": "nothing", "shape": [1], "datatype": "FP32", "data": [1]}]}, {}, 400, "unexpected inference input 'nothing' for model 'fable'"),
                (b"{}xx", {HEADER: "9"}, 400, HEADER + " must be 0 to the 4 bytes of the body, got '9'"),
                (b"{}", {HEADER: "2"}, 400, "model 'fable' expects 1 to 64 inference inputs, got 0"),
                ({"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}, {"name": "max_tokens", "shape": [1], "datatype": "INT"}]},
                 {}, 400, "inference input 'max_tokens': datatype 'INT' is none of those that are taken"),
                ({"inputs": [{"name": "input_ids", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]}]}, {}, 400,
                 "inference input 'input_ids' has ids of 2 prompts, one for each row of its shape: of ids one prompt is taken in a request, shape [n] or [1,n]"),
                ({"inputs": [{"name": "input0", "shape": [1], "datatype": "INT64", "data": [1]}]}, {}, 422, "Unsupported datatype, got INT64.")):
            a = post(s.base, INFER, body, headers=headers)
            assert (a.status, a.json["error"]) == (status, want)
        assert post(s.base, "/v2/models/nope/infer", b"xx", headers={HEADER: "0"}).status == 404
