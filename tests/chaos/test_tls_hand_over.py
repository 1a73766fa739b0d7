"""Goal: with TLS on every plane a planned stop of the leader costs its clients a pause, as without it, and a standby passes requests on; who has no
certificate that the leader takes gets neither. Method: two coordinators on a real etcd, certificates of tools/make-pki.sh."""
import json
import signal
import time

import pytest
from etcd_server import HaCluster
from test_resume import ON, body, ids_of, texts

from harness import READY_S, SLOW, Stream, in_threads, merge, post, request, wait_for
from pki import Pki

pytestmark = pytest.mark.slow
N = 12


def conf_of(pki, plane="user"):
    items = {"leader_client_tls_items": pki._items(plane, "client", False), "replica_client_tls_items": pki._items("management", "client", False)}
    items["leader_client_tls_items"]["ca_cert"] = pki.file("user", "ca.pem")
    tls = {**items, "leader_client_tls_enable": True, "replica_client_tls_enable": True}
    return merge(ON, {"coordinator": {"tls_config": tls}, "pd": {"ha_standby_relays": True, "stop_drain_timeout_s": 120 * SLOW}})


def test_a_planned_stop_under_tls():
    with Pki() as pki, HaCluster(1, 1, coord=conf_of(pki), pki=pki) as c:
        kinds = [body(i, max_tokens=300) for i in range(N)]
        calm = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b).read_all() for b in kinds])
        wait_for(lambda: c.ha(0).get("journal", {}).get("copiesSynced") and c.ha(1)["journal"]["synced"], READY_S, "the other has a copy")
        plain = body(30, stream=False)
        a, b = (post(f"https://{c.address(i)}", "/v1/completions", plain) for i in (0, 1))  # the second passes it on
        assert a.status == b.status == 200 and a.json["choices"] == b.json["choices"], (a.text, b.text)
        bad = request(f"https://{c.address(1)}/v1/completions", "POST", json.dumps(plain), headers={"Authorization": "Bearer none-of-ours-0123456789"})
        assert bad.status == 401, bad.text
        streams = in_threads([lambda b=b: Stream(c.base, "/v1/completions", b) for b in kinds])
        in_threads([lambda s=s: s.read_until(3) for s in streams])
        began = time.monotonic()
        c.coordinator.process.send_signal(signal.SIGTERM)
        took = c.took_over(1, began)
        raw = in_threads([s.read_all for s in streams])
        print(f"ready {took:.2f} s after SIGTERM with {N} streams over TLS, all complete after {time.monotonic() - began:.2f} s")
        assert c.coordinator.process.wait(timeout=60 * SLOW) == 0
        c.coordinator.killed = True
        for i, (now, before) in enumerate(zip(raw, calm)):
            assert ids_of(now) == list(range(len(ids_of(now)))) and now.endswith(b"data: [DONE]\n\n"), (i, now[-300:])
            assert texts(now) == texts(before), i


def test_a_certificate_that_the_leader_does_not_take():
    with Pki() as pki, HaCluster(1, 1, coord=conf_of(pki, "status"), pki=pki) as c:
        a = post(f"https://{c.address(1)}", "/v1/completions", body(1, stream=False))
        assert a.status == 503 and "was lost before it answered" in a.text, a.text
        assert post(c.base, "/v1/completions", body(1, stream=False)).status == 200
