"""What happens to instances, one at a time, by a seed. Each fault ends with the cluster whole again, so that never two are away at once."""
import random
import signal
import time

from deaths import restart

from harness import SLOW, post, wait_for


def kill(cluster, daemon, rng):
    daemon.kill(signal.SIGKILL)
    time.sleep(rng.random())
    restart(cluster, daemon)


def freeze(cluster, daemon, rng):
    """Longer than anybody waits for a sign of life, or shorter."""
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(rng.choice([0.3, 1.0, 4.0]) * SLOW)
    daemon.process.send_signal(signal.SIGCONT)
    wait_for(cluster.all_serve, 30 * SLOW, f"{daemon.name} serves again")


def stop(cluster, daemon, rng):
    """An operator's restart."""
    daemon.kill(signal.SIGTERM)
    assert daemon.process.returncode == 0, f"{daemon.name} ended with {daemon.process.returncode}"
    restart(cluster, daemon)


def _order(cluster, path, daemon, **more):
    a = post(cluster.mgmt, path, {"name": daemon.base.split("//")[1], **more})
    assert a.status == 200, a.text


def drain(cluster, daemon, rng):
    """Out of work and back."""
    _order(cluster, "/v1/instances/drain", daemon)
    time.sleep(rng.choice([0.2, 1.0, 3.0]))
    _order(cluster, "/v1/instances/undrain", daemon)
    wait_for(cluster.all_serve, 30 * SLOW, f"{daemon.name} serves again")


def switch(cluster, daemon, rng):
    """To the other role and back."""
    own = "prefill" if daemon in cluster.prefills else "decode"
    other = "decode" if own == "prefill" else "prefill"
    more = {"prefill": cluster.n_p, "decode": cluster.n_d}
    for role in (other, own):
        _order(cluster, "/v1/instances/role", daemon, role=role)
        want = dict(more) if role == own else {own: more[own] - 1, other: more[other] + 1}
        wait_for(lambda: all(len(cluster.serving(r)) == n for r, n in want.items()), 30 * SLOW, f"{daemon.name} is a {role} instance")
        time.sleep(rng.random())


def cut(cluster, daemon, rng):
    """Nothing passes between it and the coordinator, or one that it has a KV link with: both ways or one."""
    a, b = daemon, rng.choice([cluster.coordinator, *(cluster.decodes if daemon in cluster.prefills else cluster.prefills)])
    if rng.random() < 0.5:
        a, b = b, a
    cluster.cut(a, b, both=rng.random() < 0.5)
    time.sleep(rng.choice([0.3, 1.0, 4.0]) * SLOW)
    cluster.heal(a, b)

    def well():
        s = cluster.status()
        return all(i["state"] == "serving" for i in s["instances"]) and all(x["link"] == "ok" for i in s["instances"] for x in i["links"])

    wait_for(well, 30 * SLOW, f"all is well after a cut between {a.name} and {b.name}")


FAULTS = [kill, freeze, stop, drain, switch]


class Chaos:
    """Faults of random kinds at random instances until seconds are over; cuts among them where the cluster has networks (net.py)."""

    def __init__(self, cluster, seed, kinds=None):
        kinds = kinds or FAULTS + [cut] * hasattr(cluster, "cut")
        self.cluster, self.rng, self.kinds, self.done = cluster, random.Random(seed), kinds, []

    def run(self, seconds, pause_s=2.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            daemon, fault = self.rng.choice(self.cluster.instances), self.rng.choice(self.kinds)
            self.done.append(f"{time.strftime('%H:%M:%S')} {fault.__name__} {daemon.name}")
            fault(self.cluster, daemon, self.rng)
            time.sleep(pause_s * self.rng.random())
