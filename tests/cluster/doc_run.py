"""Runs the `sh` blocks of a page of docs/ as its reader would: one after the other in one shell, in a folder that looks like that of the sources.
Ports are the test's own; daemons end with the page. Lines of curl that test_docs.py runs are left out. A block below `<!-- not run: reason -->` is left out. A `text` block right below a block
is what the reader should see: its lines must be among the block's output, in their order; numbers may be others, `...` is anything."""
import contextlib
import os
import re
import signal
import socket
import subprocess

from harness import BUILD, ROOT, SLOW

PAGE_S = 120 * SLOW
PORT = re.compile(r"(?<![\w.])(?:[123]0[2-4][5-9]|[23]1[2-4]1|8000|8080)(?![\w.])")
ASKED = ["../README.md", "api.md", "operations.md"]  # pages whose lines of curl test_docs.py runs:
ASKS = re.compile(r"curl (-\w+ )*'?http")
_claims = []


class Block:
    def __init__(self, page, line, text, why_not, seen):
        self.page, self.line, self.text, self.why_not, self.seen = page, line, text, why_not, seen


def blocks(page):
    """The sh blocks of docs/`page`, without the lines that other tests run."""
    with open(os.path.join(ROOT, "docs", page)) as f:
        text = f.read()
    out = []
    pattern = r"(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```sh\n(?P<code>.*?)```\n(?:\n```text\n(?P<seen>.*?)```\n)?"
    for m in re.finditer(pattern, text, re.S):
        code = m["code"] if m["why"] or page not in ASKED else "".join(line + "\n" for line in m["code"].splitlines() if not ASKS.match(line))
        out.append(Block(page, text.count("\n", 0, m.start("code")) + 1, code, m["why"], m["seen"]))
    assert len(out) == text.count("```sh\n"), page
    return out


def claim(n):
    """The first of n ports in a row that nobody has, below those of harness.free_ports()."""
    for i in range(6000 - n):
        first = 4000 + (os.getpid() * 101 + i) % (6000 - n)
        mine = []
        try:
            for port in range(first, first + n):
                name, probe = socket.socket(socket.AF_UNIX), socket.socket()
                mine.append(name)
                name.bind(f"\0baton-test-port-{port}")
                try:
                    probe.bind(("127.0.0.1", port))
                finally:
                    probe.close()
        except OSError:
            for name in mine:
                name.close()
            continue
        _claims.extend(mine)
        return first
    raise AssertionError("no ports")


class Reader:
    """A shell in a folder of its own; ports: {port of the page: port of the test}. Several pages are read one after the other. words: what stands
    for the reader's own, {"MODEL": ..}. between: {number of blocks run so far: what the test does then, as shell}."""

    def __init__(self, pages, folder, words=None, between=None):
        self.pages = [pages] if isinstance(pages, str) else pages
        self.blocks, self.folder = [b for page in self.pages for b in blocks(page)], folder
        self.words, self.between = words or {}, between or {}
        first = claim(72)
        self.ports = {8000: first + 40, 8080: first + 56}  # `baton serve` takes the next ones too
        self.free = list(range(first, first + 40))
        os.makedirs(os.path.join(folder, "build"))
        os.symlink(os.path.join(BUILD, "bin"), os.path.join(folder, "build", "bin"))
        for name in ("models", "tools"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        for top, _, names in os.walk(os.path.join(ROOT, "cluster-conf")):
            if os.path.basename(top) == "pki":
                continue
            to = os.path.join(folder, os.path.relpath(top, ROOT))
            os.makedirs(to, exist_ok=True)
            for name in names:
                with open(os.path.join(top, name), "rb") as f:
                    data = f.read()
                with open(os.path.join(to, name), "wb") as f:
                    f.write(self.here(data.decode()).encode() if name.endswith(".json") and "observability" not in top else data)

    def here(self, text):
        """With ports of the test."""
        return PORT.sub(lambda m: str(self.ports[int(m[0])] if int(m[0]) in self.ports else self.ports.setdefault(int(m[0]), self.free.pop(0))), text)

    def script(self):
        """The blocks, and which one runs."""
        lines = ["set -eu -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT", "PATH=$PWD/build/bin:$PATH"]
        done = 0
        for n, b in enumerate(self.blocks):
            if not b.why_not:
                lines += [f"echo {n} >at", f"exec >out.{n} 2>&1", self.here(self.between.get(done, "")), self.said(b)]
                done += 1
        return "\n".join(lines + ["echo all >at", ""])

    def said(self, b):
        text = self.here(b.text)
        for word, own in self.words.items():
            text = re.sub(rf"(?<![\w$]){re.escape(word)}(?!\w)", own, text)
        return text

    def output(self, n):
        with open(os.path.join(self.folder, f"out.{n}"), errors="replace") as f:
            return f.read()

    def run(self):
        with open(os.path.join(self.folder, "page.sh"), "w") as f:
            f.write(self.script())
        run = os.path.join(self.folder, "run")
        os.makedirs(run, mode=0o700)
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        env.update(HOME=self.folder, XDG_RUNTIME_DIR=run, TERM="dumb")
        if not any("baton serve" in b.text for b in self.blocks if not b.why_not):
            env["BATON_MANAGE"] = self.here("http://127.0.0.1:1026")  # batonctl's default
        # All that the page starts is in one process group, which ends with the page, and with whoever runs this.
        guard = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "sh", "-c", "trap 'kill -KILL 0' TERM; bash page.sh & wait $!"], cwd=self.folder, env=env,
                                 stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            code = guard.wait(timeout=PAGE_S)
        except subprocess.TimeoutExpired:
            code = "nothing, in time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guard.pid, signal.SIGKILL)
            guard.wait()
        with open(os.path.join(self.folder, "at")) as f:
            at = f.read().strip()
        if code != 0 or at != "all":
            b = self.blocks[int(at)]
            logs = "".join(f"\n--- {n}\n" + open(os.path.join(self.folder, n), errors="replace").read()[-600:]
                           for n in sorted(os.listdir(self.folder)) if n.endswith(".log"))
            raise AssertionError(f"docs/{b.page}:{b.line}: ended with {code}\n{self.said(b)}\n--- said\n{self.output(at)[-3000:]}{logs}")
        for n, b in enumerate(self.blocks):
            if b.seen and not b.why_not:
                missing = not_seen(self.here(b.seen), self.output(n))
                assert missing is None, f"docs/{b.page}:{b.line}: shows a line that did not come: {missing!r}\n--- said\n{self.output(n)[-3000:]}"


def not_seen(shown, said):
    """The first line shown that is not among those said after the one before, or None."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    at = 0
    for line in shown.splitlines():
        words = " ".join(line.split())
        if not words or words == "...":
            continue
        pattern = re.sub(r"(?:\\?[\d.])*\d(?:\\?\.\d+)?", r"[\\d.]+", re.escape(words).replace(r"\.\.\.", ".*"))
        for i in range(at, len(lines)):
            if re.fullmatch(pattern, lines[i]):
                at = i + 1
                break
        else:
            return line
    return None
