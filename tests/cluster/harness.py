"""Starts real daemons on free loopback ports and talks to them. A test waits for facts with deadlines; the harness ends only what it started.

A Cluster is a coordinator with prefill and decode instances; a Standalone is one instance in standard mode. Both give `base`, the URL of
the user plane, and the helpers below take it.
"""
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

# grpcio in this process would wait in every fork for threads of its own, at times for ever (attackers are forked).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
FABLE = os.path.join(ROOT, "models", "fable")
# sanitizers, and emulation, make everything slower: deadlines grow (as tests/run.sh says, which says it to unit programs too)
SLOW = int(os.environ.get("TEST_SLOW") or (6 if any(word in os.path.basename(BUILD) for word in ("asan", "tsan", "arm")) else 1))
READY_S = 60 * SLOW
ANSWER_S = 60 * SLOW


_port_claims = []


def free_ports(n):
    """n ports nobody listens on now, all different, and of this process alone while it lives: several runners ask at once, and a
    daemon listens only some time later. So each is claimed by a name in the kernel, and none is one that connect() may take."""
    ports = []
    for port in random.Random().sample(range(10000, 32768), 5000):
        claim, probe = socket.socket(socket.AF_UNIX), socket.socket()
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            claim.bind(f"\0baton-test-port-{port}")
            probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        finally:
            probe.close()
        _port_claims.append(claim)
        ports.append(port)
        if len(ports) == n:
            return ports
    raise AssertionError(f"no {n} free ports")


def wait_for(fact, deadline_s, what):
    """Calls fact() until it is true; its value is returned. Fails with `what` after deadline_s."""
    end = time.monotonic() + deadline_s
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.02)


def merge(base, extra):
    """Deep merge of dictionaries; extra wins."""
    out = dict(base)
    for key, value in extra.items():
        out[key] = merge(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


# ---- HTTP
class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.body)


_doors = {}  # port: (ssl.SSLContext, headers) of the TLS listeners of running clusters


def set_door(port, context, headers=None):
    """How connect() speaks to a TLS listener of the test's own."""
    _doors[port] = (context, headers or {})


def connect(base, timeout=ANSWER_S):
    """A connection to a daemon, and the headers that its plane asks for (an API key)."""
    u = urllib.parse.urlsplit(base)
    if u.scheme == "https":
        ctx, headers = _doors[u.port]
        return http.client.HTTPSConnection(u.hostname, u.port, timeout=timeout, context=ctx), headers
    return http.client.HTTPConnection(u.hostname, u.port, timeout=timeout), {}


def request(url, method="GET", body=None, headers=None, timeout=ANSWER_S):
    """One request on its own connection. A dict body is sent as JSON, bytes as they are."""
    u = urllib.parse.urlsplit(url)
    conn, more = connect(url, timeout)
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    try:
        conn.request(method, u.path + (f"?{u.query}" if u.query else ""), body=data, headers={**more, **(headers or {})})
        r = conn.getresponse()
        return Answer(r.status, dict(r.getheaders()), r.read())
    finally:
        conn.close()


def post(base, path, body, **kw):
    return request(base + path, "POST", body, **kw)


def get(base, path, **kw):
    return request(base + path, "GET", **kw)


class Stream:
    """A streaming POST, read piece by piece."""

    def __init__(self, base, path, body, headers=None, timeout=ANSWER_S):
        self.conn, more = connect(base, timeout)
        self.conn.request("POST", path, body=json.dumps(body).encode(), headers={**more, **(headers or {})})
        self.response = self.conn.getresponse()
        self.status = self.response.status
        self.raw = b""

    def read_some(self):
        piece = self.response.read1(65536)
        self.raw += piece
        return piece

    def read_until(self, n_events, separator=b"\n\n"):
        while self.raw.count(separator) < n_events:
            if not self.read_some():
                break
        return self.raw

    def read_all(self):
        while self.read_some():
            pass
        self.conn.close()
        return self.raw

    def abandon(self):
        """Closes the socket at once, as a client that goes away does."""
        self.conn.sock.close() if self.conn.sock else None
        self.response.close()
        self.conn.close()


def events(raw):
    """The JSON objects of an SSE body (with or without a space after "data:"), [DONE] left out."""
    out = []
    for line in raw.decode("utf-8").split("\n"):
        if line.startswith("data:"):
            data = line[5:].lstrip(" ")
            if data and data != "[DONE]":
                out.append(json.loads(data))
    return out


# ---- daemons
def leashed(command, env=None, limits=None):
    """The command line that runs command so that a run of the tests that is killed leaves no daemon behind. limits: {name of prlimit: n}. Programs
    of their own instead of a preexec_fn, since this process may have threads (grpcio's), which a fork would cut off in the middle of what they do."""
    with_limits = ["prlimit"] + [f"--{name}={n}:{n}" for name, n in limits.items()] if limits else []
    with_env = ["env"] + [f"{k}={v}" for k, v in env.items()] if env else []
    return ["setpriv", "--pdeathsig", "KILL"] + with_env + with_limits + command


class Daemon:
    def __init__(self, name, binary, conf, folder, env=None):
        self.name, self.binary, self.conf, self.folder, self.env = name, binary, conf, folder, env
        self.conf_path = os.path.join(folder, f"{name}.json")
        self.log_path = os.path.join(folder, f"{name}.log")
        self.process = None
        self.killed = False

    def command(self):
        return [os.path.join(BUILD, "bin", self.binary), "-c", self.conf_path]

    def start(self):
        with open(self.conf_path, "w") as f:
            json.dump(self.conf, f, indent=1)
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(leashed(self.command(), self.env), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.killed = False
        return self

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, sig=signal.SIGKILL):
        self.killed = True
        self.process.send_signal(sig)
        if sig in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(timeout=30 * SLOW)

    def stop(self):
        """SIGTERM; the exit status must be 0, and no sanitizer may have complained."""
        if self.process is None:
            return
        if not self.killed:
            assert self.process.poll() is None, f"{self.name} ended by itself with {self.process.returncode}:\n{self.log()[-3000:]}"
            self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(timeout=30 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.name} did not end on SIGTERM:\n{self.log()[-3000:]}")
            assert code == 0, f"{self.name} ended with {code}:\n{self.log()[-3000:]}"
        log = self.log()
        for word in ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error:"):
            assert word not in log, f"{self.name}: {word}:\n{log[-8000:]}"
        self.process = None


def instance_conf(port, mgmt, inter, mode, model=FABLE, extra=None):
    conf = {
        "ServerConfig": {"ipAddress": "127.0.0.1", "managementIpAddress": "127.0.0.1", "port": port, "managementPort": mgmt, "metricsPort": mgmt,
                         "httpsEnabled": False, "inferMode": mode, "interCommTLSEnabled": False, "interCommPort": inter},
        "BackendConfig": {
            "tokenizerProcessNumber": 2,
            "ModelDeployConfig": {"maxSeqLen": 1024, "maxInputTokenLen": 1023,
                                  "ModelConfig": [{"modelName": "fable", "modelWeightPath": model, "worldSize": 1}]},
            "ScheduleConfig": {"cacheBlockSize": 16, "maxBatchSize": 32, "maxPrefillBatchSize": 8, "maxPrefillTokens": 2048}},
        "BatonConfig": {"kvCacheMiB": 48, "computeThreads": 1, "kvHeartbeatMs": 500 * SLOW},
    }
    return merge(conf, extra or {})


class Instance(Daemon):
    def __init__(self, name, binary, folder, ports, mode="dmi", model=FABLE, extra=None, env=None, pki=None):
        self.port, self.mgmt_port, self.inter_port = ports
        scheme = "http"
        if pki is not None:
            scheme = "https"
            extra = merge(pki.instance(mode), extra or {})
            user = mode == "standard"
            _doors[self.port] = (pki.context("user" if user else "business"), pki.headers() if user else {})
            _doors[self.mgmt_port] = (pki.context("instance"), {})
        super().__init__(name, binary, instance_conf(*ports, mode, model, extra), folder, env)
        self.base = f"{scheme}://127.0.0.1:{self.port}"
        self.mgmt = f"{scheme}://127.0.0.1:{self.mgmt_port}"

    def status(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            a = get(self.mgmt, "/v2/status", timeout=5 * SLOW)
            if a.status == 200:
                return a.json
        return None

    def load(self):
        """(free slots, free blocks, waiting, running, leases), or None while it does not answer."""
        s = self.status()
        if s is None:
            return None
        r = s["resource"]
        return r["availSlotsNum"], r["availBlockNum"], r["waitingRequestNum"], r["runningRequestNum"], r["kvLeases"]

    def idle(self):
        """load() when nothing waits, runs or is lent any more: an answer's end is told before its lease is."""
        wait_for(lambda: (self.load() or (None,) * 5)[2:] == (0, 0, 0), 10 * SLOW, f"{self.name} is idle, now {self.load()}")
        return self.load()


class Standalone:
    """One instance in standard mode."""

    def __init__(self, model=FABLE, extra=None, env=None, pki=None):
        self.folder = tempfile.mkdtemp(prefix="baton-test-")
        self.instance = Instance("standard", "prefill", self.folder, free_ports(3), "standard", model, extra, env, pki)
        self.base, self.mgmt = self.instance.base, self.instance.mgmt

    def __enter__(self):
        self.instance.start()
        wait_for(lambda: self.instance.load() or not self.instance.alive(), READY_S, "standard instance ready")
        assert self.instance.alive(), self.instance.log()
        return self

    def __exit__(self, *_):
        try:
            self.instance.stop()
        finally:
            if self.instance.alive():
                self.instance.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    """A coordinator, n_p prefill and n_d decode instances. extra: merged into every instance's configuration; coord: into the coordinator's.
    register=True: no rank table, the instances announce themselves. pki (pki.py): TLS on every plane, and its API keys. ports: those of a cluster of
    the same size that has ended; its instances have the ids of the others then."""

    def __init__(self, n_p=1, n_d=1, model=FABLE, extra=None, coord=None, register=False, env=None, pki=None, ports=None):
        self.folder = tempfile.mkdtemp(prefix="baton-test-")
        self.ports = ports = ports or free_ports(4 + 3 * (n_p + n_d))
        predict, manage, status, external = ports[:4]
        scheme = "http"
        if pki is not None:
            scheme = "https"
            coord = merge(pki.coordinator(), coord or {})
            for port, plane in ((predict, "user"), (manage, "management"), (status, "status"), (external, "external")):
                _doors[port] = (pki.context(plane), pki.headers() if plane == "user" else {})
        self.base, self.mgmt, self.status_base, self.external = (f"{scheme}://127.0.0.1:{p}" for p in (predict, manage, status, external))
        self.prefills, self.decodes, servers = [], [], []
        for i in range(n_p + n_d):
            own = ports[4 + 3 * i:7 + 3 * i]
            is_p = i < n_p
            more = merge(extra or {}, {"BatonConfig": {"registerUrl": self.mgmt}}) if register else extra
            inst = Instance(f"prefill{i + 1}" if is_p else f"decode{i - n_p + 1}", "prefill" if is_p else "decode", self.folder, own, "dmi", model,
                            more, env, pki)
            (self.prefills if is_p else self.decodes).append(inst)
            servers.append({"server_ip": "127.0.0.1", "predict_port": str(own[0]), "mgmt_port": str(own[1]), "metric_port": str(own[1]),
                            "inter_comm_port": str(own[2]), "label": 0 if is_p else 1,
                            "device": [{"device_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]})
        conf = {"coordinator": {"http_config": {"predict_port": str(predict), "manage_port": str(manage), "status_port": str(status),
                                                "external_port": str(external)}},
                "pd": {"heartbeat_ms": 500 * SLOW},
                "controller": {"default_p_rate": min(n_p, 8), "default_d_rate": min(n_d, 8), "http_timeout_seconds": 5 * SLOW}}
        if not register:
            table = os.path.join(self.folder, "rank_table.json")
            with open(table, "w") as f:
                json.dump({"version": "1.0", "status": "completed", "server_group_list": [{"group_id": "2", "server_list": servers}]}, f)
            conf["controller"]["global_rank_table_file_path"] = table
        self.coordinator = Daemon("coordinator", "coordinator", merge(conf, coord or {}), self.folder, env)
        self.n_p, self.n_d = n_p, n_d

    @property
    def instances(self):
        return self.prefills + self.decodes

    @property
    def daemons(self):
        return [self.coordinator] + self.instances

    def status(self):
        return get(self.mgmt, "/v2/status", timeout=10 * SLOW).json

    def serving(self, role):
        """Ids of the instances of a role that serve."""
        return [i["id"] for i in self.status()["instances"] if i["role"] == role and i["state"] == "serving"]

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(self.status_base, "/v1/readiness", timeout=5 * SLOW).status == 200
        return False

    def all_serve(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return len(self.serving("prefill")) == self.n_p and len(self.serving("decode")) == self.n_d
        return False

    def instance_of(self, inst_id):
        """The daemon behind an id of the coordinator."""
        for i in self.status()["instances"]:
            if i["id"] == inst_id:
                port = int(i["address"].rsplit(":", 1)[1])
                return next(d for d in self.instances if d.port == port)
        raise AssertionError(f"no instance {inst_id}")

    def loads(self):
        return [i.load() for i in self.instances if i.alive()]

    def idle(self):
        return [i.idle() for i in self.instances if i.alive()]

    def wait_idle(self, loads, deadline_s):
        """Every instance is back at these loads (as idle() gave them)."""
        wait_for(lambda: self.loads() == loads, deadline_s, f"loads back at {loads}, now {self.loads()}")

    def logs(self):
        return "\n".join(f"--- {d.name}\n{d.log()[-4000:]}" for d in self.daemons if d.process is not None)

    def __enter__(self):
        for d in self.daemons:
            d.start()
        try:
            wait_for(lambda: self.all_serve() or not all(d.alive() for d in self.daemons), READY_S, "all instances serve")
            assert all(d.alive() for d in self.daemons)
            wait_for(self.is_ready, READY_S, "coordinator ready")
        except AssertionError as e:
            text = self.logs()
            self.kill_all()
            raise AssertionError(f"{e}\n{text}") from None
        return self

    def kill_all(self):
        for d in self.daemons:
            if d.alive():
                d.process.kill()
                d.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __exit__(self, kind, *_):
        try:
            for d in self.daemons:
                d.stop()
        except AssertionError:
            if kind is None:
                raise
        finally:
            self.kill_all()


def in_threads(jobs):
    """Runs callables at once; gives their results in order, or raises the first failure."""
    results = [None] * len(jobs)

    def run(i):
        try:
            results[i] = (True, jobs[i]())
        except BaseException as e:  # noqa: BLE001 - carried to the caller
            results[i] = (False, e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for ok, value in results:
        if not ok:
            raise value
    return [value for _, value in results]
