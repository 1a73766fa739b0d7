"""Goal: tools/make-pki.sh makes certificates that hold what the planes need, and never writes over one.
Method: the script into folders of the test; openssl, which is not what made the rules, judges the results."""
import os
import stat
import subprocess

import pytest
from harness import ROOT

SCRIPT = os.path.join(ROOT, "tools", "make-pki.sh")
PLANES = ["user", "management", "status", "external", "register", "business", "instance", "metrics", "cluster"]


def run(*args):
    return subprocess.run([SCRIPT, *args], capture_output=True, text=True, timeout=120)


def verify(pki, plane, name, purpose, ca=None):
    """openssl's verdict on a certificate, with the CRL: "OK" or the reason."""
    ca = ca or plane
    r = subprocess.run(["openssl", "verify", "-crl_check", "-purpose", purpose, "-CAfile", f"{pki}/{ca}/ca.pem", "-CRLfile", f"{pki}/{ca}/crl.pem",
                        f"{pki}/{plane}/{name}.pem"], capture_output=True, text=True)
    return "OK" if r.returncode == 0 else r.stderr


def text(path):
    return subprocess.run(["openssl", "x509", "-in", path, "-noout", "-text"], capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pki") / "new")
    r = run("-i", "127.0.0.1,10.1.2.3", "-n", "localhost,node.test", path)
    assert r.returncode == 0, r.stderr
    assert path in r.stdout and "cluster" in r.stdout
    return path


@pytest.mark.parametrize("plane", PLANES)
def test_every_plane(pki, plane):
    names = {"cluster": [("peer", "sslserver"), ("peer", "sslclient")],
             "register": [("client", "sslclient")]}.get(plane, [("server", "sslserver"), ("client", "sslclient")])
    for name, purpose in names:
        assert verify(pki, plane, name, purpose) == "OK"
        other = "user" if plane != "user" else "status"
        assert verify(pki, plane, name, purpose, ca=other) != "OK", "another plane's CA did not make it"
        t = text(f"{pki}/{plane}/{name}.pem")
        for san in ("IP Address:127.0.0.1", "IP Address:10.1.2.3", "DNS:localhost", "DNS:node.test", "NIST CURVE: P-256", "CA:FALSE"):
            assert san in t, t
        with open(f"{pki}/{plane}/{name}.key") as f:
            assert "ENCRYPTED" in f.readline()
    if plane not in ("cluster", "register"):
        assert verify(pki, plane, "server", "sslclient") != "OK"
    if plane != "cluster":
        assert verify(pki, plane, "client", "sslserver") != "OK"


def test_modes(pki):
    for folder, folders, files in os.walk(pki):
        for f in folders:
            assert stat.S_IMODE(os.stat(os.path.join(folder, f)).st_mode) == 0o700
        for f in files:
            mode = stat.S_IMODE(os.stat(os.path.join(folder, f)).st_mode)
            assert mode & 0o077 == 0, f
            if f.endswith((".key", ".pass")) or (f.endswith(".pem") and "issued" not in folder):
                assert mode == 0o400, f


def test_nothing_is_overwritten(pki, tmp_path):
    assert run(pki).returncode == 1 and "nothing is overwritten" in run(pki).stderr
    (tmp_path / "x").write_text("mine")
    r = run(str(tmp_path))
    assert r.returncode == 1 and os.listdir(tmp_path) == ["x"]
    r = run("issue", pki, "cluster", "peer", "peer")
    assert r.returncode == 1 and "nothing is overwritten" in r.stderr


def test_more_certificates_and_revocation(pki):
    assert run("issue", "-i", "10.9.9.9", pki, "user", "alice", "client").returncode == 0
    assert verify(pki, "user", "alice", "sslclient") == "OK"
    assert "IP Address:10.9.9.9" in text(f"{pki}/user/alice.pem")
    assert run("revoke", pki, "user", "alice").returncode == 0
    assert "revoked" in verify(pki, "user", "alice", "sslclient")
    assert verify(pki, "user", "client", "sslclient") == "OK"
    assert run("issue", "-f", "20200101000000Z", "-t", "20200201000000Z", pki, "user", "old", "client").returncode == 0
    assert "expired" in verify(pki, "user", "old", "sslclient")
    assert run("crl", "-f", "20200101000000Z", "-t", "20200201000000Z", pki, "status").returncode == 0
    assert "CRL has expired" in verify(pki, "status", "server", "sslserver")


@pytest.mark.parametrize("args", [[], ["-d", "0", "/nowhere/x"], ["-d", "x", "/nowhere/x"], ["-p", "../up", "/nowhere/x"], ["-z", "/nowhere/x"],
                                  ["issue", "PKI", "nowhere", "a", "peer"], ["issue", "PKI", "user", "../a", "client"],
                                  ["issue", "PKI", "user", "a", "king"], ["issue", "-f", "20200101000000Z", "PKI", "user", "a", "client"],
                                  ["revoke", "PKI", "user", "nobody"]])
def test_wrong_arguments(pki, args):
    r = run(*[pki if a == "PKI" else a for a in args])
    assert r.returncode in (1, 2) and r.stderr
    assert not os.path.exists(f"{pki}/user/a.pem")
