"""Goal: whoever types what the tutorial and the how-to pages say, line by line, sees what they say.
Method: doc_run.py runs each page in a shell of its own, on real daemons. Blocks that are not run give a reason, and are few."""
import glob
import os

import pytest
from doc_run import Reader, blocks
from harness import ROOT

PAGES = ["tutorial.md"] + sorted(os.path.relpath(p, os.path.join(ROOT, "docs")) for p in glob.glob(os.path.join(ROOT, "docs", "howto", "*.md")))
NOT_RUN = 3  # blocks of all pages together


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page, tmp_path):
    Reader(page, str(tmp_path)).run()


def test_few_blocks_are_not_run():
    left = [(p, b.line, b.why_not) for p in PAGES for b in blocks(p) if b.why_not]
    assert len(left) == NOT_RUN and all(len(why) > 10 for _, _, why in left), left
    assert all(any(not b.why_not for b in blocks(p)) for p in PAGES)
