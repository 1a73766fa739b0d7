"""A cluster whose daemons live in network namespaces of their own, joined by a bridge, so that a test can cut what goes from one to another:
one way or both, a pair or a whole host. Needs root and iproute2; `why_not()` says what is missing."""
import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess
import types

from etcd_server import HaCluster
from harness import Cluster

CLONE_NEWNET = 0x40000000
_claims = []


def subnet():
    """The first three numbers of addresses that no other process that runs tests has: each claims one by a name in the kernel while it lives."""
    for n in range(1, 255) if not _claims else ():
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0baton-test-net-{n}")
        except OSError:
            claim.close()
            continue
        _claims.append((claim, f"10.213.{n}"))
        break
    assert _claims, "254 others have networks"
    return _claims[0][1]


def sh(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True, timeout=10).stdout


def quietly(*args):
    return subprocess.run(args, check=False, capture_output=True, timeout=10).returncode == 0


@contextlib.contextmanager
def inside(namespace):
    """The body's sockets and children live in a network namespace."""
    far = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    near = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        assert libc.setns(far, CLONE_NEWNET) == 0, "setns"
        yield
    finally:
        assert libc.setns(near, CLONE_NEWNET) == 0, "setns"
        os.close(far)
        os.close(near)


def remove_left_overs():
    """Namespaces and bridges of runs that were killed; each is named after its process."""
    for line in sh("ip", "netns", "list").splitlines():
        m = re.match(r"bchaos(\d+)-\d+\b", line)
        if m and not os.path.exists(f"/proc/{m.group(1)}"):
            quietly("ip", "netns", "del", m.group(0))
    for name in re.findall(r"\d+: (bchaos(\d+))[:@]", sh("ip", "link")):
        if not os.path.exists(f"/proc/{name[1]}"):
            quietly("ip", "link", "del", name[0])


def why_not():
    """None, or why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"bchaos{os.getpid()}-0"
    try:
        if not quietly("ip", "netns", "add", name):
            return "ip netns add is not permitted here"
        made = quietly("ip", "link", "add", f"bchaos{os.getpid()}", "type", "bridge")
        quietly("ip", "link", "del", f"bchaos{os.getpid()}")
        quietly("ip", "netns", "del", name)
        return None if made else "no bridge can be made here"
    except FileNotFoundError:
        return "ip of iproute2 is not installed"


def can_delay():
    """Whether the kernel has netem."""
    name = f"bv{os.getpid()}"
    if not quietly("ip", "link", "add", name, "type", "veth", "peer", "name", name + "p"):
        return False
    good = quietly("tc", "qdisc", "add", "dev", name, "root", "netem", "delay", "1ms")
    quietly("ip", "link", "del", name)
    return good


class Host:
    """A namespace with one address."""

    def __init__(self, number, bridge):
        self.namespace, self.address = f"bchaos{os.getpid()}-{number}", f"{subnet()}.{number + 10}"
        self.port = f"bc{os.getpid() % 100000}p{number}"  # its end at the bridge
        sh("ip", "netns", "add", self.namespace)
        sh("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        sh("ip", "link", "set", self.port, "master", bridge, "up")
        self.ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")
        self.ip("link", "set", "lo", "up")
        self.mac = re.search(r"link/ether (\S+)", self.ip("link", "show", "eth0"))[1]

    def ip(self, *args):
        return sh("ip", "-n", self.namespace, *args)

    def lose(self, to):
        """What this host sends to the other arrives nowhere."""
        self.ip("neigh", "replace", to.address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0")

    def find(self, to):
        self.ip("neigh", "replace", to.address, "lladdr", to.mac, "nud", "permanent", "dev", "eth0")

    def shape(self, *netem):
        """netem: "delay", "100ms", "loss", "1%"; none: as it was."""
        if netem:
            sh("ip", "netns", "exec", self.namespace, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *netem)
        else:
            sh("ip", "netns", "exec", self.namespace, "tc", "qdisc", "del", "dev", "eth0", "root")


class Net:
    """What a cluster of daemons in namespaces is beside a cluster. hosts[daemon.name]: where each one lives."""

    def spread(self, daemons):
        remove_left_overs()
        self.bridge, self.hosts = f"bchaos{os.getpid()}", {}
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{subnet()}.1/24", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")
        for i, d in enumerate(daemons):
            self.hosts[d.name] = Host(i, self.bridge)
            self._start_inside(d, self.hosts[d.name].namespace)
        for inst in self.instances:
            at = self.hosts[inst.name].address
            inst.conf["ServerConfig"].update(ipAddress=at, managementIpAddress=at)
            inst.conf["BatonConfig"]["allowInsecure"] = True
            inst.base, inst.mgmt = f"http://{at}:{inst.port}", f"http://{at}:{inst.mgmt_port}"

    def live_at(self, coordinator):
        """The configuration says where it lives. Returns the address."""
        at, conf = self.hosts[coordinator.name].address, coordinator.conf
        conf["coordinator"]["http_config"].update(predict_ip=at, manage_ip=at)
        conf["pd"] = {**conf.get("pd", {}), "allow_insecure": True}
        return at

    def rank(self, conf):
        """The rank table says where instances live."""
        table = conf["controller"]["global_rank_table_file_path"]
        with open(table) as f:
            ranks = json.load(f)
        for s, inst in zip(ranks["server_group_list"][0]["server_list"], self.instances):
            s["server_ip"] = self.hosts[inst.name].address
        with open(table, "w") as f:
            json.dump(ranks, f)

    @staticmethod
    def _start_inside(daemon, namespace):
        start = daemon.start

        def start_there(_self):
            with inside(namespace):
                return start()

        daemon.start = types.MethodType(start_there, daemon)

    def cut(self, a, b, both=True):
        """From a to b, and back."""
        self.hosts[a.name].lose(self.hosts[b.name])
        if both:
            self.hosts[b.name].lose(self.hosts[a.name])

    def heal(self, a, b):
        self.hosts[a.name].find(self.hosts[b.name])
        self.hosts[b.name].find(self.hosts[a.name])

    def kill_all(self):
        super().kill_all()
        for h in self.hosts.values():
            quietly("ip", "netns", "del", h.namespace)
        quietly("ip", "link", "del", self.bridge)


class NetCluster(Net, Cluster):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.spread(self.daemons)
        at = self.live_at(self.coordinator)
        for name in ("base", "mgmt", "status_base", "external"):
            setattr(self, name, getattr(self, name).replace("127.0.0.1", at))
        self.rank(self.coordinator.conf)


class NetHaCluster(Net, HaCluster):
    """Two coordinators and their etcd, each in a namespace of its own too."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.spread(self.daemons + [self.etcd])
        self.etcd.base = f"http://{self.hosts['etcd'].address}:{self.etcd.port}"
        for c in self.coordinators:
            c.conf["coordinator"]["backup_config"]["database_server_dns"] = self.hosts["etcd"].address
        self.at = [self.live_at(c) for c in self.coordinators]
        self.rank(self.coordinators[0].conf)
        self.use(0)
