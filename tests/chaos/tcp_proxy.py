"""A TCP proxy before a port, which does to what passes what networks do: delay, a trickle, silence, resets in the middle of a frame.

What is set holds for connections whose last request contains `only`; others pass as they are. Instances are put behind one by the rank table
(`behind`). KV links take no proxy by design: a peer is known by the address and port it asks from."""
import contextlib
import json
import os
import socket
import struct
import threading
import time

from harness import free_ports

PIECE = 65536


class Proxy:
    """down: what comes from the daemon; up: what goes to it. All settings may change at any time."""

    def __init__(self, port):
        self.to, self.port = port, free_ports(1)[0]
        self.lock = threading.Lock()
        self.only = b""
        self.live = {}  # connection number: [sockets, its last request, directions that have ended]
        self.n, self.n_resets = 0, 0
        self.calm()
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        threading.Thread(target=self.accept, daemon=True).start()

    def calm(self):
        """Everything passes as it comes."""
        self.delay_s = 0.0  # of each piece, one way
        self.down_rate = None  # bytes a second
        self.silent = False  # half-open: connections stand, and nothing passes any more
        self.reset_after = None  # bytes down after which a connection is reset; None: never

    def close(self):
        self.listener.close()
        self.reset()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
                except OSError:
                    self.reset_one(near)
                    continue
                far.settimeout(None)
                for s in (near, far):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self.lock:
                    self.n += 1
                    number = self.n
                    self.live[number] = [(near, far), b"", set()]
                threading.Thread(target=self.pump, args=(number, near, far, True), daemon=True).start()
                threading.Thread(target=self.pump, args=(number, far, near, False), daemon=True).start()

    def hit(self, number):
        with self.lock:
            return number in self.live and self.only in self.live[number][1]

    def pump(self, number, source, sink, up):
        try:
            self.pass_on(number, source, sink, up)
            sink.shutdown(socket.SHUT_WR)  # an end, passed on as one
        except OSError:
            self.drop(number)
            return
        with self.lock:
            ended = self.live[number][2] if number in self.live else set()
            ended.add(up)
        if len(ended) == 2:
            self.drop(number)

    def pass_on(self, number, source, sink, up):
        """Until source ends; OSError when the connection is to be reset."""
        passed = 0
        while piece := source.recv(PIECE):
            if up:
                with self.lock:
                    if number in self.live and piece.startswith((b"GET ", b"POST ")):
                        self.live[number][1] = piece
            if self.hit(number) and self.delay_s:
                time.sleep(self.delay_s)
            while self.silent and self.hit(number):
                time.sleep(0.01)
            if not up:
                piece = self.trickle(number, piece, sink)
                self.cut_inside(number, passed, piece, sink)
            sink.sendall(piece)
            passed += len(piece)

    def trickle(self, number, piece, sink):
        """What is left of the piece when the rate is not bounded any more."""
        while piece and self.down_rate is not None and self.hit(number):
            sink.sendall(piece[:1])
            piece = piece[1:]
            time.sleep(1 / self.down_rate)
        return piece

    def cut_inside(self, number, passed, piece, sink):
        if self.reset_after is not None and self.hit(number) and passed + len(piece) > self.reset_after:
            sink.sendall(piece[:max(0, self.reset_after - passed)])
            self.n_resets += 1
            raise ConnectionResetError

    @staticmethod
    def reset_one(s):
        with contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()

    def drop(self, number):
        with self.lock:
            gone = self.live.pop(number, None)
        if gone:
            for s in gone[0]:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RD)
                self.reset_one(s)

    def reset(self):
        """RST to both ends of the connections that `only` names."""
        with self.lock:
            hit = [n for n, (_, first, _) in self.live.items() if self.only in first]
        for n in hit:
            self.drop(n)
        self.n_resets += len(hit)
        return len(hit)


class Behind:
    """The business port and the management port of one instance, each behind a proxy."""

    def __init__(self, cluster, instance):
        """Before the cluster starts."""
        self.instance = instance
        self.business, self.management = Proxy(instance.port), Proxy(instance.mgmt_port)
        table = os.path.join(cluster.folder, "rank_table.json")
        with open(table) as f:
            ranks = json.load(f)
        for s in ranks["server_group_list"][0]["server_list"]:
            if s["predict_port"] == str(instance.port):
                s.update(predict_port=str(self.business.port), mgmt_port=str(self.management.port))
        with open(table, "w") as f:
            json.dump(ranks, f)

    def row(self, cluster):
        """What the coordinator says of the instance."""
        return next(i for i in cluster.status()["instances"] if i["address"].endswith(f":{self.business.port}"))

    def calm(self):
        for p in (self.business, self.management):
            p.calm()
            p.only = b""

    def close(self):
        self.business.close()
        self.management.close()
