"""Goal: a model is served from a GGUF file as from a HuggingFace folder: configuration, tokenizer, chat template, weights.
Method: the bundled model written as GGUF in bf16, which loses nothing: answers, counts and ids are equal to those of the folder, on one
instance and split; a quantised file answers split as on one instance."""
import os
import shutil
import sys

import pytest
from harness import FABLE, ROOT, Cluster, Standalone, get, post

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_encoder  # noqa: E402
import make_gguf  # noqa: E402

CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 24, "temperature": 0}
TEXT = {"model": "fable", "prompt": "Once upon a time, in 1842, there's a fox", "max_tokens": 24, "temperature": 0, "logprobs": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{type: path of a GGUF of fable}."""
    out = {}
    for kind in ("BF16", "Q4_K"):
        out[kind] = str(tmp_path_factory.mktemp(kind) / "fable.gguf")
        make_gguf.write_gguf(FABLE, out[kind], kind)
    return out


def answers(base):
    chat, text = post(base, "/v1/chat/completions", CHAT), post(base, "/v1/completions", TEXT)
    assert chat.status == text.status == 200, (chat.text, text.text)
    tokens = post(base, "/tokenize", {"model": "fable", "prompt": TEXT["prompt"]})
    return chat.json["choices"], chat.json["usage"], text.json["choices"], tokens.json


def test_the_same_answers_as_from_the_folder(files, whole):
    want = answers(whole.base)
    with Standalone(model=files["BF16"]) as one:
        assert answers(one.base) == want
        info = get(one.base, "/v1/models").json
        assert info["data"][0]["id"] == "fable"
    with Cluster(model=files["BF16"]) as c:
        assert answers(c.base) == want


def test_a_quantised_file_answers_split_as_whole(files):
    extra = {"BatonConfig": {"weightDtype": "int8"}}
    with Standalone(model=files["Q4_K"], extra=extra) as one, Cluster(model=files["Q4_K"], extra=extra) as c:
        assert answers(one.base) == answers(c.base)


def test_an_encoder_gives_the_vectors_of_the_folder(tmp_path):
    """fable-embed in bf16: its tokenizer lies beside the file, how a text becomes a vector stands in it."""
    folder = os.path.join(ROOT, "models", "fable-embed")
    make_encoder.write_gguf(folder, str(tmp_path / "m.gguf"), "cls", "BF16", {"bert.attention.layer_norm_epsilon": ("f32", 1e-12)})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(folder, name), tmp_path)
    vectors = []
    for model in (folder, str(tmp_path)):
        with Standalone(model=model) as one:
            a = post(one.base, "/v1/embeddings", {"model": "fable", "input": ["A hungry fox in the wood.", "The ship sailed over the sea."]})
            assert a.status == 200, a.text
            vectors.append([x["embedding"] for x in a.json["data"]])
    assert all(abs(x - y) < 1e-5 for p, q in zip(*vectors) for x, y in zip(p, q))
    assert vectors[0][0] != vectors[0][1]


def test_a_folder_with_one_file_is_that_file(files, whole):
    with Standalone(model=os.path.dirname(files["BF16"])) as one:
        assert answers(one.base) == answers(whole.base)
