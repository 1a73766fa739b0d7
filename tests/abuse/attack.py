"""What the attacks share: a prober of the service beside the attack, sockets by the thousand, and what a daemon holds of memory. Prober and
attackers are processes of their own, so that they do not wait for each other's Python."""
import contextlib
import gc
import multiprocessing
import os
import socket
import ssl
import time
import urllib.parse

from harness import SLOW, _doors, get

fork = multiprocessing.get_context("fork")
TIMED = SLOW == 1  # a run under a sanitizer looks for other faults: its times and its memory say nothing of ours
SILENCE_S = 0.2 * SLOW  # of /v1/readiness, at most
RECOVERY_S = 2 * SLOW   # from the end of an attack until everything is as before
SANITIZER_MB = 512 if SLOW > 1 else 0  # what a sanitizer keeps of freed memory, and beside what is in use


# ---- memory
def rss_mb(pid, field="VmRSS"):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":")) / 1024


class Peak:
    """Memory of a process, in MB, above what it had when asked first."""

    def __init__(self, daemon):
        self.pid = daemon.process.pid
        with open(f"/proc/{self.pid}/clear_refs", "w") as f:
            f.write("5")
        self.start = rss_mb(self.pid)

    def grown(self):
        return rss_mb(self.pid, "VmHWM") - self.start

    def peak(self):
        return rss_mb(self.pid, "VmHWM")


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


# ---- the service beside the attack
def _in_a_fork():
    """What this process had of grpcio is not ours to free: its threads are not here, and what they held is locked for ever."""
    gc.disable()


def _probe(url, path, conn):
    """Asks again and again until told to stop; tells the longest time without an answer, and how long the machine itself kept two
    processes from speaking to each other: on a busy machine that is no fault of the daemon."""
    _in_a_fork()
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        with contextlib.suppress(OSError):
            while there.recv(1):
                there.send(b"x")
        os._exit(0)
    there.close()
    longest, noise, n, failures = 0.0, 0.0, 0, []
    last = time.monotonic()
    while not conn.poll():
        answered = False
        try:
            a = get(url, path, timeout=30 * SLOW)
            answered = a.status == 200
            if not answered:
                failures.append(a.status)
        except Exception as e:  # noqa: BLE001 (whatever it is, the test shows it)
            failures.append(repr(e))
        longest = max(longest, time.monotonic() - last)
        n += answered
        for _ in range(3):
            began = time.monotonic()
            here.send(b"x")
            here.recv(1)
            noise = max(noise, time.monotonic() - began)
        if answered:
            time.sleep(0.002)
            last = time.monotonic()
    conn.send((longest, noise, n, failures[:5], len(failures)))


def _end(process):
    process.join(10)
    if process.is_alive():
        process.kill()
        process.join()


class Prober:
    """with Prober(cluster.status_base) as p: ...; then p.longest_s, p.noise_s, p.n, p.failures."""

    def __init__(self, url, path="/v1/readiness"):
        self.here, there = fork.Pipe()
        self.process = fork.Process(target=_probe, args=(url, path, there), daemon=False)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.here.send("stop")
        assert self.here.poll(60 * SLOW), "the prober got no answer"
        self.longest_s, self.noise_s, self.n, self.failures, self.n_failures = self.here.recv()
        _end(self.process)

    def check(self, may_fail=False):
        """may_fail: single connections may be turned away, as long as others are not soon after."""
        assert may_fail or self.n_failures == 0, (self.n_failures, self.failures)
        busy = max(1, os.getloadavg()[0] / os.cpu_count())  # others at the machine: every turn takes so much longer
        assert not TIMED or self.longest_s < SILENCE_S * busy + 3 * self.noise_s, (
            f"silent for {self.longest_s:.3f} s (noise {self.noise_s:.3f} s, load {busy:.1f}), {self.n} answers")


# ---- many sockets
def address(base):
    u = urllib.parse.urlsplit(base)
    return u.hostname, u.port


def dial(base, source=None, timeout=30 * SLOW, rcvbuf=None):
    """A connected socket, with TLS where the plane has it."""
    s = socket.socket()
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.settimeout(timeout)
    if source:
        s.bind((source, 0))
    s.connect(address(base))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if base.startswith("https"):
        s = _doors[address(base)[1]][0].wrap_socket(s, server_hostname="127.0.0.1")
    return s


def head(path="/v1/completions", method="POST", length=None, more=(), base=None):
    """Bytes of a request's head, with the API key of the plane."""
    key = [f"{k}: {v}" for k, v in (_doors[address(base)[1]][1] if base and base.startswith("https") else {}).items()]
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"] + ([f"Content-Length: {length}"] if length is not None else []) + key + list(more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def is_closed(s):
    """The peer has closed; whatever it said before is read and dropped."""
    s.setblocking(False)
    try:
        while s.recv(65536):
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            s.setblocking(True)


def _crowd(fn, args, conn):
    _in_a_fork()
    held = []
    try:
        conn.send(fn(held, *args))
        while not conn.poll(0.05):
            pass
        conn.send([is_closed(s) for s in held])
    except Exception as e:  # noqa: BLE001
        conn.send(repr(e))
    os._exit(0)


class Crowd:
    """A process of attackers: fn(held, *args) opens sockets into the list held; they stay open until the end of the with block.
    said: what fn returned; after the block closed says of each socket whether the daemon had closed it."""

    def __init__(self, fn, *args):
        self.here, there = fork.Pipe()
        self.process = fork.Process(target=_crowd, args=(fn, args, there), daemon=True)

    def start(self):
        self.process.start()
        return self

    def ready(self, deadline_s):
        assert self.here.poll(deadline_s), f"attackers not ready within {deadline_s} s"
        self.said = self.here.recv()
        assert not isinstance(self.said, str), self.said
        return self.said

    def end(self):
        self.here.send("stop")
        self.closed = self.here.recv() if self.here.poll(60 * SLOW) else None
        _end(self.process)


@contextlib.contextmanager
def crowds(*list_of):
    """Starts all, waits for all, ends all."""
    started = [c.start() for c in list_of]
    try:
        for c in started:
            c.ready(500 * SLOW)
        yield started
    finally:
        for c in started:
            c.end()


def limits_of(base, who="coordinator"):
    """{reason: (refused, used, max)} of a daemon's /metrics."""
    out = {}
    for line in get(base, "/metrics").text.splitlines():
        name, _, rest = line.partition("{")
        if name.startswith(f"{who}_limit_") and 'reason="' in rest:
            reason = rest.split('reason="')[1].split('"')[0]
            out.setdefault(reason, {})[name[len(who) + 7:]] = float(rest.rsplit(" ", 1)[1])
    return out
