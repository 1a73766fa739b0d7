"""A client of gRPC: python3-grpcio, and messages of the files in proto/grpc/ by protoc and protobuf, neither of which the daemons know."""
import functools
import os
import subprocess
import tempfile
import urllib.parse

from harness import ANSWER_S, ROOT, _doors  # first: it says how grpc forks
import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

PROTO = os.path.join(ROOT, "proto", "grpc")


@functools.lru_cache(maxsize=None)
def pool():
    files = ["google/protobuf/struct.proto"] + sorted(f for f in os.listdir(PROTO) if f.endswith(".proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={out.name}"] + files, cwd=PROTO, check=True)
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    p = descriptor_pool.DescriptorPool()
    for f in descriptors.file:
        p.Add(f)
    return p


@functools.lru_cache(maxsize=None)
def message(name):
    return message_factory.MessageFactory(pool()).GetPrototype(pool().FindMessageTypeByName(name))


def make(name, body):
    """A message of the JSON of its fields."""
    return json_format.ParseDict(body, message(name)())


def shown(m):
    return json_format.MessageToDict(m, preserving_proto_field_name=True)


class Grpc:
    """A channel to a daemon of the harness; its key goes along where the plane has TLS."""

    def __init__(self, base, pki=None):
        u = urllib.parse.urlsplit(base)
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 128 << 20), ("grpc.use_local_subchannel_pool", 1)]
        self.metadata = ()
        if u.scheme == "https":
            key = subprocess.run(["openssl", "pkey", "-in", pki.file("user", "client.key"), "-passin", "pass:" + pki.password("user", "client")],
                                 capture_output=True, check=True).stdout
            with open(pki.file("user", "ca.pem"), "rb") as ca, open(pki.file("user", "client.pem"), "rb") as chain:
                credentials = grpc.ssl_channel_credentials(ca.read(), key, chain.read())
            self.metadata = tuple((k.lower(), v) for k, v in _doors[u.port][1].items())
            self.channel = grpc.secure_channel(u.netloc, credentials, options)
        else:
            self.channel = grpc.insecure_channel(u.netloc, options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def method(self, path):
        service, name = path.strip("/").split("/")
        return pool().FindServiceByName(service).methods_by_name[name]

    def call(self, path, body, timeout=ANSWER_S, metadata=(), **kw):
        """body: a dictionary, a message, or its bytes. A message, or an iterator of messages. Raises grpc.RpcError."""
        m = self.method(path)
        request = make(m.input_type.full_name, body) if isinstance(body, dict) else body
        data = request if isinstance(request, bytes) else request.SerializeToString(deterministic=True)
        decode = message(m.output_type.full_name).FromString
        of = {"unary_unary": self.channel.unary_unary, "unary_stream": self.channel.unary_stream}
        kind = "unary_stream" if self.streams(path) else "unary_unary"
        return of[kind](path, None, decode)(data, timeout=timeout, metadata=self.metadata + tuple(metadata), **kw)

    def streams(self, path):
        service, name = path.strip("/").split("/")
        proto = descriptor_pb2.ServiceDescriptorProto()
        pool().FindServiceByName(service).CopyToProto(proto)
        return next(m for m in proto.method if m.name == name).server_streaming

    def refusal(self, path, body, **kw):
        """(status, text) of a call that fails."""
        try:
            answer = self.call(path, body, **kw)
            if self.streams(path):
                list(answer)
        except grpc.RpcError as e:
            return e.code(), e.details()
        raise AssertionError(f"{path} did not fail")


@pytest.fixture(scope="module")
def split(pair):
    """Of a cluster."""
    with Grpc(pair.base) as g:
        yield g


@pytest.fixture(scope="module")
def alone(whole):
    """Of an instance in standard mode."""
    with Grpc(whole.base) as g:
        yield g
