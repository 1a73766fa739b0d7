"""Goal: models/fable-embed, as cluster-conf/embed serves it, finds texts of one story, and far better than by chance.
Method: the recall of tools/fable_embed_check.py on held-out stories, over REST; the draws are fixed, and so are the vectors."""
import json
import os
import sys

from harness import ROOT, Standalone, get, post

sys.path.insert(0, os.path.join(ROOT, "tools"))
import fable_data  # noqa: E402
from fable_embed_check import embedder  # noqa: E402
from train_fable_embed import sentences  # noqa: E402

MODEL = os.path.join(ROOT, "models", "fable-embed")
STORIES = os.path.join(ROOT, "tests", "data", "stories", "valid.txt")


def test_it_finds_texts_of_one_story():
    with open(os.path.join(ROOT, "cluster-conf", "embed", "instance.json")) as f:
        conf = json.load(f)
    conf["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelWeightPath"] = MODEL
    with Standalone(model=MODEL, extra={k: conf[k] for k in ("BackendConfig", "BatonConfig")}) as server:
        assert [m["id"] for m in get(server.base, "/v1/models").json["data"]] == ["fable-embed"]
        stories = [sentences(t) for t in fable_data.read_stories(STORIES)]
        share = fable_data.recall_at_1(stories, embedder(server.base, "fable-embed"), draws=2, n_sentences=3)
        assert share > 0.35, (share, len(stories))  # 21 of 32 here; 0.46 among 48 stories (models/fable-embed/README.md)
        body = {"model_id": "fable-embed", "inputs": {"source_sentence": "The fox ran.", "sentences": ["A fox ran away.", "The sea is wide."]}}
        scores = post(server.base, "/api/v1/task/sentence-similarity", body).json["result"]["scores"]
        assert scores[0] > scores[1]
        refused = post(server.base, "/v1/completions", {"model": "fable-embed", "prompt": "x"})
        assert refused.status == 400 and "generates nothing" in refused.json["error"]["message"], refused.text
