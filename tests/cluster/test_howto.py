"""Goal: whoever types what the pages say, line by line, sees what they say.
Method: doc_run.py runs the tutorial and each how-to page in a shell of its own, on real daemons, three at a time since they mostly wait; the pages of
reference are read in one shell, with the cluster that docs/operations.md starts (their lines of curl: test_docs.py). Blocks that are not run give a reason,
are few, and are checked as far as that goes: shell that can be read, programs that there are, options that our programs have, files that exist."""
import concurrent.futures
import glob
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from doc_run import Reader, blocks
from harness import BUILD, FABLE, ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_gguf  # noqa: E402

PAGES = ["tutorial.md"] + sorted(os.path.relpath(p, os.path.join(ROOT, "docs")) for p in glob.glob(os.path.join(ROOT, "docs", "howto", "*.md")))
REFERENCE = ["operations.md", "observability.md", "../README.md"] + sorted(
    p for p in (os.path.relpath(p, os.path.join(ROOT, "docs")) for p in glob.glob(os.path.join(ROOT, "docs", "*.md")))
    if p not in PAGES + ["operations.md", "observability.md"] and blocks(p))
NOT_RUN = 3 + 20  # blocks: of the tutorial and the how-to pages, of the others
ELSEWHERE = {"kubectl", "helm", "etcdctl", "sudo", "curl", "kill", "umask", "openssl", "make", "podman"}  # programs that are not ours


@pytest.fixture(scope="module")
def reading(request, tmp_path_factory):
    """{page: future} of the pages whose tests are asked for."""
    wanted = [i.callspec.params["page"] for i in request.session.items if i.fspath == request.fspath and hasattr(i, "callspec")]
    readers = {page: Reader(page, str(tmp_path_factory.mktemp("page"))) for page in wanted}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        yield {page: pool.submit(reader.run) for page, reader in readers.items()}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(reading, page):
    reading[page].result()


def test_the_commands_of_the_pages_of_reference_work(tmp_path):
    """In the order of REFERENCE; the cluster is that of the first block. A reader has a request behind him, and a PKI, when he asks for them."""
    (tmp_path / "model").mkdir()
    for name in os.listdir(FABLE):
        os.symlink(os.path.join(FABLE, name), tmp_path / "model" / name)
    make_gguf.write_gguf(FABLE, str(tmp_path / "file.gguf"), "Q8_0")
    words = {"MODEL": "models/fable", "MODEL_DIR": "model", "FILE.gguf": "file.gguf", "DIR": "dir", "NAME": "prefill"}
    ready = "until batonctl request >/dev/null 2>&1; do curl -s http://127.0.0.1:1025/generate -d '{\"inputs\":\"Once\",\"parameters\":{\"max_new_tokens\":2}}' || true; sleep 0.1; done"
    reader = Reader(REFERENCE, str(tmp_path), words, {1: ready, 2: "tools/make-pki.sh dir"})
    reader.run()
    assert sum(not b.why_not and b.text.strip() != "" for b in reader.blocks) >= 8


def test_few_blocks_are_not_run():
    left = [(p, b.line, b.why_not) for p in PAGES + REFERENCE for b in blocks(p) if b.why_not]
    assert len(left) == NOT_RUN and all(len(why) > 10 for _, _, why in left), left
    assert all(any(not b.why_not for b in blocks(p)) for p in PAGES)


def commands(text):
    """Words of each simple command of shell text."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()")
        lexer.whitespace_split = True
        words, out = list(lexer), []
        for w in words + [";"]:
            if set(w) <= set("&|;()"):
                while out and re.fullmatch(r"\w+=.*", out[0]):
                    out.pop(0)
                if out:
                    yield out
                out = []
            else:
                out.append(w)


def test_blocks_that_are_not_run_could_be():
    """As far as that can be seen from here."""
    with open(os.path.join(ROOT, "cluster-conf", "helm", "values.yaml")) as f:
        chart = yaml.safe_load(f)
    with open(os.path.join(ROOT, "Makefile")) as f:
        targets = set(re.findall(r"^([\w-]+):", f.read(), re.M))
    said = subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "help"], capture_output=True, text=True).stdout
    orders, helps, n = set(re.findall(r"^  ([a-z]+)\b", said, re.M)), {}, 0
    for b in [b for p in PAGES + REFERENCE for b in blocks(p) if b.why_not]:
        at = f"docs/{b.page}:{b.line}: "
        assert subprocess.run(["sh", "-n"], input=b.text, text=True, capture_output=True).returncode == 0, at + b.text
        for words in commands(b.text):
            program = os.path.basename(words[0])
            if words[0].startswith("tools/"):
                assert os.access(os.path.join(ROOT, words[0]), os.X_OK), at + words[0]
            elif program not in ELSEWHERE:
                assert os.path.exists(os.path.join(BUILD, "bin", program)), at + f"{program} is no program of ours"
                command = [w for w in words[1:] if w in orders][:1] if program in ("baton", "batonctl") else []
                key = program, *command
                if key not in helps:
                    r = subprocess.run([os.path.join(BUILD, "bin", program), *(["help"] if command else []), *command, *([] if command else ["--help"])], capture_output=True, text=True)
                    assert r.returncode == 0, (at, words, r.stderr)
                    helps[key] = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", r.stdout))
                for w in words[1:]:
                    if re.match(r"--?[a-z]", w):
                        n += 1
                        assert w.split("=")[0] in helps[key], at + f"{program} has no {w}"
            elif program == "make":
                assert set(words[1:]) <= targets, at + str(words)
            elif program == "helm":
                for w in [words[i + 1] for i, w in enumerate(words) if w == "--set"]:
                    part = chart
                    for name in w.split("=")[0].split("."):
                        assert name in part, at + w
                        part = part[name]
            for w in words[1:]:
                if re.match(r"(cluster-conf|models)/", w) and "/pki" not in w:
                    assert os.path.exists(os.path.join(ROOT, w)), at + w
    assert n > 15
