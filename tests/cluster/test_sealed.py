"""Goal: sealed KV links change nothing of an answer and show nothing of a request on the wire; a wrong certificate keeps the cluster not
ready, with the reason in the status; a byte changed on the way ends the link and never reaches a client.
Method: real daemons with and without seals. A relay stands between P and D: it sits at D's listener (whose port P learns from the rank
table), asks from P's own address and port as P does, puts its own port into the listener's answers and keeps every byte of the pair. The plain cluster under the same relay proves that it
would see KV and requests if they were there to be seen."""
import json
import os
import socket
import struct
import threading

import pytest
from harness import READY_S, Cluster, free_ports, get, merge, post, wait_for
from pki import Pki

PROMPT = "Once upon a time there was a fox who lived in a wood near a little village, and every evening he went to the pond to drink."
LINK_ANSWER, DATA = 2, 11
HEAD = struct.Struct("<IBBBBII")  # magic, version, type, flags, tag bytes, length, seq


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Messages:
    """One direction of an SP connection: a greeting of 8 bytes, then messages behind their length. Gives whole ones, length included."""

    def __init__(self):
        self.rest, self.greeted = b"", False

    def feed(self, chunk):
        self.rest += chunk
        while True:
            n = 8 if not self.greeted else 8 + struct.unpack_from(">Q", self.rest)[0] if len(self.rest) >= 8 else None
            if n is None or len(self.rest) < n:
                return
            self.greeted = True
            yield self.rest[:n]
            self.rest = self.rest[n:]


class Frames:
    """One direction of a connection at a listener: frames as they are."""

    def __init__(self):
        self.rest = b""

    def feed(self, chunk):
        self.rest += chunk
        while len(self.rest) >= HEAD.size:
            head = HEAD.unpack_from(self.rest)
            n = HEAD.size + head[5] + head[4]
            if len(self.rest) < n:
                return
            yield self.rest[:n]
            self.rest = self.rest[n:]


class Relay:
    """Between P and D. to_d: what P sent on pairs, raw. flip: the next long message to D loses its last bit."""

    def __init__(self, listener_port):
        self.lock = threading.Lock()
        self.to_d, self.flip, self.n_flipped, self.sockets = b"", False, 0, []
        self.port = self.listen(listener_port, True)

    def listen(self, target, is_listener):
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        s.listen(16)
        self.sockets.append(s)
        threading.Thread(target=self.accept, args=(s, target, is_listener), daemon=True).start()
        return s.getsockname()[1]

    def accept(self, s, target, is_listener):
        while True:
            try:
                p = s.accept()[0]
            except OSError:
                return
            d = socket.socket()
            try:
                if is_listener:
                    d.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    for end in (p, d):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    d.bind(p.getpeername())
                d.connect(("127.0.0.1", target))
            except OSError:
                p.close()
                d.close()
                continue
            self.sockets += [p, d]
            for a, b, to_d in ((p, d, True), (d, p, False)):
                threading.Thread(target=self.pump, args=(a, b, is_listener, to_d), daemon=True).start()

    def pump(self, a, b, is_listener, to_d):
        stream = Frames() if is_listener else Messages()
        try:
            while chunk := a.recv(1 << 16):
                for m in stream.feed(chunk):
                    if is_listener and not to_d:
                        m = self.link_answer(m)
                    elif to_d and not is_listener:
                        m = self.maybe_flip(m)
                        with self.lock:
                            self.to_d += m
                    b.sendall(m)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def link_answer(self, piece):
        """The port of the pair becomes one of ours."""
        assert piece[:4] == b"BVK1" and piece[5] == LINK_ANSWER
        out = bytearray(piece)
        port_at = 16 + 2 + 4 + struct.unpack_from("<I", out, 18)[0]
        port = struct.unpack_from("<H", out, port_at)[0]
        if port != 0:
            struct.pack_into("<H", out, port_at, self.listen(port, False))
            struct.pack_into("<I", out, len(out) - 4, crc32c(out[:-4]))
        return bytes(out)

    def maybe_flip(self, piece):
        if self.flip and len(piece) > 4096:
            self.flip = False
            self.n_flipped += 1
            return piece[:-1] + bytes([piece[-1] ^ 1])
        return piece

    def seen(self):
        with self.lock:
            return self.to_d

    def close(self):
        for s in self.sockets:
            s.close()


@pytest.fixture(scope="module")
def pki():
    with Pki() as p:
        yield p


def sealed(pki, name="peer"):
    block = {k: v for k, v in pki.instance()["ServerConfig"].items() if k.startswith("interComm")}
    text = json.dumps(block).replace("/cluster/peer.", f"/cluster/{name}.")
    return {"ServerConfig": {"interCommTLSEnabled": True, **json.loads(text)}}


def first_id(address):
    """The id a coordinator derives from a management address (store_first_id)."""
    h = 0x811C9DC5
    for b in address.encode():
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return 100000 + (h ^ h >> 16) % 900000


def ports_of_a_p_that_asks():
    """Of a pair's two instances the one with the lower id asks the other's listener."""
    while True:
        ports = free_ports(4 + 3 * 2)
        p, d = (first_id(f"127.0.0.1:{port}") for port in (ports[5], ports[8]))
        if p < d:
            return ports


class Relayed:
    """A pair with a relay between; only the wire differs from Cluster()."""

    def __init__(self, extra):
        self.cluster = Cluster(extra=extra, ports=ports_of_a_p_that_asks())
        self.relay = Relay(self.cluster.decodes[0].inter_port)
        path = os.path.join(self.cluster.folder, "rank_table.json")
        with open(path) as f:
            table = json.load(f)
        for group in table["server_group_list"]:
            for server in group["server_list"]:
                if server["inter_comm_port"] == str(self.cluster.decodes[0].inter_port):
                    server["inter_comm_port"] = str(self.relay.port)
        with open(path, "w") as f:
            json.dump(table, f)

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *args):
        self.cluster.__exit__(*args)
        self.relay.close()


def ask(cluster, prompt=PROMPT, **more):
    a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": 24, "seed": 5, **more})
    assert a.status == 200, a.body
    return a.json["choices"][0]["text"]


def answers(cluster):
    return [ask(cluster, temperature=0), ask(cluster, temperature=0.9), ask(cluster, prompt=PROMPT * 6, temperature=0), ask(cluster, prompt="A")]


def request_ids(cluster):
    return [str(r["id"]).encode() for r in cluster.status()["recentRequests"]]


def kv_samples(seen):
    """Pieces of KV as plain data frames show them."""
    out = []
    at = seen.find(b"BVK1")
    while at >= 0:
        _, _, kind, flags, _, n, _ = HEAD.unpack_from(seen, at)
        payload = seen[at + 16:at + 16 + n]
        if kind == DATA and flags == 0 and len(payload) == n:
            out += [payload[i:i + 32] for i in range(256, n - 32, 1024) if len(set(payload[i:i + 32])) > 16]
        at = seen.find(b"BVK1", at + 4)
    return out


def test_sealed_answers_are_the_plain_ones_and_the_wire_shows_nothing(pki):
    with Relayed({}) as plain:
        expected = answers(plain.cluster)
        in_clear = plain.relay.seen()
        ids = request_ids(plain.cluster)
    samples = kv_samples(in_clear)
    assert len(samples) > 20, "the relay sees KV on a plain link"
    assert len(ids) == 4 and all(i in in_clear for i in ids), "and requests"
    with Relayed(sealed(pki)) as link:
        assert answers(link.cluster) == expected
        wire = link.relay.seen()
        assert len(wire) > len(in_clear) // 2, "the relay saw the hand-overs"
        assert not [s for s in samples if s in wire], "KV in the clear on a sealed link"
        assert not [i for i in request_ids(link.cluster) if i in wire], "a request in the clear on a sealed link"
        frames = [wire[i:i + 16] for i in range(len(wire) - 16) if wire[i:i + 4] == b"BVK1"]
        flags = [HEAD.unpack(f)[3] for f in frames]
        kinds = {HEAD.unpack(f)[2] for f, flag in zip(frames, flags) if flag == 0}
        assert kinds == {18}, f"in the clear there is the handshake alone, not {kinds}"
        assert flags.count(1) > 10
        for inst in link.cluster.instances:
            assert "plain_kv_links" not in inst.log()


def test_a_byte_changed_on_the_way_ends_the_link(pki):
    with Relayed(sealed(pki)) as link:
        expected = ask(link.cluster, temperature=0)
        link.relay.flip = True
        a = post(link.cluster.base, "/v1/completions",
                 {"model": "fable", "prompt": "The bear and " + PROMPT, "max_tokens": 8, "seed": 5, "temperature": 0})
        assert link.relay.n_flipped == 1
        assert "without a right seal" in link.cluster.decodes[0].log()
        wait_for(lambda: post(link.cluster.base, "/v1/completions", {"model": "fable", "prompt": PROMPT, "max_tokens": 24, "seed": 5,
                                                                     "temperature": 0}).status == 200, READY_S, "the link heals")
        assert ask(link.cluster, temperature=0) == expected
        again = ask(link.cluster, prompt="The bear and " + PROMPT, max_tokens=8, temperature=0)
        assert a.status != 200 or a.json["choices"][0]["text"] == again


def start_all(cluster):
    for d in cluster.daemons:
        d.start()
    wait_for(lambda: all(d.load() is not None for d in cluster.instances) or not all(d.alive() for d in cluster.daemons), READY_S,
             "instances answer")
    assert all(d.alive() for d in cluster.daemons), cluster.logs()


def links(inst):
    s = inst.status()
    return s["linkStatus"]["peers"] if s else []


@pytest.mark.parametrize("what", ["wrong CA", "one side plain"])
def test_a_misfit_keeps_the_cluster_not_ready_and_says_why(pki, what):
    with Pki() as other:
        cluster = Cluster(extra=sealed(pki))
        p = cluster.prefills[0]
        p.conf = merge(p.conf, sealed(other) if what == "wrong CA" else {"ServerConfig": {"interCommTLSEnabled": False}})
        code, words = ("failed : 14", "certificate") if what == "wrong CA" else ("failed : 13", "interCommTLSEnabled")
        try:
            start_all(cluster)
            wait_for(lambda: all(p and p[0]["link"] == code for p in map(links, cluster.instances)), READY_S, f"both say {code}")
            for inst in cluster.instances:
                assert words in links(inst)[0]["detail"], links(inst)
            assert not cluster.is_ready()
            wait_for(lambda: code in get(cluster.status_base, "/v1/readiness").body.decode(), READY_S, f"readiness says {code}")
            for d in cluster.daemons:
                d.stop()
        finally:
            cluster.kill_all()


@pytest.mark.parametrize("key,value,word", [("interCommTlsCert", "/nowhere/peer.pem", "interCommTlsCert"),
                                            ("interCommPkPwd", "", "interCommPk")])
def test_a_missing_file_stops_the_start(pki, key, value, word):
    cluster = Cluster(extra=merge(sealed(pki), {"ServerConfig": {key: value}}))
    p = cluster.prefills[0]
    try:
        p.start()
        wait_for(lambda: not p.alive(), READY_S, "the daemon ends")
        assert p.process.returncode == 2 and word in p.log(), p.log()
    finally:
        cluster.kill_all()
