"""Goal: speculative decoding by prompt lookup changes no byte of an answer: whole or split, greedy or drawn, guided, with penalties, choices
and log-probabilities, alone or in company, and (test_faults.py) when a process dies; it only makes fewer steps, and the metrics say how often it was right.
Method: the same bodies without and with guesses, to one instance and to a pair. Whole answers are compared as bytes once the volatile parts
are equal, of streams the joined texts and the number of events. Prompts repeat themselves, so that guesses come true."""
import re

import pytest
from families import MODES, normal
from harness import Standalone, Stream, events, in_threads, post, request

VERSE = "The fox ran up the hill. The crow sat on the tree. "
PROMPT = VERSE * 3 + "The fox ran"
GREEDY = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}
DRAWN = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "max_tokens": 60}
LIST = {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 8, "maxItems": 8}


def completion(**p):
    return "/v1/completions", {"model": "fable", "prompt": PROMPT, **GREEDY, **p}


def chat(**p):
    return "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": PROMPT}], **GREEDY, **p}


CASES = {
    "greedy": completion(),
    "greedy_ids": completion(prompt=[300, 400, 500, 600] * 9),
    "drawn": completion(**DRAWN),
    "hot": completion(**DRAWN | {"temperature": 1.6}),
    "top_k": completion(**DRAWN, top_k=3, min_p=0.05),
    "repetition": completion(**DRAWN, repetition_penalty=1.1),
    "penalties": completion(frequency_penalty=0.3, presence_penalty=0.2),
    "bias": completion(logit_bias={"300": 4, "301": -100}),
    "allowed": completion(allowed_token_ids=[300, 301, 302], **DRAWN | {"max_tokens": 90}),
    "bad_words": completion(bad_words=[" fox"]),
    "min_tokens": completion(**DRAWN, min_tokens=40),
    "stop": completion(stop=["crow", "zz"], include_stop_str_in_output=True),
    "stop_ids": completion(stop_token_ids=list(range(700, 760)), **DRAWN),
    "logprobs": completion(logprobs=3),
    "drawn_logprobs": completion(logprobs=2, **DRAWN),
    "echo": completion(echo=True, logprobs=1),
    "n": completion(**DRAWN, n=4),
    "best_of": completion(**DRAWN, n=2, best_of=4),
    "prompts": completion(prompt=[PROMPT, "Once upon a time", VERSE * 5], **DRAWN),
    "one_token": completion(max_tokens=1),
    "two_tokens": completion(max_tokens=2),
    "long": completion(max_tokens=300),
    "guided_json": completion(guided_json=LIST, **DRAWN | {"max_tokens": 120}),
    "guided_regex": completion(guided_regex="(The fox ran up the hill\\. ){4}The end"),
    "guided_choice": completion(guided_choice=[VERSE, VERSE[:-1] + "!"]),
    "chat": chat(),
    "chat_logprobs": chat(**DRAWN, logprobs=True, top_logprobs=2),
    "chat_json": chat(response_format={"type": "json_schema", "json_schema": {"name": "l", "schema": LIST}}, max_tokens=120),
    "vllm": ("/generate", {"prompt": PROMPT, **DRAWN}),
    "tgi": ("/generate", {"inputs": PROMPT, "parameters": {"max_new_tokens": 60, "temperature": 0.8, "seed": 3, "details": True, "top_n_tokens": 2}}),
}


def guessing(body, n):
    if "parameters" in body:
        return {**body, "parameters": {**body["parameters"], "prompt_lookup_num_tokens": n}}
    return {**body, "prompt_lookup_num_tokens": n}


def counters(base):
    text = request(base + "/metrics").text
    found = {}
    for name, value in re.findall(r"^(?:vllm:)?spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total(?:\{[^}]*\})? (\S+)$", text, re.M):
        found.setdefault(name, set()).add(float(value))
    return {k: sum(v) for k, v in found.items() if len(v) == 1}  # one value under both names


@pytest.mark.parametrize("name", list(CASES))
def test_no_byte_changes(whole, pair, name):
    path, body = CASES[name]
    plain = post(whole.base, path, body)
    assert plain.status == 200, plain.text
    for n in (3, 8):
        for server in (whole, pair):
            answer = post(server.base, path, guessing(body, n))
            assert answer.status == 200, answer.text
            assert normal(answer.body, False) == normal(plain.body, False)


@pytest.mark.parametrize("mode", [m for m in MODES if m.stream], ids=repr)
def test_events_of_a_stream(whole, pair, mode):
    """One event a token for TGI, native and Triton, as without guesses; one event a step for OpenAI and vLLM."""
    body = mode.body(PROMPT, max_tokens=60, temperature=0)
    plain = mode.ask(whole.base, body)
    for server in (whole, pair):
        answer = mode.ask(server.base, guessing(body, 8))
        assert answer[:2] == plain[:2] and mode.text(answer[2]) == mode.text(plain[2])
        if mode.family in ("chat", "completions", "vllm"):
            assert len(mode.frames(answer[2])) < len(mode.frames(plain[2]))
            assert mode.finish(answer[2]) == mode.finish(plain[2])
        else:
            assert normal(answer[2], False) == normal(plain[2], False)


def test_log_probabilities_of_joined_events(whole, pair):
    path, body = completion(logprobs=1, stream=True)
    lists = []
    for server, n in ((whole, 0), (whole, 8), (pair, 8)):
        chunks = events(Stream(server.base, path, guessing(body, n)).read_all())
        found = [c["choices"][0]["logprobs"] for c in chunks if c["choices"] and c["choices"][0].get("logprobs")]
        lists.append([[x for f in found for x in f[key]] for key in ("tokens", "token_logprobs", "text_offset")])
        assert len(lists[-1][0]) == 60
    assert lists[0] == lists[1] == lists[2]


def test_company_changes_nothing(whole, pair):
    jobs = [CASES[name] for name in ("greedy", "drawn", "penalties", "n", "guided_json", "logprobs", "chat", "stop")]
    alone = [normal(post(whole.base, path, body).body, False) for path, body in jobs]
    for server in (whole, pair):
        together = in_threads([lambda p=p, b=b: post(server.base, p, guessing(b, 8)) for p, b in jobs])
        assert [normal(a.body, False) for a in together] == alone


def test_metrics_count_guesses(whole, pair):
    path, body = completion()
    for server, daemon in ((whole, whole.instance.mgmt), (pair, pair.decodes[0].mgmt)):
        before = counters(daemon)
        assert before.keys() == {"drafts", "draft_tokens", "accepted_tokens"}
        post(server.base, path, body)
        assert counters(daemon) == before
        post(server.base, path, guessing(body, 8))
        grown = {k: v - before[k] for k, v in counters(daemon).items()}
        assert 0 < grown["drafts"] <= grown["draft_tokens"] and 0 < grown["accepted_tokens"] <= grown["draft_tokens"] < 8 * 60
    assert counters(pair.prefills[0].mgmt) == {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}


@pytest.mark.parametrize("value", [-1, 17, 1.5, "3", True])
def test_bad_numbers_are_refused(whole, value):
    for mode in MODES:
        if mode.family == "triton_token":
            continue
        answer = post(whole.base, mode.path, guessing(mode.body("x"), value))
        assert answer.status == 422 and "prompt_lookup_num_tokens" in answer.text, answer.text


def test_the_configuration_says_it_for_all():
    path, body = completion()
    with Standalone(extra={"BatonConfig": {"promptLookupTokens": 6}}) as s:
        zero = counters(s.instance.mgmt)
        plain = post(s.base, path, guessing(body, 0))
        assert counters(s.instance.mgmt) == zero  # the request has the last word
        answer = post(s.base, path, body)
        assert normal(answer.body, False) == normal(plain.body, False)
        assert counters(s.instance.mgmt)["accepted_tokens"] > 0
