"""A real etcd on free ports of loopback, and a cluster with two coordinators on it."""
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import time

from harness import READY_S, SLOW, Cluster, Daemon, free_ports, get, leashed, merge, request, set_door, wait_for

LEASE_S = 3 * SLOW


class Etcd:
    def __init__(self, folder, pki=None):
        """pki: TLS with the certificates of its cluster plane, on both sides."""
        self.pki = pki
        self.folder, self.data = folder, os.path.join(folder, "etcd-data")
        self.port, self.peer_port = free_ports(2)
        self.name, self.base = "etcd", f"http{'s' if pki else ''}://127.0.0.1:{self.port}"
        self.tls = []
        if pki:
            key = os.path.join(folder, "etcd.key")  # etcd reads none with a password
            subprocess.run(["openssl", "pkey", "-in", pki.file("cluster", "peer.key"), "-passin", f"file:{pki.file('cluster', 'peer.pass')}", "-out", key],
                           check=True, capture_output=True)
            self.tls = ["--cert-file", pki.file("cluster", "peer.pem"), "--key-file", key, "--client-cert-auth", "--trusted-ca-file",
                        pki.file("cluster", "ca.pem")]
            set_door(self.port, pki.context("cluster", "peer"))
        self.log_path = os.path.join(folder, "etcd.log")
        self.process = None

    def start(self):
        peers = f"http://127.0.0.1:{self.peer_port}"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                leashed(["etcd", "--name", "test", "--data-dir", self.data, "--listen-client-urls", self.base, "--advertise-client-urls", self.base,
                         "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"test={peers}"] + self.tls),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(self.answers, 30 * SLOW, "etcd answers")
        return self

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("/v3/kv/range", {"key": "YQ=="})[0] < 500
        return False

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self.process = None

    def wipe(self):
        self.stop()
        shutil.rmtree(self.data)

    def call(self, path, body, token=None):
        a = request(self.base + path, "POST", body, headers={"Authorization": token} if token else {}, timeout=5 * SLOW)
        return a.status, json.loads(a.body) if a.status == 200 else a.text

    def value(self, key):
        """Of a key, or None."""
        kvs = self.call("/v3/kv/range", {"key": base64.b64encode(key.encode()).decode()})[1].get("kvs", [])
        return base64.b64decode(kvs[0]["value"]).decode() if kvs else None

    def put(self, key, value):
        return self.call("/v3/kv/put", {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()})


class HaCluster(Cluster):
    """Two coordinators, the first of which leads when it is entered; base, mgmt, status_base are those of the one that use() names."""

    def __init__(self, n_p=1, n_d=1, coord=None, register=False, **kw):
        super().__init__(n_p, n_d, register=register, **kw)
        self.etcd, self.at, pki = Etcd(self.folder), ["127.0.0.1", "127.0.0.1"], kw.get("pki")
        self.scheme = "https" if pki else "http"
        ha = {"coordinator": {"backup_config": {"function_enable": True, "database_server_dns": "127.0.0.1", "database_server_port": self.etcd.port}},
              "pd": {"ha_lease_s": LEASE_S, "stop_drain_timeout_s": 10}}
        first = merge(merge(self.coordinator.conf, ha), coord or {})
        self.all_ports = [self.ports[:4], free_ports(4)]
        for port, plane in zip(self.all_ports[1], ("user", "management", "status", "external")) if pki else ():
            set_door(port, pki.context(plane), pki.headers() if plane == "user" else {})
        self.coordinators = []
        for i, (predict, manage, status, external) in enumerate(self.all_ports):
            conf = merge(first, {"coordinator": {"http_config": {"predict_port": str(predict), "manage_port": str(manage), "status_port": str(status),
                                                                 "external_port": str(external)}}})
            self.coordinators.append(Daemon(f"coordinator{i + 1}", "coordinator", conf, self.folder))
        if register:
            for d in self.instances:
                d.conf["BatonConfig"]["registerUrl"] = " ".join(f"http://127.0.0.1:{ports[1]}" for ports in self.all_ports)
        self.use(0)

    def use(self, i):
        self.coordinator = self.coordinators[i]
        self.base, self.mgmt, self.status_base, self.external = (f"{self.scheme}://{self.at[i]}:{p}" for p in self.all_ports[i])

    @property
    def daemons(self):
        return self.coordinators + self.instances

    def ha(self, i):
        """What coordinator i says of itself; {} while it does not answer."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            a = get(f"{self.scheme}://{self.at[i]}:{self.all_ports[i][1]}", "/v2/status", timeout=2 * SLOW)
            return a.json["coordinator"]["ha"]
        return {}

    def address(self, i):
        return f"{self.at[i]}:{self.all_ports[i][0]}"

    def ready(self, i):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(f"{self.scheme}://{self.at[i]}:{self.all_ports[i][2]}", "/v1/readiness", timeout=2 * SLOW).status == 200
        return False

    def start_both(self):
        """The first leads, the second stands by."""
        self.coordinators[0].start()
        wait_for(lambda: self.ha(0).get("role") == "leader", READY_S, "the first leads")
        self.coordinators[1].start()
        wait_for(lambda: self.ha(1).get("leader") == self.address(0), READY_S, "the second knows who leads")

    def __enter__(self):
        self.etcd.start()
        try:
            for d in self.instances:
                d.start()
            self.start_both()
            wait_for(self.all_serve, READY_S, "all instances serve")
            wait_for(self.is_ready, READY_S, "coordinator ready")
        except AssertionError as e:
            text = self.logs()
            self.kill_all()
            raise AssertionError(f"{e}\n{text}") from None
        return self

    def __exit__(self, kind, *rest):
        try:
            super().__exit__(kind, *rest)
        finally:
            self.etcd.stop()

    def kill_all(self):
        for d in self.daemons:
            if d.alive():
                d.process.send_signal(signal.SIGCONT)
        self.etcd.stop()
        super().kill_all()

    def took_over(self, i, since):
        """Seconds from `since` until coordinator i is ready."""
        wait_for(lambda: self.ready(i), (LEASE_S + 20) * SLOW, f"coordinator {i + 1} is ready")
        return time.monotonic() - since

    def both_again(self, i):
        """Starts the coordinator that was ended, which stands by then."""
        self.coordinators[i].start()
        wait_for(lambda: self.ha(i).get("leader") == self.address(1 - i), READY_S, "it stands by")

    def terms(self):
        """Terms under which a coordinator has given an order, by instance, in the order of its log."""
        return [[int(t) for t in re.findall(r"event=new_coordinator term=(\d+)", d.log())] for d in self.instances]
