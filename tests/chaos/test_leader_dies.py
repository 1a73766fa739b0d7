"""Goal: the leader dies with 200 live streams: the next one is ready within the lease and a second, and every client that comes back gets the rest of its
stream, as in a calm run; again and again, by kill, by SIGSTOP past the lease and by SIGTERM. Method: two coordinators on a real etcd, clients that
read events and come back by themselves (tests/cluster/test_resume.py has a sample of twenty, and the npm client).
"""
import signal
import threading
import time

import pytest
from etcd_server import LEASE_S, HaCluster
from test_resume import ON, body, come_back, ids_of, last_id, read_broken, texts

from harness import READY_S, SLOW, Stream, events, in_threads, merge, wait_for

pytestmark = pytest.mark.slow
N = 200


def opened(base, what, got):
    headers = {"Last-Event-ID": last_id(got)} if got else {}
    return wait_for(lambda: (s := Stream(base, "/v1/completions", what, headers=headers)).status == 200 and s, READY_S, "it is taken")


def run(c, kinds, event):
    """One round: all streams under way, then the event; the streams as their clients have them in the end."""
    lead = 0 if c.ready(0) else 1
    other = 1 - lead
    c.use(lead)
    wait_for(lambda: c.ha(other).get("journal", {}).get("synced"), READY_S, "the other has a copy")
    streams = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b) for b in kinds])
    in_threads([lambda s=s: s.read_until(3) for s in streams])
    d = c.coordinators[lead]
    began = time.monotonic()
    d.kill() if event == "kill" else d.process.send_signal(signal.SIGSTOP if event == "stop" else signal.SIGTERM)
    took = []
    watch = threading.Thread(target=lambda: took.append(c.took_over(other, began)))
    watch.start()
    if event == "stop":  # its clients notice nothing: they give up when another one is ready
        watch.join()
        got = in_threads([lambda s=s: (s.conn.sock.settimeout(0.2), read_broken(s))[1] for s in streams])
    else:
        got = in_threads([lambda s=s: read_broken(s) for s in streams])
    watch.join()
    deadline = time.monotonic() + 240 * SLOW
    base = f"http://{c.address(other)}"
    raw = in_threads([lambda b=b, g=g: g if g.endswith(b"data: [DONE]\n\n") else come_back(base, "/v1/completions", b, g, deadline)
                      for b, g in zip(kinds, got)])
    n_broken = sum(not g.endswith(b"data: [DONE]\n\n") for g in got)
    print(f"{event}: ready {took[0]:.2f} s after it, lease {LEASE_S} s; {n_broken} of {len(kinds)} streams broke, "
          f"all complete after {time.monotonic() - began:.1f} s")
    if event == "stop":
        d.process.send_signal(signal.SIGCONT)
        wait_for(lambda: c.ha(lead).get("role") == "standby", READY_S, "it stands by")
    else:
        d.killed = True
        d.process.wait(timeout=60 * SLOW)
        c.both_again(lead)
    assert event != "term" or n_broken == 0
    return took[0], raw


def test_two_hundred_streams():
    with HaCluster(1, 2, coord=merge(ON, {"pd": {"stop_drain_timeout_s": 240 * SLOW}}), extra={"BackendConfig": {"ScheduleConfig": {"maxBatchSize": N}}}) as c:
        kinds = [body(i, max_tokens=160) for i in range(N)]
        calm = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b).read_all() for b in kinds])
        for event in ("kill", "stop", "term", "kill"):
            took, raw = run(c, kinds, event)
            for i, (now, before) in enumerate(zip(raw, calm)):
                assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(b"data: [DONE]\n\n"), (event, i, now[-300:])
                assert texts(now) == texts(before), (event, i)
            assert took <= LEASE_S + 1 + 2 * SLOW, (event, took)


def test_streams_that_outlive_three_leaders():
    """The same streams, again and again at the next coordinator, which has them of one that had them of another; the dead ones come back as standbys."""
    with HaCluster(1, 1, coord=ON) as c:
        kinds = [body(i, max_tokens=480, n=2 if i % 4 == 3 else 1) for i in range(8)]
        calm = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b).read_all() for b in kinds])
        raw, lead = [b""] * len(kinds), 0
        for more in (20, 40, 60):
            wait_for(lambda: c.ha(1 - lead).get("journal", {}).get("synced"), READY_S, "the other has a copy")
            streams = in_threads([lambda b=b, r=r: opened(f"http://{c.address(lead)}", b, r) for b, r in zip(kinds, raw)])
            in_threads([lambda s=s: s.read_until(more) for s in streams])
            began = time.monotonic()
            c.coordinators[lead].kill()
            raw = [r + read_broken(s) for r, s in zip(raw, streams)]
            print(f"{sum(len(ids_of(r)) for r in raw)} events so far, ready {c.took_over(1 - lead, began):.2f} s after the leader was killed")
            c.both_again(lead)
            lead = 1 - lead
        deadline = time.monotonic() + 120 * SLOW
        raw = in_threads([lambda b=b, r=r: come_back(f"http://{c.address(lead)}", "/v1/completions", b, r, deadline) for b, r in zip(kinds, raw)])
        for i, (now, before) in enumerate(zip(raw, calm)):
            assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(b"data: [DONE]\n\n"), (i, now[-300:])
            for choice in range(kinds[i]["n"]):
                both = [[x["text"] for e in events(r) for x in e.get("choices", []) if x["index"] == choice] for r in (now, before)]
                assert both[0] == both[1], i
