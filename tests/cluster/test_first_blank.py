"""Goal: an answer is read as what follows its prompt. A decoder of the SentencePiece kind (Llama 2, Mistral) cuts the blank at the start of a text:
an answer decoded alone would lose the one between the prompt's last word and its own first.
Method: a tiny random model with Llama 2's tokenizer, whole and as a pair. What every family answers, streamed and not, is compared with the text
of prompt and answer ids less the text of the prompt's ids; stop strings, guides and log-probabilities count the blank."""
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest
from harness import ROOT, Cluster, Standalone, Stream, events, post

PROMPT = "They went to the park."
N = 12
SETTINGS = {"BatonConfig": {"kvCacheMiB": 8, "vllmLegacySpace": False}}


@pytest.fixture(scope="module")
def model():
    folder = tempfile.mkdtemp(prefix="baton-blank-")
    tokenizer = os.path.join(folder, "tokenizer.json")
    with gzip.open(os.path.join(ROOT, "tests", "data", "tokenizers", "llama2", "tokenizer.json.gz")) as f, open(tokenizer, "wb") as out:
        shutil.copyfileobj(f, out)
    path = os.path.join(folder, "model")
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests", "oracle", "make_model.py"), path, "--family", "llama2", "--dtype", "bf16",
                    "--tokenizer", tokenizer, "--set", "vocab_size=32000", "--set", "max_position_embeddings=1024"], check=True)
    with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": "<s>", "eos_token": "</s>", "chat_template":
                   "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"}, f)
    yield path
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["whole", "pair"])
def base(request, model):
    with (Standalone(model=model, extra=SETTINGS) if request.param == "whole" else Cluster(model=model, extra=SETTINGS)) as c:
        yield c.base


def ok(base, path, body):
    a = post(base, path, body)
    assert a.status == 200, a.text
    return a.json


def completion(base, prompt=PROMPT, limit=N, **p):
    return ok(base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": limit, "temperature": 0, **p})["choices"][0]


def ids_of(base, text):
    return ok(base, "/tokenize", {"prompt": text})["tokens"]


def text_of(base, ids):
    return ok(base, "/detokenize", {"tokens": ids})["prompt"]


@pytest.fixture(scope="module")
def expected(base):
    """What follows PROMPT, greedily, in ids and text; it begins with a blank."""
    bias = {str(ids_of(base, PROMPT + " They")[-1]): 60}
    sampled = completion(base, limit=1, logit_bias=bias)
    assert sampled["text"] == " They"
    prompt = PROMPT + " They"
    before = ids_of(base, prompt)
    tokens = {"inputs": [{"name": "input0", "shape": [1, len(before)], "datatype": "UINT32", "data": before}], "outputs": [{"name": "output0"}],
              "parameters": {"max_new_tokens": N}}
    after = ok(base, "/v2/models/fable/infer", tokens)["outputs"][0]["data"]
    want = text_of(base, before + after)[len(text_of(base, before)):]
    return prompt, re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", want)


def test_every_family_reads_on(base, expected):
    prompt, want = expected
    assert completion(base, prompt)["text"] == want
    greedy = {"max_new_tokens": N, "do_sample": False}
    assert ok(base, "/generate", {"inputs": prompt, "parameters": greedy})["generated_text"] == want
    assert ok(base, "/generate", {"prompt": prompt, "max_tokens": N, "temperature": 0})["text"] == [prompt + want]
    assert ok(base, "/infer", {"inputs": prompt, "parameters": greedy})["generated_text"] == want
    assert ok(base, "/v2/models/fable/generate", {"text_input": prompt, "parameters": greedy})["text_output"] == want


def test_streams_are_the_whole_cut_into_pieces(base, expected):
    prompt, want = expected
    s = Stream(base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": N, "temperature": 0, "stream": True})
    assert "".join(e["choices"][0]["text"] for e in events(s.read_all()) if e.get("choices")) == want
    s = Stream(base, "/generate_stream", {"inputs": prompt, "parameters": {"max_new_tokens": N, "do_sample": False}})
    assert "".join(e["token"]["text"] or "" for e in events(s.read_all())) == want
    s = Stream(base, "/generate", {"prompt": prompt, "max_tokens": N, "temperature": 0, "stream": True})
    assert "".join(json.loads(f)["text"][0] for f in s.read_all().decode().split("\0") if f) == want


def guided(base, **p):
    return completion(base, limit=30, **p)


def test_guides_count_the_blank(base):
    assert guided(base, guided_choice=[" They"])["text"] == " They"
    assert re.fullmatch(" [a-z]{2,5} [a-z]{2,5}", guided(base, guided_regex=" [a-z]{2,5} [a-z]{2,5}")["text"])
    assert re.fullmatch("[a-z]{4,9}", guided(base, guided_regex="[a-z]{4,9}")["text"])
    assert guided(base, guided_choice=["They", " They"], stop=[" They"])["text"] in ("", "They")


def test_guides_behind_a_prompt_without_text(base):
    bos = [1]
    for regex in ("[a-z]{4,9}", " [a-z]{4,9}", "  [a-z]{4,9}"):
        for seed in range(4):
            text = guided(base, prompt=bos, guided_regex=regex, temperature=1, seed=seed)["text"]
            assert re.fullmatch(regex, text), (regex, text)


def test_stop_strings_see_the_blank(base):
    c = guided(base, guided_choice=[" They saw"], stop=[" They"])
    assert (c["text"], c["finish_reason"]) == ("", "stop")
    c = guided(base, guided_choice=[" They saw"], stop=[" They"], include_stop_str_in_output=True)
    assert c["text"] == " They"


def test_tokens_of_logprobs_are_the_text(base):
    """Bytes of a character that are tokens of their own stand together, at the offset of the first; words of several letters are none of these."""
    for prompt in (PROMPT, [1]):
        whole_words = 0
        for seed in range(30):
            c = guided(base, prompt=prompt, guided_regex="[a-z ]{20,40}", logprobs=2, temperature=1, seed=seed)
            assert "".join(c["logprobs"]["tokens"]).removesuffix("</s>") == c["text"]
            lengths = [len(t) for t in c["logprobs"]["tokens"]]
            if min(lengths) > 1:
                assert c["logprobs"]["text_offset"] == [sum(lengths[:i]) for i in range(len(lengths))]
                whole_words += 1
                if whole_words == 3:
                    break
        assert whole_words == 3, prompt
    chat = ok(base, "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "temperature": 0,
                                             "guided_regex": " [a-z]{3,9} [a-z]{3,9}", "logprobs": True, "top_logprobs": 2})["choices"][0]
    content = [t for t in chat["logprobs"]["content"] if t["token"] != "</s>"]
    assert chat["message"]["content"].startswith(" ") and "".join(t["token"] for t in content) == chat["message"]["content"]


def test_choices_share_the_way_through_the_prompt(base):
    body = {"model": "fable", "prompt": PROMPT, "max_tokens": 20, "temperature": 1, "seed": 5, "n": 4, "guided_regex": " [a-z]{2,5}"}
    for c in ok(base, "/v1/completions", body)["choices"]:
        assert re.fullmatch(" [a-z]{2,5}", c["text"]), c["text"]
