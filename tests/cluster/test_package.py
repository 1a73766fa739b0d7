"""Goal: what is installed runs: the Debian package has the same bytes twice, installs, upgrades and goes; its units are right; daemons tell a service
manager how they stand; instances are restarted one by one without a client noticing.
Method: dpkg into a root of its own, systemd-analyze on the units there, a notify socket of the test's, `batonctl upgrade --rolling` under load."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from harness import BUILD, READY_S, ROOT, SLOW, free_ports, get, request, wait_for

CTL = os.path.join(BUILD, "bin", "batonctl")
ROLES = ("coordinator", "prefill", "decode")


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    """The package, made twice from what is built."""
    made = []
    for side in "ab":
        folder = tmp_path_factory.mktemp(side)
        os.symlink(os.path.join(BUILD, "bin"), folder / "bin")
        r = subprocess.run([os.path.join(ROOT, "tools", "package", "deb.sh"), str(folder)], capture_output=True, text=True, timeout=240 * SLOW,
                           env={**os.environ, "DEB_COMPRESSION": "none", "SOURCE_DATE_EPOCH": "1790000000", "TZ": "Asia/Tokyo" if side == "a" else "UTC"})
        assert r.returncode == 0, r.stderr
        made.append(r.stdout.strip())
    return made


@pytest.fixture(scope="module")
def installed(deb, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    dpkg(root, "-i", deb[0])
    return root


def dpkg(root, *args):
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
        os.makedirs(root / folder, exist_ok=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    r = subprocess.run(["dpkg", f"--root={root}", "--force-not-root", "--force-depends", "--force-script-chrootless", f"--log={root}/dpkg.log", *args],
                       capture_output=True, text=True, timeout=120 * SLOW, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
    assert r.returncode == 0, r.stderr
    return r


def test_the_same_bytes_twice(deb):
    sums = {hashlib.sha256(open(path, "rb").read()).hexdigest() for path in deb}
    assert len(sums) == 1
    fields = subprocess.run(["dpkg-deb", "-f", deb[0]], capture_output=True, text=True).stdout
    assert re.search(r"^Package: baton$", fields, re.M) and all(p in fields for p in ("adduser", "libc6", "libssl3", "libcurl4", "libnanomsg5"))


def test_what_is_installed_runs(installed, tmp_path):
    usr = installed / "usr"
    for name in ("batonctl", "baton", *(f"baton-{r}" for r in ROLES)):
        r = subprocess.run([usr / "bin" / name, "--version"], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and "(Baton)" in r.stdout
        assert os.path.exists(usr / "share/man" / (f"man1/{name}.1.gz" if "baton-" not in name else f"man8/{name}.8.gz")), name
    r = subprocess.run([usr / "bin/batonctl", "check", *(installed / "etc/baton" / f"{n}.json" for n in (*ROLES, "rank_table"))],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stdout
    port = free_ports(1)[0]
    p = subprocess.Popen([usr / "bin/baton", "serve", "fable", "--json", "--port", str(port)], stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        told = json.loads(p.stdout.readline())  # it finds daemons and model beside itself
        assert get(told["url"], "/v1/models").json["data"][0]["id"] == "fable"
    finally:
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=60 * SLOW) == 0


def test_settings_outlive_an_upgrade_and_go_at_last(deb, tmp_path):
    dpkg(tmp_path, "-i", deb[0])
    conf = tmp_path / "etc/baton/prefill.json"
    assert conf.stat().st_mode & 0o777 == 0o644 and (tmp_path / "etc/baton").stat().st_mode & 0o777 == 0o750
    conf.write_text(conf.read_text().replace('"fable"', '"mine"', 1))
    state = tmp_path / "var/lib/baton"
    state.mkdir(parents=True)
    dpkg(tmp_path, "--force-confold", "-i", deb[1])
    assert '"mine"' in conf.read_text()
    dpkg(tmp_path, "-r", "baton")
    assert conf.exists() and state.exists() and not (tmp_path / "usr/bin/batonctl").exists()
    dpkg(tmp_path, "-P", "baton")
    assert not conf.exists() and not state.exists()


def test_units(installed, tmp_path):
    """Their words, their programs, and what a break-in could do."""
    units = installed / "lib/systemd/system"
    for host in ("/lib/systemd/system", "/usr/lib/systemd/system"):
        for name in os.listdir(host) if os.path.isdir(host) else []:
            if name.endswith((".target", ".slice", ".socket", ".mount")) and not (units / name).exists() and not os.path.islink(os.path.join(host, name)):
                shutil.copy(os.path.join(host, name), units / name)
    os.makedirs(installed / "bin", exist_ok=True)
    shutil.copy("/bin/kill", installed / "bin/kill")
    names = [f"baton-{role}@x.service" for role in ROLES] + ["baton.target"]
    r = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={installed}", *names], capture_output=True, text=True, timeout=120)
    ours = [line for line in r.stderr.splitlines() if "baton" in line]
    assert r.returncode == 0 and not ours, r.stderr
    for role in ROLES:
        unit = units / f"baton-{role}@.service"
        text = unit.read_text()
        assert "@" not in re.sub(r"@system-service|%i|baton-\w+@|@\.service", "", text) and f"ExecStart=/usr/bin/baton-{role} -c /etc/baton/%i.json" in text
        env = dict(line.split("=", 1)[1].split("=", 1) for line in text.splitlines() if line.startswith("Environment="))
        said = subprocess.run([os.path.join(BUILD, "bin", role), "-c", os.path.join(ROOT, "cluster-conf", "1p1d", f"{role}.json"), "--print-config"],
                              capture_output=True, text=True, env={**os.environ, **env}).stdout
        assert all(f"# environment {name}" in said for name in env)  # their variables are known
        r = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", f"--root={installed}", unit], capture_output=True, text=True)
        assert r.returncode == 0 and "OK" in r.stdout.splitlines()[-1], r.stdout[-300:] + r.stderr


# ---- a service manager
class Manager:
    """What listens where NOTIFY_SOCKET says."""

    def __init__(self, path):
        self.path, self.got = str(path), []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def heard(self, what):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.got.append(self.socket.recv(4096).decode())
        return any(what in one for one in self.got)

    def wait(self, what):
        wait_for(lambda: self.heard(what), READY_S, f"{what}; it said {self.got}")


@pytest.mark.parametrize("role", ["prefill", "coordinator"])
def test_a_service_manager_is_told(tmp_path, role):
    m = Manager(tmp_path / "notify")
    ports = free_ports(4)
    flags = {"prefill": ["--model-name=fable", "--model-weight-path=models/fable", "--no-https-enabled", "--management-ip-address=127.0.0.1",
                         f"--port={ports[0]}", f"--management-port={ports[1]}", f"--metrics-port={ports[1]}", "--kv-cache-mib=48"],
             "coordinator": [f"--{name}-port={port}" for name, port in zip(("predict", "manage", "external", "status"), ports)]}[role]
    p = subprocess.Popen([os.path.join(BUILD, "bin", role), *flags], cwd=ROOT, stderr=subprocess.DEVNULL,
                         env={**os.environ, "NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "400000"})
    try:
        m.wait("READY=1")
        if role == "prefill":  # not before the model is there
            assert get(f"http://127.0.0.1:{ports[1]}", "/v2/health/ready").status == 200
            m.wait(": serves fable")
        else:
            m.wait("STATUS=MindIE-MS Coordinator is not ready: no instance serves")
        m.wait("WATCHDOG=1")
        p.send_signal(signal.SIGHUP)
        m.wait("RELOADING=1\nMONOTONIC_USEC=")
        assert m.got.index(next(g for g in m.got if g.startswith("RELOADING"))) > m.got.index("READY=1")
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=60 * SLOW) == 0
    m.wait("STOPPING=1")
    assert any(one.startswith("STATUS=stopping: 0 requests") for one in m.got), m.got


def test_a_frozen_loop_sends_no_sign_of_life(tmp_path):
    m = Manager(tmp_path / "notify")
    ports = free_ports(4)
    p = subprocess.Popen([os.path.join(BUILD, "bin", "coordinator"), *(f"--{name}-port={port}" for name, port in
                                                                       zip(("predict", "manage", "external", "status"), ports))],
                         stderr=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "200000"})
    try:
        m.wait("WATCHDOG=1")
        p.send_signal(signal.SIGSTOP)
        wait_for(lambda: open(f"/proc/{p.pid}/stat").read().split()[2] == "T", READY_S, "it stands still")
        m.heard("")
        m.got.clear()
        time.sleep(0.5)
        assert not m.heard("WATCHDOG")
        p.send_signal(signal.SIGCONT)
        m.wait("WATCHDOG=1")
    finally:
        p.send_signal(signal.SIGCONT)
        p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=60 * SLOW) == 0


# ---- upgrade
RESTART = """#!/bin/sh
# What an operator's `systemctl restart` would do, for instances that a folder has the arguments and process ids of.
cd {root} || exit 1
if [ -f {top}/$BATON_NAME.pid ]; then
    pid=$(cat {top}/$BATON_NAME.pid)
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
# shellcheck disable=SC2046
setsid $(cat {top}/$BATON_NAME.args) >>{top}/$BATON_NAME.log 2>&1 &
echo $! >{top}/$BATON_NAME.pid
echo "$BATON_NAME" >>{top}/restarted
"""


def test_a_rolling_restart_under_load(tmp_path):
    (tmp_path / "restart").write_text(RESTART.format(root=ROOT, top=tmp_path))
    predict, manage, *ports = free_ports(2 + 4 * 3)
    mgmt = f"http://127.0.0.1:{manage}"
    names = ["p1", "p2", "d1", "d2"]
    coordinator = subprocess.Popen([os.path.join(BUILD, "bin", "coordinator"), f"--predict-port={predict}", *(f"--{p}-port={manage}" for p in
                                    ("manage", "external", "status")), "--drain-soft-s=0", "--error-style=openai"], cwd=ROOT, stderr=subprocess.DEVNULL)

    def restart(name):
        subprocess.run(["sh", str(tmp_path / "restart")], env={**os.environ, "BATON_NAME": name}, check=True, timeout=60 * SLOW)
    try:
        for i, name in enumerate(names):
            business, management, kv = ports[3 * i:3 * i + 3]
            (tmp_path / f"{name}.args").write_text(" ".join([
                os.path.join(BUILD, "bin", "prefill" if name[0] == "p" else "decode"), "--infer-mode=dmi", "--no-https-enabled",
                "--no-inter-comm-tls-enabled", "--model-name=fable", "--model-weight-path=models/fable", "--management-ip-address=127.0.0.1",
                f"--port={business}", f"--management-port={management}", f"--metrics-port={management}", f"--inter-comm-port={kv}",
                f"--instance-name={name}", f"--register-url={mgmt}", "--kv-cache-mib=48", "--compute-threads=1", "--max-seq-len=1024",
                "--max-input-token-len=1023", "--error-style=openai"]))
            restart(name)
        os.unlink(tmp_path / "restarted")

        def serving():
            with contextlib.suppress(OSError):
                return [i["name"] for i in get(mgmt, "/v2/status").json["instances"] if i["state"] == "serving"]
        wait_for(lambda: sorted(serving() or []) == sorted(names), READY_S, "all serve")
        body = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 60, "seed": 5, "ignore_eos": True}
        ends, stop = [], threading.Event()
        wanted = request(f"http://127.0.0.1:{predict}/v1/completions", "POST", body).json["choices"][0]["text"]

        def load():
            while not stop.is_set():
                a = request(f"http://127.0.0.1:{predict}/v1/completions", "POST", body)
                ends.append((a.status, a.status == 200 and a.json["choices"][0]["text"] == wanted))
        threads = [threading.Thread(target=load) for _ in range(3)]
        for t in threads:
            t.start()
        try:
            wrong = subprocess.run([CTL, "-m", mgmt, "upgrade", "--rolling", "--run", "exit 3", "d1"], capture_output=True, text=True, timeout=120 * SLOW)
            assert wrong.returncode == 1 and "the command for d1 failed (status 3); it takes work again" in wrong.stderr, wrong
            wait_for(lambda: sorted(serving() or []) == sorted(names), READY_S, "it takes work again")
            r = subprocess.run([CTL, "-m", mgmt, "upgrade", "--rolling", "--run", f"sh {tmp_path}/restart", "p1", "d2"], capture_output=True, text=True,
                               timeout=240 * SLOW)
        finally:
            stop.set()
            for t in threads:
                t.join()
        assert r.returncode == 0 and "2 instances were restarted" in r.stdout, r
        assert sorted((tmp_path / "restarted").read_text().split()) == ["d2", "p1"]
        assert len(ends) > 3 and all(end == (200, True) for end in ends), ends
    finally:
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((tmp_path / f"{name}.pid").read_text()), signal.SIGTERM)
        coordinator.terminate()
        assert coordinator.wait(timeout=60 * SLOW) == 0


def test_upgrade_needs_a_command():
    r = subprocess.run([CTL, "upgrade"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--rolling and --run COMMAND" in r.stderr
