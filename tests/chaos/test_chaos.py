"""Goal: whatever one instance does, a client gets the answer it would have had. Method: clients of all families ask a cluster questions whose
answers they know, while instances are killed, frozen and restarted at random. CHAOS_SEED and CHAOS_SECONDS choose another run."""
import os
import re
import subprocess

import pytest
from faults import Chaos
from load import Clients, balance, learn, questions

from harness import BUILD, SLOW, Cluster, get

SEED = int(os.environ.get("CHAOS_SEED", "1"))


def decisions_come_out_the_same(recording):
    """Of what the coordinator chose meanwhile, as far as the recording goes: each decision is taken again."""
    r = subprocess.run([os.path.join(BUILD, "bin", "replay"), recording], capture_output=True, text=True, timeout=300 * SLOW)
    print(r.stdout)
    assert r.returncode == 0, r.stdout + r.stderr
    assert int(re.search(r" (\d+) decisions", r.stdout)[1]) > 0


def live_through(n_p, n_d, n_clients, seconds, n_questions, folder):
    asked = questions(SEED, n_questions)
    with Cluster(n_p, n_d, coord={"pd": {"drain_soft_s": 1}}, env={"BATON_RECORD": str(folder / "run"), "BATON_RECORD_MIB": "64"}) as cluster:
        learn(cluster.base, asked)
        idle = cluster.idle()
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
        for before, after in zip(idle, cluster.loads()):
            assert after[0] == before[0] and after[2:] == (0, 0, 0), (idle, cluster.loads())
        assert get(cluster.status_base, "/v1/readiness").status == 200
    decisions_come_out_the_same(str(folder / "run"))


def test_a_sample(tmp_path):
    live_through(2, 2, 8, 8, 34, tmp_path)


@pytest.mark.slow
def test_two_and_two(tmp_path):
    live_through(2, 2, 32, int(os.environ.get("CHAOS_SECONDS", "600")), 170, tmp_path)


@pytest.mark.slow
def test_three_and_three(tmp_path):
    live_through(3, 3, 32, int(os.environ.get("CHAOS_SECONDS", "600")), 170, tmp_path)
