"""Certificates, keys and CRLs that are renewed under a running cluster: on every plane, the KV links too; what is broken stays out."""
import os
import re
import signal
import socket
import urllib.parse

from harness import ANSWER_S, READY_S, Cluster, Stream, get, post, wait_for
from pki import Pki

STORY = {"model": "fable", "prompt": "Once upon a time", "temperature": 0.8, "max_tokens": 480, "stream": True}
PLANES = {"user": "server", "management": "server", "status": "server", "external": "server", "business": "server", "instance": "server",
          "cluster": "peer"}


def shown(pki, base, plane):
    """Serial number of the certificate that a listener shows to a new connection."""
    u = urllib.parse.urlsplit(base)
    with socket.create_connection((u.hostname, u.port), timeout=ANSWER_S) as s, \
            pki.context(plane).wrap_socket(s, server_hostname=u.hostname) as t:
        return t.getpeercert()["serialNumber"]


def renew(pki, plane, name):
    """As an administrator does: three files, one after the other."""
    kind = "client" if name == "client" else PLANES[plane]
    pki.issue(plane, "next", kind)
    for suffix in (".key", ".pass", ".pem"):
        os.replace(pki.file(plane, "next" + suffix), pki.file(plane, name + suffix))


def series(text, name):
    return {m[1]: float(m[2]) for m in re.finditer(rf"^{name}{{([^}}]*)}} (\S+)$", text, re.M)}


def metrics(c):
    return get(c.external, "/metrics").text


def test_everything_is_renewed_under_load():
    with Pki() as pki, Cluster(pki=pki, extra={"BatonConfig": {"chunkTokens": 64}}) as c:
        doors = [(c.base, "user"), (c.mgmt, "management"), (c.status_base, "status"), (c.prefills[0].base, "business"),
                 (c.decodes[0].mgmt, "instance")]
        before = [shown(pki, *d) for d in doors]
        # The files of both ends of the same moment: each is read by its own process.
        ends = series(metrics(c), "coordinator_certificate_not_after_seconds")
        assert any('plane="user",file="' in k and k.endswith('/user/server.pem"') for k in ends), ends
        assert any(k.endswith('/user/crl.pem"') for k in ends) and any('plane="instance_business"' in k for k in ends)
        s = Stream(c.base, "/v1/completions", STORY)
        s.read_until(1)

        # what is broken stays out, and is said once
        path = pki.file("user", "server.pem")
        os.chmod(path, 0o600)
        with open(path, "wb") as f:
            f.write(b"-----BEGIN CERTIFICATE-----\nnot one\n")
        os.chmod(path, 0o400)
        wait_for(lambda: "event=reload_failed plane=user" in c.coordinator.log(), ANSWER_S, "the broken file is seen")
        assert path in c.coordinator.log() and shown(pki, c.base, "user") == before[0]
        wait_for(lambda: series(metrics(c), "coordinator_credential_reloads_total").get('plane="user",result="failed"', 0) >= 1, ANSWER_S,
                 "it is counted")
        assert get(c.base, "/v1/models").status == 200

        # every certificate anew, and the old ones of the KV links revoked
        for plane, kind in PLANES.items():
            if plane == "cluster":
                pki.revoke(plane, "peer")
            renew(pki, plane, kind)
            if plane in ("business", "instance"):
                renew(pki, plane, "client")
        wait_for(lambda: all(a != b for a, b in zip(before, [shown(pki, *d) for d in doors])), READY_S, "new certificates are shown")
        assert s.read_all().endswith(b"data: [DONE]\n\n")  # what ran goes on
        a = post(c.base, "/v1/completions", {**STORY, "stream": False, "max_tokens": 8})
        assert a.status == 200, a.text

        # P, which never stopped, and a D that starts anew: the old certificate would be refused
        c.decodes[0].kill(signal.SIGKILL)
        c.decodes[0].process.wait()
        c.decodes[0].start()
        c.decodes[0].killed = False
        wait_for(c.all_serve, READY_S, "the link is up again")
        assert post(c.base, "/v1/completions", {**STORY, "stream": False, "max_tokens": 8}).status == 200

        # SIGHUP reads what has not changed, too
        n = c.coordinator.log().count("event=reloaded plane=user")
        c.coordinator.kill(signal.SIGHUP)
        c.coordinator.killed = False
        wait_for(lambda: c.coordinator.log().count("event=reloaded plane=user") > n, ANSWER_S, "read again")
        # A month is short: it is said, in one line a process.
        for d in c.daemons:
            assert 1 <= d.log().count("event=expires_soon") <= 2, d.log()

