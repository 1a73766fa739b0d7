"""Goal: `batonctl doctor` finds what is wrong in and between the nodes of a cluster, names check and node, and says what to do about it; where nothing
is wrong it says so.
Method: tables of breakages. A configuration with TLS everywhere is broken in one place at a time and looked at without any node; a node's own facts
are changed on their way by a server of the test, as a machine would have them that this one is not; real instances are drained, killed and frozen."""
import copy
import datetime
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import types

import pytest
from harness import BUILD, ROOT, SLOW, Cluster, get, leashed, post, wait_for
from pki import Pki

CTL = os.path.join(BUILD, "bin", "batonctl")
KINDS = {"error": 1, "warning": 3, "good": 0}  # worst: exit status


def doctor(*args, limits=None):
    """What it says as JSON, by whatever status it ended."""
    r = subprocess.run(leashed([CTL, "--json", "doctor", *args], limits=limits), capture_output=True, text=True, timeout=60 * SLOW)
    said = json.loads(r.stdout)
    assert "worst" in said, (args, r)
    worst = [f["severity"] for f in said["findings"]]
    assert said["worst"] == ("error" if "error" in worst else "warning" if "warning" in worst else "good")
    assert r.returncode == KINDS[said["worst"]] and not r.stderr, r
    assert all(f["remedy"] for f in said["findings"] if f["severity"] != "note"), said["findings"]
    assert {f["check"] for f in said["findings"]} <= {c["name"] for c in said["checks"]}
    return said


def found(said, check, node, severity, text):
    hits = [f for f in said["findings"] if f["check"] == check and f["severity"] == severity and (node is None or f["node"] == node) and text in f["what"]]
    assert hits, (check, node, severity, text, [f for f in said["findings"] if f["severity"] != "note"])
    return hits


def unexpected(said, *but):
    """Findings above notes, but for those of some checks, and for limits of the machine that the tests run on."""
    return [f for f in said["findings"] if f["severity"] != "note" and f["check"] not in ("descriptors", *but)]


# ---- configurations
@pytest.fixture(scope="module")
def site():
    """Configurations of a coordinator, P and D with TLS on every plane, and certificates to break them with."""
    with Pki() as pki:
        c = Cluster(1, 1, pki=pki, extra={"BatonConfig": {"computeThreads": 1}})
        for i, d in enumerate(c.instances):
            d.conf["BatonConfig"]["instanceName"] = ("P", "D")[i]
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp = [(now + datetime.timedelta(days=n)).strftime("%Y%m%d%H%M%SZ") for n in (-30, -10, 5)]
        pki.issue("instance", "ended", "server", "-f", stamp[0], "-t", stamp[1])
        pki.issue("instance", "soon", "server", "-f", stamp[0], "-t", stamp[2])
        pki.issue("instance", "elsewhere", "server", "-i", "192.0.2.9", "-n", "other.example")
        pki.issue("cluster", "revoked", "peer")
        pki.revoke("cluster", "revoked")
        yield types.SimpleNamespace(cluster=c, pki=pki, files={"coordinator": c.coordinator.conf, "P": c.prefills[0].conf, "D": c.decodes[0].conf},
                                    table=json.load(open(c.coordinator.conf["controller"]["global_rank_table_file_path"])))
        shutil.rmtree(c.folder, ignore_errors=True)


def written(site, folder, change=None):
    """Writes the configurations, broken by change(conf of a node by its name, table, site), and gives their paths."""
    confs, table = copy.deepcopy(site.files), copy.deepcopy(site.table)
    path = str(folder / "rank_table.json")
    confs["coordinator"]["controller"]["global_rank_table_file_path"] = path
    if change is not None:
        change(types.SimpleNamespace(**confs), table, site)
    with open(path, "w") as f:
        f.write(table if isinstance(table, str) else json.dumps(table))
    paths = []
    for name, conf in confs.items():
        paths.append(str(folder / f"{name}.json"))
        with open(paths[-1], "w") as f:
            json.dump(conf, f)
    return paths


def server(key, value):
    return lambda n, t, s: n.D["ServerConfig"].__setitem__(key, value)


def baton(key, value):
    return lambda n, t, s: n.D["BatonConfig"].__setitem__(key, value)


def schedule(key, value):
    return lambda n, t, s: n.D["BackendConfig"]["ScheduleConfig"].__setitem__(key, value)


def model(path):
    return lambda n, t, s: n.D["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0].__setitem__("modelWeightPath", path)


def own(name, plane="instance", prefix="managementTls"):
    """D's certificate of a plane becomes another one."""
    def change(n, t, s):
        keys = {"Cert": ".pem", "Pk": ".key", "PkPwd": ".pass"}
        for key, end in keys.items():
            n.D["ServerConfig"][("interComm" + ("Tls" if key == "Cert" else "") if plane == "cluster" else prefix) + key] = s.pki.file(plane, name + end)
    return change


def another_key(n, t, s):
    n.D["ServerConfig"].update({"managementTlsPk": s.pki.file("instance", "elsewhere.key"), "managementTlsPkPwd": s.pki.file("instance", "elsewhere.pass")})


def open_key(n, t, s):
    copy_of = os.path.join(s.cluster.folder, "open.key")
    shutil.copy(s.pki.file("instance", "server.key"), copy_of)
    os.chmod(copy_of, 0o644)
    n.D["ServerConfig"]["managementTlsPk"] = copy_of


def other_ca(n, t, s):
    items = n.coordinator["coordinator"]["tls_config"]["mindie_client_tls_items"]
    items.update(ca_cert=s.pki.file("user", "ca.pem"), tls_crl=s.pki.file("user", "crl.pem"))


def pinned(n, t, s):
    for conf in (n.P, n.D):
        conf["BackendConfig"]["npuDeviceIds"] = [[0]]
        conf["BatonConfig"]["pinThreads"] = True


def mixed_weights(n, t, s):
    for conf in (n.P, n.D):
        conf["BatonConfig"]["allowMixedWeightDtype"] = True
    n.D["BatonConfig"]["weightDtype"] = "int8"


def no_huge_pages(n, t, s):
    n.D["BatonConfig"].update(kvHugePages="hugetlb", kvCacheMiB=1 << 20)


def port_of_p(n, t, s):
    n.D["ServerConfig"]["interCommPort"] = n.P["ServerConfig"]["interCommPort"]


def table_port(n, t, s):
    t["server_group_list"][0]["server_list"][1]["inter_comm_port"] = "1999"


def not_in_table(n, t, s):
    del t["server_group_list"][0]["server_list"][1]


def plain_outside(n, t, s):
    n.D["ServerConfig"].update(ipAddress="192.0.2.7", httpsEnabled=False)
    n.D["BatonConfig"]["allowInsecure"] = True


def registers_in_vain(n, t, s):
    n.D["BatonConfig"].update(registerUrl=s.cluster.mgmt, registerTlsCaFile=[s.pki.file("user", "ca.pem")], registerTlsCrlFiles=[])


def no_such_device(n, t, s):
    t["server_group_list"][0]["server_list"][0]["device"] = []


BROKEN = [  # what, the change, check, node, severity, words of the finding
    ("a value out of range", schedule("maxBatchSize", 0), "file", None, "error", "maxBatchSize must be an integer from 1 to 5000, got 0"),
    ("an unknown setting", baton("kvCacheMebi", 5), "file", "D", "warning", "kvCacheMebi"),
    ("a rank table that is none", no_such_device, "file", "coordinator", "error", "device must be a non-empty array"),
    ("a key of another certificate", another_key, "certificates", "D", "error", "management"),
    ("a key that others can read", open_key, "certificates", "D", "error", "open.key"),
    ("a CA that is not there", server("tlsCaFile", ["/nowhere/ca.pem"]), "certificates", "D", "error", "/nowhere/ca.pem"),
    ("a certificate that has ended", own("ended"), "certificates", "D", "error", "ended.pem"),
    ("a certificate that ends soon", own("soon"), "days", "D", "warning", "soon.pem"),
    ("a certificate of another address", own("elsewhere"), "trust", "D", "error", "IP address mismatch"),
    ("a certificate that was revoked", own("revoked", "cluster"), "trust", "D", "error", "revoked"),
    ("a CA of another plane", other_ca, "trust", "P", "error", "instance_business"),
    ("TLS at one side", server("httpsEnabled", False), "trust", "D", "error", "plain, but coordinator calls it with TLS"),
    ("a link sealed at one side", server("interCommTLSEnabled", False), "same", "D", "error", "KV link"),
    ("plain planes that others can reach", plain_outside, "plain", "D", "warning", "business"),
    ("another CA for registering", registers_in_vain, "trust", "coordinator", "error", "between D (register)"),
    ("one port for two", port_of_p, "addresses", "D", "error", "where P has its cluster plane"),
    ("a port that the rank table has otherwise", table_port, "table", "D", "error", "port 1999 for its cluster plane"),
    ("an instance that nobody knows", not_in_table, "table", "D", "error", "nor does it register"),
    ("a model that is not there", model("/nowhere/model"), "model", "D", "error", "/nowhere/model"),
    ("another model", model(os.path.join(ROOT, "models", "fable-embed")), "same", "D", "error", "tokenizer hash"),
    ("another block size", schedule("cacheBlockSize", 32), "same", "D", "error", "block size is 32"),
    ("another KV type", baton("kvDtype", "int8"), "same", "D", "error", "KV type is int8"),
    ("another type of weights", baton("weightDtype", "int8"), "same", "D", "error", "type of weights is int8"),
    ("other weights that all allow", mixed_weights, "same", "D", "note", "type of weights is int8"),
    ("another kernel set", baton("kernels", "ref"), "same", "D", "warning", "kernel set is ref"),
    ("standard mode in a cluster", server("inferMode", "standard"), "same", "D", "error", "inferMode is standard"),
    ("more KV than memory", baton("kvCacheMiB", 1 << 24), "memory", "D", "error", "MiB are left"),
    ("huge pages that nobody reserved", no_huge_pages, "huge pages",
     "D", "warning", "reserved huge pages"),
    ("more threads than cores", baton("computeThreads", 1000), "cores", "D", "warning", "1000 threads compute"),
    ("one core for two", pinned, "cores", "D", "warning", "as those of P are"),
    ("no room for packed weights", baton("weightCachePath", "/proc/baton"), "disk", "D", "warning", "/proc/baton"),
]


def test_what_is_whole_is_called_so(site, tmp_path):
    said = doctor("--offline", *written(site, tmp_path))
    assert unexpected(said) == [] and {n["name"] for n in said["nodes"]} == {"coordinator", "P", "D"}
    assert all(n["facts"]["kind"] == n["kind"] and not n["answers"] for n in said["nodes"])


@pytest.mark.parametrize("change,check,node,severity,text", [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_configurations(site, tmp_path, change, check, node, severity, text):
    found(doctor("--offline", *written(site, tmp_path, change)), check, node, severity, text)


def test_limits_of_the_process(site, tmp_path):
    found(doctor("--offline", *written(site, tmp_path), limits={"nofile": 1024}), "descriptors", "P", "warning", "its limit is 1024")


# ---- nodes whose facts are another machine's
class Liar(threading.Thread):
    """A management plane that says what it is told to, by the path."""

    def __init__(self, says):
        super().__init__(daemon=True)
        liar = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = liar.says(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode() if not isinstance(body, bytes) else body)

            def log_message(self, *_):
                pass

        self.says = says
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.start()

    def run(self):
        self.server.serve_forever()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 1) as c:
        yield c


def table_of(folder, *ports):
    path = str(folder / "table.json")
    servers = [{"server_ip": "127.0.0.1", "predict_port": str(p), "mgmt_port": str(p), "metric_port": str(p), "inter_comm_port": str(p),
                "device": [{"device_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]} for p in ports]
    with open(path, "w") as f:
        json.dump({"version": "1.0", "status": "completed", "server_group_list": [{"group_id": "2", "server_list": servers}]}, f)
    return path


def facts_with(path, value):
    def change(facts, status):
        *way, last = path.split(".")
        for name in way:
            facts = facts[name]
        facts[last] = value(facts[last]) if callable(value) else value
    return change


def status_with(path, value):
    return lambda facts, status: facts_with(path, value)(status, None)


OTHERWISE = [  # what, the change of facts and status, check, severity, words
    ("a clock an hour ahead", facts_with("unixSeconds", lambda s: s + 3600), "clock", "error", "3600.0 s ahead"),
    ("a clock two seconds behind", facts_with("unixSeconds", lambda s: s - 2), "clock", "warning", "2.0 s behind"),
    ("another model", facts_with("model.hash", "ab" * 32), "same", "error", "model hash is ababab"),
    ("another version", facts_with("version", "0.9.0"), "same", "warning", "version is 0.9.0"),
    ("another kernel set", facts_with("model.kernels", "avx2"), "same", "warning", "kernel set is avx2"),
    ("another processor", facts_with("host.cpu", "A Processor"), "same", "note", "processor is A Processor"),
    ("a group that pays for half a core", facts_with("host.cpusPaid", 0.25), "cores", "warning", "pays for 0.2 cores"),
    ("no memory left", facts_with("host.memoryAvailable", 1 << 20), "memory", "warning", "only 1 MiB"),
    ("descriptors in use", facts_with("host.descriptorsOpen", 1 << 40), "descriptors", "warning", "in use"),
    ("no huge pages at all", facts_with("host.transparentHugePages", "never"), "huge pages", "warning", "no transparent huge pages"),
    ("small buffers of sockets", facts_with("host.socketBufferMax", 212992), "sockets", "note", "208 KiB"),
    ("a certificate that ends", facts_with("tls", [{"plane": "business", "expires": [{"file": "/x.pem", "unixSeconds": 86400}]}]), "days", "error", "/x.pem"),
    ("a closed port", facts_with("planes", lambda p: [{**x, "port": 1} if x["plane"] == "cluster" else x for x in p]), "ports", "error",
     "cluster plane 127.0.0.1:1 cannot be reached"),
    ("it cannot register", lambda f, s: f.update(registerUrl="http://192.0.2.1:1026", registered=False), "state", "error", "cannot register"),
    ("an engine that is stuck", status_with("service", {"engineStuckMs": 9000}), "state", "error", "has not got on for 9000 ms"),
    ("an engine that is held", status_with("service", {"engineHeld": True}), "state", "error", "held"),
    ("a failed link", status_with("linkStatus", {"peers": [{"target": 7, "link": "failed : 5", "server_ip": "10.0.0.9", "detail": "block tokens"}]}),
     "links", "error", "10.0.0.9: failed : 5: block tokens"),
]


@pytest.mark.parametrize("change,check,severity,text", [row[1:] for row in OTHERWISE], ids=[row[0] for row in OTHERWISE])
def test_facts_of_other_machines(cluster, tmp_path, change, check, severity, text):
    def says(path):
        facts, status = (get(cluster.prefills[0].mgmt, p).json for p in ("/v1/facts", "/v2/status"))
        change(facts, status)
        facts["planes"] = [{**p, "port": liar.port} if p["plane"] == "management" else p for p in facts["planes"]]
        return 200, {"/v1/facts": facts, "/v2/status": status}[path]

    with Liar(says) as liar:
        said = doctor(table_of(tmp_path, liar.port, *(d.mgmt_port for d in cluster.instances)))
    name = next(n["name"] for n in said["nodes"] if n["management"].endswith(f":{liar.port}"))
    found(said, check, None if check == "same" else name, severity, text)


@pytest.mark.parametrize("status,body,severity,text", [
    (404, b"what?", "error", "status 404), but not as a management plane"),
    (503, b"", "warning", "503"),
    (200, b"<html>", "error", "status 200), but not as a management plane"),
    (200, b'{"planes": 5, "tls": {"a": []}, "host": "x", "unixSeconds": "now", "model": [], "cores": [{}]}', None, None),
    (200, b'{"planes": [[], 5, {"plane": 7, "port": -1e300, "ip": "' + b"9" * 5000 + b'"}], "tls": [{"expires": [3, {"unixSeconds": 1e999}]}]}', None, None),
    (200, b"[" * 100000, "error", "not as a management plane"),
])
def test_answers_of_strangers(tmp_path, status, body, severity, text):
    with Liar(lambda path: (status, body)) as liar:
        said = doctor(table_of(tmp_path, liar.port))
    if severity is not None:
        found(said, "answers", None, severity, text)


# ---- a cluster that runs
def test_a_cluster_that_runs(cluster):
    said = doctor("-m", cluster.mgmt)
    assert unexpected(said) == [] and len(said["nodes"]) == 3 and all(n["answers"] for n in said["nodes"])
    assert len(found(said, "speed", None, "note", "forecast: ")) == 2
    text = subprocess.run([CTL, "-m", cluster.mgmt, "doctor"], capture_output=True, text=True, timeout=60 * SLOW).stdout
    assert "\x1b" not in text and re.search(r"^3 nodes \(3 answer\), \d+ checks: ", text, re.M)
    files = doctor(*(d.conf_path for d in cluster.daemons))
    assert unexpected(files) == [] and {n["from"] for n in files["nodes"]} == {"file"} and all(n["answers"] for n in files["nodes"])


def test_measured_on_request(cluster):
    said = doctor("-m", cluster.mgmt, "--measure")
    assert unexpected(said) == []
    names = {n["name"] for n in said["nodes"] if n["kind"] == "instance"}
    assert {(x["from"], x["to"]) for x in said["links"]} == {(a, b) for a in names for b in names if a != b}
    assert all(x["bytesPerSecond"] > 1e6 and 0 < x["rttMicroseconds"] < 1e6 for x in said["links"])
    measured = [n["measured"] for n in said["nodes"] if n["kind"] == "instance"]
    assert all(m["readBytesPerSecond"] > 1e8 and m["operationsPerSecond"] > 1e8 and m["threads"] == 1 for m in measured)
    assert len(found(said, "links", None, "note", "GB/s")) == 2 and len(found(said, "speed", None, "note", "memory is read at")) == 2
    p = cluster.prefills[0]
    for body, status, text in (({"what": "link", "peer": 99}, 404, "has a link to"), ({"what": "link"}, 422, "peer must be"), ({}, 422, "what must be"),
                               (b"{", 422, "ends inside")):
        a = post(p.mgmt, "/v1/measure", body)
        assert a.status == status and text in a.text, a.text
    p_id, *_ = cluster.serving("prefill")
    a = post(cluster.mgmt, f"/v1/instances/measure?id={p_id}", {"what": "machine"})
    assert a.status == 200 and a.json["instruction"]
    assert get(cluster.mgmt, "/v1/instances/facts?id=99").status == get(cluster.mgmt, "/v1/instances/facts").status == 404
    assert get(cluster.mgmt, f"/v1/instances/facts?id={p_id}").json["kind"] == "instance"


def test_through_the_coordinator(site):
    """Planes have CAs of their own: with a certificate of the coordinator's plane alone the instances are asked by way of it."""
    file = site.pki.file
    with Cluster(1, 1, pki=site.pki) as c:
        keys = [x for flag, name in (("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key"), ("--pass", "client.pass"))
                for x in (flag, file("management", name))]
        said = doctor("-m", c.mgmt, *keys, "--measure")
        assert unexpected(said, "days") == [] and all(n["answers"] for n in said["nodes"]) and len(said["nodes"]) == 3 and len(said["links"]) == 2
        files = doctor(*(d.conf_path for d in c.daemons))  # with the certificate of the coordinator's own calls
        assert {n["kind"]: n["answers"] for n in files["nodes"]} == {"coordinator": False, "instance": True}
        found(files, "answers", "coordinator", "note", "wants a certificate")


def test_instances_that_go(cluster):
    p, d = cluster.prefills[0], cluster.decodes[0]
    name = {i["address"]: i["name"] for i in cluster.status()["instances"]}[f"127.0.0.1:{d.port}"]
    assert subprocess.run([CTL, "-m", cluster.mgmt, "drain", name, "--force"], capture_output=True).returncode == 0
    found(doctor("-m", cluster.mgmt), "cluster", name, "warning", "drained")
    d.kill()
    wait_for(lambda: "failed" in str(p.status()["linkStatus"]), 30 * SLOW, "P sees that its link is down")
    wait_for(lambda: not cluster.serving("decode"), 30 * SLOW, "the coordinator sees that D is gone")
    said = doctor("-m", cluster.mgmt)
    found(said, "answers", name, "error", "does not answer")
    found(said, "cluster", None, "error", "not ready")
    found(said, "links", None, "error", "failed : 1")
    cluster.coordinator.kill(signal.SIGKILL)
    said = doctor("-m", cluster.mgmt)
    found(said, "answers", "coordinator", "error", "does not answer")
    said = doctor(*(x.conf_path for x in cluster.daemons))  # nobody but P is there, and its files are
    assert {n["name"] for n in said["nodes"] if n["answers"]} == {f"127.0.0.1:{p.port}"}


def test_the_page_lists_the_checks(site, tmp_path):
    with open(os.path.join(ROOT, "docs", "tool.md")) as f:
        section = f.read().split("## Find what is wrong", 1)[1].split("\n## ")[0]
    checks = [c["name"] for c in doctor("--offline", *written(site, tmp_path))["checks"]]
    assert re.findall(r"^\| `([a-z ]+)` \|", section, re.M) == checks and f" {len(checks)} checks:" in section


def test_words_that_it_refuses(tmp_path):
    for args, text in ((["doctor", "--offline"], "--offline needs a FILE"), (["doctor", "--ofline"], "did you mean --offline?")):
        r = subprocess.run([CTL, *args], capture_output=True, text=True)
        assert r.returncode == 2 and text in r.stderr
    said = doctor("--offline", str(tmp_path / "nowhere.json"))
    found(said, "file", str(tmp_path / "nowhere.json")[:90], "error", "nowhere.json")
