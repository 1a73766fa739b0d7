"""Goal: a client of gRPC that has no files finds every service, method and message by server reflection, v1 and v1alpha, on a coordinator and on
an instance alone, and can then call with what it found; and a call whose client streams is bounded.
Method: python3-grpcio with hand-made streams; the descriptors that come are put into a pool of their own, from which a call is made. Frames of
HTTP/2 (h2_frames.py) for what no client library does.
"""
import queue
import subprocess

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_client import Grpc, make, message, pool
from h2_frames import H2, fields
from harness import ANSWER_S, SLOW

VERSIONS = ("v1", "v1alpha")


@pytest.fixture(scope="module", params=["split", "alone"])
def any_base(request, pair, whole):
    return {"split": pair, "alone": whole}[request.param].base


def path(version):
    return f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"


def ask(g, version, *questions, **kw):
    """The answers to questions (dictionaries) on one call."""
    kind = message(f"grpc.reflection.{version}.ServerReflectionResponse")
    stream = g.channel.stream_stream(path(version), None, kind.FromString)
    asked = [make(f"grpc.reflection.{version}.ServerReflectionRequest", q).SerializeToString() for q in questions]
    return list(stream(iter(asked), timeout=ANSWER_S, metadata=g.metadata, **kw))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_files_makes_a_call(any_base, version):
    with Grpc(any_base) as g:
        names = [s.name for s in ask(g, version, {"list_services": "*"})[0].list_services_response.service]
        assert {"fmaas.GenerationService", "caikit.runtime.Nlp.NlpService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"} <= set(names) and len(names) == len(set(names))
        own = descriptor_pool.DescriptorPool()
        seen = set()
        for answer in ask(g, version, *({"file_containing_symbol": n} for n in names)):
            files = [descriptor_pb2.FileDescriptorProto.FromString(b) for b in answer.file_descriptor_response.file_descriptor_proto]
            assert any(answer.original_request.file_containing_symbol == f"{files[0].package}.{s.name}" for s in files[0].service)
            for f in reversed(files):  # what is imported comes behind
                if f.name not in seen:
                    own.Add(f)
                seen.add(f.name)
        for n in names:  # as protoc says it
            mine, theirs = descriptor_pb2.ServiceDescriptorProto(), descriptor_pb2.ServiceDescriptorProto()
            own.FindServiceByName(n).CopyToProto(mine)
            pool().FindServiceByName(n).CopyToProto(theirs)
            assert mine == theirs
        types = message_factory.MessageFactory(own)
        method = own.FindServiceByName("fmaas.GenerationService").methods_by_name["Tokenize"]
        request = types.GetPrototype(method.input_type)(requests=[{"text": "Once"}])
        call = g.channel.unary_unary("/fmaas.GenerationService/Tokenize", None, types.GetPrototype(method.output_type).FromString)
        assert call(request.SerializeToString(), timeout=ANSWER_S).responses[0].token_count == 2


def test_files_symbols_and_errors(any_base):
    with Grpc(any_base) as g:
        symbols = ["fmaas.GenerationService.Generate", "fmaas.GenerationService/Generate", "fmaas.TokenInfo.TopToken", "fmaas.TokenInfo.rank",
                   "fmaas.StopReason", "fmaas.EOS_TOKEN", "fmaas.DecodingParameters.ResponseFormat", "fmaas.DecodingParameters.JSON"]
        answers = ask(g, "v1", {"file_by_filename": "caikit_nlp_service.proto", "host": "h"}, {"file_by_filename": "google/protobuf/struct.proto"},
                      *({"file_containing_symbol": s} for s in symbols))
        assert answers[0].valid_host == "h"
        files = [[descriptor_pb2.FileDescriptorProto.FromString(b) for b in a.file_descriptor_response.file_descriptor_proto] for a in answers]
        assert files[0][0].name == "caikit_nlp_service.proto" and [f.name for f in files[1]] == ["google/protobuf/struct.proto"]
        assert set(files[0][0].dependency) <= {f.name for f in files[0]} and len({f.name for f in files[0]}) == len(files[0])
        assert {f[0].name for f in files[2:]} == {"generation.proto"}
        for q in ({"file_by_filename": "none.proto"}, {"file_containing_symbol": "fmaas.Nothing"}, {"file_containing_symbol": ".fmaas.StopReason"},
                  {"file_containing_extension": {"containing_type": "fmaas.TokenInfo", "extension_number": 9}}, {"all_extension_numbers_of_type": "a.B"}):
            assert ask(g, "v1", q)[0].error_response.error_code == 5, q
        assert ask(g, "v1", {})[0].error_response.error_code == 3
        assert ask(g, "v1") == []
        assert len(ask(g, "v1alpha", *[{"list_services": ""}] * 200, compression=grpc.Compression.Gzip)) == 200


def test_an_answer_comes_while_the_client_still_asks(any_base):
    with Grpc(any_base) as g:
        asked = queue.Queue()
        stream = g.channel.stream_stream(path("v1"), None, message("grpc.reflection.v1.ServerReflectionResponse").FromString)(iter(asked.get, None), timeout=ANSWER_S)
        for _ in range(3):
            asked.put(make("grpc.reflection.v1.ServerReflectionRequest", {"list_services": "*"}).SerializeToString())
            assert next(stream).list_services_response.service
        asked.put(None)
        assert list(stream) == [] and stream.code() == grpc.StatusCode.OK


def test_golden_vectors(any_base):
    with Grpc(any_base) as g:
        raw = g.channel.stream_stream(path("v1"))
        asked = [bytes.fromhex("3a012a"), bytes.fromhex("220178")]
        services, error = raw(iter(asked), timeout=ANSWER_S)
        assert services.startswith(bytes.fromhex("12033a012a32"))
        text = b"there is no symbol x"
        assert error == bytes.fromhex("12032201783a") + bytes([4 + len(text)]) + b"\x08\x05\x12" + bytes([len(text)]) + text


def frame(data, flag=0):
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("body,end,status,text", [
    (frame(b"\x0a\x05"), False, "13", "the message is no ServerReflectionRequest"),
    (b"\7", False, "13", "the flag of a message must be 0 or 1"),
    (frame(b"\x3a\1*")[:-1], True, "13", "the message ends before the length that it gives"),
    (b"\0\0\1\0\1", False, "8", "the message is over the limit of 65536 bytes"),
    (b"\1\0\0\0\1x", False, "13", None)])
def test_what_is_no_message_ends_the_call(any_base, body, end, status, text):
    with H2(any_base) as c:
        c.head(1, fields("POST", path("v1"), ("content-type", "application/grpc"), ("te", "trailers")), end=False)
        c.data(1, body, end=end)
        said = c.answer(1)["trailers"]
        assert said["grpc-status"] == status and (text is None or said["grpc-message"] == text)


def test_methods_have_one_name_and_one_framing(any_base):
    """A slash at the end is no method; the type that a coordinator uses inside is foreign from a client of it, and of an instance alone."""
    with Grpc(any_base) as g:
        for name in ("/fmaas.GenerationService/ModelInfo/", path("v1") + "/"):
            with pytest.raises(grpc.RpcError) as e:
                g.channel.unary_unary(name)(b"", timeout=10 * SLOW)
            assert (e.value.code(), e.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, f"{name} is no method of gRPC")
    for name in ("/fmaas.GenerationService/ModelInfo", path("v1")):
        said = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/x-baton-grpc", "--data-binary", "@-",
                               any_base + name], input=frame(b""), capture_output=True, timeout=30 * SLOW).stdout
        assert said == b"415", name


def test_reflection_needs_a_key(tls_pair, pki):
    with Grpc(tls_pair.base, pki) as g:
        assert ask(g, "v1", {"list_services": "*"})[0].list_services_response.service
        g.metadata = ()
        with pytest.raises(grpc.RpcError) as e:
            ask(g, "v1", {"list_services": "*"})
        assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED
