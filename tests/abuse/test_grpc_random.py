"""Goal: whatever message a service of gRPC is sent, the call ends with a status that says what was wrong, and the daemons live on as before.
Method: random messages per service, by a seed that is printed: fields of the method's own message with values at and beyond their bounds, over a
good message or none; good ones with bytes flipped, cut, doubled; bytes without sense; compressed or not; one or several on a call that takes
many. python3-protobuf reads what is answered. BATON_SEED=N for another run, BATON_RANDOM=N for so many a service."""
import os
import random
import struct

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc_client import Grpc, make, message, pool
from harness import ANSWER_S, SLOW, in_threads

pytestmark = pytest.mark.filterwarnings("ignore:Unexpected end-group")
SEED = int(os.environ.get("BATON_SEED", 20261123))
WORKERS = 4
SERVICES = ["fmaas.GenerationService", "caikit.runtime.Nlp.NlpService", "caikit.runtime.info.InfoService", "inference.GRPCInferenceService",
            "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
MANY = ("ModelStreamInfer", "ServerReflectionInfo")  # their clients stream
S = grpc.StatusCode
REFUSALS = {S.INVALID_ARGUMENT, S.NOT_FOUND, S.RESOURCE_EXHAUSTED, S.UNIMPLEMENTED, S.FAILED_PRECONDITION}
INTS = [0, 1, 1, 2, 2, 3, 5, -1, 64, 511, 513, 2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**53, 2**63 - 1, -2**63, 2**64 - 1]
FLOATS = [0.0, 0.5, 1.0, 1.5, -1.0, 1e-9, 1e38, -1e38, 1e308, float("inf"), float("-inf"), float("nan")]
STRINGS = ["", "fable", "Once upon a time", "nope", "text_input", "text_output", "input_ids", "max_tokens", "temperature", "stream", "BYTES", "INT32", "FP32", "BOOL",
           "é" * 40, "\0", "\U0001f600", "%s%n", "../../etc/passwd", "a" * 3000, "[0-9]{2}", '{"type":"object"}', "\r\n", "generation.proto", "fmaas.GenerationService"]
BOUNDS = {"int32": (-2**31, 2**31 - 1), "int64": (-2**63, 2**63 - 1), "uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1)}
CPP = {1: "int32", 2: "int64", 3: "uint32", 4: "uint64"}
GOOD = {
    "fmaas.BatchedGenerationRequest": {"requests": [{"text": "Once"}], "params": {"stopping": {"max_new_tokens": 2}}},
    "fmaas.SingleGenerationRequest": {"request": {"text": "Once"}, "params": {"stopping": {"max_new_tokens": 2}}},
    "fmaas.BatchedTokenizeRequest": {"requests": [{"text": "Once"}], "return_tokens": True},
    "inference.ModelInferRequest": {"model_name": "fable", "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": ["T25jZQ=="]}}],
                                    "parameters": {"max_tokens": {"int64_param": "2"}}},
    "caikit.runtime.Nlp.TextGenerationTaskRequest": {"text": "Once", "max_new_tokens": 2},
    "caikit.runtime.Nlp.ServerStreamingTextGenerationTaskRequest": {"text": "Once", "max_new_tokens": 2},
}


def count(a_few, many):
    return int(os.environ.get("BATON_RANDOM", many if os.environ.get("ABUSE_SLOW") == "1" and SLOW == 1 else a_few))


def scalar(rnd, f):
    if f.enum_type is not None:
        return rnd.choice([v.number for v in f.enum_type.values] + [99, -1])
    if f.cpp_type in CPP:
        low, high = BOUNDS[CPP[f.cpp_type]]
        return rnd.choice([i for i in INTS if low <= i <= high])
    if f.cpp_type in (f.CPPTYPE_FLOAT, f.CPPTYPE_DOUBLE):
        return rnd.choice(FLOATS)
    if f.cpp_type == f.CPPTYPE_BOOL:
        return rnd.random() < 0.5
    if f.type == f.TYPE_BYTES:
        return rnd.choice([b"", b"\x04\0\0\0Once", struct.pack("<i", rnd.choice([0, 5, -1])), b"\xff\xff\xff\xff", rnd.randbytes(rnd.randrange(40))])
    return rnd.choice(STRINGS)


def fill(rnd, m, depth=0):
    """Some of the fields of a message, as deep as it goes and a little deeper."""
    for f in rnd.sample(list(m.DESCRIPTOR.fields), rnd.randrange(min(len(m.DESCRIPTOR.fields), 4) + 1)):
        is_message = f.cpp_type == f.CPPTYPE_MESSAGE
        if is_message and depth > 6:
            continue
        if f.label != f.LABEL_REPEATED:
            if is_message:
                getattr(m, f.name).SetInParent()
                fill(rnd, getattr(m, f.name), depth + 1)
            else:
                setattr(m, f.name, scalar(rnd, f))
        elif is_message and f.message_type.GetOptions().map_entry:
            key = scalar(rnd, f.message_type.fields_by_name["key"])
            value = f.message_type.fields_by_name["value"]
            if value.cpp_type == f.CPPTYPE_MESSAGE:
                fill(rnd, getattr(m, f.name)[key], depth + 1)
            else:
                getattr(m, f.name)[key] = scalar(rnd, value)
        else:
            for _ in range(rnd.choice([0, 1, 1, 2, 5, 70])):
                if is_message:
                    fill(rnd, getattr(m, f.name).add(), depth + 1)
                else:
                    getattr(m, f.name).append(scalar(rnd, f))


def damage(rnd, data):
    data = bytearray(data)
    for _ in range(rnd.randrange(1, 5)):
        at, kind = rnd.randrange(len(data) + 1), rnd.randrange(4)
        if kind == 0:
            data[at:at + 1] = bytes([rnd.randrange(256)])
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = data[:rnd.randrange(len(data) + 1)]
        else:
            data[at:at] = rnd.choice([b"\xff" * 10, b"\x0b", b"\x0a\xff\xff\xff\xff\x0f", b"\0", b"\xf8\x07\x01"])
    return bytes(data)


def sample(rnd, name):
    """The bytes of a message, and whether nothing was done to them."""
    kind = rnd.randrange(10)
    if kind == 0:
        return rnd.randbytes(rnd.choice([0, 1, 5, 60])), False
    m = make(name, GOOD.get(name, {}) if rnd.random() < 0.6 else {})
    fill(rnd, m)
    data = m.SerializeToString()
    return (damage(rnd, data), False) if kind < 4 else (data, True)


def is_message(name, data):
    try:
        return message(name)().ParseFromString(data) == len(data)
    except DecodeError:
        return False


def ends(g, method, requests, **how):
    """The status of a call, what it says, and the answers before. What has no end, Watch, is left behind its first answer."""
    path, answers = f"/{method.containing_service.full_name}/{method.name}", []
    try:
        if method.name in MANY:
            answers += g.channel.stream_stream(path)(iter(requests), timeout=ANSWER_S, **how)
        elif g.streams(path):
            call = g.channel.unary_stream(path)(requests[0], timeout=ANSWER_S, **how)
            for a in call:
                answers.append(a)
                if method.name == "Watch":
                    call.cancel()
                    break
        else:
            answers.append(g.channel.unary_unary(path)(requests[0], timeout=ANSWER_S, **how))
    except grpc.RpcError as e:
        return e.code(), e.details(), answers
    return S.OK, "", answers


def one(g, rnd, service):
    method = rnd.choice(pool().FindServiceByName(service).methods)
    name = method.input_type.full_name
    requests, good = zip(*[sample(rnd, name) for _ in range(rnd.choice([1, 1, 2, 5]) if method.name in MANY else 1)])
    gzip = grpc.Compression.Gzip if rnd.random() < 0.1 else None
    model = rnd.choice([(("mm-model-id", "fable"),)] * 4 + [(), (("mm-model-id", "nope"),)])
    status, said, answers = ends(g, method, requests, compression=gzip, metadata=model)
    told = f"BATON_SEED={SEED} {method.full_name} {model} {status} {said}: {[r.hex() for r in requests]} {[a.hex() for a in answers]}"
    # "byte N": what JSON cannot hold, as a key with a zero character
    unreadable = status == S.INTERNAL and (not all(good) or said.startswith("byte "))
    assert status == S.OK or ((status in REFUSALS or unreadable) and said.strip()), told
    assert all(is_message(method.output_type.full_name, a) for a in answers), told
    return status


def run(pair, service, n):
    """Several clients at once, each with its own numbers; how often each status came."""
    def client(i):
        rnd = random.Random(f"{SEED} {service} {i}")
        with Grpc(pair.base) as g:
            return [one(g, rnd, service) for _ in range(n // WORKERS)]
    seen = [s for part in in_threads([lambda i=i: client(i) for i in range(WORKERS)]) for s in part]
    print(f"{service}: BATON_SEED={SEED}", {s.name: seen.count(s) for s in sorted(set(seen), key=str)})
    return seen


@pytest.mark.parametrize("service", SERVICES)
def test_random_messages(pair, service):
    seen = run(pair, service, count(72, 5000))
    assert S.OK in seen and (S.INTERNAL in seen or S.INVALID_ARGUMENT in seen)
    assert all(d.process.poll() is None for d in pair.daemons)
    with Grpc(pair.base) as g:
        good = g.call("/fmaas.GenerationService/Generate", GOOD["fmaas.BatchedGenerationRequest"]).responses[0]
        assert good.generated_token_count == 2 and good.text
    pair.idle()
