"""Goal: the manifests of cluster-conf are what Kubernetes and KServe take, say what our programs understand, and hang together.
Method: the published schemas (tests/data/k8s); the daemons' own --print-config on each container's command and environment; names, ports, labels and probes
held against each other and against a live cluster. Helm and an API server are not there: templates are rendered by k8s_render.py, which knows the few forms
that they use, and what an API server checks beyond schemas is checked here only as far as it is written out below."""
import glob
import gzip
import json
import os
import re
import subprocess

import jsonschema
import pytest
import yaml
from harness import BUILD, ROOT, Cluster, get
from k8s_render import CHART, chart, manifests

DATA = os.path.join(ROOT, "tests", "data", "k8s")
CASES = [{}, {"model.pvc": "models", "model.path": "/models/qwen", "model.name": "qwen", "serviceMonitor.enabled": True},
         {"coordinator.etcd.enabled": False, "coordinator.replicas": 1, "networkPolicy.enabled": False},
         {"tls.enabled": True, "tls.certManager": True, "serviceMonitor.enabled": True, "coordinator.etcd.tlsSecret": "etcd-client"},
         {"tls.enabled": True, "tls.fsGroup": "", "tls.clientCertificates": "optional", "tls.secrets": "other", "drainSeconds": 30},
         {"prefill.replicas": 2, "decode.replicas": 3, "decode.cpu": 16, "model.contextTokens": 8192, "drainSeconds": 60}]
KSERVE = sorted(glob.glob(os.path.join(ROOT, "cluster-conf", "kserve", "*.yaml")))


class Strict(yaml.SafeLoader):
    """Refuses a key that is there twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice"
        return super().construct_mapping(node, deep)


def documents(text):
    return [d for d in yaml.load_all(text, Loader=Strict) if d is not None]


def of_kind(docs, kind):
    return [d for d in docs if d["kind"] == kind]


def conforms(doc):
    with open(os.path.join(DATA, "index.json")) as f:
        name = json.load(f)[f"{doc['apiVersion']}/{doc['kind']}"]
    with gzip.open(os.path.join(DATA, name + ".gz")) as f:
        schema = json.load(f)
    errors = [f"/{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in jsonschema.Draft7Validator(schema).iter_errors(doc)]
    assert not errors, (doc["kind"], doc["metadata"]["name"], errors)


def workloads(docs):
    return of_kind(docs, "StatefulSet") + of_kind(docs, "Deployment")


def pods(docs):
    return [(w["spec"]["template"]["metadata"]["labels"], w["spec"]["template"]["spec"]) for w in workloads(docs)]


def environment(container, fields):
    """What a container finds in it: values, fields of its pod, and $(NAME) of what stands before."""
    env = {}
    for e in container["env"]:
        value = e["value"] if "value" in e else fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
        env[e["name"]] = re.sub(r"\$\((\w+)\)", lambda m: env[m[1]], value)
    return env


def secret_files(spec):
    """What the volume pki has: {path below it: secret}; empty where there is none."""
    out = {}
    for v in spec["volumes"]:
        for source in v.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                assert item["path"] not in out
                out[item["path"]] = source["secret"]["name"]
    return out


def selects(selector, labels):
    ok = all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())
    return ok and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", []))


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_chart(case):
    docs = documents(chart(case, "mine", "models"))
    for doc in docs:
        conforms(doc)
        assert doc["metadata"]["namespace"] == "models" and doc["metadata"]["name"].startswith("mine")
    kinds = sorted(d["kind"] for d in docs)
    assert ("ServiceMonitor" in kinds) == case.get("serviceMonitor.enabled", False) and ("NetworkPolicy" in kinds) == case.get("networkPolicy.enabled", True)
    assert kinds.count("StatefulSet") == 2 and kinds.count("Deployment") == 1 and kinds.count("PodDisruptionBudget") == 2
    names = [(d["kind"], d["metadata"]["name"]) for d in docs]
    assert len(names) == len(set(names))
    for w in workloads(docs):
        pod = w["spec"]["template"]
        assert selects(w["spec"]["selector"], pod["metadata"]["labels"])
        if w["kind"] == "StatefulSet":
            service = next(s for s in of_kind(docs, "Service") if s["metadata"]["name"] == w["spec"]["serviceName"])
            assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
        (container,) = pod["spec"]["containers"]
        r = container["resources"]
        assert r["requests"] == r["limits"] and isinstance(r["limits"]["cpu"], int)  # guaranteed, whole cores
        env = {e["name"]: e.get("value") for e in container["env"]}
        drain = int(env.get("BATON_INSTANCE_STOP_DRAIN_TIMEOUT_SECONDS") or env["BATON_COORDINATOR_STOP_DRAIN_TIMEOUT_S"])
        sleep = int(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])[1])
        assert pod["spec"]["terminationGracePeriodSeconds"] >= drain + sleep + 5 and pod["spec"]["enableServiceLinks"] is False
        mounted = {m["name"] for m in container["volumeMounts"]}
        assert mounted == {v["name"] for v in pod["spec"]["volumes"]} and ("models" in mounted) == (w["kind"] == "StatefulSet" and "model.pvc" in case)
        assert container["securityContext"]["readOnlyRootFilesystem"] is True and pod["spec"]["securityContext"]["runAsNonRoot"] is True
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        assert len(set(ports.values())) == len(ports)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if case.get("tls.enabled"):
                assert probe not in container or container[probe]["exec"]["command"][:2] == ["/usr/bin/batonctl", "probe"]
            else:
                assert probe not in container or container[probe]["httpGet"]["port"] in ports
    for s in of_kind(docs, "Service"):  # each finds pods that have its ports
        found = [spec for labels, spec in pods(docs) if selects({"matchLabels": s["spec"]["selector"]}, labels)]
        assert len(found) == 1 and {p["targetPort"] for p in s["spec"]["ports"]} <= {p["name"] for p in found[0]["containers"][0]["ports"]}
    for policy in of_kind(docs, "NetworkPolicy") + of_kind(docs, "PodDisruptionBudget"):
        selector = policy["spec"].get("podSelector") or policy["spec"]["selector"]
        found = [spec for labels, spec in pods(docs) if selects(selector, labels)]
        wanted = {p["port"] for rule in policy["spec"].get("ingress", []) for p in rule["ports"]}
        assert found and all(wanted <= {p["name"] for p in spec["containers"][0]["ports"]} for spec in found)
    for m in of_kind(docs, "ServiceMonitor"):
        found = [s for s in of_kind(docs, "Service") if selects(m["spec"]["selector"], s["metadata"]["labels"])]
        assert len(found) == 1 and m["spec"]["endpoints"][0]["port"] in {p["name"] for p in found[0]["spec"]["ports"]}


@pytest.mark.parametrize("case", [c for c in CASES if not c.get("tls.enabled")], ids=str)
def test_what_containers_say_is_understood(case):
    check_what_containers_say(case)


def check_what_containers_say(case, pki="/pki"):
    """Each command with its environment: every variable is a setting, and together they are right; the ports are those that are named."""
    docs = documents(chart(case))
    for w in workloads(docs):
        (c,) = w["spec"]["template"]["spec"]["containers"]
        fields = {"status.podIP": "10.1.2.3", "metadata.name": f"{w['metadata']['name']}-0", "metadata.namespace": "baton"}
        env = {k: v.replace("/pki/", pki + "/") for k, v in environment(c, fields).items()}
        binary = c["command"][0].rsplit("baton-", 1)[1]
        r = subprocess.run([os.path.join(BUILD, "bin", binary), "--print-config"], capture_output=True, text=True, timeout=60, env={**os.environ, **env,
                           **({"BATON_COORDINATOR_DATABASE_SERVER_DNS": "127.0.0.1"} if binary == "coordinator" else {})})
        assert r.returncode == 0 and "unknown variable" not in r.stderr, r.stderr
        got = {line.split(" = ", 1)[0].rsplit(".", 1)[1]: json.loads(line.split(" = ", 1)[1].rsplit("  # ", 1)[0]) for line in r.stdout.splitlines()
               if "." in line.split(" = ")[0]}
        assert all(f"environment {name}\n" in r.stdout for name in env if name.startswith(("BATON_INSTANCE_", "BATON_COORDINATOR_")))
        tls = case.get("tls.enabled", False)
        assert (got["interCommTLSEnabled"] if binary != "coordinator" else got["mindie_client_tls_enable"]) is tls
        assert got["allow_insecure" if binary == "coordinator" else "allowInsecure"] is (not tls or binary == "coordinator" and
                                                                                      "coordinator.etcd.tlsSecret" not in case)
        ports = {p["name"]: p["containerPort"] for p in c["ports"]}
        keys = {"http": "predict_port", "manage": "manage_port", "metrics": "external_port", "status": "status_port"} if binary == "coordinator" else \
               {"http": "port", "manage": "managementPort", "kv": "interCommPort"}
        assert {name: got[key] for name, key in keys.items()} == ports
        if binary == "coordinator":
            names = [n.split(":")[0] for n in got["discover_names"].split()]
            assert names == [f"{s['metadata']['name']}.{s['metadata']['namespace']}.svc" for role in ("prefill", "decode") for s in of_kind(docs, "Service")
                             if s["metadata"]["name"].endswith(role)]


@pytest.mark.parametrize("name,tls", [("baton", False), ("baton-tls", True)], ids=["plain", "tls"])
def test_the_plain_manifests_are_the_chart(name, tls):
    with open(os.path.join(ROOT, "cluster-conf", "kubernetes", f"{name}.yaml")) as f:
        text = f.read()
    assert text == manifests(tls)  # else: python3 tests/cluster/k8s_render.py [tls]
    for doc in documents(text):
        conforms(doc)


@pytest.mark.parametrize("case", [c for c in CASES if c.get("tls.enabled")], ids=["cert-manager", "own secrets"])
def test_every_secret_is_there_and_has_its_use(case):
    docs = documents(chart(case))
    certs = {c["spec"]["secretName"]: c for c in of_kind(docs, "Certificate")}
    issuers = {i["metadata"]["name"]: i["spec"] for i in of_kind(docs, "Issuer")}
    prefix = case.get("tls.secrets", "baton-tls")
    used = set()
    for w in workloads(docs):
        spec = w["spec"]["template"]["spec"]
        (c,) = spec["containers"]
        files = secret_files(spec)
        fields = {"status.podIP": "10.1.2.3", "metadata.name": "x-0", "metadata.namespace": "baton"}
        named = {v.removeprefix("/pki/") for v in environment(c, fields).values() if v.startswith("/pki/")}
        of_folders = {path.split("/")[0] for path in named}
        assert named <= set(files) and {path.split("/")[0] for path in files} == of_folders  # nothing is missing, no secret is there for nothing
        assert all(name in (f"{prefix}-{path.split('/')[0]}", "etcd-client") for path, name in files.items())
        assert spec["securityContext"].get("fsGroup") == (None if case.get("tls.fsGroup") == "" else 65532)
        used |= set(files.values())
    if case.get("tls.certManager"):
        ours = {"user", "manage", "metrics"}  # whose clients are elsewhere
        assert used - {"etcd-client"} == {n for n, c in certs.items() if not c["spec"].get("isCA")} - {f"{prefix}-{p}-client" for p in ours}
        for c in certs.values():  # one CA a plane, and each certificate is its plane's
            issuer = issuers[c["spec"]["issuerRef"]["name"]]
            plane = c["spec"]["secretName"].removeprefix(prefix + "-").split("-")[0]
            assert issuer == ({"selfSigned": {}} if c["spec"].get("isCA") else {"ca": {"secretName": f"{prefix}-{plane}-ca"}})
    else:
        assert certs == {} == issuers


def test_values_are_used():
    """A value that no template reads does nothing, whatever is set."""
    text = "".join(open(path).read() for path in glob.glob(os.path.join(CHART, "templates", "*.yaml")))

    def leaves(at, way):
        return [p for k, v in at.items() for p in leaves(v, f"{way}.{k}")] if isinstance(at, dict) else [way]
    with open(os.path.join(CHART, "values.yaml")) as f:
        assert [p for p in leaves(yaml.safe_load(f), ".Values") if not re.search(re.escape(p) + r"\b", text)] == []


def test_probes_on_a_live_cluster():
    docs = documents(chart())
    with Cluster(1, 1) as cluster:
        planes = {("coordinator", "status"): cluster.status_base, ("prefill", "manage"): cluster.prefills[0].mgmt, ("decode", "manage"): cluster.decodes[0].mgmt}
        n = 0
        for w in workloads(docs):
            (c,) = w["spec"]["template"]["spec"]["containers"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in c:
                    at = c[probe]["httpGet"]
                    assert get(planes[c["name"], at["port"]], at["path"]).status == 200, (c["name"], probe)
                    n += 1
        assert n == 8


def test_the_schemas_find_what_is_wrong():
    for kind, way, value in [("StatefulSet", ("spec", "template", "spec", "containers", 0, "readinessProb"), {}), ("Deployment", ("spec", "replicas"), "two"),
                             ("NetworkPolicy", ("spec", "ingres"), []), ("Service", ("spec", "ports", 0, "port"), None)]:
        doc = of_kind(documents(chart()), kind)[0]
        at = doc
        for part in way[:-1]:
            at = at[part]
        at[way[-1]] = value
        with pytest.raises(AssertionError):
            conforms(doc)


@pytest.mark.parametrize("path", KSERVE, ids=os.path.basename)
def test_kserve(path):
    with open(path) as f:
        docs = documents(f.read())
    assert len(docs) == 1
    conforms(docs[0])


def test_kserve_runtime_and_service_together():
    read = {}
    for path in KSERVE:
        with open(path) as f:
            read[os.path.basename(path)] = documents(f.read())[0]
    runtime, cluster, service = read["runtime.yaml"], read["cluster-runtime.yaml"], read["inferenceservice.yaml"]
    assert cluster["spec"] == runtime["spec"] and service["spec"]["predictor"]["model"]["runtime"] == runtime["metadata"]["name"]
    (c,) = runtime["spec"]["containers"]
    assert c["name"] == "kserve-container" and c["ports"][0]["name"] == "http1"
    model = service["spec"]["predictor"]["model"]
    assert model["modelFormat"]["name"] in {f["name"] for f in runtime["spec"]["supportedModelFormats"]}
    args = [a.replace("{{.Name}}", service["metadata"]["name"]) for a in c["args"]] + model["args"]
    r = subprocess.run([os.path.join(BUILD, "bin", c["command"][0].rsplit("baton-", 1)[1]), *args, "--print-config"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    shown = dict(line.split("  # ")[0].split(" = ", 1) for line in r.stdout.splitlines())
    at = "BackendConfig.ModelDeployConfig."
    assert shown[at + "ModelConfig.0.modelWeightPath"].endswith('.gguf"') and shown[at + "ModelConfig.0.modelName"] == '"qwen"'
    assert shown[at + "maxSeqLen"] == "4096" and int(shown["ServerConfig.port"]) == c["ports"][0]["containerPort"]
    drain = int(shown["BatonConfig.stopDrainTimeoutSeconds"])
    assert service["spec"]["predictor"]["terminationGracePeriodSeconds"] >= drain + 5
