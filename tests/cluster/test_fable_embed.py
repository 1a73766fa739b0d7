"""Goal: models/fable-embed, as cluster-conf/embed serves it, finds texts of one story, and far better than by chance; it answers all of Caikit
standalone, over REST and gRPC, and says of what would generate that it does not.
Method: the recall of tools/fable_embed_check.py on held-out stories, over REST; the draws are fixed, and so are the vectors. Then each task by
both ways: the same numbers."""
import os
import sys

import grpc
from grpc_client import Grpc
from harness import ROOT, get, post

sys.path.insert(0, os.path.join(ROOT, "tools"))
import fable_data  # noqa: E402
from fable_embed_check import embedder  # noqa: E402
from train_fable_embed import sentences  # noqa: E402

STORIES = os.path.join(ROOT, "tests", "data", "stories", "valid.txt")


def test_it_finds_texts_of_one_story(embed):
    assert [m["id"] for m in get(embed.base, "/v1/models").json["data"]] == ["fable-embed"]
    stories = [sentences(t) for t in fable_data.read_stories(STORIES)]
    share = fable_data.recall_at_1(stories, embedder(embed.base, "fable-embed"), draws=2, n_sentences=3)
    assert share > 0.35, (share, len(stories))  # 21 of 32 here; 0.46 among 48 stories (models/fable-embed/README.md)
    refused = post(embed.base, "/v1/completions", {"model": "fable-embed", "prompt": "x"})
    assert refused.status == 400 and "generates nothing" in refused.json["error"]["message"], refused.text


TEXTS = ["The king gave his daughter to the soldier.", "The wolf ran through the trees to eat the sheep.", "The ship sailed over the sea."]
HUNGRY = "a hungry fox in the wood"
DOCUMENTS = [{"text": t} for t in TEXTS]
NLP = "/caikit.runtime.Nlp.NlpService/"
MODEL = (("mm-model-id", "fable-embed"),)


def test_caikit_standalone(embed):
    def task(name, inputs, **parameters):
        a = post(embed.base, "/api/v1/task/" + name, {"model_id": "fable-embed", "inputs": inputs, "parameters": parameters})
        assert a.status == 200 and a.json["producer_id"] == {"name": "EmbeddingModule", "version": "0.0.1"} and a.json["input_token_count"] > 2, a.text
        return a.json.get("result", a.json.get("results"))

    one = task("embedding", HUNGRY)["data"]["values"]
    many = [v["data"]["values"] for v in task("embedding-tasks", [HUNGRY] + TEXTS)["vectors"]]
    assert len(one) == 256 and one == many[0] and abs(sum(x * x for x in one) - 1) < 1e-5
    cosines = [sum(x * y for x, y in zip(one, v)) for v in many[1:]]
    near = task("sentence-similarity", {"source_sentence": HUNGRY, "sentences": TEXTS})["scores"]
    assert all(abs(x - y) < 1e-5 for x, y in zip(near, cosines)) and max(near) == near[1]
    assert task("sentence-similarity-tasks", {"source_sentences": [TEXTS[0], HUNGRY], "sentences": TEXTS})[1]["scores"] == near
    ranked = task("rerank", {"query": HUNGRY, "documents": DOCUMENTS}, top_n=2)
    assert ranked["query"] == HUNGRY and [(s["index"], s["score"], s["document"]) for s in ranked["scores"]] == [(1, near[1], DOCUMENTS[1]), (0, near[0], DOCUMENTS[0])]
    assert task("rerank-tasks", {"queries": [HUNGRY], "documents": DOCUMENTS}, top_n=2) == [ranked]
    (model,) = get(embed.base, "/info/models").json["models"]
    assert model["name"] == "fable-embed" and model["loaded"] and model["metadata"] == {"max_seq_length": 512, "sentence_embedding_dimension": 256}
    assert model["module_id"] == "eeb12558-b4fa-4f34-a9fd-3f5890e9cd3f" and model["module_metadata"]["name"] == "EmbeddingModule"
    with Grpc(embed.base) as g:
        def call(name, body):
            return g.call(NLP + name, body, metadata=MODEL)

        assert list(call("EmbeddingTaskPredict", {"text": HUNGRY}).result.data_npfloat32sequence.values) == one
        assert [list(v.data_npfloat32sequence.values) for v in call("EmbeddingTasksPredict", {"texts": [HUNGRY] + TEXTS}).results.vectors] == many
        assert list(call("SentenceSimilarityTaskPredict", {"source_sentence": HUNGRY, "sentences": TEXTS}).result.scores) == near
        assert [s.index for s in call("RerankTaskPredict", {"query": HUNGRY, "documents": DOCUMENTS, "top_n": 2}).result.scores] == [1, 0]
        assert g.call("/caikit.runtime.info.InfoService/GetModelsInfo", {}).models[0].name == "fable-embed"
        assert g.refusal(NLP + "TextGenerationTaskPredict", {"text": "x"}, metadata=MODEL)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_it_says_that_it_generates_nothing(embed):
    say = [{"role": "user", "content": "x"}]
    for path, body, status, want in (
            ("/api/chat", {"model": "fable-embed", "messages": say}, 400, '"fable-embed" does not support chat'),
            ("/api/generate", {"model": "fable-embed", "prompt": "x"}, 400, '"fable-embed" does not support generate'),
            ("/api/v1/task/text-generation", {"model_id": "fable-embed", "inputs": "x"}, 400, "generates nothing"),
            ("/generate", {"inputs": "x"}, 422, "generates nothing"),
            ("/v1/chat/completions", {"model": "fable-embed", "messages": say}, 400, "generates nothing"),
            ("/v1/messages", {"model": "fable-embed", "max_tokens": 1, "messages": say}, 400, "generates nothing"),
            ("/apply-template", {"messages": say}, 400, "generates nothing"),
            ("/completion", {"prompt": "x"}, 400, "generates nothing")):
        a = post(embed.base, path, body)
        assert a.status == status and want in (a.json.get("details") or str(a.json["error"])), (path, a.text)
    assert post(embed.base, "/api/chat", {"model": "fable-embed"}).json["done_reason"] == "load"
