"""Goal: instances are found by the addresses of names, come back after a restart, and are forgotten when they are gone.
Method: a coordinator with pd.discover_names, instances that do not register, the name localhost of the system's own resolver."""
import contextlib
import json
import os
import subprocess

from harness import BUILD, READY_S, ROOT, SLOW, free_ports, get, post, wait_for


def test_instances_by_name(tmp_path):
    predict, manage, *ports = free_ports(8)
    roles = {"prefill": ports[:3], "decode": ports[3:]}
    mgmt = f"http://127.0.0.1:{manage}"

    def start(role):
        business, management, kv = roles[role]
        return subprocess.Popen([os.path.join(BUILD, "bin", role), "--infer-mode=dmi", "--no-https-enabled", "--no-inter-comm-tls-enabled",
                                 "--model-name=fable", "--model-weight-path=models/fable", f"--port={business}", f"--management-port={management}",
                                 f"--metrics-port={management}", "--management-ip-address=127.0.0.1", f"--inter-comm-port={kv}", "--kv-cache-mib=48",
                                 f"--instance-name={role}", "--compute-threads=1"], cwd=ROOT, stderr=subprocess.DEVNULL)

    def rows():
        with contextlib.suppress(OSError, json.JSONDecodeError):
            return {i["name"]: i for i in get(mgmt, "/v2/status").json["instances"]}
        return {}

    def both_serve():
        return sorted(name for name, i in rows().items() if i["state"] == "serving") == ["decode", "prefill"]
    names = " ".join(f"localhost:{m}:{b}:{kv}={role}" for role, (b, m, kv) in roles.items())
    with contextlib.ExitStack() as stack:
        def keep(p):
            stack.enter_context(p)
            stack.callback(p.terminate)
            return p
        keep(subprocess.Popen([os.path.join(BUILD, "bin", "coordinator"), f"--predict-port={predict}", f"--manage-port={manage}",
                               f"--external-port={manage}", f"--status-port={manage}", "--discover-names", f"{names}",
                               "--register-lease-s=2", "--http-retries=1"], stderr=open(tmp_path / "log", "w")))
        keep(start("prefill"))
        decode = keep(start("decode"))
        wait_for(both_serve, READY_S, "both serve")
        assert all(i["source"] == "registered" for i in rows().values())
        assert post(f"http://127.0.0.1:{predict}", "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4}).status == 200
        decode.kill()
        wait_for(lambda: not both_serve(), READY_S, "it is missed")
        decode = keep(start("decode"))
        wait_for(both_serve, READY_S, "it serves again")
    wrong = subprocess.run([os.path.join(BUILD, "bin", "coordinator"), "--discover-names=a:80", "--check-config"], capture_output=True, text=True,
                           timeout=60 * SLOW)
    assert wrong.returncode == 2 and '--discover-names: pd.discover_names must hold NAME' in wrong.stderr and '"a:80"' in wrong.stderr, wrong.stderr
