"""Goal: the chart with TLS works as it is written: certificates that know no address but common names, secrets as Kubernetes mounts them, probes that show
a certificate; who has another name, or another certificate, is refused and told why.
Method: the containers' own commands, environment and probes, rendered from the chart, with the daemons on loopback addresses of their own; what the secrets
hold is made by openssl as the chart's Certificates say, and lies behind links as in a projected volume."""
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile

import pytest
from harness import BUILD, READY_S, ROOT, SLOW, Daemon, wait_for
from k8s_render import chart
from test_kubernetes import CASES, check_what_containers_say, documents, environment, of_kind, workloads

PORTS = (1025, 1026, 1028, 1029, 1121)


def loopback_addresses(n):
    """Addresses on which the chart's ports are free."""
    while True:
        net = f"127.{random.randint(64, 250)}.{random.randint(1, 250)}"
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for i in range(n):
                for port in PORTS:
                    s = held.enter_context(socket.socket())
                    s.bind((f"{net}.{i + 1}", port))
            return [f"{net}.{i + 1}" for i in range(n)]


def new_certificate(out, subject, usages, names, issuer=None):
    """OUT.crt and OUT.key, signed by ISSUER.crt; None: by itself, a CA."""
    what = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"] if issuer is None else \
        ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=" + ",".join(usages), *(["subjectAltName=" + ",".join("DNS:" + n for n in names)] if names else [])]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "100", "-subj", f"/CN={subject}",
                    "-config", "/dev/null", *[w for e in what for w in ("-addext", e)], *(["-CA", issuer + ".crt", "-CAkey", issuer + ".key"] if issuer else []),
                    "-keyout", out + ".key", "-out", out + ".crt"], check=True, capture_output=True, timeout=60)


def make_pki(folder, docs):
    """What cert-manager would make of the chart's certificates, in pki/ as a projected volume has it: each secret a link to a folder below a link, so that
    all change at once."""
    ca, data = os.path.join(folder, "ca"), os.path.join(folder, "pki", "..2026")
    os.makedirs(data)
    os.mkdir(ca)
    specs = [c["spec"] for c in of_kind(docs, "Certificate")]
    for s in sorted(specs, key=lambda s: not s.get("isCA")):
        plane, name = s["secretName"].removeprefix("baton-tls-").rsplit("-", 1)
        at = os.path.join(ca, plane)
        if s.get("isCA"):
            new_certificate(at, s["commonName"], [], [])
            continue
        into = os.path.join(data, f"{plane}-{name}")
        os.mkdir(into)
        usages = [{"server auth": "serverAuth", "client auth": "clientAuth"}[u] for u in s["usages"] if u.endswith("auth")]
        new_certificate(os.path.join(into, "tls"), s.get("commonName", name), usages, s.get("dnsNames", []), at)
        shutil.copy(at + ".crt", os.path.join(into, "ca.crt"))
        for file in os.listdir(into):
            os.chmod(os.path.join(into, file), 0o400)
    shutil.copytree(os.path.join(data, "metrics-client"), os.path.join(data, "etcd"))
    os.symlink("..2026", os.path.join(folder, "pki", "..data"))
    for name in os.listdir(data):
        os.symlink(f"..data/{name}", os.path.join(folder, "pki", name))


class Pod(Daemon):
    """The container of a workload: its command and environment, /pki in a folder, its address one of loopback."""

    def __init__(self, workload, ip, folder, **more):
        (c,) = workload["spec"]["template"]["spec"]["containers"]
        env = environment(c, {"status.podIP": ip, "metadata.name": f"{workload['metadata']['name']}-0", "metadata.namespace": "baton"})
        env = {k: v.replace("/pki/", folder + "/pki/") for k, v in env.items()} | more
        super().__init__(c["name"], c["command"][0].rsplit("baton-", 1)[1], {}, folder, env)
        self.container, self.ip = c, ip

    def command(self):
        return [os.path.join(BUILD, "bin", self.binary)]

    def probe(self, name, *more):
        """As the kubelet runs it: 0 and a line, or 1 and why."""
        command = self.container[name]["exec"]["command"]
        return subprocess.run([os.path.join(BUILD, "bin", os.path.basename(command[0])), *command[1:], *more], env={**os.environ, **self.env},
                              capture_output=True, text=True, timeout=60 * SLOW)


def ctl(pki, plane, name, *args):
    at = os.path.join(pki, f"{plane}-client")
    return subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "--ca", f"{at}/ca.crt", "--cert", f"{at}/tls.crt", "--key", f"{at}/tls.key", "--peer-name",
                           name, *args], capture_output=True, text=True, timeout=60 * SLOW)


def curl(pki, plane, url, *args, ca=None, resolve=None):
    at = os.path.join(pki, f"{plane}-client")
    r = subprocess.run(["curl", "-sS", "--max-time", "60", "--cacert", ca or f"{at}/ca.crt", "--cert", f"{at}/tls.crt", "--key", f"{at}/tls.key",
                        *(["--resolve", resolve] if resolve else []), "-w", "\n%{http_code}", url, *args], capture_output=True, text=True, timeout=90)
    return r.stdout.rsplit("\n", 1) if r.returncode == 0 else r.stderr


@pytest.fixture(scope="module")
def pods():
    """etcd is left out; the names of the services are addresses, there being no DNS."""
    docs = documents(chart({"tls.enabled": True, "tls.certManager": True, "coordinator.etcd.enabled": False, "coordinator.replicas": 1, "decode.cpu": 1,
                            "prefill.cpu": 1, "prefill.kvCacheMiB": 48, "decode.kvCacheMiB": 48, "model.path": os.path.join(ROOT, "models", "fable")}))
    folder = tempfile.mkdtemp(prefix="baton-k8s-")
    try:
        make_pki(folder, docs)
        by_name = {w["metadata"]["name"].removeprefix("baton-"): w for w in workloads(docs)}
        p, d, c = loopback_addresses(3)
        heartbeat = {"BATON_INSTANCE_KV_HEARTBEAT_MS": str(500 * SLOW), "BATON_INSTANCE_WEIGHT_CACHE_PATH": "off"}
        all_pods = {"prefill": Pod(by_name["prefill"], p, folder, **heartbeat), "decode": Pod(by_name["decode"], d, folder, **heartbeat),
                    "coordinator": Pod(by_name["coordinator"], c, folder, BATON_COORDINATOR_DISCOVER_NAMES=f"{p}:1026=prefill {d}:1026=decode")}
        for pod in all_pods.values():
            pod.start()
        wait_for(lambda: all(pod.probe("readinessProbe").returncode == 0 for pod in all_pods.values()) or not all(x.alive() for x in all_pods.values()),
                 READY_S, "the probes say ready")
        assert all(pod.alive() for pod in all_pods.values()), {n: pod.log()[-2000:] for n, pod in all_pods.items()}
        yield all_pods, os.path.join(folder, "pki")
        for pod in all_pods.values():
            pod.stop()
    finally:
        for pod in locals().get("all_pods", {}).values():
            if pod.alive():
                pod.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("case", [c for c in CASES if c.get("tls.enabled")], ids=["cert-manager", "own secrets"])
def test_what_containers_say_is_understood(pods, case):
    check_what_containers_say(case, pods[1])


def test_probes_and_answers(pods):
    all_pods, pki = pods
    for pod in all_pods.values():
        for probe, word in (("startupProbe", "started"), ("readinessProbe", "ready"), ("livenessProbe", "alive")):
            if probe in pod.container:
                r = pod.probe(probe)
                assert r.returncode == 0 and r.stdout.startswith(f"{word}: https://{pod.ip}:") and r.stdout.count("\n") == 1, r
                told = json.loads(pod.probe(probe, "--json").stdout)
                assert told["ok"] is True and told["status"] == 200, told
    ip = all_pods["coordinator"].ip
    text, status = curl(pki, "user", "https://baton:1025/v1/completions", "-d", '{"model":"fable","prompt":"Once upon a time","max_tokens":8}',
                        resolve=f"baton:1025:{ip}")
    assert status == "200" and json.loads(text)["usage"]["completion_tokens"] == 8
    text, status = curl(pki, "metrics", "https://baton-manage:1028/metrics", resolve=f"baton-manage:1028:{ip}")
    assert status == "200" and "baton_" in text
    r = ctl(pki, "manage", "baton-manage", "-m", f"https://{ip}:1026", "status")
    assert r.returncode == 0 and "coordinator: ready" in r.stdout and "KV" in r.stdout, r
    assert "plain_kv_links" not in all_pods["decode"].log()


def test_names_and_certificates_that_are_others(pods):
    all_pods, pki = pods
    p = all_pods["prefill"]
    r = p.probe("readinessProbe", "--peer-name", "baton-manage")
    assert r.returncode == 1 and "the certificate must name baton-manage (--peer-name), but names baton-instance" in r.stderr, r
    ca = os.path.join(pki, "instance-server", "ca.crt")
    to = {"ca": ca, "resolve": f"baton-instance:1026:{p.ip}"}
    # The certificate of the probes may ask for health, and do nothing else.
    assert curl(pki, "probe", "https://baton-instance:1026/v2/health/ready", **to)[1] == "200"
    for way in (["https://baton-instance:1026/v2/status"], ["https://baton-instance:1026/v2/role/decode", "-d", "{}"],
                ["https://baton-instance:1026/metrics"]):
        assert curl(pki, "probe", *way, **to)[1] == "403", way
    assert curl(pki, "instance", "https://baton-instance:1026/v2/status", **to)[1] == "200"
    assert curl(pki, "business", "https://baton-instance:1026/v2/health/ready", **to).startswith("curl: ")
    # Without a certificate there is no question.
    r = subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "probe", "live", f"https://{p.ip}:1026"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--ca must name a file" in r.stderr, r


def test_another_name_of_the_links(pods):
    """A decode instance that asks for another name: both say why they do not link, and the cluster is not ready."""
    all_pods, _ = pods
    d, p = all_pods["decode"], all_pods["prefill"]
    d.stop()
    kept = d.env["BATON_INSTANCE_INTER_COMM_PEER_NAME"]
    assert kept == "baton-kv"
    d.env["BATON_INSTANCE_INTER_COMM_PEER_NAME"] = "other-kv"
    said = "the certificate must name other-kv (BatonConfig.interCommPeerName), but names baton-kv"
    try:
        d.start()
        wait_for(lambda: said in d.log() and "tls_failed" in d.log(), READY_S, "the instance that refuses says why")
        r = all_pods["coordinator"].probe("readinessProbe")
        assert r.returncode == 1 and "not ready: https://" in r.stderr, r
        text = r.stderr
        wait_for(lambda: said in ctl(os.path.join(d.folder, "pki"), "manage", "baton-manage", "-m", f"https://{all_pods['coordinator'].ip}:1026", "status",
                                     "--json").stdout, READY_S, f"the status says why: {text}")
        d.stop()
    finally:
        d.env["BATON_INSTANCE_INTER_COMM_PEER_NAME"] = kept
        if not d.alive():
            d.start()
    wait_for(lambda: all(pod.probe("readinessProbe").returncode == 0 for pod in (d, p, all_pods["coordinator"])), READY_S, "it heals with the right name")
