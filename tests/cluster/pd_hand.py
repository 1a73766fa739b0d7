"""The instances of a pair driven by hand: a test that is the coordinator. P's requests and answers, D's result stream, and the record of what
a client was sent, with which a later attempt goes on (docs/wire-replay.md)."""
import collections
import contextlib
import http.client
import itertools
import shutil
import socket
import struct
import tempfile
import threading
import urllib.parse

from harness import SLOW, Instance, free_ports, post, request, wait_for

Token = collections.namedtuple("Token", "choice id finish")


def tokens(text):
    """The items "[choice:]id[!finish]" of a frame or of P's answer."""
    out = []
    for item in text.split(",") if text else []:
        choice, _, rest = item.rpartition(":")
        number, _, finish = rest.partition("!")
        out.append(Token(int(choice or 0), int(number), int(finish or 0)))
    return out


def record(sent, created, seed, cached, n_choices=1):
    """The packed record of the tokens that a client was sent; cached: a number for each prompt."""
    out = struct.pack("<HqQII", 1, created, seed, len(cached), n_choices) + struct.pack(f"<{len(cached)}I", *cached)
    for choice in range(len(cached) * n_choices):
        mine = [t for t in sent if t.choice == choice]
        out += struct.pack("<BI", mine[-1].finish if mine else 0, len(mine)) + struct.pack(f"<{len(mine)}i", *(t.id for t in mine))
    return out


def node(inst, number):
    return {"server_ip": "127.0.0.1", "id": number, "host_ip": "127.0.0.1", "inter_comm_port": str(inst.inter_port),
            "device": [{"device_id": "0", "device_logical_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]}


class Hand:
    """A prefill and a decode instance without a coordinator."""

    def __init__(self, extra=None):
        self.folder = tempfile.mkdtemp(prefix="baton-test-")
        ports = free_ports(6)
        self.p = Instance("prefill1", "prefill", self.folder, ports[:3], extra=extra)
        self.d = Instance("decode1", "decode", self.folder, ports[3:], extra=extra)
        self.ids = itertools.count(1000)

    def __enter__(self):
        for i in (self.p, self.d):
            i.start()
            wait_for(i.load, 60 * SLOW, f"{i.name} answers")
        return self

    def give_roles(self):
        for role, me, peer in (("prefill", (self.p, 11), (self.d, 21)), ("decode", (self.d, 21), (self.p, 11))):
            a = post(me[0].mgmt, f"/v1/role/{role}", {"local": node(*me), "peers": [node(*peer)]})
            assert a.status == 200 and a.json == {"result": "ok"}
        for i in (self.p, self.d):
            wait_for(lambda: i.status()["service"]["roleStatus"] == "RoleReady", 20 * SLOW, f"{i.name} is linked")

    def headers(self, req_id=None, **more):
        return {"req-type": "prefill", "req-id": str(req_id or next(self.ids)), "d-target": f"127.0.0.1;{self.d.inter_port}",
                **{k.replace("_", "-"): v for k, v in more.items()}}

    def __exit__(self, *_):
        try:
            for i in (self.p, self.d):
                i.stop()
        finally:
            for i in (self.p, self.d):
                if i.alive():
                    i.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


class Listener:
    """GET /dresult, read in the background: frames are (id, epoch, seq, kind, tokens, body); version 1 has no epoch, seq and tokens."""

    def __init__(self, base, version):
        u = urllib.parse.urlsplit(base)
        self.version, self.raw, self.ended = version, b"", False
        self.done, self.at = [], 0  # frames of version 2, and where in raw the next one begins
        self.lock = threading.Lock()  # held to parse them: threads that wait for requests of theirs share a listener
        self.conn = http.client.HTTPConnection(u.hostname, u.port, timeout=60 * SLOW)
        self.conn.request("GET", "/dresult", headers={"dresult-version": "2"} if version == 2 else {})
        self.sock = self.conn.sock
        self.response = self.conn.getresponse()
        assert self.response.status == 200 and self.response.getheader("Content-Type").startswith("text/event-stream")
        assert self.response.getheader("dresult-version") == str(version)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while piece := self.response.read1(65536):
                self.raw += piece
        self.ended = True

    def frames(self):
        with self.lock:
            return self._frames_1() if self.version == 1 else self._frames_2()

    def _frames_1(self):
        raw = self.raw
        out = []
        parts = raw.split(b"\0")[:-1]
        while parts:
            head = parts.pop(0).decode()
            if head == "ka:heartbeat":
                out.append(("-", 0, 0, "ka", [], ""))
                continue
            assert head.startswith("reqId:"), raw
            if not parts:
                break
            kind, _, body = parts.pop(0).decode().partition(":")
            out.append((head[6:], 0, 0, kind, [], body))
        return out

    def _frames_2(self):
        """Parses what has come since the last call."""
        raw = self.raw
        while len(raw) >= self.at + 9:
            start = self.at + 9
            n = int(raw[self.at:start - 1], 16)
            if len(raw) < start + n:
                break
            req_id, epoch, seq, kind, body = raw[start:start + n].decode().split(" ", 4)
            assert raw[start - 1:start] == b" "
            kind, _, more = kind.partition(";")
            self.done.append((req_id, int(epoch), int(seq), kind, tokens(more) if "=" not in more else [], body))
            self.at = start + n
        return list(self.done)

    def wait_end(self, req_id, epoch=0):
        """All frames of a request, once its last one is there."""
        def ended():
            mine = [f for f in self.frames() if f[0] == str(req_id) and f[1] == (epoch if self.version == 2 else 0)]
            return mine if mine and mine[-1][3] in ("lastData", "error", "retry") else None
        return wait_for(ended, 20 * SLOW, f"the last frame of {req_id}")

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes the reader
        wait_for(lambda: self.ended, 5 * SLOW, "the reader ends")
        self.response.close()
        self.conn.close()
