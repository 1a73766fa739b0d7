"""Goal: every switch of the client interface does what docs/configuration.md says of it, on one instance and split, through the configuration.
Method: one instance and one pair with all the switches turned from their defaults, which they can be together; the shared daemons, at the
defaults, show the other side of each.
"""
import json

import pytest
from families import normal
from harness import Cluster, Standalone, post

CHAT, COMP, GEN, STREAM, INFER = "/v1/chat/completions", "/v1/completions", "/generate", "/generate_stream", "/infer"
PROMPT = "Once upon a time"
TURNED = {"ServerConfig": {"fullTextEnabled": True, "openAiSupport": "native"},
          "BatonConfig": {"strictRanges": False, "tokenIdScalar": True, "tgiLegacySpace": True, "vllmLegacySpace": False,
                          "vllmStreamDelimiter": "newline", "benchmarkInfo": True, "openAiIdPrefix": True, "chunkTokens": 64}}


def chat(**more):
    return {"model": "fable", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5, "temperature": 0, **more}


def comp(**more):
    return {"model": "fable", "prompt": PROMPT, "max_tokens": 5, "temperature": 0, "ignore_eos": True, **more}


def tgi(**parameters):
    return {"inputs": PROMPT, "parameters": {"max_new_tokens": 5, "do_sample": False, "seed": 1, **parameters}}


@pytest.fixture(scope="module")
def turned():
    with Standalone(extra=TURNED) as s, Cluster(extra=TURNED) as c:
        yield {"one": s.base, "split": c.base}


@pytest.fixture(params=["one", "split"])
def where(request):
    return request.param


@pytest.fixture
def sides(where, turned, whole, pair):
    """(base at the defaults, base with everything turned)."""
    return {"one": whole.base, "split": pair.base}[where], turned[where]


def both(sides, path, body):
    answers = [post(base, path, body) for base in sides]
    assert [a.status for a in answers] == [200, 200], [a.text for a in answers]
    return answers


def sse(a):
    return [json.loads(p[6:]) for p in a.text.split("\n\n") if p and p != "data: [DONE]"]


def grows(texts, pieces):
    """texts are what the pieces add up to, step by step."""
    assert texts == ["".join(pieces[:i + 1]) for i in range(len(pieces))] and len(texts) > 2


def test_full_text_enabled(sides):
    plain, full = (sse(a) for a in both(sides, COMP, comp(stream=True)))
    grows([e["choices"][0]["text"] for e in full], [e["choices"][0]["text"] for e in plain])
    plain, full = (sse(a) for a in both(sides, CHAT, chat(stream=True, ignore_eos=True)))
    pieces, texts = ([e["choices"][0]["delta"]["content"] for e in events][1:] for events in (plain, full))
    grows(texts, pieces)
    assert full[-1]["full_text"] == texts[-1] and "full_text" not in plain[-1]
    plain, full = (sse(a) for a in both(sides, STREAM, tgi()))
    grows([e["token"]["text"] for e in full], [e["token"]["text"] for e in plain])
    plain, full = both(sides, GEN, {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, "stream": True})
    grows([json.loads(f)["text"][0] for f in full.text.split("\n") if f], [json.loads(f)["text"][0] for f in plain.text.split("\0") if f])


def test_token_id_scalar(sides):
    for path, body in ((STREAM, tgi()), (INFER, {**tgi(), "stream": True})):
        plain, scalar = (sse(a) for a in both(sides, path, body))
        assert [[e["token"]["id"]] for e in scalar] == [e["token"]["id"] for e in plain]


def test_spaces_between_prompt_and_answer(sides):
    plain, legacy = (a.json["generated_text"] for a in both(sides, GEN, tgi(return_full_text=True)))
    assert legacy == plain.replace(PROMPT, PROMPT + " ", 1)
    legacy, plain = (a.json["text"][0] for a in both(sides, GEN, {"prompt": PROMPT, "max_tokens": 5, "temperature": 0}))
    assert legacy == plain.replace(PROMPT, PROMPT + " ", 1)


def test_vllm_stream_delimiter(sides):
    nul, newline = both(sides, GEN, {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, "stream": True})
    assert nul.body.endswith(b"}\0") and b"\n" not in nul.body and newline.body.endswith(b"}\n") and b"\0" not in newline.body


def test_benchmark_info(sides):
    for path, body in ((CHAT, chat()), (COMP, comp())):
        plain, info = (a.json for a in both(sides, path, body))
        n = info["usage"]["completion_tokens"]
        assert [len(info["usage"][k]) for k in ("batch_size", "queue_wait_time")] == [n, n]
        assert len(info["decode_time_arr"]) == n - 1 and info["prefill_time"] >= 0
        assert list(info) == list(plain) + ["prefill_time", "decode_time_arr"] and "batch_size" not in plain["usage"]


def test_openai_id_prefix(sides):
    for path, body, prefix in ((CHAT, chat(), "chatcmpl-"), (COMP, comp(), "cmpl-")):
        plain, long = both(sides, path, body)
        assert long.json["id"] == prefix + long.headers["RequestUUID"] and plain.json["id"] == plain.headers["RequestUUID"]


# (path, body, the text at the defaults or None where it is answered, the same with openAiSupport native, strictRanges false)
RANGES = [
    (GEN, tgi(do_sample=True, top_p=1.0), "Parameter top_p must be in (0.0,1.0], got 1.0.", None),
    (GEN, tgi(do_sample=True, top_k=0), "Parameter top_k must be in -1 || (0,2147483647], got 0", None),
    (GEN, tgi(do_sample=True, top_k=-1), "Parameter top_k must be in -1 || (0,2147483647], got -1", None),
    (GEN, tgi(temperature=0), "Parameter temperature must be in (0.0,3.40282e+38], got 0.", None),
    (COMP, comp(repetition_penalty=5), "Parameter 'repetition_penalty' must be in (0.0, 2], got 5.", None),
    (COMP, comp(top_p=1.5), "Parameter top_p must be in (0.0,1.0], got 1.5.", "Parameter top_p must be in (0.0,1.0], got 1.5."),
    (CHAT, chat(stop="x" * 1025), None, "Input validation error: length of `stop` must be in [1, 1024], but got 1025"),
    (CHAT, chat(response_format={"type": "odd"}),
     "Parameter response_format.type must be 'json_object', 'json_schema' or 'text', got 'odd'", None),
    (CHAT, chat(chat_template_kwargs={"enable_thinking": 1}), "enable_thinking must be boolean, got number", None),
    (CHAT, {**chat(), "model": "nope"}, "Model not found", "Got model nope, but not found in server"),
]


def test_ranges(sides):
    for path, body, *texts in RANGES:
        for base, text in zip(sides, texts):
            a = post(base, path, body)
            assert (a.status, None if a.status == 200 else a.json["error"]) == (422 if text else 200, text), (body, a.text)


def test_native_ranges_of_a_chat():
    """openAiSupport alone: the native ranges, strictly."""
    with Standalone(extra={"ServerConfig": {"openAiSupport": "native"}}) as s:
        for more, text in [({"temperature": 2}, None), ({"temperature": 2.1}, "Parameter temperature must be in (0.0,2], got 2.1."),
                           ({"top_k": 0, "temperature": 1}, None), ({"top_k": -1}, "Parameter top_k must be in -1 || (0,2147483647], got -1")]:
            a = post(s.base, CHAT, chat(**more))
            assert (a.status, None if a.status == 200 else a.json["error"]) == (422 if text else 200, text), a.text
        assert post(s.base, COMP, comp(temperature=2.1, top_k=-1)).status == 200, "completions have vLLM's ranges always"


# truncation: what happens to a prompt that is too long (inference-api 4.7)
@pytest.mark.parametrize("value,kept", [(-1, [300, 301, 302]), (True, [300, 301, 302]), (1, [302, 303, 304]), (0, None), (False, None)])
def test_truncation(value, kept):
    limits = {"BackendConfig": {"ModelDeployConfig": {"maxInputTokenLen": 3, "truncation": value}}}
    with Standalone(extra=limits) as s:
        a = post(s.base, COMP, comp(prompt=[300, 301, 302, 303, 304]))
        if kept is None:
            assert a.status == 424 and a.json["error"].endswith("cannot be greater than 3,the input ids length is 5"), a.text
        else:
            assert normal(a.body, keep_cached=False) == normal(post(s.base, COMP, comp(prompt=kept)).body, keep_cached=False)
            assert a.json["usage"]["prompt_tokens"] == 3


def test_limits_of_n():
    """Each limit says its own name; the smallest one in the order of the table speaks first."""
    with Standalone(extra={"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 6, "maxPrefillBatchSize": 4, "maxN": 2}}}) as s:
        for n, name, limit, end in [(7, "max_batch_size", 6, " "), (5, "maxPrefillBatchSize", 4, ""), (3, "maxN", 2, "")]:
            a = post(s.base, COMP, comp(n=n, temperature=1))
            assert (a.status, a.json["error"]) == (422, f"The n parameter ({n}) exceeds '{name}' ({limit}). Please reduce n or increase "
                                                   f"'{name}' in config.json of mindie-service.{end}")
        assert len(post(s.base, COMP, comp(n=2, temperature=1)).json["choices"]) == 2
