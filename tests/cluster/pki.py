"""Certificates and API keys of a test cluster, and what daemons and clients need of them.

A Pki is made by tools/make-pki.sh: one CA a plane. `instance()` and `coordinator()` give the settings to merge into a daemon's
configuration, `context()` the client's side for Python, `curl()` for curl.
"""
import os
import shutil
import ssl
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = "test-key-0123456789abcdef"  # of the user plane, when a Pki has keys


class Pki:
    def __init__(self, keys=(KEY,)):
        self.folder = tempfile.mkdtemp(prefix="baton-pki-")
        self.dir = os.path.join(self.folder, "pki")
        self.make(self.dir)
        self.keys = list(keys)
        self.keys_path = os.path.join(self.folder, "api_keys")
        self.write_keys("".join(f"{k}\n" for k in keys))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def make(*args):
        r = subprocess.run([os.path.join(ROOT, "tools", "make-pki.sh"), *args], capture_output=True, text=True, timeout=300)
        assert r.returncode == 0, r.stderr

    def write_keys(self, text, mode=0o600):
        with open(self.keys_path + ".new", "w") as f:
            f.write(text)
        os.chmod(self.keys_path + ".new", mode)
        os.replace(self.keys_path + ".new", self.keys_path)

    def issue(self, plane, name, kind, *options):
        """One more certificate. options: as make-pki.sh issue takes them."""
        self.make("issue", *options, self.dir, plane, name, kind)

    def revoke(self, plane, name):
        self.make("revoke", self.dir, plane, name)

    def file(self, plane, name):
        return os.path.join(self.dir, plane, name)

    def password(self, plane, name):
        with open(self.file(plane, name + ".pass")) as f:
            return f.read().strip()

    # ---- clients
    def context(self, plane, name="client", ca_of=None, cert=True):
        """cert False: no client certificate. ca_of: the plane whose CA signs the server."""
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.load_verify_locations(self.file(ca_of or plane, "ca.pem"))
        if cert:
            ctx.load_cert_chain(self.file(plane, name + ".pem"), self.file(plane, name + ".key"), self.password(plane, name))
        return ctx

    def curl(self, plane, name="client"):
        args = ["--cacert", self.file(plane, "ca.pem"), "--cert", self.file(plane, name + ".pem"), "--key", self.file(plane, name + ".key"),
                "--pass", self.password(plane, name)]
        return args + self.curl_key() if plane in ("user", "business") else args

    def curl_key(self):
        return ["-H", f"Authorization: Bearer {self.keys[0]}"] if self.keys else []

    def headers(self):
        """What a client of the user plane sends with each request."""
        return {"Authorization": f"Bearer {self.keys[0]}"} if self.keys else {}

    # ---- daemons
    def _block(self, plane, name, prefix, crl, ca="CaFile", tls="Tls", pk_tls="Tls"):
        return {f"{prefix}{tls}{ca}": [self.file(plane, "ca.pem")], f"{prefix}{tls}Cert": self.file(plane, name + ".pem"),
                f"{prefix}{pk_tls}Pk": self.file(plane, name + ".key"), f"{prefix}{pk_tls}PkPwd": self.file(plane, name + ".pass"),
                f"{prefix}{tls}CrlFiles": [self.file(plane, "crl.pem")] if crl else []}

    def instance(self, mode="dmi", crl=True):
        """In standard mode clients come to the business plane: it is their user plane, with keys."""
        server = {"httpsEnabled": True, **self._block("user" if mode == "standard" else "business", "server", "", crl, tls="tls", pk_tls="tls"),
                  **self._block("instance", "server", "management", crl), **self._block("metrics", "server", "metrics", crl),
                  **self._block("cluster", "peer", "interComm", crl, ca="CaFiles", pk_tls="")}
        server["interCommTLSEnabled"] = mode != "standard"
        baton = self._block("register", "client", "register", crl)  # when there is a registerUrl: own certificate, and the CA of its server
        baton["registerTlsCaFile"] = [self.file("management", "ca.pem")]
        if crl:
            baton["registerTlsCrlFiles"] = [self.file("management", "crl.pem")]
        if mode == "standard" and self.keys:
            baton["apiKeysFile"] = self.keys_path
        return {"ServerConfig": server, "BatonConfig": baton}

    def _items(self, plane, name, crl):
        return {"ca_cert": self.file(plane, "ca.pem"), "tls_cert": self.file(plane, name + ".pem"), "tls_key": self.file(plane, name + ".key"),
                "tls_passwd": self.file(plane, name + ".pass"), "tls_crl": self.file(plane, "crl.pem") if crl else ""}

    def coordinator(self, crl=True):
        tls = {}
        for block, plane, name in (("request_server_tls", "user", "server"), ("controller_server_tls", "management", "server"),
                                   ("status_tls", "status", "server"), ("external_tls", "external", "server"),
                                   ("mindie_client_tls", "business", "client"), ("mindie_mangment_tls", "instance", "client"),
                                   ("instance_metrics_tls", "metrics", "client")):
            tls[f"{block}_enable"] = True
            tls[f"{block}_items"] = self._items(plane, name, crl)
        manage = tls["controller_server_tls_items"]
        manage["register_ca_cert"] = self.file("register", "ca.pem")
        if crl:
            manage["tls_crl"] = [self.file("management", "crl.pem"), self.file("register", "crl.pem")]
        return {"coordinator": {"tls_config": tls, **({"apiKeysFile": self.keys_path} if self.keys else {})}}
