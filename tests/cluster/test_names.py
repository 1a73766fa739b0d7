"""What operators know instances by: a name of their own or their address, in status, metrics and batonctl, whatever order they come in."""
import os
import re
import subprocess

from harness import BUILD, READY_S, Cluster, get, post, wait_for

FRESH = {"coordinator": {"prometheus_metrics_config": {"reuse_time": 0}}}
STORY = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


def batonctl(c, *args):
    r = subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", c.mgmt, *args], capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


def labels(text, name):
    return [dict(re.findall(r'(\w+)="([^"]*)"', m)) for m in re.findall(rf"^{name}{{([^}}]*)}} ", text, re.M)]


def test_names():
    with Cluster(2, 1, coord=FRESH) as c:
        # one of the three has a name of its own
        p = c.prefills[0]
        p.kill()
        p.conf["BatonConfig"]["instanceName"] = "rack1-p0"
        p.start()
        wait_for(lambda: "rack1-p0" in [i["name"] for i in c.status()["instances"]], READY_S, "its name is known")
        wait_for(c.all_serve, READY_S, "all serve")
        wait_for(c.is_ready, READY_S, "ready")
        addresses = {f"127.0.0.1:{i.port}" for i in c.instances}
        own = {f"127.0.0.1:{p.port}": "rack1-p0"}
        names = {own.get(a, a) for a in addresses}
        status = c.status()
        assert {(i["name"], i["address"]) for i in status["instances"]} == {(own.get(a, a), a) for a in addresses}
        assert {link["name"] for i in status["instances"] for link in i["links"]} == names
        for _ in range(4):
            assert post(c.base, "/v1/completions", STORY).status == 200
        assert {r["pName"] for r in c.status()["recentRequests"]} | {r["dName"] for r in c.status()["recentRequests"]} <= names

        text = get(c.external, "/metrics").text
        for family in ("coordinator_role", "instance_scrape_up", "pd_link_up"):
            found = labels(text, family)
            assert {(s["instance_name"], s["address"]) for s in found} == {(own.get(a, a), a) for a in addresses}, (family, found)
            assert not any("id" in s for s in found)
        assert len(labels(text, "pd_link_up")) == 4  # each end of two links, not their sum

        code, out, _ = batonctl(c, "status")
        assert code == 0 and all(n in out for n in names), out
        code, out, err = batonctl(c, "role", "rack1-p0", "decode")
        assert code == 0 and "instance rack1-p0 becomes decode" in out, (out, err)
        wait_for(lambda: len(c.serving("decode")) == 2, READY_S, "it decodes")
        code, out, err = batonctl(c, "role", f"127.0.0.1:{p.port}", "prefill")
        assert code == 0, err
        wait_for(lambda: len(c.serving("prefill")) == 2, READY_S, "it prefills")
        code, _, err = batonctl(c, "role", "nobody", "decode")
        assert code == 1 and "name must be that of one instance" in err, err
        code, _, err = batonctl(c, "role", 'a"b', "decode")
        assert code == 2 and "NAME must be an instance's name" in err, err
        a = post(c.mgmt, "/v1/instances/role", {"name": "nobody", "role": "decode"})
        assert a.status == 404, a.text
