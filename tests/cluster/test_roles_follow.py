"""Goal: without a fixed ratio roles follow the load, both ways, and no request is hurt by it; a fixed ratio, or the switch that says so, keeps them.
Method: four instances, clients that never pause: with long prompts and short answers, with short prompts and long answers, and with long prompts
again, whose answers are compared with those of the calm cluster; what the instances say of their speed."""
import contextlib
import re
import threading

from families import BY_NAME, made_up_ids, normal
from harness import READY_S, SLOW, Cluster, get, post, wait_for

CLIENTS = 12
KINDS = {"prefill": [BY_NAME["completions"].body(made_up_ids(700, 90000 + i), max_tokens=2, ignore_eos=True) for i in range(CLIENTS)],
         "decode": [BY_NAME["completions"].body(made_up_ids(6, 91000 + i), max_tokens=300, ignore_eos=True) for i in range(CLIENTS)]}
EXTRA = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 4, "maxPrefillBatchSize": 4}}, "BatonConfig": {"prefixCache": False}}


def following(**controller):
    return {"controller": {"default_p_rate": 0, "default_d_rate": 0, **controller},
            "pd": {"register_lease_s": 1, "role_window_s": 2, "role_cool_s": 1, "drain_soft_s": 1}}


def ask(cluster, body):
    a = post(cluster.base, "/v1/completions", body, timeout=120 * SLOW)
    assert a.status == 200, a.text
    return normal(a.body, False)


@contextlib.contextmanager
def load(cluster, bodies, calm):
    """A client for each body, again and again; what they get is what a calm cluster answers."""
    over, faults = threading.Event(), []

    def client(i):
        while not over.is_set() and not faults:
            try:
                if ask(cluster, bodies[i]) != calm[i]:
                    faults.append(f"another answer to {i}")
            except Exception as e:  # noqa: BLE001 - whatever it is, it is told
                faults.append(repr(e))
    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(len(bodies))]
    for t in threads:
        t.start()
    try:
        yield faults
    finally:
        over.set()
        for t in threads:
            t.join(120 * SLOW)
    assert not faults, faults[:3]


def n_of(cluster):
    return len(cluster.serving("prefill")), len(cluster.serving("decode"))


def test_roles_follow_the_load():
    with Cluster(2, 2, extra=EXTRA, coord=following()) as c:
        # Even one client at a time may be load enough for a move; so the roles of the calm cluster are not looked at, and both ways are asked for.
        calm = {kind: [ask(c, b) for b in bodies] for kind, bodies in KINDS.items()}
        for kind, want in (("prefill", (3, 1)), ("decode", (1, 3)), ("prefill", (3, 1))):
            with load(c, KINDS[kind], calm[kind]) as faults:
                wait_for(lambda want=want, faults=faults: n_of(c) == want or faults, 2 * READY_S, f"{want} serve")
        assert "event=switch by=load" in c.coordinator.log()
        wait_for(lambda: c.status()["coordinator"]["requestsInFlight"] == 0, READY_S, "all is answered")
        assert c.status()["coordinator"]["requestsFailed"] == 0


def test_one_does_both():
    """A pair cannot give an instance away: under prompts its decode instance may compute some of them as well, under answers its prefill instance may
    decode some, within a share; when nothing is to do each has its own role again. What clients get does not depend on it. Whether a request has one
    instance for both is decided by what both have measured of themselves (route_test.c)."""
    conf = following()
    conf["pd"] |= {"flex": True, "routing": "cost"}
    with Cluster(1, 1, extra=EXTRA, coord=conf) as c:
        p, d = c.prefills[0], c.decodes[0]
        role = lambda i: (i.status() or {}).get("service", {}).get("currentRole")  # noqa: E731
        calm = {kind: [ask(c, b) for b in bodies] for kind, bodies in KINDS.items()}
        for kind, helper in (("prefill", d), ("decode", p)):
            with load(c, KINDS[kind], calm[kind]) as faults:
                wait_for(lambda helper=helper, faults=faults: role(helper) == "flex" or faults, 2 * READY_S, f"{helper.name} does both")
        # one that stands in, since the other was silent for long on a busy machine, has no share of the planner's
        shares = re.findall(r"event=share role=(\w+) percent=(\d+)", c.coordinator.log())
        assert shares, c.coordinator.log()
        assert all(int(n) == 0 or (10 <= int(n) <= 91 and int(n) % 2 == (who == "prefill")) for who, n in shares), shares
        wait_for(lambda: (role(p), role(d)) == ("prefill", "decode"), 2 * READY_S, "each has its own role")
        assert c.status()["coordinator"]["requestsFailed"] == 0


def test_a_group_that_is_not_split():
    """A pair under both kinds of load has no ratio to go to: it is not split then, each request has one instance, and when nothing is to do it is a
    pair again. What clients get does not depend on it."""
    conf = following()
    conf["pd"] |= {"unsplit": True}
    with Cluster(1, 1, extra=EXTRA, coord=conf) as c:
        p, d = c.prefills[0], c.decodes[0]
        roles = lambda: tuple((i.status() or {}).get("service", {}).get("currentRole") for i in (p, d))  # noqa: E731
        both = KINDS["prefill"][:4] + KINDS["decode"][:4]
        calm = [ask(c, b) for b in both]

        def alone():
            return any(r["p"] == r["d"] for r in c.status()["recentRequests"])
        with load(c, both, calm) as faults:
            wait_for(lambda: (roles() == ("flex", "flex") and alone()) or faults, 2 * READY_S, "both do both, and requests have one of them")
        assert "event=share" in c.coordinator.log()
        wait_for(lambda: roles() == ("prefill", "decode"), 2 * READY_S, "they are a pair again")
        assert c.status()["coordinator"]["requestsFailed"] == 0
        assert [ask(c, b) for b in both[:1] + both[-1:]] == calm[:1] + calm[-1:]


def test_roles_that_are_fixed_stay():
    """The same load moves nobody; a ratio, and a switch that is off, are asked in turn."""
    for conf in ({**following(), "controller": {"default_p_rate": 2, "default_d_rate": 2}},
                 following(digs_periodic_role_decision={"auto_pd_role_switching_enable": False})):
        with Cluster(2, 2, extra=EXTRA, coord=conf) as c:
            calm = [ask(c, b) for b in KINDS["prefill"]]
            began = c.status()["coordinator"]["requestsFinished"]
            with load(c, KINDS["prefill"], calm):
                wait_for(lambda began=began, c=c: c.status()["coordinator"]["requestsFinished"] > began + 4 * CLIENTS, 2 * READY_S, "a load")
            assert n_of(c) == (2, 2) and "event=switch" not in c.coordinator.log()


def test_instances_say_how_fast_they_are():
    """At the start by themselves, then by what they serve."""
    with Cluster(1, 1) as c:
        p, d = c.prefills[0], c.decodes[0]

        def perf(daemon):
            return get(daemon.mgmt, "/v2/status").json["perf"]
        for daemon in (p, d):
            wait_for(lambda daemon=daemon: len(perf(daemon)["prompts"]) >= 3 and len(perf(daemon)["steps"]) >= 3, READY_S, "they have measured")
        assert {e["tokens"] for e in perf(p)["prompts"]} <= {16, 64, 128, 256, 512}
        ask(c, BY_NAME["completions"].body(made_up_ids(300, 92000), max_tokens=40, ignore_eos=True))
        wait_for(lambda: any(e["tokens"] == 300 or e["samples"] > 1 and 256 < e["tokens"] <= 512 for e in perf(p)["prompts"]), READY_S, "the prompt counts")
        wait_for(lambda: any(e["context"] > 300 and e["samples"] > 10 for e in perf(d)["steps"]), READY_S, "its steps count")
        assert all(e["seconds"] > 0 and 1 <= e["samples"] <= 32 for m in (p, d) for k in ("prompts", "steps") for e in perf(m)[k])
