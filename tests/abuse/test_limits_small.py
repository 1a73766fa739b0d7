"""Goal: an instance that lacks descriptors or disk says so and ends with its status, or serves with what it has: no signal, no abort, nothing
left behind. Method: the same starts under one small limit after another (RLIMIT_NOFILE, RLIMIT_FSIZE), and a pair whose decode instance
has few descriptors, attacked until they are gone."""
import contextlib
import glob
import json
import os
import resource
import shutil
import socket
import subprocess
import tempfile

import pytest
from harness import BUILD, READY_S, SLOW, Cluster, Instance, _die_with_parent, free_ports, get, post, wait_for

MIB = 1 << 20


def start_limited(inst, limits):
    """As Daemon.start(), with these limits: {resource.RLIMIT_X: n}."""
    def limited():
        _die_with_parent()
        for what, n in limits.items():
            resource.setrlimit(what, (n, n))
    with open(inst.conf_path, "w") as f:
        json.dump(inst.conf, f)
    with open(inst.log_path, "ab") as log:
        inst.process = subprocess.Popen([os.path.join(BUILD, "bin", inst.binary), "-c", inst.conf_path], stdout=log, stderr=log,
                                        stdin=subprocess.DEVNULL, preexec_fn=limited)


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="baton-small-")
    yield path
    shutil.rmtree(path)


def ask(base, n=8):
    return post(base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": n, "temperature": 0}, timeout=30 * SLOW)


def answers(inst):
    with contextlib.suppress(OSError):
        return ask(inst.base).status == 200
    return False


def try_start(inst, limits):
    """True: it serves (and ends well); False: it ended by itself, with status 1 and an error in its log."""
    start_limited(inst, limits)
    try:
        wait_for(lambda: not inst.alive() or answers(inst), READY_S, "it serves or ends")
        if inst.alive():
            inst.stop()
            return True
        assert inst.process.returncode == 1, f"{limits}: status {inst.process.returncode}\n{inst.log()}"
        assert " error " in inst.log() or "[err]" in inst.log() or "cannot" in inst.log(), inst.log()
        inst.process = None
        return False
    finally:
        if inst.alive():
            inst.process.kill()


def sweep(folder, mode, what, sizes):
    served = []
    for n in sizes:
        inst = Instance(f"{mode}-{n}", "decode", folder, free_ports(3), mode)
        if mode == "dmi":  # nobody gives it a role: started is all it can be
            start_limited(inst, {what: n})
            wait_for(lambda: not inst.alive() or "event=ready" in inst.log(), READY_S, "it starts or ends")
            served.append(inst.alive())
            if inst.alive():
                inst.stop()
            else:
                assert inst.process.returncode == 1, f"{n}: status {inst.process.returncode}\n{inst.log()}"
        else:
            served.append(try_start(inst, {what: n}))
    return served


def test_few_descriptors(folder):
    for mode in ("standard", "dmi"):
        served = sweep(folder, mode, resource.RLIMIT_NOFILE, (6, 10, 14, 18, 24, 64))
        assert served[-1] and not served[0], (mode, served)


def test_no_room_for_packed_weights(folder):
    cache = os.path.join(folder, "packed")
    inst = Instance("full", "prefill", folder, free_ports(3), "standard", extra={"BatonConfig": {"weightCachePath": cache}})
    assert try_start(inst, {resource.RLIMIT_FSIZE: 4 * MIB}), inst.log()
    assert "packing into memory" in inst.log()
    assert not glob.glob(os.path.join(cache, "*.tmp")) and not glob.glob(os.path.join(cache, "*.packed"))


def test_a_decode_instance_without_descriptors_lives_on():
    cluster = Cluster()
    d = cluster.decodes[0]
    whole_start = d.start
    d.start = lambda: start_limited(d, {resource.RLIMIT_NOFILE: 48})
    held = []
    try:
        with cluster:
            text = ask(cluster.base).json["choices"][0]["text"]
            for port in (d.port, d.mgmt_port, d.inter_port):
                for _ in range(60):
                    s = socket.socket()
                    s.setblocking(False)
                    s.connect_ex(("127.0.0.1", port))
                    held.append(s)
            # its link breaks and has to be made anew with nothing left to make it of
            cluster.prefills[0].kill()
            cluster.prefills[0].start()
            wait_for(lambda: cluster.prefills[0].status() is not None, READY_S, "P is back")
            for _ in range(20):
                assert d.alive(), d.log()[-3000:]
                with contextlib.suppress(OSError):
                    ask(cluster.base)
            for s in held:
                s.close()
            wait_for(lambda: cluster.is_ready() and ask(cluster.base).status == 200, READY_S, "served again")
            assert ask(cluster.base).json["choices"][0]["text"] == text
            wait_for(lambda: len(os.listdir(f"/proc/{d.process.pid}/fd")) < 40, 20 * SLOW, "no descriptor is left behind")
    finally:
        d.start = whole_start
        for s in held:
            s.close()
