"""Goal: n, best_of and several prompts in one request are answered split as by one instance, streamed or not; each choice says the same
whatever its company; and whatever ends a request, its slots and blocks come back.
Method: the same bodies to one instance and to a pair. Whole answers are compared as bytes once the volatile parts are equal; of streams
the frames of each choice in their order, since choices of different prompts run at their own pace. Loads of the instances before and after.
"""
import json

import pytest
from families import normal
from harness import ANSWER_S, Stream, in_threads, post

SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 77}
PROMPTS = ["Once", "A dog and a cat went", "The old man and his wife lived by the sea, and every day they", "A dog and a cat went out"]
COMPLETION = {"model": "fable", "prompt": "A dog and a cat went", "max_tokens": 14, **SEEDED}
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a crow"}], "max_tokens": 12, **SEEDED}
VLLM = {"prompt": "A dog and a cat went", "max_tokens": 12, **SEEDED}

BODIES = [
    ("n", "/v1/completions", {**COMPLETION, "n": 3}),
    ("n_logprobs", "/v1/completions", {**COMPLETION, "n": 3, "logprobs": 2}),
    ("n_penalties", "/v1/completions", {**COMPLETION, "n": 4, "frequency_penalty": 0.7, "repetition_penalty": 1.2}),
    ("n_stop", "/v1/completions", {**COMPLETION, "n": 5, "max_tokens": 40, "stop": ["a", "t "]}),
    ("n_one_token", "/v1/completions", {**COMPLETION, "n": 3, "max_tokens": 1}),
    ("n_eos_likely", "/v1/completions", {**COMPLETION, "n": 6, "max_tokens": 30, "prompt": "Once upon a time"}),
    ("n_block_edge", "/v1/completions", {**COMPLETION, "n": 3, "prompt": list(range(300, 316))}),
    ("n_one_over", "/v1/completions", {**COMPLETION, "n": 3, "prompt": list(range(300, 317))}),
    ("n_many_blocks", "/v1/completions", {**COMPLETION, "n": 4, "prompt": list(range(300, 500))}),
    ("prompts", "/v1/completions", {**COMPLETION, "prompt": PROMPTS}),
    ("prompts_n", "/v1/completions", {**COMPLETION, "prompt": PROMPTS, "n": 3}),
    ("prompts_one_token", "/v1/completions", {**COMPLETION, "prompt": PROMPTS, "max_tokens": 1}),
    ("prompts_stop", "/v1/completions", {**COMPLETION, "prompt": PROMPTS, "n": 2, "max_tokens": 30, "stop": [" ", "o"]}),
    ("more_than_slots", "/v1/completions", {**COMPLETION, "prompt": [f"{p} {i}" for i in range(12) for p in PROMPTS], "max_tokens": 5}),
    ("more_than_slots_n", "/v1/completions", {**COMPLETION, "prompt": [f"{p} {i}" for i in range(4) for p in PROMPTS], "n": 5, "max_tokens": 6}),
    ("chat_n", "/v1/chat/completions", {**CHAT, "n": 3}),
    ("chat_n_logprobs", "/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 3}),
    ("vllm_n", "/generate", {**VLLM, "n": 3}),
]
BEST_OF = [
    ("best_of", "/v1/completions", {**COMPLETION, "best_of": 4}),
    ("best_of_n", "/v1/completions", {**COMPLETION, "best_of": 4, "n": 2}),
    ("best_of_prompts", "/v1/completions", {**COMPLETION, "best_of": 3, "n": 2, "prompt": PROMPTS}),
    ("vllm_best_of", "/generate", {**VLLM, "best_of": 4, "n": 2}),
    ("echo_prompt_logprobs", "/v1/completions", {**COMPLETION, "n": 2, "echo": True, "logprobs": 2}),
    ("echo_prompts", "/v1/completions", {**COMPLETION, "echo": True, "logprobs": 2, "prompt": PROMPTS}),
]


def ids(cases):
    return [c[0] for c in cases]


@pytest.mark.parametrize("name,path,body", BODIES + BEST_OF, ids=ids(BODIES + BEST_OF))
def test_whole_is_split(whole, pair, name, path, body):
    start = pair.idle()
    one, two = post(whole.base, path, body), post(pair.base, path, body)
    assert one.status == two.status == 200, (one.text, two.text)
    assert normal(one.body, False) == normal(two.body, False)
    if path != "/generate":
        n = body.get("n", body.get("best_of", 1)) * (len(body["prompt"]) if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], str) else 1)
        assert [c["index"] for c in one.json["choices"]] == list(range(n))
        if "stop" not in body and body["max_tokens"] > 5 and name != "n_eos_likely":
            assert len({json.dumps(c) for c in one.json["choices"]}) > 1  # they are not one answer many times
    else:
        assert len(one.json["text"]) == body["n"]
    pair.wait_idle(start, ANSWER_S)


def by_choice(raw):
    """The frames of each choice, in order; under None those that are of none, and the framing."""
    text = normal(raw, False).replace('"created":#', '"created":0')
    assert text.endswith("data: [DONE]\n\n"), text[-200:]
    out = {}
    for piece in text[:-2].split("\n\n"):
        data = piece.removeprefix("data: ")
        frame = json.loads(data) if data != "[DONE]" else {}
        index = frame["choices"][0]["index"] if frame.get("choices") else None
        assert len(frame.get("choices", [])) <= 1
        out.setdefault(index, []).append(piece)
    return out


STREAMED = [b for b in BODIES if b[1] != "/generate"]


@pytest.mark.parametrize("name,path,body", STREAMED, ids=ids(STREAMED))
def test_streams_are_the_same(whole, pair, name, path, body):
    start = pair.idle()
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    one, two = (by_choice(Stream(s.base, path, body).read_all()) for s in (whole, pair))
    assert one.keys() == two.keys()
    for index in one:
        assert one[index] == two[index], index
    pair.wait_idle(start, ANSWER_S)


def test_choice_0_is_the_answer_of_n_1(whole, pair):
    for s in (whole, pair):
        alone = post(s.base, "/v1/completions", COMPLETION).json["choices"][0]
        among = post(s.base, "/v1/completions", {**COMPLETION, "n": 5}).json["choices"]
        assert alone["text"] == among[0]["text"]
        fewer = post(s.base, "/v1/completions", {**COMPLETION, "n": 2}).json["choices"]
        assert [c["text"] for c in fewer] == [c["text"] for c in among[:2]]


def test_many_at_once_say_what_they_say_alone(whole, pair):
    start = pair.idle()
    bodies = [(p, b) for _, p, b in BODIES[:12]]
    alone = [normal(post(whole.base, p, b).body, False) for p, b in bodies]
    together = in_threads([lambda p=p, b=b: post(pair.base, p, b) for p, b in bodies])
    for want, got in zip(alone, together):
        assert got.status == 200 and normal(got.body, False) == want
    pair.wait_idle(start, ANSWER_S)


LONG = {**COMPLETION, "max_tokens": 400, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("more", [{"n": 6}, {"prompt": PROMPTS}, {"prompt": [f"{p} {i}" for i in range(3) for p in PROMPTS], "n": 4, "max_tokens": 50}],
                         ids=["n", "prompts", "prompts_n_over_the_slots"])
@pytest.mark.parametrize("when", ["at_once", "in_the_middle"])
def test_a_client_that_goes_gives_everything_back(pair, more, when):
    start = pair.idle()
    for _ in range(3):
        s = Stream(pair.base, "/v1/completions", {**LONG, **more})
        if when == "in_the_middle":
            s.read_until(12)
        s.abandon()
    pair.wait_idle(start, ANSWER_S)
    assert post(pair.base, "/v1/completions", {**COMPLETION, "n": 2}).status == 200


def test_more_choices_than_slots_is_a_clear_error(whole, pair):
    a, b = (post(s.base, "/v1/completions", {**COMPLETION, "n": 33}) for s in (whole, pair))  # maxBatchSize 32
    assert a.status == b.status and a.status in (422, 424), (a.text, b.text)
    assert "33" in a.text and "33" in b.text
