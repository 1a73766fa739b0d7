"""Goal: whoever types what the tutorial and the how-to pages say, line by line, sees what they say.
Method: doc_run.py runs each page in a shell of its own, on real daemons, three pages at a time since they mostly wait. Blocks that are not run give a
reason, and are few."""
import concurrent.futures
import glob
import os

import pytest
from doc_run import Reader, blocks
from harness import ROOT

PAGES = ["tutorial.md"] + sorted(os.path.relpath(p, os.path.join(ROOT, "docs")) for p in glob.glob(os.path.join(ROOT, "docs", "howto", "*.md")))
NOT_RUN = 3  # blocks of all pages together


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


def test_few_blocks_are_not_run():
    left = [(p, b.line, b.why_not) for p in PAGES for b in blocks(p) if b.why_not]
    assert len(left) == NOT_RUN and all(len(why) > 10 for _, _, why in left), left
    assert all(any(not b.why_not for b in blocks(p)) for p in PAGES)
