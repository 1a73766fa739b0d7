"""Goal: calls of gRPC that are made to cost much cost little: compressed bombs, lengths that lie, messages that are deep or of countless parts, more
streams than there may be. The daemons stay up, answer others meanwhile, and keep no memory.
Method: python3-grpcio with bytes made by hand; the coordinator's and the instances' memory before and after.
"""
import gzip
import subprocess
import time
from contextlib import ExitStack

import grpc
import pytest
from attack import SANITIZER_MB, Peak, Prober
from grpc_client import Grpc, make
from h2_frames import H2, fields
from harness import SLOW, wait_for

GENERATE = "/fmaas.GenerationService/Generate"
RERANK = "/caikit.runtime.Nlp.NlpService/RerankTaskPredict"
GOOD = {"requests": [{"text": "Once upon a time"}], "params": {"stopping": {"max_new_tokens": 2}}}


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def deep(n):
    """A google.protobuf.Value of n lists in one another."""
    value = b"\x08\x00"
    for _ in range(n):
        value = field(6, field(1, value))
    return field(1, field(1, b"k") + field(2, value))  # an entry of a Struct


def rss_mib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) >> 10


def raw(base, path, body, *headers):
    r = subprocess.run(["curl", "-sv", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers", "--max-time", "30", *headers,
                        "--data-binary", "@-", base + path], input=body, capture_output=True, timeout=60 * SLOW)
    return [line[2:].rstrip() for line in r.stderr.decode().splitlines() if line.startswith("< grpc-status")]


ATTACKS = {
    "empty requests": (GENERATE, field(3, b"") * 1000000, b"\0", (), {3, 8}),
    "unknown fields": (GENERATE, b"\xf8\x07\x01" * 2000000, b"\0", (), {0}),  # no requests in it
    "a bomb": (GENERATE, gzip.compress(bytes(300 << 20), 9), b"\1", ("-H", "grpc-encoding: gzip"), {8}),
    "a bomb of requests": (GENERATE, gzip.compress(field(3, b"") * (3 << 20), 9), b"\1", ("-H", "grpc-encoding: gzip"), {3, 8}),
    "no gzip": (GENERATE, b"x" * 1000000, b"\1", ("-H", "grpc-encoding: gzip"), {13}),
    "deep": (RERANK, field(1, b"q") + field(2, deep(20000)), b"\0", ("-H", "mm-model-id: fable"), {8, 13}),
    "countless documents": (RERANK, field(1, b"q") + field(2, b"") * 1000000, b"\0", ("-H", "mm-model-id: fable"), {3, 8}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_message_that_is_made_to_cost(pair, name):
    path, message, flag, headers, statuses = ATTACKS[name]
    daemons = [pair.coordinator] + pair.prefills + pair.decodes
    before = [rss_mib(d) for d in daemons]
    began = time.monotonic()
    got = raw(pair.base, path, flag + len(message).to_bytes(4, "big") + message, *headers)
    assert got and int(got[0].split(": ")[1]) in statuses, got
    assert time.monotonic() - began < 10 * SLOW
    wait_for(lambda: all(rss_mib(d) < b + 200 for d, b in zip(daemons, before)), 5 * SLOW, "the memory is given back")
    with Grpc(pair.base) as g:
        assert g.call(GENERATE, GOOD).responses[0].generated_token_count == 2


def test_lengths_that_lie(pair):
    good = make("fmaas.BatchedGenerationRequest", GOOD).SerializeToString()
    for n in (0, len(good) - 1, len(good) + 1, 0xffffffff):
        assert raw(pair.base, GENERATE, b"\0" + n.to_bytes(4, "big") + good) == ["grpc-status: 13"], n
    assert raw(pair.base, GENERATE, b"\xff" * 1000) == ["grpc-status: 13"]


def test_watchers_without_end(pair):
    """Watch costs a stream and nothing else, and there are at most 256: more are refused, others are served, who leaves is forgotten."""
    watch = "/grpc.health.v1.Health/Watch"

    def another():
        with Grpc(pair.base) as g:
            with pytest.raises(grpc.RpcError) as e:
                list(g.call(watch, {}, timeout=0.5))
            return e.value.code()
    with ExitStack() as all_of_them:
        clients = [all_of_them.enter_context(Grpc(pair.base)) for _ in range(3)]
        watches = [clients[i % 3].call(watch, {}) for i in range(256)]
        assert all(next(w).status == 1 for w in watches)
        assert another() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert clients[0].call(GENERATE, GOOD).responses[0].generated_token_count == 2
        for w in watches:
            w.cancel()
    wait_for(lambda: another() == grpc.StatusCode.DEADLINE_EXCEEDED, 10, "who left is forgotten")


@pytest.mark.slow
def test_a_message_that_does_not_come(pair):
    """It has the time of a body, counted from its first byte; a call on which nothing comes at all stays."""
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with H2(pair.base) as c:
        for stream in (1, 3):
            c.head(stream, fields("POST", path, ("content-type", "application/grpc"), ("te", "trailers")), end=False)
        c.data(1, b"\0\0", end=False)
        assert c.answer(1)["trailers"]["grpc-status"] == "4"
        c.data(3, b"\0\0\0\0\3\x3a\1*")
        assert c.answer(3)["trailers"]["grpc-status"] == "0"


@pytest.mark.parametrize("http", ["--http2-prior-knowledge", "--http1.1"])
def test_many_small_questions_with_large_answers(pair, http):
    """A question of thirty bytes asks for files of thousands: no more of them are answered than the client takes."""
    question = field(4, b"caikit.runtime.Nlp.NlpService")
    n = 1700
    body = (b"\0" + len(question).to_bytes(4, "big") + question) * n
    peak = Peak(pair.coordinator)
    r = subprocess.run(["curl", "-s", http, "-H", "content-type: application/grpc", "-H", "te: trailers", "--max-time", str(60 * SLOW), "--data-binary", "@-",
                        pair.base + "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"], input=body, capture_output=True)
    assert r.returncode == 0 and len(r.stdout) > n * 1000, (r.returncode, len(r.stdout))
    assert peak.grown() < 4 + SANITIZER_MB, (peak.grown(), len(r.stdout))


@pytest.mark.parametrize("http", ["--http2-prior-knowledge", "--http1.1"])
def test_empty_messages_without_number(pair, http):
    """Six thousand of them in one call: each is refused and answered, others are served meanwhile, and no turn of the loop is long."""
    n = 6000
    with Prober(pair.status_base) as probe:
        r = subprocess.run(["curl", "-s", http, "-H", "content-type: application/grpc", "-H", "te: trailers", "--max-time", str(60 * SLOW), "--data-binary",
                            "@-", pair.base + "/inference.GRPCInferenceService/ModelStreamInfer"], input=bytes(5 * n), capture_output=True)
        with Grpc(pair.base) as g:
            assert g.call(GENERATE, GOOD).responses[0].generated_token_count == 2
    assert r.returncode == 0 and len(r.stdout) > 20 * n, (r.returncode, len(r.stdout))
    probe.check()


@pytest.mark.parametrize("flag", [b"\0", b"\1"], ids=["plain", "gzip"])
def test_tensors_that_mean_nothing_cost_their_bytes(pair, whole, flag):
    """Twelve inputs of a million elements: they are let be, and are never values of their own."""
    n = 1 << 20
    masks = field(5, field(1, b"attention_mask") + field(2, b"INT8") + field(3, varint(n))) * 12
    prompt = field(5, field(1, b"text_input") + field(2, b"BYTES") + field(3, varint(1)))
    few = field(4, field(1, b"max_tokens") + field(2, b"\x10\x02"))
    message = field(1, b"fable") + few + prompt + masks + field(7, b"\4\0\0\0Once") + field(7, bytes(n)) * 12
    most = 8 * (len(message) >> 20) + 24 + SANITIZER_MB
    sent, headers = (message, ()) if flag == b"\0" else (gzip.compress(message), ("-H", "grpc-encoding: gzip"))
    peaks = [Peak(d) for d in [pair.coordinator, *pair.prefills, *pair.decodes, whole.instance]]
    for base in (pair.base, whole.base):
        got = raw(base, "/inference.GRPCInferenceService/ModelInfer", flag + len(sent).to_bytes(4, "big") + sent, *headers)
        assert got and int(got[0].split(": ")[1]) in (0, 3, 8), got
    assert max(p.grown() for p in peaks) < most, [p.grown() for p in peaks]
