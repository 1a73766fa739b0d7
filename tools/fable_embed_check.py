#!/usr/bin/python3
"""How often a text of a story finds the other text of its story, by the vectors of a running server.

    tools/fable_embed_check.py URL MODEL valid.txt

Each story of valid.txt gives two texts without a common sentence, of one sentence or of three; a text
hits when its partner is nearer than the texts of all other stories (recall at 1). Chance is one in the
number of stories. The draws are the same in each run. Needs Debian's python3-numpy.
"""

import argparse
import json
import urllib.request

import fable_data
from train_fable_embed import sentences


def embedder(url, model):
    def embed(texts):
        vectors = []
        for at in range(0, len(texts), 48):
            body = json.dumps({"model": model, "input": texts[at:at + 48]}).encode()
            with urllib.request.urlopen(urllib.request.Request(url + "/v1/embeddings", body)) as a:
                vectors += [d["embedding"] for d in json.load(a)["data"]]
        return vectors
    return embed


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("url")
    p.add_argument("model")
    p.add_argument("stories", help="held-out stories, as valid.txt")
    p.add_argument("--draws", type=int, default=8)
    args = p.parse_args()
    stories = [sentences(t) for t in fable_data.read_stories(args.stories)]
    for n in (1, 3):
        share = fable_data.recall_at_1(stories, embedder(args.url, args.model), args.draws, n)
        print("%d sentence%s: recall at 1 %.3f of %d stories, %d draws" %
              (n, "" if n == 1 else "s", share, sum(len(s) >= 2 * n for s in stories), args.draws))


if __name__ == "__main__":
    main()
