"""Goal: a daemon that lacks memory, descriptors or disk says so and ends with its status, or serves with what it has and ends when it is told
to: no signal, no abort, nothing left behind, and nothing that stands still. Method: the same starts under one small limit after another
(RLIMIT_AS, RLIMIT_NOFILE, RLIMIT_FSIZE), and a pair whose decode instance has few descriptors, attacked until they are gone."""
import contextlib
import glob
import json
import os
import shutil
import socket
import subprocess
import tempfile

import pytest
from harness import READY_S, SLOW, Cluster, Daemon, Instance, free_ports, get, leashed, post, wait_for

MIB = 1 << 20


def start_limited(inst, limits):
    """As Daemon.start(), with these limits: {name of prlimit: n}."""
    with open(inst.conf_path, "w") as f:
        json.dump(inst.conf, f)
    with open(inst.log_path, "ab") as log:
        inst.process = subprocess.Popen(leashed(inst.command(), None, limits), stdout=log, stderr=log, stdin=subprocess.DEVNULL)


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


def says_ready(inst):
    return "event=ready" in inst.log() or "event=listening user_plane" in inst.log()


def try_start(inst, limits, serves=answers):
    """True: it serves (and ends well); False: it ended by itself, with status 1 and an error in its log."""
    start_limited(inst, limits)
    try:
        wait_for(lambda: not inst.alive() or serves(inst), 15 * SLOW, f"it serves or ends with {limits}:\n{inst.log()}")
        if inst.alive():
            inst.stop()
            return True
        assert inst.process.returncode == 1 or (inst.process.returncode == 127 and "shared object" in inst.log()), f"{limits}: status {inst.process.returncode}\n{inst.log()}"
        assert any(said in inst.log() for said in (" error ", "[err]", "cannot", "failed", "out of memory")), inst.log()
        inst.process = None
        return False
    finally:
        if inst.alive():
            inst.process.kill()
            inst.process.wait()


def sweep(folder, mode, what, sizes):
    served = []
    for n in sizes:
        inst = Instance(f"{mode}-{n}", "decode", folder, free_ports(3), mode)
        # without a role started is all it can be
        served.append(try_start(inst, {what: n}, answers if mode == "standard" else says_ready))
    return served


def test_few_descriptors(folder):
    for mode in ("standard", "dmi"):
        served = sweep(folder, mode, "nofile", (6, 10, 14, 18, 24, 64))
        assert served[-1] and not served[0], (mode, served)


# A sanitizer's shadow alone is more than any of these.
with_small_memory = pytest.mark.skipif(SLOW > 1, reason="sanitizers map terabytes")


def little_memory(folder, mode, sizes_mib):
    served = sweep(folder, mode, "as", [n * MIB for n in sizes_mib])
    assert served[-1] and not served[0], (mode, served)


def coordinators(folder, sizes_mib):
    for n in sizes_mib:
        ports = free_ports(4)
        names = ("predict_port", "manage_port", "status_port", "external_port")
        one = Daemon(f"coordinator-{n}", "coordinator", {"coordinator": {"http_config": dict(zip(names, map(str, ports)))},
                                                         "controller": {"default_p_rate": 1, "default_d_rate": 1}}, folder)
        try_start(one, {"as": n * MIB}, says_ready)


@with_small_memory
def test_little_memory(folder):
    """From too little to load the libraries to enough."""
    little_memory(folder, "standard", (26, 70, 110, 132, 150, 190, 400))
    little_memory(folder, "dmi", (34, 152, 200, 400))
    coordinators(folder, (20, 21, 22, 26))


@with_small_memory
@pytest.mark.slow
def test_little_memory_in_small_steps(folder):
    for mode in ("standard", "dmi"):
        little_memory(folder, mode, [*range(20, 240, 2), 400])
    coordinators(folder, range(16, 40))


def test_no_room_for_packed_weights(folder):
    cache = os.path.join(folder, "packed")
    inst = Instance("full", "prefill", folder, free_ports(3), "standard", extra={"BatonConfig": {"weightCachePath": cache}})
    assert try_start(inst, {"fsize": 4 * MIB}), inst.log()
    assert "packing into memory" in inst.log()
    assert not glob.glob(os.path.join(cache, "*.tmp")) and not glob.glob(os.path.join(cache, "*.packed"))


def test_a_decode_instance_without_descriptors_lives_on():
    cluster = Cluster()
    d = cluster.decodes[0]
    whole_start = d.start
    d.start = lambda: start_limited(d, {"nofile": 48})
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
