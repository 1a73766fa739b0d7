"""Goal: whatever one instance does, a client gets the answer it would have had. Method: clients of all families ask a cluster questions whose
answers they know, while instances are killed, frozen, stopped, drained and switched at random, and cut off where network namespaces can be had. CHAOS_SEED
and CHAOS_SECONDS choose another run."""
import os
import re
import subprocess

import pytest
from faults import Chaos
from load import Clients, balance, held, learn, questions
from net import NetCluster, why_not

from harness import BUILD, SLOW, Cluster, get, wait_for

SEED = int(os.environ.get("CHAOS_SEED", "1"))


def decisions_come_out_the_same(recording):
    """Of what the coordinator chose meanwhile, as far as the recording goes: each decision is taken again."""
    r = subprocess.run([os.path.join(BUILD, "bin", "replay"), recording], capture_output=True, text=True, timeout=300 * SLOW)
    print(r.stdout)
    assert r.returncode == 0, r.stdout + r.stderr
    assert int(re.search(r" (\d+) decisions", r.stdout)[1]) > 0


def nothing_grew(daemon, before, n_kept):
    """Descriptors and threads of one that lived through it: connections kept for requests to come are all that may be more."""
    _, files, threads = before
    wait_for(lambda: held(daemon)[1] <= files + n_kept, 30 * SLOW, f"{daemon.name} holds {files} descriptors again, now {held(daemon)[1]}")
    assert held(daemon)[2] <= threads, (daemon.name, before, held(daemon))


def live_through(n_p, n_d, n_clients, seconds, n_questions, folder):
    asked = questions(SEED, n_questions)
    kind = Cluster if why_not() else NetCluster
    with kind(n_p, n_d, coord={"pd": {"drain_soft_s": 1}}, env={"BATON_RECORD": str(folder / "run"), "BATON_RECORD_MIB": "64"}) as cluster:
        learn(cluster.base, asked)
        idle, before = cluster.idle(), {d: (d.process.pid, held(d)) for d in cluster.daemons}
        chaos = Chaos(cluster, SEED)
        with Clients(cluster.base, asked, n_clients, SEED) as clients:
            chaos.run(seconds)
        story = f"seed {SEED}, {clients.n_right} right answers, longest {clients.longest_s:.1f} s\n" + "\n".join(chaos.done)
        print(story)
        assert clients.hung == 0, f"{clients.hung} clients still wait\n{story}"
        shown = "\n".join(clients.faults[:10])
        assert not clients.faults, f"{len(clients.faults)} faults of {len(clients.faults) + clients.n_right}\n{shown}\n{story}"
        assert clients.n_right > seconds / SLOW, story
        balance(cluster)
        for was, now in zip(idle, cluster.idle()):
            assert now[0] == was[0], (idle, cluster.loads())
        assert get(cluster.status_base, "/v1/readiness").status == 200
        for d, (pid, was) in before.items():
            if d.process.pid == pid:
                nothing_grew(d, was, n_clients * len(cluster.instances))
    decisions_come_out_the_same(str(folder / "run"))


def test_a_sample(tmp_path):
    live_through(2, 2, 8, 8, 34, tmp_path)


@pytest.mark.slow
def test_two_and_two(tmp_path):
    live_through(2, 2, 32, int(os.environ.get("CHAOS_SECONDS", "600")), 170, tmp_path)


@pytest.mark.slow
def test_three_and_three(tmp_path):
    live_through(3, 3, 32, int(os.environ.get("CHAOS_SECONDS", "600")), 170, tmp_path)
