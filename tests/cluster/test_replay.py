"""Goal: a request whose client was left in the middle goes on at another attempt as if nothing had happened: the bytes that the client has, and
those of the attempt that goes on behind them, are the answer of a calm pair, with its id, clock, usage and indices; for every family and
whatever it asks for. A record that cannot be of the request is refused by name and costs nothing.
Method: the test is the coordinator of two instances. It takes a whole answer, its pieces and their tokens; then it sends the body again with
the record of what was sent up to one piece, in the next epoch, and compares what follows."""
import json
import os
import struct
import sys

import pytest
from families import MODES, VOLATILE, Mode, made_up_ids
from harness import FABLE, ROOT, get, post, wait_for
from pd_hand import Hand, Listener, record, tokens

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402

VERSE = "The fox ran up the hill. The crow sat on the tree. "
DRAWN = {"temperature": 0.9, "seed": 21}
SCHEMA = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
TOOLS = [{"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "required": ["colour", "coats"],
          "properties": {"colour": {"enum": ["red", "green", "blue"]}, "coats": {"type": "integer", "minimum": 1, "maximum": 3}}}}}]
TOOL_TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>{# <tool_call> #}"


@pytest.fixture(scope="module")
def hand(tmp_path_factory):
    adapter = str(tmp_path_factory.mktemp("adapters") / "one")
    with open(os.path.join(FABLE, "config.json")) as f:
        make_adapter.write_adapter(adapter, json.load(f), scale=0.5, seed=1, r=8)
    with Hand(extra={"BatonConfig": {"chunkTokens": 64, "maxLoras": 1, "maxLoraRank": 16, "loraModules": [f"one={adapter}"]}}) as h:
        h.give_roles()
        h.listener = Listener(h.d.base, 2)
        yield h
        h.listener.close()


# ---- attempts
class Attempt:
    """What one attempt said: P's piece and D's, each with the tokens reported with it."""

    def __init__(self, hand, path, body, req_id, epoch=0, behind=b""):
        data = json.dumps(body).encode() + behind
        headers = hand.headers(req_id, req_epoch=str(epoch), **({"baton_replay": str(len(behind))} if behind else {}))
        a = post(hand.p.base, path, data, headers={"Content-Type": "application/json", **headers})
        assert a.status == 200, a.text
        self.json = a.json
        self.pieces = [(a.json.get("output", ""), tokens(a.json["tokens"]))]
        if not a.json.get("isLastResp"):
            self.pieces += [(f[5], f[4]) for f in hand.listener.wait_end(req_id, epoch)]

    def text(self, n=None):
        return "".join(p[0] for p in self.pieces[:n])

    def sent(self, n=None):
        return [t for p in self.pieces[:n] for t in p[1]]


def behind(first, n, n_choices, before=()):
    """The record of what the client has after n pieces of an attempt, which went on behind `before`."""
    return record([*before, *first.sent(n)], first.json["created"], int(first.json["seed"]), first.json["cachedTokens"], n_choices)


def same_times(text):
    """Without what was measured: times, and the company in a batch."""
    for pattern, to in VOLATILE[2:]:
        text = pattern.sub(to, text)
    return text


def by_choice(text):
    """A stream's events, those of a choice one behind the other: choices that were left at different tokens take other turns."""
    def index(event):
        found = event.find('"choices":[{"index":')
        return int(event[found + 20:].split(",")[0]) if found >= 0 else 1 << 20
    return sorted(text.split("\n\n"), key=index)


def check(hand, path, body, n_choices=1, cuts=None, compare=same_times):
    req_id = f"{next(hand.ids):x}"
    calm = Attempt(hand, path, body, req_id)
    assert len(calm.pieces) > 3, calm.text()
    assert calm.json["choices"] == n_choices
    want, all_sent = compare(calm.text()), sorted(calm.sent(), key=lambda t: t.choice)
    for epoch, cut in enumerate(cuts or (len(calm.pieces) // 2, len(calm.pieces) - 1), 1):
        again = Attempt(hand, path, body, req_id, epoch, behind(calm, cut, n_choices))
        assert compare(calm.text(cut) + again.text()) == want, (cut, len(calm.pieces))
        assert sorted(calm.sent(cut) + again.sent(), key=lambda t: t.choice) == all_sent
        for key in ("created", "seed", "cachedTokens", "promptTokens", "choices"):
            assert again.json[key] == calm.json[key]
    return calm


# ---- every family
STREAMS = [m for m in MODES if m.stream]


@pytest.mark.parametrize("drawn", [{"temperature": 0}, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("mode", STREAMS, ids=str)
def test_a_stream_goes_on(hand, mode, drawn):
    """The later attempt finds the prompt in the prefix cache, and says of it what the first one said."""
    prompt = f"{mode.name} {sorted(drawn)} told the fox of the lion and the mouse who lived in the wood near the river"
    check(hand, mode.path, mode.body(prompt, max_tokens=24, **drawn, **({"ignore_eos": True} if "ignore_eos" in mode.accepts else {})),
          cuts=(1, 12))


def chat(**p):
    return "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 40,
                                    "stream": True, "ignore_eos": True, **DRAWN, **p}


def completion(**p):
    return "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 40, "stream": True, "ignore_eos": True, **DRAWN, **p}


USAGE = {"include_usage": True, "continuous_usage_stats": True}
CASES = {
    "penalties": completion(repetition_penalty=1.2, frequency_penalty=0.7, presence_penalty=0.4),
    "greedy_penalties": completion(temperature=0, repetition_penalty=1.3),
    "bias": completion(logit_bias={"300": 6, "301": -100}, top_k=20),
    "bad_words": completion(bad_words=[" fox", " the"]),
    "allowed": completion(allowed_token_ids=list(range(300, 340))),
    "logprobs": completion(logprobs=3),
    "chat_logprobs": chat(logprobs=True, top_logprobs=2, stop=["zzz", "e q"]),
    "echo": completion(echo=True, logprobs=1),
    "usage": chat(stream_options=USAGE),
    "completion_usage": completion(stream_options=USAGE),
    "stop": completion(stop=["zz", "the crow and", "the and of"], max_tokens=60),
    "min_tokens": completion(ignore_eos=False, min_tokens=30, temperature=1.3),
    "stop_ids": completion(ignore_eos=False, stop_token_ids=list(range(700, 730)), min_tokens=12),
    "guided_json": chat(response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}, ignore_eos=False, max_tokens=80),
    "guided_regex": completion(guided_regex="[a-z]{3,9}( [a-z]{2,8}){6}[.]", ignore_eos=False),
    "guided_grammar": completion(guided_grammar='root ::= "<" word ("," word){3,5} ">"\nword ::= [a-z]{4,6}', ignore_eos=False),
    "tools": chat(tools=TOOLS, tool_choice="required", chat_template=TOOL_TEMPLATE, ignore_eos=False, max_tokens=80),
    "adapter": completion(model="one"),
    "vllm_stop": ("/generate", {"prompt": "Once upon a time", "max_tokens": 30, "stream": True, "ignore_eos": True, "stop": ["zz", "and the"], **DRAWN}),
    "tgi_details": ("/generate_stream", {"inputs": "Once upon", "parameters": {"max_new_tokens": 24, "details": True, "top_n_tokens": 2, "seed": 4}}),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_it_asks_for_goes_on(hand, case):
    check(hand, *CASES[case])


@pytest.mark.parametrize("path,body,n_parts", [
    (*chat(n=2, stream_options=USAGE), 1), (*chat(n=3, logprobs=True, ignore_eos=False, temperature=1.4), 1),
    (*completion(n=2, logprobs=1, repetition_penalty=1.2), 1), (*completion(prompt=["The crow", "A lion said"], n=2), 2),
    (*completion(prompt=[made_up_ids(9, 1), made_up_ids(70, 2), made_up_ids(3, 3)], temperature=0), 3)],
    ids=["chat_2", "chat_3", "completion_2", "prompts_2x2", "prompts_3"])
def test_several_choices_go_on(hand, path, body, n_parts):
    n = body.get("n", 1)
    calm = check(hand, path, body, n, compare=lambda text: by_choice(same_times(text)))
    assert {t.choice for t in calm.sent()} == set(range(n * n_parts))


def test_prompt_lookup_goes_on(hand):
    """A guess that comes true makes several tokens an event, and what was guessed before is forgotten: the text is the same, its cuts are not."""
    body = completion(prompt=VERSE * 3 + "The fox ran", temperature=0, max_tokens=60, prompt_lookup_num_tokens=6)
    mode = Mode("completions_stream", "completions", "/v1/completions", True)
    calm = check(hand, *body, compare=lambda text: mode.text(text.encode()))
    assert len(calm.pieces) < 50  # guesses came true


def test_attempt_after_attempt(hand):
    """Left every few tokens, by P and D in turn; the text of all attempts is the text of one."""
    path, body = completion(n=2, max_tokens=30, stop=["zz"])
    req_id = f"{next(hand.ids):x}"
    calm = Attempt(hand, path, body, req_id)
    text, sent, epoch = "", [], 0
    while True:
        epoch += 1
        a = Attempt(hand, path, body, req_id, epoch, behind(calm, 0, 2, sent))
        n = min(len(a.pieces), 7)
        text, sent = text + a.text(n), sent + a.sent(n)
        if n == len(a.pieces):
            break
    assert epoch > 5 and by_choice(text) == by_choice(calm.text())


def counted(hand, *names):
    lines = [line for i in (hand.p, hand.d) for line in get(i.mgmt, "/metrics").text.splitlines()]
    return [sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{")) for name in names]


def test_nothing_is_counted_twice(hand):
    """What was sent is in the answer's length, and not among the tokens made; the prompt and the time to first token were counted before."""
    names = "generation_tokens_total", "prompt_tokens_total", "time_to_first_token_seconds_count", "request_generation_tokens_sum"
    path, body = completion(max_tokens=20)
    req_id = f"{next(hand.ids):x}"
    counts = [counted(hand, *names)]
    calm = Attempt(hand, path, body, req_id)
    counts.append(counted(hand, *names))
    Attempt(hand, path, body, req_id, 1, behind(calm, 8, 1))
    counts.append(counted(hand, *names))
    grown = [[b - a for a, b in zip(*pair)] for pair in zip(counts, counts[1:])]
    n = len(calm.sent(8))
    assert n > 5 and grown == [[20, calm.json["promptTokens"], 1, 20], [20 - n, 0, 0, 20]]


@pytest.mark.parametrize("mode", [m for m in MODES if not m.stream], ids=str)
def test_a_whole_answer_goes_on(hand, mode):
    """D tells its tokens in bundles, without a byte of the answer; a later attempt goes on behind them, and its answer has all of the text."""
    ids = "ids_only" in mode.accepts
    body = mode.body(made_up_ids(20, 4) if ids else "The lion had a thorn", max_tokens=80, temperature=1.1, **({"ignore_eos": True} if "ignore_eos" in mode.accepts else {}))
    req_id = f"{next(hand.ids):x}"
    calm = Attempt(hand, mode.path, body, req_id)
    assert len(calm.pieces[0][1]) == 1 and all(not text for text, _ in calm.pieces[:-1])
    cuts = 1, len(calm.pieces) - 1
    assert len(calm.sent()) < 70 or cuts[1] > 2
    for epoch, cut in enumerate(cuts, 1):
        again = Attempt(hand, mode.path, body, req_id, epoch, behind(calm, cut, 1))
        assert same_times(again.text()) == same_times(calm.text()), cut
        assert calm.sent(cut) + again.sent() == calm.sent()


def test_choices_of_a_whole_answer_go_on(hand):
    path, body = completion(prompt=["The crow", "A lion said"], n=2, max_tokens=60, stream=False)
    req_id = f"{next(hand.ids):x}"
    calm = Attempt(hand, path, body, req_id)
    again = Attempt(hand, path, body, req_id, 1, behind(calm, 4, 2))
    assert len(calm.sent(4)) > 60 and same_times(again.text()) == same_times(calm.text())


@pytest.mark.parametrize("params", [{"logprobs": 2}, {"n": 2, "best_of": 3}], ids=str)
def test_what_tokens_do_not_tell_begins_again(hand, params):
    path, body = completion(max_tokens=60, stream=False, **params)
    req_id, n = f"{next(hand.ids):x}", params.get("best_of", 1)
    calm = Attempt(hand, path, body, req_id)
    assert len(calm.pieces) == 2 and calm.pieces[0][1] == []
    again = Attempt(hand, path, body, req_id, 1, behind(calm, 1, n))
    assert same_times(again.text()) == same_times(calm.text()) and again.sent() == calm.sent()


def test_beams_begin_again(hand):
    path, body = completion(n=2, use_beam_search=True, max_tokens=12, temperature=0)
    req_id = f"{next(hand.ids):x}"
    calm = Attempt(hand, path, body, req_id)
    again = Attempt(hand, path, body, req_id, 1, behind(calm, 1, 2))
    assert calm.pieces[0][1] == [] and again.text() == calm.text()


# ---- records that are not of the request
def test_strangers_are_refused(hand):
    path, body = completion(max_tokens=4)
    data = json.dumps(body).encode()
    vocab = json.load(open(os.path.join(FABLE, "config.json")))["vocab_size"]

    def rec(*ids, finish=0, n_prompts=1, n_choices=1):
        out = struct.pack("<HqQII", 1, 1700000000, 5, n_prompts, n_choices) + struct.pack(f"<{n_prompts}I", *[0] * n_prompts)
        out += struct.pack("<BI", finish, len(ids)) + struct.pack(f"<{len(ids)}i", *ids)
        return out + struct.pack("<BI", 0, 0) * (n_prompts * n_choices - 1)

    good = rec(300)
    cases = [
        (rec(vocab), None, f"replay record: token 0 of choice 0 must be an id from 0 to {vocab - 1}, got {vocab}"),
        (rec(300, -1), None, "replay record: token 1 of choice 0 must not be negative, got -1"),
        (rec(300, n_choices=2), None, "replay record: it has 2 choices of each of 1 prompts, but the request has 1 of 1"),
        (rec(300, n_prompts=3), None, "replay record: it has 1 choices of each of 3 prompts, but the request has 1 of 1"),
        (rec(300, 301, 302, 303), None, "replay record: choice 0 has 4 tokens, at most 3 are possible"),
        (rec(300, 301, 302, 303, 304, finish=4), None, "replay record: choice 0 has 5 tokens, at most 4 are possible"),
        (rec(finish=1), None, "replay record: finish of choice 0 must be from 0 to 6, and 0 without tokens, got 1 with 0 tokens"),
        (rec(300, finish=5), None, "replay record: the finish of choice 0 must be 0 to 4, got 5"),
        (rec(300, finish=7), None, "replay record: finish of choice 0 must be from 0 to 6, and 0 without tokens, got 7 with 1 tokens"),
        (rec(300, finish=1), None, "replay record: every choice has ended, nothing is left to generate"),
        (b"\2\0" + good[2:], None, "replay record: version must be 1, got 2"),
        (good[:-1], None, "replay record: it ends before the tokens of a choice"),
        (good + b"xy", None, f"replay record: 2 bytes of baton-replay {len(good) + 2} are behind its end"),
        (good, len(data) + len(good) + 1, f"Parameter baton-replay must be at most the {len(data) + len(good)} bytes of the body but got "
                                          f"{len(data) + len(good) + 1}"),
        (good, 4200001, "Parameter baton-replay must be an integer from 1 to 4200000 but got 4200001"),
        (good, "x", "Parameter baton-replay must be an integer from 1 to 4200000 but got x"),
    ]
    before = [i.idle() for i in (hand.p, hand.d)]
    for bad, length, text in cases:
        a = post(hand.p.base, path, data + bad, headers={**hand.headers(), "baton-replay": str(length or len(bad))})
        assert a.status == 400 and text in a.text, (a.status, a.text, text)
    whole = json.dumps({**body, "stream": False, "logprobs": 1}).encode()
    a = post(hand.p.base, path, whole + good, headers={**hand.headers(), "baton-replay": str(len(good))})
    assert a.status == 400 and "choice 0 has 1 tokens, but the request goes on behind none" in a.text
    wait_for(lambda: [i.load() for i in (hand.p, hand.d)] == before, 5, "nothing is held")
    check(hand, path, {**body, "max_tokens": 12})
