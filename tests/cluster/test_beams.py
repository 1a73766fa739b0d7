"""Goal: a beam search is answered split as by one instance, streamed or not: n sequences, best first, likelier than what greedy decoding finds;
what is refused is refused in the reference's words; and whatever ends one, its slots and blocks come back.
Method: the same bodies to one instance and to a pair, compared as bytes once the volatile parts are equal; sums of the log-probabilities that
the answers show; loads of the instances before and after.
"""
import json
import time

import pytest
from families import normal
from harness import ANSWER_S, Stream, connect, events, in_threads, post

COMPLETION = {"model": "fable", "prompt": "A dog and a cat went", "max_tokens": 12, "use_beam_search": True}
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a crow"}], "max_tokens": 12, "use_beam_search": True}
PROMPTS = ["Once", "A dog and a cat went", "The old man and his wife lived by the sea, and every day they"]
LETTERS = {"guided_regex": "(yes|no)"}

BODIES = [
    ("one", "/v1/completions", COMPLETION),
    ("two", "/v1/completions", {**COMPLETION, "n": 2}),
    ("four", "/v1/completions", {**COMPLETION, "n": 4}),
    ("to_the_limit", "/v1/completions", {**COMPLETION, "n": 4, "max_tokens": 128}),
    ("one_token", "/v1/completions", {**COMPLETION, "n": 4, "max_tokens": 1}),
    ("two_tokens", "/v1/completions", {**COMPLETION, "n": 4, "max_tokens": 2}),
    ("logprobs", "/v1/completions", {**COMPLETION, "n": 3, "logprobs": 2}),
    ("echo", "/v1/completions", {**COMPLETION, "n": 2, "echo": True, "logprobs": 2}),
    ("sampling_does_not_matter", "/v1/completions", {**COMPLETION, "n": 2, "temperature": 1.7, "top_k": 3, "seed": 5}),
    ("best_of_is_not_looked_at", "/v1/completions", {**COMPLETION, "n": 2, "best_of": 1}),
    ("penalties", "/v1/completions", {**COMPLETION, "n": 3, "repetition_penalty": 1.4, "frequency_penalty": 0.7}),
    ("stop", "/v1/completions", {**COMPLETION, "n": 4, "max_tokens": 40, "stop": ["e", " a"]}),
    ("ignore_eos", "/v1/completions", {**COMPLETION, "n": 3, "max_tokens": 60, "ignore_eos": True}),
    ("prompts", "/v1/completions", {**COMPLETION, "n": 3, "prompt": PROMPTS}),
    ("prompts_one_token", "/v1/completions", {**COMPLETION, "n": 3, "prompt": PROMPTS, "max_tokens": 1}),
    ("block_edge", "/v1/completions", {**COMPLETION, "n": 3, "prompt": list(range(300, 316)), "max_tokens": 40}),
    ("many_blocks", "/v1/completions", {**COMPLETION, "n": 6, "prompt": list(range(300, 500)), "max_tokens": 40}),
    ("guided", "/v1/completions", {**COMPLETION, "n": 2, **LETTERS}),
    ("chat", "/v1/chat/completions", {**CHAT, "n": 3}),
    ("chat_logprobs", "/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 3}),
]


def ids(cases):
    return [c[0] for c in cases]


def width(body):
    return body.get("n", 1)


@pytest.mark.parametrize("name,path,body", BODIES, ids=ids(BODIES))
def test_whole_is_split(whole, pair, name, path, body):
    start, alone = pair.idle(), whole.instance.idle()
    one, two = post(whole.base, path, body), post(pair.base, path, body)
    assert one.status == two.status == 200, (one.text, two.text)
    assert normal(one.body, False) == normal(two.body, False)
    n_prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], str) else 1
    assert [c["index"] for c in one.json["choices"]] == list(range(width(body) * n_prompts))
    if name == "logprobs":  # no sequence twice, though two may spell one text
        assert len({tuple(c["logprobs"]["token_logprobs"]) for c in one.json["choices"]}) == 3
    pair.wait_idle(start, ANSWER_S)
    assert whole.instance.load() == alone


def sums(answer):
    return [sum(c["logprobs"]["token_logprobs"]) for c in answer.json["choices"]]


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_best_first_and_no_worse_than_greedy(whole, pair, n):
    body = {**COMPLETION, "n": n, "logprobs": 1, "ignore_eos": True}
    greedy = post(whole.base, "/v1/completions", {**body, "n": 1, "use_beam_search": False, "temperature": 0})
    for s in (whole, pair):
        answer = post(s.base, "/v1/completions", body)
        got = sums(answer)
        assert len(got) == n and got == sorted(got, reverse=True)
        assert got[0] >= sums(greedy)[0] - 1e-4
        if n == 1:
            assert answer.json["choices"][0]["text"] == greedy.json["choices"][0]["text"]
        assert answer.json["usage"]["completion_tokens"] == 12 * n


@pytest.mark.parametrize("path,body", [("/v1/completions", {**COMPLETION, "n": 4}), ("/v1/completions", {**COMPLETION, "n": 3, "prompt": PROMPTS}),
                                       ("/v1/completions", {**COMPLETION, "n": 3, "max_tokens": 1}),
                                       ("/v1/chat/completions", {**CHAT, "n": 3}), ("/v1/chat/completions", CHAT),
                                       ("/v1/completions", {**COMPLETION, "n": 4, "max_tokens": 40, "stop": ["e", " a"]})],
                         ids=["completions", "prompts", "one_token", "chat", "chat_one", "stop"])
def test_streams_one_chunk_of_each_sequence(whole, pair, path, body):
    answer = post(whole.base, path, body).json
    for s in (whole, pair):
        raw = Stream(s.base, path, {**body, "stream": True}).read_all()
        assert raw.endswith(b"data: [DONE]\n\n")
        chunks = events(raw)
        assert sorted(c["choices"][0]["index"] for c in chunks) == list(range(len(answer["choices"])))
        for chunk in chunks:
            got = chunk["choices"][0]
            want = answer["choices"][got["index"]]
            assert got["finish_reason"] == want["finish_reason"] is not None
            text = got["delta"]["content"] if "delta" in got else got["text"]
            assert text == (want["message"]["content"] if "message" in want else want["text"])
        assert sum(c["usage"]["completion_tokens"] for c in chunks) == answer["usage"]["completion_tokens"]


def test_a_guide_may_leave_fewer_sequences(whole, pair):
    body = {**COMPLETION, "n": 4, "guided_choice": ["yes"], "max_tokens": 6}
    for s in (whole, pair):
        got = post(s.base, "/v1/completions", body)
        assert got.status == 200 and len(got.json["choices"]) == 4
        assert {c["text"] for c in got.json["choices"]} == {"yes"}


def test_company_changes_nothing(whole, pair):
    bodies = [(p, b) for _, p, b in BODIES[:10]] + [("/v1/completions", {**COMPLETION, "use_beam_search": False, "max_tokens": 60, "temperature": 0})] * 3
    alone = [normal(post(whole.base, p, b).body, False) for p, b in bodies]
    for s in (whole, pair):
        together = in_threads([lambda p=p, b=b: post(s.base, p, b) for p, b in bodies])
        assert [normal(got.body, False) for got in together] == alone


TOO_LONG = "Please set the max_tokens to be not larger than 128 when the use_beam_search is on."
REFUSED = [
    ("completions_129", "/v1/completions", {**COMPLETION, "max_tokens": 129}, TOO_LONG),
    ("chat_129", "/v1/chat/completions", {**CHAT, "max_tokens": 129}, TOO_LONG),
    ("alias_129", "/v1/chat/completions", {**CHAT, "max_completion_tokens": 129}, TOO_LONG),
    ("not_a_bool", "/v1/completions", {**COMPLETION, "use_beam_search": 1}, "use_beam_search"),
    ("more_than_slots", "/v1/completions", {**COMPLETION, "n": 33}, "33"),
]


@pytest.mark.parametrize("name,path,body,text", REFUSED, ids=ids(REFUSED))
def test_refusals(whole, pair, name, path, body, text):
    a, b = post(whole.base, path, body), post(pair.base, path, body)
    assert a.status == b.status == 422 and text in a.text and text in b.text, (a.text, b.text)


def test_vllm_ignores_it(whole, pair):
    body = {"prompt": "A dog and a cat went", "max_tokens": 8, "temperature": 0}
    for s in (whole, pair):
        assert post(s.base, "/generate", {**body, "use_beam_search": True}).json == post(s.base, "/generate", body).json


LONG = {**COMPLETION, "n": 8, "max_tokens": 128, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True], ids=["whole_answer", "stream"])
def test_a_client_that_goes_gives_everything_back(whole, pair, stream):
    for s in (whole, pair):
        loads, idle = (s.loads, s.idle) if s is pair else (s.instance.load, s.instance.idle)
        start = idle()
        for wait_s in (0, 0.01, 0.03, 0.06, 0.1):
            conn, headers = connect(s.base)
            body = {**LONG, "prompt": f"A dog {wait_s}", "stream": stream}
            conn.request("POST", "/v1/completions", body=json.dumps(body).encode(), headers=headers)
            time.sleep(wait_s)  # any moment will do
            conn.close()
        deadline = time.monotonic() + ANSWER_S
        while loads() != start and time.monotonic() < deadline:
            time.sleep(0.01)
        assert loads() == start
        assert post(s.base, "/v1/completions", COMPLETION).status == 200
