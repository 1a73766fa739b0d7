"""What tests of dying instances share: a death that hits a request for certain, and the way back."""
import signal
import threading

from harness import ANSWER_S, SLOW, wait_for

ATTEMPTS = 10
MEASURED = 5


def within(bound_s, once):
    """once() gives seconds. Others may keep the machine busy while one of them passes, but not each time: the bound holds if it was kept once."""
    took = []
    while not took or took[-1] >= bound_s:
        assert len(took) < MEASURED, f"never within {bound_s} s: {took}"
        took.append(once())
    return took[-1]


def restart(cluster, daemon):
    def has_role():  # asked of the instance itself: the coordinator may not have noticed yet that it was away
        s = daemon.status()
        return s and s["service"]["roleStatus"] == "RoleReady"

    daemon.start()
    if daemon is not cluster.coordinator:
        wait_for(has_role, 30 * SLOW, f"{daemon.name} has its role again")
    wait_for(cluster.all_serve, 30 * SLOW, f"{daemon.name} serves again")
    n_links = 2 * cluster.n_p * cluster.n_d
    wait_for(lambda: [x["link"] for i in cluster.status()["instances"] for x in i["links"]] == ["ok"] * n_links, 30 * SLOW, "all links are known to be up")


def is_busy(instance):
    load = instance.load()
    return load is not None and load[2:] != (0, 0, 0)


def _in_background(ask):
    out = []
    t = threading.Thread(target=lambda: out.append(ask()), daemon=True)
    t.start()
    return t, out


def killed_at_work(cluster, side, ask):
    """Runs ask() and kills the instance of `side` that works for it. Returns its answer, once the cluster is whole again.

    The request may be faster than the eye: the instance is stopped first, and killed only while the coordinator still waits for the answer; the
    coordinator's count of retries says whether the death cost the request its instance. If not, everything is done again."""
    for _ in range(ATTEMPTS):
        retried = cluster.status()["coordinator"]["requestsRetried"]
        thread, out = _in_background(ask)
        victim = wait_for(lambda: out or next((i for i in side if is_busy(i)), None), ANSWER_S, "an instance works for the request, or it is answered")
        if victim is not out:
            victim.process.send_signal(signal.SIGSTOP)
            if cluster.status()["coordinator"]["requestsInFlight"] > 0:
                victim.kill()
            else:
                victim.process.send_signal(signal.SIGCONT)
        thread.join(ANSWER_S)
        assert out, "the request has no answer"
        if victim is not out and victim.killed:
            restart(cluster, victim)
        if cluster.status()["coordinator"]["requestsRetried"] > retried:
            return out[0]
    raise AssertionError(f"{ATTEMPTS} times no instance died while it worked for the request")
