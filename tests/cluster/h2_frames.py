"""A client of HTTP/2 that says exactly the frames a test wants (RFC 9113); only its HPACK is a library's. Every wait has a deadline."""
import socket
import ssl
import struct
import time
import urllib.parse

import hpack
from harness import ANSWER_S, _doors

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIO = 1, 1, 4, 8, 32
(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL,
 COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM) = range(12)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in pairs))


def window_update(stream, n):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", n))


def rst(stream, error=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", error))


def block(pairs):
    """Fields as literals that nobody indexes: any bytes, in any order."""
    out = b""
    for name, value in pairs:
        out += b"\0"
        for s in (name, value):
            s = s if isinstance(s, bytes) else s.encode()
            n = len(s)
            if n < 127:
                out += bytes([n])
            else:
                out += b"\x7f"
                n -= 127
                while n >= 128:
                    out += bytes([n % 128 + 128])
                    n //= 128
                out += bytes([n])
            out += s
    return out


def fields(method="GET", path="/v1/models", *more, scheme="http", authority="baton"):
    return [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority), *more]


class Ended(AssertionError):
    """The connection ended before what was waited for."""


class H2:
    """A connection, its preface and SETTINGS sent."""

    def __init__(self, base, first=PREFACE + frame(SETTINGS, 0, 0), window=None):
        u = urllib.parse.urlsplit(base)
        self.headers = []
        self.sock = socket.socket()
        if window:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect((u.hostname, u.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if u.scheme == "https":
            ctx, more = _doors[u.port]
            ctx.set_alpn_protocols(["h2"])
            self.sock = ctx.wrap_socket(self.sock, server_hostname=u.hostname)
            ctx.set_alpn_protocols(["http/1.1"])  # it is not ours alone
            self.headers = [(k.lower(), v) for k, v in more.items()]
        self.decoder = hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.raw = b""
        self.seen = []  # (kind, flags, stream, payload)
        self.at = {}    # stream: {"status", "fields", "body", "end", "rst", "trailers"}
        self.goaway = None
        self.closed = False
        self.block = b""
        if first:
            self.send(first)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError):
            self.closed = True

    def stream(self, i):
        return self.at.setdefault(i, {"status": None, "interim": [], "fields": None, "body": b"", "end": False, "rst": None, "trailers": None, "sizes": []})

    def _take(self, kind, flags, stream, p):
        self.seen.append((kind, flags, stream, p))
        s = self.stream(stream)
        if kind in (HEADERS, CONTINUATION):
            self.block = p if kind == HEADERS else self.block + p
            if kind == HEADERS:
                self.ends = flags & END_STREAM
            if flags & END_HEADERS:
                got = [(k, v) for k, v in self.decoder.decode(self.block)]
                status = dict(got).get(":status")
                if status is None:
                    s["trailers"] = dict(got)
                elif status.startswith("1"):
                    s["interim"].append(int(status))
                else:
                    s["status"], s["fields"] = int(status), dict(got)
                s["end"] = s["end"] or bool(self.ends)
        elif kind == DATA:
            s["body"] += p
            s["sizes"].append(len(p))
            s["end"] = s["end"] or bool(flags & END_STREAM)
        elif kind == RST_STREAM:
            s["rst"] = struct.unpack(">I", p)[0]
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">I", p[4:8])[0]
            self.last_stream = struct.unpack(">I", p[:4])[0]

    def step(self):
        """One read, and the frames in it. False: the connection has ended."""
        try:
            piece = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLError):
            piece = b""
        if not piece:
            self.closed = True
            return False
        self.raw += piece
        while len(self.raw) >= 9 and not self.raw.startswith(b"HTTP/"):
            n = int.from_bytes(self.raw[:3], "big")
            if len(self.raw) < 9 + n:
                break
            kind, flags = self.raw[3], self.raw[4]
            stream, p = struct.unpack(">I", self.raw[5:9])[0], self.raw[9:9 + n]
            self.raw = self.raw[9 + n:]
            self._take(kind, flags, stream, p)
        return True

    def until(self, fact, what="what was waited for"):
        end = time.monotonic() + ANSWER_S
        while not fact():
            if time.monotonic() > end:
                raise AssertionError(f"never came: {what}; seen {[f[:3] for f in self.seen]}, GOAWAY {self.goaway}")
            if not self.step():
                if fact():
                    return
                raise Ended(f"ended before {what}; seen {[f[:3] for f in self.seen]}, GOAWAY {self.goaway}")

    # ---- requests
    def head(self, stream, pairs, end=True, flags=0):
        self.send(frame(HEADERS, END_HEADERS | flags | (END_STREAM if end else 0), stream, block(list(pairs) + self.headers)))

    def get(self, stream, path="/v1/models", *more):
        self.head(stream, fields("GET", path, *more))

    def post(self, stream, path, body, *more):
        self.head(stream, fields("POST", path, ("content-type", "application/json"), *more), end=False)
        self.data(stream, body)

    def data(self, stream, body, end=True):
        for at in range(0, len(body), 16384):
            last = at + 16384 >= len(body)
            self.send(frame(DATA, END_STREAM if end and last else 0, stream, body[at:at + 16384]))
        if not body:
            self.send(frame(DATA, END_STREAM if end else 0, stream))

    def answer(self, stream):
        s = self.stream(stream)
        self.until(lambda: s["end"] or s["rst"] is not None, f"the answer on stream {stream}")
        return s

    def error(self):
        """The error that the connection ends with."""
        self.until(lambda: self.goaway is not None, "a GOAWAY")
        return self.goaway

    def reset(self, stream):
        """The error that the stream ends with; the connection goes on."""
        s = self.stream(stream)
        self.until(lambda: s["rst"] is not None or self.goaway is not None, f"a reset of stream {stream}")
        assert self.goaway is None, f"the connection ended with {self.goaway}"
        return s["rst"]

    def ping(self, data=b"01234567"):
        n = sum(f[0] == PING for f in self.seen)
        self.send(frame(PING, 0, 0, data))
        self.until(lambda: sum(f[0] == PING for f in self.seen) > n, "the answer to a PING")
        return [f for f in self.seen if f[0] == PING][-1]
