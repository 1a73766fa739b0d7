"""A crowd at listeners of KV links, a program of its own: kv_crowd.py SECONDS IDLE ID PORT [PORT ..]
Holds IDLE connections open at each port, as long as they are left open, and asks there as often as it can: whole questions that name the
instance ID, or none, from ports of its own; halves of questions; other words. Prints the number of questions asked."""
import os
import resource
import socket
import struct
import sys
import time

VERSION = 4


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def ask(from_id, sealed):
    payload = struct.pack("<IIB", from_id, 0, sealed)
    frame = struct.pack("<4sBBBBII", b"BVK1", VERSION, 1, 0, 4, len(payload), 0) + payload
    return frame + struct.pack("<I", crc32c(frame))


def connect(port):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", port))
    return s


def main():
    seconds, idle, peer = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ports = [int(p) for p in sys.argv[4:]]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    words = [ask(0, 0), ask(0, 1), ask(peer, 0), ask(peer, 1), ask(peer, 1)[:11], b"\0SP\0\0\x30\0\0" + b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n"]
    held = [connect(port) for port in ports for _ in range(idle)]
    print("crowd", len(held), flush=True)
    parent, until, n, open_asks = os.getppid(), time.monotonic() + seconds, 0, []
    while time.monotonic() < until and os.getppid() == parent:
        for port in ports:
            s = connect(port)
            try:
                s.send(words[n % len(words)])
            except OSError:
                pass
            open_asks.append(s)
            n += 1
        if len(open_asks) > 200:
            for s in open_asks[:100]:
                s.close()
            del open_asks[:100]
        if n % 8 == 0 and held:  # one that was sent away comes back
            i = n // 8 % len(held)
            held[i].close()
            held[i] = connect(ports[i % len(ports)])
    print(n, flush=True)


if __name__ == "__main__":
    main()
