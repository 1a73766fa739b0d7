"""Goal: the site of `make docs` has every page and every table, all its links and their fragments lead somewhere, it loads nothing from elsewhere, and
its search finds things.
Method: tools/site/build.sh over what is built here, as `make docs`, which also ends at a link that mkdocs finds broken; the pages are then read as a
browser reads them; the search index is asked with the site's own lunr, in node. tests/console looks at the site in Chromium."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from harness import BUILD, ROOT, SLOW
from site_pages import read_all
from test_docs import check_config, leaves

BUILDER = os.path.join(ROOT, "tools", "site", "build.sh")
sys.path.insert(0, os.path.join(ROOT, "tools", "site"))
import tables  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("site") / "docs")
    r = subprocess.run([BUILDER, BUILD, folder], capture_output=True, text=True, timeout=120 * SLOW)
    assert r.returncode == 0, r.stderr
    assert not r.stdout and not r.stderr, r.stderr
    return folder, read_all(folder)


def test_every_page_is_there_and_in_the_menu(site):
    folder, pages = site
    sources = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "docs/*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split() or [
        os.path.relpath(os.path.join(top, n), ROOT) for top, _, names in os.walk(os.path.join(ROOT, "docs")) for n in names if n.endswith(".md")]
    assert len(sources) > 70
    wanted = {re.sub(r"\.md$", ".html", os.path.relpath(s, "docs")) for s in sources} | {"overview.html"}
    wanted |= {f"reference/{n}.html" for n in ("paths", "metrics", "commands", "settings-instance", "settings-coordinator")}
    assert not wanted - set(pages), wanted - set(pages)
    menu = {link.split("#")[0] for link in pages["index.html"].links}
    assert not wanted - menu, wanted - menu
    assert all(p.title for n, p in pages.items() if n != "404.html")


def test_links_and_their_fragments_lead_somewhere(site):
    folder, pages = site
    wrong, n = [], 0
    for name, page in pages.items():
        for link in page.links + page.loads:
            path, _, fragment = link.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            n += 1
            if re.match(r"[a-z+]+:|//|/", link) and name != "404.html":
                wrong.append((name, link, "leads out of the site"))
            elif not os.path.isfile(os.path.join(folder, to.lstrip("/"))):
                wrong.append((name, link, "is not there"))
            elif fragment and fragment not in pages[to].ids:
                wrong.append((name, link, "has no such heading"))
    assert not wrong and n > 1000, (n, wrong[:20])


def test_nothing_comes_from_elsewhere(site):
    """Not what a page loads, nor what its style and programs name."""
    folder, pages = site
    for name, page in pages.items():
        assert page.loads and not [x for x in page.loads if re.match(r"[a-z+]+:|//", x)] and not page.handlers, name
    files = [os.path.join(top, n) for top, _, names in os.walk(folder) for n in names]
    assert len(files) > 90 and sum(os.path.getsize(f) for f in files) < 16 << 20
    for path in files:
        with open(path, errors="replace") as f:
            text = f.read()
        if path.endswith((".css", ".svg")):
            outside = re.findall(r"(?:url\(|@import|href=)\s*[\"']?(?:https?:)?//[^)\"']*", text)
        elif path.endswith("site.js") or os.path.basename(path) in ("worker.js", "main.js"):
            outside = re.findall(r"[\"'`](?:https?:)?//[^\"'`]*", text)
        else:
            continue
        assert not outside, (path, outside)


def test_markdown_is_read_as_a_forge_reads_it(site):
    """Nothing of a list, a table, a link or emphasis is left in the texts as it was typed."""
    left = [(name, text[:80]) for name, page in site[1].items() for text in page.prose
            if re.search(r"(?:^|\n)(?:- |\d+\. |\|)|\]\(|`|\*\*|^#+ ", text)]
    assert not left, left[:10]
    assert sum(len(page.prose) for page in site[1].values()) > 5000


@pytest.mark.parametrize("program,conf", [("prefill", "prefill"), ("coordinator", "coordinator")])
def test_the_reference_has_every_setting(site, program, conf):
    rows = tables.settings(os.path.join(BUILD, "bin", program))
    known = {re.sub(r"npuDeviceIds.*", "npuDeviceIds", k) for k in leaves(check_config(program, f"cluster-conf/1p1d/{conf}.json"))}
    with open(os.path.join(ROOT, "docs", "configuration.md")) as f:
        absent = set(re.findall(r"^\| `([^`]+)` \| .* \| absent \| .* \|$", f.read(), re.M))
    keys = {r["key"] for r in rows}
    assert not known - keys and keys - known <= absent and len(keys) > 90, (known - keys, keys - known)
    assert all(r["flag"].startswith("--") and r["text"] for r in rows)
    with open(os.path.join(site[0], "reference", f"settings-{'coordinator' if conf == 'coordinator' else 'instance'}.html")) as f:
        page = f.read()
    assert not [r["key"] for r in rows if f"<code>{r['key']}</code>" not in page or f"<code>{r['flag']}" not in page]


def test_the_reference_has_every_command_series_and_path(site):
    folder, pages = site
    _, names = tables.commands_page(os.path.join(BUILD, "bin"))
    assert len(names) > 20 and not {f"batonctl-{n}" for n in names if n != "help"} - pages["reference/commands.html"].ids
    with open(os.path.join(folder, "reference", "metrics.html")) as f:
        series = set(re.findall(r"<td><code>([a-z_:]+)</code>", f.read()))
    assert {"time_to_first_token_seconds", "vllm:time_to_first_token_seconds", "pd_kv_transfer_seconds", "coordinator_requests_inflight",
            "pd_link_up"} <= series and len(series) > 100
    with open(os.path.join(ROOT, "common", "net", "openapi.in.json")) as f:
        described = set(json.load(f)["paths"])
    with open(os.path.join(folder, "reference", "paths.html")) as f:
        shown = set(re.findall(r"<td><code>(/[^<]*)</code>", f.read()))
    assert len(shown) > 150 and not described - shown, described - shown


SEARCHES = {"drain an instance": "operations.html#drain-an-instance", "survives kill": "tutorial.html", "drain_soft_s": "reference/settings-coordinator.html",
            "quantize": "reference/commands.html#batonctl-quantize", "revoke": "howto/tls.html", "pd_kv_exposed_seconds": "reference/metrics.html"}
ASK = """
const fs = require("fs"), lunr = require(process.argv[1] + "/search/lunr.js"), data = JSON.parse(fs.readFileSync(process.argv[1] + "/search/search_index.json"));
lunr.tokenizer.separator = new RegExp(data.config.separator);
const index = lunr(function () { this.field("title"); this.field("text"); this.ref("location"); data.docs.forEach(d => this.add(d)); });
console.log(JSON.stringify(Object.fromEntries(JSON.parse(process.argv[2]).map(q => [q, index.search(q).slice(0, 30).map(r => r.ref)]))));
"""


def test_the_search_finds(site):
    r = subprocess.run(["node", "-e", ASK, site[0], json.dumps(list(SEARCHES))], capture_output=True, text=True, timeout=60 * SLOW)
    assert r.returncode == 0, r.stderr
    found = json.loads(r.stdout)
    missing = {q: found[q][:5] for q, page in SEARCHES.items() if not any(ref.startswith(page) for ref in found[q])}
    assert not missing, missing


@pytest.mark.parametrize("text,why", [("[a](nowhere.md)", "nowhere.md, which is not there"), ("[a](../../../etc/passwd)", "passwd, which is not there")])
def test_a_broken_link_ends_the_build(tmp_path, text, why):
    """In a copy of the sources that has but the docs, and the tools that make the site."""
    for path in ("docs", "tools/site", "common/net/web", "common/net/openapi.in.json", "README.md", "models/fable", "models/fable-embed", "cluster-conf", "LICENSE",
                 "proto/grpc"):
        there = os.path.join(ROOT, path)
        os.makedirs(os.path.dirname(tmp_path / path), exist_ok=True)
        if os.path.isdir(there):
            shutil.copytree(there, tmp_path / path, ignore=shutil.ignore_patterns("*.safetensors", "tokenizer.json", ".baton", "pki"))
        else:
            shutil.copy(there, tmp_path / path)
    with open(tmp_path / "docs" / "tutorial.md", "a") as f:
        f.write(f"\n{text}\n")
    r = subprocess.run([tmp_path / "tools" / "site" / "build.sh", BUILD, str(tmp_path / "out")], capture_output=True, text=True, timeout=120 * SLOW)
    assert r.returncode != 0 and why in r.stderr and "docs/tutorial.md" in r.stderr, r.stderr
