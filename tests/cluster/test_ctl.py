"""Goal: batonctl is one tool: help, completion and manual from its table, JSON everywhere, names near to mistyped ones, live tables that are plain
text where there is no terminal; instances join and leave; `baton serve` serves a model without a configuration, and ends all it started.
Method: the real program, beside real daemons, on a pipe and on a pseudo-terminal; bash itself completes."""
import contextlib
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import time

import pytest
from harness import BUILD, READY_S, ROOT, SLOW, Cluster, free_ports, get, post, wait_for

CTL = os.path.join(BUILD, "bin", "batonctl")
BATON = os.path.join(BUILD, "bin", "baton")
COMMANDS = ["serve", "status", "top", "watch", "request", "plan", "alarms", "role", "drain", "undrain", "join", "leave", "upgrade", "reload", "log", "logs",
            "check", "probe", "doctor", "advise", "inspect", "quantize", "help", "completion", "man", "version"]


def ctl(*args, timeout=60, **env):
    return subprocess.run([CTL, *args], capture_output=True, text=True, timeout=timeout * SLOW, cwd=ROOT, env={**os.environ, **env})


@pytest.fixture(scope="module")
def pair():
    with Cluster(1, 1) as c:
        yield c


# ---- probes
def test_probe(pair):
    (free,) = free_ports(1)
    for url in (pair.prefills[0].mgmt, pair.prefills[0].base, pair.status_base, pair.mgmt):
        for name, word in (("startup", "started"), ("ready", "ready"), ("live", "alive")):
            r = ctl("probe", name, url)
            assert r.returncode == 0 and r.stdout.startswith(f"{word}: {url}/") and r.stderr == "", r
    r = ctl("probe", "ready", BATON_PROBE_URL=pair.status_base)
    assert r.returncode == 0 and f"{pair.status_base}/v2/health/ready, " in r.stdout, r
    told = json.loads(ctl("probe", "startup", pair.decodes[0].mgmt, "--json").stdout)
    assert {k: told[k] for k in ("probe", "ok", "status", "url")} == {"probe": "startup", "ok": True, "status": 200, "url": pair.decodes[0].mgmt + "/health"}
    r = ctl("probe", "live", f"http://127.0.0.1:{free}")
    assert r.returncode == 1 and r.stdout == "" and r.stderr.startswith(f"batonctl: not alive: http://127.0.0.1:{free}/v2/health/live: "), r
    told = json.loads(ctl("probe", "live", "--json", BATON_MANAGE=f"http://127.0.0.1:{free}").stdout)
    assert told["ok"] is False and told["status"] == 0 and told["said"], told
    for args, said in ((["well"], 'the probe must be startup, ready or live, got "well"'), (["live", "127.0.0.1:1"], "URL must be http://ADDRESS:PORT"),
                       (["live", "http://h:1/path"], "URL must be http://ADDRESS:PORT"), (["live", "--timeout", "0"], "--timeout must be a number from 1")):
        r = ctl("probe", *args)
        assert r.returncode == 2 and said in r.stderr, r
    with Cluster(1, 1) as alone:
        alone.prefills[0].kill()
        wait_for(lambda: (r := ctl("probe", "ready", alone.status_base)).returncode == 1 and "not ready: " in r.stderr and "status 503" in r.stderr, READY_S,
                 "without a prefill instance it is not ready")
        assert ctl("probe", "live", alone.status_base).returncode == 0


# ---- what comes from the table
def test_help_has_every_command():
    told = ctl("help")
    assert told.returncode == 0 and re.findall(r"^  ([a-z]+)\b(?! *=)", told.stdout, re.M)[:len(COMMANDS)] == COMMANDS
    assert max(map(len, told.stdout.splitlines())) <= 100
    for name in COMMANDS:
        one = ctl("help", name)
        assert one.returncode == 0 and one.stdout.startswith(f"usage: batonctl {name}"), one
        assert ctl(name, "--help").stdout == one.stdout
    assert ctl("--help").stdout == told.stdout
    manual = ctl("man").stdout
    assert all(f"\n.B {name}" in manual for name in COMMANDS)
    if os.path.exists("/usr/bin/man"):
        r = subprocess.run(["man", "--warnings", "-l", "-"], input=manual, capture_output=True, text=True)
        assert r.stderr == "", r.stderr


@pytest.mark.parametrize("args,said", [
    (["stauts"], "unknown command stauts; did you mean status?"),
    (["help", "rloe"], "unknown command rloe; the nearest one is role"),
    (["role", "x", "decode", "--dyr-run"], "unknown option --dyr-run; did you mean --dry-run?"),
    (["--jsno", "status"], "unknown option --jsno; did you mean --json?"),
    (["status", "now"], "status takes no argument, got now as well"),
    (["role", "x"], "role needs NAME prefill|decode|auto"),
    (["drain"], "drain needs NAME"),
    (["role", "x", "decode", "--for"], "--for needs a SECONDS"),
    (["role", "x", "decode", "--for", "0"], "--for must be a number from 1 to 604800, got 0"),
    (["top", "--every=x"], "--every must be a number from 1 to 3600, got x"),
    (["status", "--json", "--json"], "--json is given twice"),
    (["join", "10.0.0.1:80"], "ADDRESS must be IPV4:PORT of an instance's management plane, with a port from 1024 to 65535, got \"10.0.0.1:80\""),
    (["watch", "logs"], "watch logs: it is no table"),
    (["completion", "zsh"], "SHELL must be bash, got \"zsh\""),
    (["status", "--", "x"], "status takes nothing behind --"),
    ([], "a command is missing"),
])
def test_wrong_words(args, said):
    r = ctl(*args)
    assert r.returncode == 2 and r.stderr.startswith(f"batonctl: {said}") and (not r.stdout or "--json" in args), r


def test_completion_in_bash():
    script = ctl("completion", "bash").stdout

    def complete(line):
        words = line.split(" ")
        run = f"{script}\nCOMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _batonctl {CTL}; echo \"${{COMPREPLY[@]}}\""
        r = subprocess.run(["bash", "-c", run], capture_output=True, text=True, cwd=os.path.join(ROOT, "cluster-conf", "1p1d"))
        assert r.returncode == 0, r.stderr
        return r.stdout.split()

    assert complete("batonctl st") == ["status"]
    assert complete("batonctl -m http://h:1 dr") == ["drain"]
    assert complete("batonctl role x pre") == ["prefill"]
    assert set(complete("batonctl role x decode --")) >= {"--for", "--force", "--dry-run", "--json"}
    assert complete("batonctl check coord") == ["coordinator.json"]
    assert complete("batonctl --ca coord") == ["coordinator.json"]
    assert "alarms" in complete("batonctl help ")


def test_nobody_there(tmp_path):
    port = free_ports(1)[0]
    r = ctl("-m", f"http://127.0.0.1:{port}", "status")
    assert r.returncode == 1 and f"tried http://127.0.0.1:{port};" in r.stderr and "baton serve MODEL --split" in r.stderr and r.stdout == ""
    r = ctl("--json", "plan", BATON_MANAGE=f"http://127.0.0.1:{port}")
    assert r.returncode == 1 and f"127.0.0.1:{port}" in json.loads(r.stdout)["error"]
    for command in (["reload"], ["log"], ["watch", "--count", "1", "status"], ["advise"], ["doctor"]):
        r = ctl("-m", f"http://127.0.0.1:{port}", *command)
        assert r.returncode == 1 and f"http://127.0.0.1:{port}" in r.stderr + r.stdout, r
        assert command == ["advise"] or "baton serve MODEL --split" in r.stderr + r.stdout, r
    r = ctl("logs", XDG_RUNTIME_DIR=str(tmp_path))
    assert r.returncode != 0 and r.stderr


# ---- beside a cluster
def test_json_everywhere(pair):
    def said(*args):
        r = ctl("-m", pair.mgmt, "--json", *args)
        return r.returncode, [json.loads(line) for line in r.stdout.splitlines()]

    assert post(pair.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 2}).status == 200
    assert said("status")[1][0]["coordinator"]["ready"] is True
    assert said("request")[1][0]["path"] == "/v1/completions"
    assert said("plan")[1][0]["changes"] == [] and said("alarms")[0] == 0
    name = pair.status()["instances"][0]["name"]
    assert said("drain", name, "--force") == (0, [{"result": "ok"}]) and said("undrain", name) == (0, [{"result": "ok"}])
    code, lines = said("drain", "nobody")
    assert code == 1 and "nobody" in lines[0]["error"]
    assert said("reload") == (0, [{"result": "ok"}]) and said("reload", name) == (0, [{"result": "ok"}])
    assert len(said("top", "--count", "2")[1]) == 2
    assert said("version")[1][0]["version"] == ctl("version").stdout.split()[2]
    assert said("drain", name)[1][0]["error"].endswith('"force": true drains it all the same (here: --force)')
    assert said("role", name, "auto", "--force")[1][0]["error"].startswith("role auto takes no")
    code, lines = said("leave", name, "--force")
    assert code == 1 and "the rank table" in lines[0]["error"]
    wait_for(pair.is_ready, READY_S, "it serves again")


def test_no_motion_where_there_is_no_terminal(pair):
    top = ctl("-m", pair.mgmt, "top", TERM="xterm")
    assert top.returncode == 0 and "\033" not in top.stdout and "answers/s" in top.stdout and len(top.stdout.splitlines()) == 5, top
    seen = ctl("-m", pair.mgmt, "watch", "--every", "1", "--count", "2", "plan", TERM="xterm")
    assert seen.returncode == 0 and seen.stdout.count("nothing changes") == 2 and "\033" not in seen.stdout
    assert "\033" not in ctl("-m", pair.mgmt, "status", TERM="xterm").stdout


def test_colour_and_motion_on_a_terminal(pair):
    def on_terminal(**env):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(CTL, [CTL, "-m", pair.mgmt, "top", "--every", "1", "--count", "1"], {**os.environ, **env})
        seen, end = b"", time.monotonic() + 30 * SLOW
        while select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:  # its end of the terminal is closed
                break
        os.close(fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return seen

    colours = on_terminal(TERM="xterm", NO_COLOR="")
    assert colours.count(b"\033[2J") == 1 and b"\033[32mserving" in colours
    assert b"\033[32m" not in on_terminal(TERM="xterm", NO_COLOR="1")
    assert b"\033" not in on_terminal(TERM="dumb")


def test_check_says_what_a_start_would_say(tmp_path):
    good = ctl("check", *(f"cluster-conf/1p1d/{n}.json" for n in ("coordinator", "prefill", "rank_table")))
    assert good.returncode == 0 and [line.split(": ")[1] for line in good.stdout.splitlines()] == ["good (coordinator)", "good (instance)", "good (rank table)"]
    (tmp_path / "i.json").write_text(json.dumps({"ServerConfig": {"port": 80}}))
    (tmp_path / "t.json").write_text(json.dumps({"server_group_list": [{"group_id": "2", "server_list": [{"server_ip": "nobody"}]}]}))
    (tmp_path / "c.json").write_text(json.dumps({"controller": {"global_rank_table_file_path": "none.json"}}))
    (tmp_path / "n.json").write_text("{")
    r = ctl("--json", "check", *(str(tmp_path / f"{n}.json") for n in "itcn"))
    rows = [json.loads(line) for line in r.stdout.splitlines()]
    assert r.returncode == 2 and [(row["kind"], row["ok"]) for row in rows] == [("instance", False), ("rank table", False), ("coordinator", False), ("", False)]
    assert "ServerConfig.port must be an integer from 1024" in rows[0]["said"] and "server_ip" in rows[1]["said"] and "none.json" in rows[2]["said"]
    r = ctl("check", str(tmp_path / "i.json"))
    assert r.returncode == 2 and r.stdout.startswith(f"{tmp_path}/i.json: wrong (instance)\n")


# ---- serve
def serve_port():
    """It takes this one and the free ones behind it: where free_ports() gives none to others."""
    return str(random.randrange(5000, 9900, 20))


class Serve:
    def __init__(self, tmp_path, *args, **env):
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), **env}
        self.env.pop("BATON_MANAGE", None)
        self.p = subprocess.Popen([BATON, "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=ROOT, bufsize=0)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.end(signal.SIGTERM)

    def line(self):
        assert select.select([self.p.stdout], [], [], READY_S)[0], "it says that it serves"
        return self.p.stdout.readline().decode()

    def ctl(self, *args):
        return subprocess.run([BATON, *args], capture_output=True, text=True, env=self.env, timeout=60 * SLOW)

    def end(self, *signals):
        for s in signals:
            self.p.send_signal(s)
        out, err = self.p.communicate(timeout=60 * SLOW)
        return self.p.returncode, out.decode(), err.decode()

    def children(self):
        with open(f"/proc/{self.p.pid}/task/{self.p.pid}/children") as f:
            return [int(x) for x in f.read().split()]


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().split()[2] == "Z"
    except OSError:
        return True


def test_serve_split_without_a_configuration(tmp_path):
    port = serve_port()
    with Serve(tmp_path, "fable", "--split", "--port", port, "--", "--kv-cache-mib=48") as s:
        assert s.line().startswith(f"fable is served at http://127.0.0.1:{port}/v1: prefill on ")
        s.line()
        told = s.line().strip()
        assert told.startswith("curl -N ")
        got = subprocess.run(["bash", "-c", told.replace("curl", "curl -s", 1)], capture_output=True, text=True, timeout=60 * SLOW)
        assert got.stdout.rstrip().endswith("data: [DONE]"), got
        status = json.loads(s.ctl("status", "--json").stdout)  # it is found without -m
        assert sorted(i["name"] for i in status["instances"]) == ["decode", "prefill"]
        assert "answer written by instance decode (D)" in s.ctl("request").stdout
        logs = s.ctl("logs", "-n", "5", "prefill").stdout
        assert 1 <= len(logs.splitlines()) <= 5 and " info " in logs
        assert {json.loads(line)["from"] for line in s.ctl("logs", "--json").stdout.splitlines()} == {"coordinator", "prefill", "decode"}
        left = s.ctl("leave", "decode", "--force")
        assert left.returncode == 0 and "it registers by itself, and is gone when it is stopped" in left.stdout, left
        assert s.ctl("undrain", "decode").returncode == 0
        children = s.children()
        assert len(children) == 3
        code, out, err = s.end(signal.SIGINT)
    assert code == 0 and "ending" in out and err == "", (code, out, err)
    assert all(gone(pid) for pid in children) and os.listdir(tmp_path / "baton") == []


def test_serve_several_unsplit(tmp_path):
    """Each serves whole requests, or with --split half of them prefill."""
    with Serve(tmp_path, "fable", "--instances", "3", "--threads", "3", "--port", serve_port(), "--", "--kv-cache-mib=48") as s:
        assert s.line().endswith("/v1 by 3 instances on 3 threads\n")
        status = json.loads(s.ctl("status", "--json").stdout)
        assert sorted((i["name"], i["role"], i["state"]) for i in status["instances"]) == [(f"instance-{i}", "flex", "serving") for i in (1, 2, 3)]
        assert status["coordinator"]["deployMode"] == "single_node"
        code, out, err = s.end(signal.SIGINT)
    assert code == 0 and err == "" and os.listdir(tmp_path / "baton") == [], (code, out, err)
    with Serve(tmp_path, "fable", "--instances", "3", "--split", "--threads", "3", "--port", serve_port(), "--", "--kv-cache-mib=48") as s:
        assert s.line().endswith("/v1: prefill on 2 and decode on 1 threads\n")
        assert sorted(i["name"] for i in json.loads(s.ctl("status", "--json").stdout)["instances"]) == ["decode", "prefill-1", "prefill-2"]
        code, out, err = s.end(signal.SIGINT)
    assert code == 0 and err == "", (code, out, err)


def test_serve_alone_and_what_goes_wrong(tmp_path):
    with Serve(tmp_path, "models/fable", "--json", "--name", "tales", "--threads", "1", "--context", "256", "--port", serve_port()) as s:
        told = json.loads(s.line())
        assert told["model"] == "tales" and get(told["url"], "/v1/models").json["data"][0]["id"] == "tales"
        with Serve(tmp_path, "fable", "--port", told["url"].rsplit(":", 1)[1]) as taken:
            code, _, err = taken.end()
        assert code == 2 and "is taken; without --port the next free one is used" in err, err
        os.kill(s.children()[0], signal.SIGKILL)
        code, _, err = s.end()
    assert code == 1 and "instance was ended by signal 9; its last lines:" in err and "logs are kept in" in err, err
    for args, status, said in [(["fable", "--", "--max-batch-size", "0"], 1, "--max-batch-size: BackendConfig.ScheduleConfig.maxBatchSize must be an "
                                "integer from 1 to 5000, got 0"),
                               (["fabel"], 2, "or a bundled model, got \"fabel\""), (["fabel"], 2, "fable-embed"),
                               (["fable", "--host", "localhost"], 2, "--host must be an IPv4 address, got \"localhost\""),
                               (["fable", "--instances", "17"], 2, "--instances must be a number from 1 to 16, got 17"),
                               (["fable", "--split", "--instances", "1"], 2, "--instances must be a number from 2 to 16, got 1"),
                               (["fable", "--context", "1"], 2, "--context must be a number from 16 to ")]:
        with Serve(tmp_path, *args) as s:
            code, _, err = s.end()
        assert code == status and said in err, (args, code, err)
    os.chmod(tmp_path / "baton", 0o755)
    with Serve(tmp_path, "fable") as s:
        code, _, err = s.end()
    assert code == 1 and "only this user" in err


def test_join_and_leave(tmp_path):
    """An instance that neither registers nor stands in a rank table comes, serves, and goes; the cluster forgets it."""
    with contextlib.ExitStack() as stack:
        s = stack.enter_context(Serve(tmp_path, "fable", "--split", "--port", serve_port(), BATON_COORDINATOR_REGISTER_LEASE_S="2"))
        s.line()
        business, mgmt, kv = free_ports(3)
        own = stack.enter_context(subprocess.Popen(
            [os.path.join(BUILD, "bin", "decode"), "--infer-mode=dmi", "--no-https-enabled", "--no-inter-comm-tls-enabled", "--model-name=fable",
             "--model-weight-path=models/fable", f"--port={business}", f"--management-port={mgmt}", f"--metrics-port={mgmt}",
             "--management-ip-address=127.0.0.1", f"--inter-comm-port={kv}", "--kv-cache-mib=48", "--instance-name=guest", "--max-seq-len=4096",
             "--max-input-token-len=4095"], cwd=ROOT, stderr=subprocess.DEVNULL))
        stack.callback(own.terminate)

        def answers():
            with contextlib.suppress(OSError):
                return get(f"http://127.0.0.1:{mgmt}", "/v2/health/live").status == 200
        wait_for(answers, READY_S, "it answers: who does not within a lease is forgotten")

        def state():
            rows = json.loads(s.ctl("status", "--json").stdout)["instances"]
            return next((i["state"] for i in rows if i["address"] == f"127.0.0.1:{business}"), None)

        def serves():
            now = state()
            if now is None:  # not asked yet; or forgotten: on a busy machine its first status may come after the short lease of this test
                r = s.ctl("join", f"127.0.0.1:{mgmt}", "--port", str(business), "--kv-port", str(kv), "--role", "decode")
                assert r.returncode == 0, r.stderr
            return now == "serving"
        wait_for(serves, READY_S, "it serves")
        left = s.ctl("leave", "guest", "--force")  # on a busy machine the others may be away for a moment
        assert left.returncode == 0 and "instance guest is gone" in left.stdout, left
        assert state() is None
