"""cluster-conf/2p2d-tls as it is shipped, with a PKI made as docs/operations.md says and ports of the test: instances that register with a
certificate of their own, a metrics plane with a port and certificates of its own, sealed KV links."""
import contextlib
import http.client
import json
import os
import re
import shutil
import tempfile

import harness
from harness import FABLE, READY_S, ROOT, SLOW, Daemon, free_ports, get, post, wait_for
from pki import KEY, Pki

NAMES = ["coordinator", "prefill1", "prefill2", "decode1", "decode2"]
PORT_KEYS = {"predict_port", "manage_port", "external_port", "status_port", "port", "managementPort", "metricsPort", "interCommPort"}


def ports_of(conf):
    """Every port that a configuration names, in order."""
    if isinstance(conf, dict):
        return [int(v) for k, v in conf.items() if k in PORT_KEYS] + [p for v in conf.values() for p in ports_of(v)]
    return []


def with_ports(conf, new):
    if not isinstance(conf, dict):
        return conf
    return {k: type(v)(new[int(v)]) if k in PORT_KEYS else with_ports(v, new) for k, v in conf.items()}


def test_the_cluster_of_the_sample_starts():
    folder = tempfile.mkdtemp(prefix="baton-shipped-")
    daemons = []
    try:
        Pki.make(os.path.join(folder, "pki"))
        p = Pki.__new__(Pki)
        p.folder, p.dir, p.keys, p.keys_path = folder, os.path.join(folder, "pki"), [KEY], os.path.join(folder, "pki", "api_keys")
        p.write_keys(KEY + "\n")
        confs = {}
        for n in NAMES:
            with open(os.path.join(ROOT, "cluster-conf", "2p2d-tls", n + ".json")) as f:
                confs[n] = json.load(f)
        old = sorted({port for c in confs.values() for port in ports_of(c)})
        assert len(old) == 4 + 4 * 4  # none is used twice
        new = dict(zip(old, free_ports(len(old))))
        confs = {n: with_ports(c, new) for n, c in confs.items()}
        h = confs["coordinator"]["coordinator"]["http_config"]
        user, manage, status, external = (int(h[k]) for k in ("predict_port", "manage_port", "status_port", "external_port"))
        for n in NAMES[1:]:
            b = confs[n]["BatonConfig"]
            assert b["registerUrl"] == "https://127.0.0.1:1026"
            b["registerUrl"] = f"https://127.0.0.1:{manage}"
            b["kvHeartbeatMs"] = 500 * SLOW
            confs[n]["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelWeightPath"] = FABLE
        for port, plane in ((user, "user"), (manage, "management"), (status, "status"), (external, "external")):
            harness._doors[port] = (p.context(plane), p.headers() if plane == "user" else {})
        for n in NAMES:
            daemons.append(Daemon(n, n.rstrip("12"), confs[n], folder).start())

        def serving():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return [i for i in get(f"https://127.0.0.1:{manage}", "/v2/status").json["instances"] if i["state"] == "serving"]
            return []
        wait_for(lambda: len(serving()) == 4 or not all(d.alive() for d in daemons), READY_S, "four instances serve")
        logs = "\n".join(d.log() for d in daemons)
        assert all(d.alive() for d in daemons), logs
        assert sorted(i["role"] for i in serving()) == ["decode", "decode", "prefill", "prefill"]
        assert {i["source"] for i in serving()} == {"registered"}
        a = post(f"https://127.0.0.1:{user}", "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 8})
        assert a.status == 200, a.text
        text = get(f"https://127.0.0.1:{external}", "/metrics").text
        up = re.findall(r"^instance_scrape_up{[^}]*} (\S+)$", text, re.M)
        assert up == ["1"] * 4, text
        assert "event=registering_is_not_limited" not in logs and "[ERROR]" not in logs
    finally:
        for d in daemons:
            d.stop()
        shutil.rmtree(folder)
