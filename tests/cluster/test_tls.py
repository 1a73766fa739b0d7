"""Goal: with TLS and keys every plane lets in whom it shall, refuses everybody else, and answers as without them; keys change while the
cluster works; a daemon whose files are wrong does not start and says which setting it is.
Method: one PKI with a CA a plane (pki.py). Real handshakes with Python's ssl and curl, against 1P1D and against one instance; certificates of
every plane shown to every other; SIGHUP under streams; configurations with one file gone wrong."""
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.parse

import npm_clients
import pytest
from families import MODES, normal
from harness import ANSWER_S, BUILD, READY_S, ROOT, SLOW, Cluster, Standalone, Stream, events, free_ports, get, in_threads, instance_conf, merge, post
from harness import request, wait_for
from pki import KEY, Pki

STORY = {"model": "fable", "prompt": "Once upon a time there was a fox", "max_tokens": 40, "temperature": 0.8, "seed": 11, "ignore_eos": True}
REFUSED = (ssl.SSLError, ConnectionError)


def speak(base, ctx, path="/v1/readiness"):
    """One GET with a context of the test's own; the status."""
    u = urllib.parse.urlsplit(base)
    with socket.create_connection((u.hostname, u.port), timeout=ANSWER_S) as raw, ctx.wrap_socket(raw, server_hostname=u.hostname) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        head = s.recv(4096)
        if not head:
            raise ConnectionResetError("closed without an answer")
        return int(head.split()[1])


def is_refused(base, ctx):
    try:
        speak(base, ctx)
    except REFUSED:
        return True
    return False


# ---- the same answers
def test_same_tokens_alone_and_split(tls_pair, tls_whole):
    texts = [post(c.base, "/v1/completions", STORY).json["choices"][0]["text"] for c in (tls_pair, tls_whole)]
    assert texts[0] == texts[1] != ""
    for c in (tls_pair, tls_whole):
        raw = Stream(c.base, "/v1/completions", {**STORY, "stream": True}).read_all()
        assert raw.endswith(b"data: [DONE]\n\n")
        assert "".join(e["choices"][0]["text"] for e in events(raw) if e["choices"]) == texts[0]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_family_answers_as_without_tls(tls_pair, tls_whole, whole, mode):
    body = mode.body([1000 + i for i in range(20)] if mode.family == "triton_token" else STORY["prompt"], max_tokens=12, temperature=0.8, seed=3)
    plain = mode.ask(whole.base, body)
    assert plain[0] == 200, plain
    for c in (tls_pair, tls_whole):
        status, media, raw = mode.ask(c.base, body)
        assert (status, media, normal(raw, keep_cached=False)) == (plain[0], plain[1], normal(plain[2], keep_cached=False))


def test_many_streams_at_once(tls_pair):
    loads = tls_pair.idle()
    wait_for(lambda: get(tls_pair.status_base, "/v1/readiness").status == 200, ANSWER_S, "P and D serve")
    jobs = [lambda i=i: Stream(tls_pair.base, "/v1/completions", {**STORY, "seed": i, "stream": True}).read_all() for i in range(30)]
    for raw in in_threads(jobs):
        assert raw.endswith(b"data: [DONE]\n\n"), f"{raw}\n{tls_pair.coordinator.log()[-4000:]}"
    tls_pair.wait_idle(loads, ANSWER_S)


def test_curl(tls_pair, pki):
    line = ["curl", "-sSN", "--max-time", "60", *pki.curl("user"), tls_pair.base + "/v1/chat/completions", "-d",
            '{"model":"fable","stream":true,"max_tokens":8,"messages":[{"role":"user","content":"hi"}]}']
    r = subprocess.run(line, capture_output=True, timeout=90)
    assert r.returncode == 0 and r.stdout.endswith(b"data: [DONE]\n\n"), r
    bare = [w for w in line if w != "--cert"]
    bare.remove(pki.file("user", "client.pem"))
    r = subprocess.run(bare, capture_output=True, timeout=90)
    assert r.returncode != 0 and r.stdout == b"", r


def test_batonctl(tls_pair, pki):
    files = {k: pki.file("management", f) for k, f in
             (("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key"), ("--pass", "client.pass"))}

    def run(options, *args):
        return subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "-m", tls_pair.mgmt, *[w for o in options.items() for w in o], *args],
                              capture_output=True, text=True, timeout=60)
    r = run(files, "status")
    assert r.returncode == 0 and "coordinator: ready" in r.stdout, r
    r = run({}, "status")
    assert r.returncode == 2 and "--ca must name a file" in r.stderr, r
    r = run({**files, "--pass": "/nowhere"}, "status")
    assert r.returncode == 2 and "--pass: cannot open /nowhere" in r.stderr, r
    wrong = {k: v.replace("/management/", "/user/") for k, v in files.items()} | {"--ca": files["--ca"]}
    r = run(wrong, "status")
    assert r.returncode == 1 and r.stdout == "", r


# ---- who is let in
def doors(c):
    """Every HTTP plane of a cluster: its URL and the plane whose CA it trusts."""
    return [(c.base, "user"), (c.mgmt, "management"), (c.status_base, "status"), (c.external, "external"), (c.prefills[0].base, "business"),
            (c.prefills[0].mgmt, "instance"), (c.decodes[0].base, "business"), (c.decodes[0].mgmt, "instance")]


def test_each_plane_takes_its_own_certificates_only(tls_pair, pki):
    planes = ["user", "management", "status", "external", "business", "instance", "metrics"]
    for base, own in doors(tls_pair):
        for plane in planes:
            ctx = pki.context(plane, ca_of=own)
            if plane == own:
                assert 200 <= speak(base, ctx) < 500, (base, own)
            else:
                assert is_refused(base, ctx), f"a certificate of {plane} was let in at {base} ({own})"
        assert is_refused(base, pki.context(own, cert=False)), (base, own)
        assert is_refused(base, pki.context("cluster", "peer", ca_of=own)), (base, own)


def test_plain_http_and_old_tls_are_refused(tls_pair, tls_whole, pki):
    for base, plane in doors(tls_pair) + [(tls_whole.base, "user"), (tls_whole.mgmt, "instance")]:
        u = urllib.parse.urlsplit(base)
        with socket.create_connection((u.hostname, u.port), timeout=ANSWER_S) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            got = b""
            with contextlib.suppress(ConnectionError):
                while piece := s.recv(4096):
                    got += piece
            assert b"HTTP/1.1 200" not in got
        ctx = pki.context(plane)
        ctx.maximum_version = ssl.TLSVersion.TLSv1_2
        assert is_refused(base, ctx), base


def test_options_of_the_user_plane(pki):
    extra = {"BatonConfig": {"tlsMinVersion": "1.2", "clientCertificates": "optional"}}
    with Standalone(pki=pki, extra=extra) as s:
        old = pki.context("user")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert speak(s.base, old, "/v1/models") == 200
        bare = pki.context("user", cert=False)
        assert speak(s.base, bare, "/v1/models") == 200  # with its key
        assert request(s.base + "/v1/models", headers={"Authorization": "Bearer nobody"}).status == 401
        assert is_refused(s.base, pki.context("business", ca_of="user"))  # not any certificate either
        old = pki.context("instance")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert is_refused(s.mgmt, old)  # the other planes stay strict
        assert is_refused(s.mgmt, pki.context("instance", cert=False))


def test_a_revoked_certificate(pki):
    pki.issue("user", "leaver", "client")
    ctx = pki.context("user", "leaver")
    with Standalone(pki=pki) as s:
        assert speak(s.base, ctx, "/v1/models") == 200
    pki.revoke("user", "leaver")
    with Standalone(pki=pki) as s:
        assert is_refused(s.base, ctx)
        assert speak(s.base, pki.context("user"), "/v1/models") == 200
        wait_for(lambda: "handshake_failed" in s.instance.log() and "certificate revoked" in s.instance.log(), ANSWER_S, "the reason in the log")


def test_an_instance_with_a_foreign_certificate_is_not_used(pki):
    """The coordinator asks for the address in the certificate: one that is good but for another host is no instance of ours."""
    pki.issue("instance", "elsewhere", "server", "-i", "127.0.0.9", "-n", "elsewhere")
    extra = {"ServerConfig": {"managementTlsCert": pki.file("instance", "elsewhere.pem"), "managementTlsPk": pki.file("instance", "elsewhere.key"),
                              "managementTlsPkPwd": pki.file("instance", "elsewhere.pass")}}
    c = Cluster(pki=pki, extra=extra)
    try:
        for d in c.daemons:
            d.start()
        wait_for(lambda: len(unsure_of(c)) == 2, READY_S, "both refused for their certificates")
    finally:
        c.kill_all()


def unsure_of(c):
    """Ids of the instances that are not ready because of their certificate's name."""
    with contextlib.suppress(OSError):
        r = get(c.status_base, "/v1/readiness", timeout=10 * SLOW)
        return [f["id"] for f in r.json["reasons"] if "no alternative certificate subject name" in f.get("detail", "")] if r.status == 503 else []
    return []


def test_instances_register_over_tls(pki):
    with Cluster(pki=pki, register=True) as c:
        assert post(c.base, "/v1/completions", STORY).status == 200
        check_registering_is_all(c, pki)


def check_registering_is_all(c, pki):
    """A certificate that registers can do that and nothing else; one of the management CA does all."""
    u = urllib.parse.urlsplit(c.mgmt)

    def ask(ctx, method, path, body=b"{}"):
        conn = http.client.HTTPSConnection(u.hostname, u.port, context=ctx, timeout=ANSWER_S)
        try:
            conn.request(method, path, body)
            r = conn.getresponse()
            return r.status, r.read()
        finally:
            conn.close()
    registrar, operator = pki.context("register", ca_of="management"), pki.context("management")
    a_p = next(i for i in c.status()["instances"] if i["role"] == "prefill")["id"]
    order = json.dumps({"id": a_p, "role": "decode"}).encode()
    for method, path, body in (("POST", "/v1/instances/role", order), ("GET", "/v2/status", b""), ("GET", "/v1/status", b""),
                               ("POST", "/v1/load_lora_adapter", b"{}"), ("GET", "/v1/instances/register", b""), ("GET", "/nothing", b""),
                               ("POST", "/v1/chat/completions", b"{}")):
        status, raw = ask(registrar, method, path, body)
        assert status == 403 and b"The certificate of this client may not do this." in raw, (path, status, raw)
    assert ask(registrar, "POST", "/v1/instances/register")[0] == 422  # reached; the body says too little
    assert ask(operator, "GET", "/v2/status", b"")[0] == 200 and ask(operator, "POST", "/v1/instances/register")[0] == 422
    assert next(i for i in c.status()["instances"] if i["id"] == a_p)["role"] == "prefill"
    for base in (c.base, c.status_base, c.external, c.prefills[0].mgmt):  # it is a certificate of one plane
        plane = {c.base: "user", c.status_base: "status", c.external: "external"}.get(base, "instance")
        assert is_refused(base, pki.context("register", ca_of=plane)), base


# ---- API keys
NO_KEY = {"error": {"message": "No API key was given. Send it as Authorization: Bearer KEY.", "type": "invalid_request_error", "param": None,
                    "code": "invalid_api_key"}}
FAMILIES = [("/v1/completions", STORY), ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "hi"}]}),
            ("/generate", {"inputs": "hi"}), ("/", {"inputs": "hi"}), ("/v2/models/fable/generate", {"text_input": "hi"}),
            ("/infer", {"inputs": "hi"}), ("/v1/tokenizer", {"inputs": "hi"}), ("/no/such/path", {})]


@pytest.mark.parametrize("fixture", ["tls_pair", "tls_whole"])
def test_keys_are_asked_for(fixture, request):
    c = request.getfixturevalue(fixture)
    for path, body in FAMILIES:
        a = post(c.base, path, body, headers={"Authorization": ""})
        assert a.status == 401 and a.headers["WWW-Authenticate"] == "Bearer", (path, a.status, a.text)
        assert a.json["error"]["code"] == "invalid_api_key"
    for word in ("Bearer nobody-knows-this-key", f"Basic {KEY}", KEY, f"Bearer {KEY[:-1]}", "Bearer"):
        a = get(c.base, "/v1/models", headers={"Authorization": word})
        assert a.status == 401 and a.json["error"]["message"] == "Incorrect API key provided."
    assert get(c.base, "/v1/models").status == 200
    for path in ("/health", "/ping", "/version", "/v2/health/live", "/v2/health/ready", "/v2/models/fable/ready", "/v2/models/fable/versions/1/ready"):
        assert get(c.base, path, headers={"Authorization": ""}).status == 200, path
    assert post(c.base, "/ping", {}, headers={"Authorization": ""}).status == 200
    ctx, _ = __import__("harness")._doors[urllib.parse.urlsplit(c.base).port]
    u = urllib.parse.urlsplit(c.base)
    with socket.create_connection((u.hostname, u.port), timeout=ANSWER_S) as raw, ctx.wrap_socket(raw, server_hostname=u.hostname) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n")  # a body that is never sent
        got = b""
        while piece := s.recv(4096):
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ") and b"Connection: close" in head and json.loads(body) == NO_KEY


def test_other_planes_want_no_key(tls_pair, tls_whole):
    for url in (tls_pair.mgmt + "/v2/status", tls_pair.status_base + "/v1/readiness", tls_pair.external + "/metrics", tls_whole.mgmt + "/v2/status"):
        assert request(url).status in (200, 404), url  # 404: a plane without that route


def test_keys_without_tls():
    """Keys are independent of TLS: on loopback they may be all there is."""
    folder = tempfile.mkdtemp(prefix="baton-keys-")
    path = os.path.join(folder, "keys")
    with open(path, "w") as f:
        f.write(KEY)
    os.chmod(path, 0o600)
    try:
        with Standalone(extra={"BatonConfig": {"apiKeysFile": path, "errorStyle": "openai"}}) as s:  # each family in its own shape
            for path_, body in (("/generate", {"inputs": "hi"}), ("/v2/models/fable/generate", {"text_input": "hi"}), ("/v2/models/fable/infer", {})):
                a = post(s.base, path_, body)
                assert a.status == 401 and a.json == {"error": "No API key was given. Send it as Authorization: Bearer KEY.", "error_type": "Unauthorized"}
            for path_ in ("/v1/completions", "/score", "/tokenize", "/v2/rerank"):
                assert post(s.base, path_, {}).json == NO_KEY, path_
        with Standalone(extra={"BatonConfig": {"apiKeysFile": path}}) as s:
            assert post(s.base, "/generate", {"inputs": "hi"}).json == NO_KEY
            assert get(s.base, "/v1/models").status == 401
            assert get(s.base, "/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status == 200
            assert get(s.base, "/health").status == 200
            assert get(s.mgmt, "/v2/status").status == 200
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["pair", "whole"])
def test_keys_change_under_streams(kind):
    new = "another-key-0123456789"
    with Pki() as p, (Cluster(pki=p) if kind == "pair" else Standalone(pki=p)) as c:
        door = c.coordinator if kind == "pair" else c.instance

        def status(key):
            return get(c.base, "/v1/models", headers={"Authorization": f"Bearer {key}"}).status

        def reload(word):
            n = door.log().count(word)
            door.kill(signal.SIGHUP)
            door.killed = False
            wait_for(lambda: door.log().count(word) > n, ANSWER_S, word)

        streams = [Stream(c.base, "/v1/completions", {**STORY, "seed": i, "max_tokens": 300, "stream": True}) for i in range(6)]
        for s in streams:
            s.read_until(1)
        p.write_keys(f"# both for a while\n{KEY}\n{new}\n")
        reload("event=reloaded count=2")
        assert status(KEY) == 200 and status(new) == 200
        p.write_keys(f"{new}\n")
        reload("event=reloaded count=1")
        assert status(KEY) == 401 and status(new) == 200
        for text, mode in (("", 0o600), ("short\n", 0o600), (f"{KEY}\n", 0o644)):
            p.write_keys(text, mode)
            reload("event=reload_failed")
            assert status(KEY) == 401 and status(new) == 200
        os.unlink(p.keys_path)
        reload("event=reload_failed")
        assert status(new) == 200
        for s in streams:
            assert s.read_all().endswith(b"data: [DONE]\n\n")
        p.keys = [new]
        for d in (c.daemons if kind == "pair" else [c.instance]):
            log = d.log()
            assert KEY not in log and new not in log and "PRIVATE KEY" not in log


def test_sdks_with_a_key_alone(pki):
    """An SDK brings a key and no certificate: it needs the CA, and `clientCertificates` optional. A wrong key is its AuthenticationError."""
    npm_clients.install()
    ca = {"NODE_EXTRA_CA_CERTS": pki.file("user", "ca.pem")}
    with Standalone(pki=pki, extra={"BatonConfig": {"clientCertificates": "optional"}}) as s:
        told = npm_clients.run("openai_client.mjs", s.base, "chat", {**ca, "OPENAI_API_KEY": KEY})
        chunks = npm_clients.run("openai_client.mjs", s.base, "chat_stream", {**ca, "OPENAI_API_KEY": KEY})["chunks"]
        text = told["choices"][0]["message"]["content"]
        assert text and "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == text
        message = npm_clients.run("anthropic_client.mjs", s.base, "whole stream", {**ca, "API_KEY": KEY})
        assert message["stream"]["message"]["content"] == message["whole"]["content"] and message["whole"]["content"][0]["text"]
        r = npm_clients.start("openai_client.mjs", s.base, "chat", {**ca, "OPENAI_API_KEY": "nobody-knows-this-key"})
        assert r.returncode != 0 and "AuthenticationError" in r.stderr and "Incorrect API key provided." in r.stderr, r.stderr
        r = npm_clients.start("openai_client.mjs", s.base, "chat", {"OPENAI_API_KEY": KEY})
        assert r.returncode != 0 and "APIConnectionError" in r.stderr, r.stderr  # whose CA it does not know


def test_sighup_without_keys(pair):
    for d in pair.daemons:
        d.kill(signal.SIGHUP)
        d.killed = False
    assert post(pair.base, "/v1/completions", STORY).status == 200
    assert all(d.alive() for d in pair.daemons)


# ---- starting
def run_daemon(binary, conf, *options):
    folder = tempfile.mkdtemp(prefix="baton-start-")
    path = os.path.join(folder, "c.json")
    with open(path, "w") as f:
        json.dump(conf, f)
    try:
        return subprocess.run([os.path.join(BUILD, "bin", binary), "-c", path, *options], capture_output=True, text=True, timeout=60 * SLOW)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bad(pki):
    """Files that are wrong in one way each."""
    folder = tempfile.mkdtemp(prefix="baton-bad-")
    pki.issue("user", "old", "server", "-f", "20200101000000Z", "-t", "20210101000000Z")
    pki.issue("user", "early", "server", "-f", "20900101000000Z", "-t", "20910101000000Z")
    files = {"missing": os.path.join(folder, "missing"), "old": pki.file("user", "old.pem"), "early": pki.file("user", "early.pem")}
    for name, mode in (("open", 0o644), ("garbage", 0o400)):
        files[name] = os.path.join(folder, name)
        with open(files[name], "w") as f:
            f.write(open(pki.file("user", "server.pem")).read() if name == "open" else "nothing of use\n")
        os.chmod(files[name], mode)
    files["link"] = os.path.join(folder, "link")
    os.symlink(pki.file("user", "server.pem"), files["link"])
    files["crl"] = os.path.join(folder, "crl.pem")
    pki.make("crl", "-f", "20200101000000Z", "-t", "20210101000000Z", pki.dir, "user")
    shutil.copy(pki.file("user", "crl.pem"), files["crl"])
    os.chmod(files["crl"], 0o400)
    pki.make("crl", pki.dir, "user")
    yield files
    shutil.rmtree(folder)


# setting: (instance's name, coordinator's name)
SETTINGS = {"cert": ("tlsCert", "tls_cert"), "key": ("tlsPk", "tls_key"), "ca": ("tlsCaFile", "ca_cert"), "pass": ("tlsPkPwd", "tls_passwd"),
            "crl": ("tlsCrlFiles", "tls_crl")}
WRONG = [("cert", "missing", "No such file"), ("key", "missing", "No such file"), ("ca", "missing", "No such file"), ("pass", "missing", "No such file"),
         ("crl", "missing", "No such file"), ("cert", "open", "must have mode 0400, it has 0644"), ("cert", "link", "must not be a symbolic link"),
         ("cert", "garbage", "not a PEM file"), ("key", "garbage", "not a PEM file"), ("cert", "old", "has expired"), ("cert", "early", "is not valid yet"),
         ("crl", "crl", "the CRL of"), ("pass", "", "is encrypted"), ("cert", "", "must name a file")]


@pytest.mark.parametrize("setting,file,says", WRONG)
def test_wrong_files_stop_the_start(pki, bad, setting, file, says):
    path = bad[file] if file else ""
    by_instance, by_coordinator = SETTINGS[setting]
    conf = merge(instance_conf(*free_ports(3), "standard"), pki.instance("standard"))
    conf["ServerConfig"][by_instance] = [path] if setting in ("ca", "crl") else path
    co = pki.coordinator()
    co["coordinator"]["tls_config"]["request_server_tls_items"][by_coordinator] = path
    co["coordinator"]["http_config"] = dict(zip(("predict_port", "manage_port", "status_port", "external_port"), map(str, free_ports(4))))
    named = "key" if (setting, file) == ("pass", "") else setting  # an encrypted key without password: said of the key
    for binary, c, name in (("prefill", conf, "ServerConfig." + SETTINGS[named][0]),
                            ("coordinator", co, "coordinator.tls_config.request_server_tls_items." + SETTINGS[named][1])):
        for options in ([], ["--check-config"]):
            r = run_daemon(binary, c, *options)
            assert r.returncode == 2, (binary, options, r)
            assert name in r.stderr and says in r.stderr and path in r.stderr, (binary, options, r.stderr)
            assert "PRIVATE" not in r.stderr


def test_wrong_keys_stop_the_start(pki):
    conf = merge(instance_conf(*free_ports(3), "standard"), {"BatonConfig": {"apiKeysFile": "/nowhere"}})
    r = run_daemon("prefill", conf, "--check-config")
    assert r.returncode == 2 and "BatonConfig.apiKeysFile: cannot open /nowhere" in r.stderr
    r = run_daemon("coordinator", {"coordinator": {"apiKeysFile": "keys"}}, "--check-config")
    assert r.returncode == 2 and "coordinator.apiKeysFile: cannot open" in r.stderr


def test_good_files_pass_the_check(pki):
    r = run_daemon("prefill", merge(instance_conf(*free_ports(3), "dmi"), pki.instance("dmi")), "--check-config")
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["ServerConfig"]["tlsCaFile"] == [pki.file("business", "ca.pem")]
    r = run_daemon("coordinator", pki.coordinator(), "--check-config")
    assert r.returncode == 0, r.stderr


def test_addresses_with_tls_need_no_switch(pki):
    """The loopback rule asks for TLS, or for the explicit switch."""
    conf = merge(instance_conf(*free_ports(3), "dmi"), {"ServerConfig": {"ipAddress": "192.0.2.1", "managementIpAddress": "192.0.2.1"}})
    r = run_daemon("prefill", conf, "--check-config")
    assert r.returncode == 2 and "must be a loopback address while httpsEnabled is false" in r.stderr
    r = run_daemon("prefill", merge(conf, pki.instance("dmi")), "--check-config")
    assert r.returncode == 0, r.stderr
    open_co = {"coordinator": {"http_config": {"predict_ip": "192.0.2.1", "manage_ip": "192.0.2.1"}}}
    r = run_daemon("coordinator", open_co, "--check-config")
    assert r.returncode == 2 and "must be a loopback address while TLS is off" in r.stderr
    r = run_daemon("coordinator", merge(open_co, pki.coordinator()), "--check-config")
    assert r.returncode == 0, r.stderr


def test_shipped_tls_configuration_is_valid():
    """cluster-conf/1p1d-tls with a PKI made as docs/operations.md says."""
    folder = tempfile.mkdtemp(prefix="baton-shipped-")
    conf = os.path.join(folder, "conf")
    try:
        shutil.copytree(os.path.join(ROOT, "cluster-conf", "1p1d-tls"), conf)
        Pki.make(os.path.join(conf, "pki"))
        keys = os.path.join(conf, "pki", "api_keys")
        with open(keys, "w") as f:
            f.write(KEY)
        os.chmod(keys, 0o600)
        for binary in ("coordinator", "prefill", "decode"):
            r = subprocess.run([os.path.join(BUILD, "bin", binary), "-c", os.path.join(conf, binary + ".json"), "--check-config"],
                               capture_output=True, text=True, timeout=60 * SLOW)
            assert r.returncode == 0, r.stderr
    finally:
        shutil.rmtree(folder)
