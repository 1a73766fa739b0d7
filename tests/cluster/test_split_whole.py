"""Goal: splitting the work changes no byte of an answer. Every family, streaming or not, every parameter, every prompt length around a block's
edge, alone or eight at once, in chunks of 16, 64 or 512 tokens, with a warm or a cold prefix cache: what a cluster of one prefill and one
decode instance answers is what one instance in standard mode answers.
Method: the same bodies to both; whole answers are compared as bytes once ids, clocks, times, and batch and queue numbers are made equal
(families.normal). The answers of the single instance are made once, alone, and serve all comparisons. What a parameter is to do (stop, end at
once, ...) is checked on the answer too, so that two equal wrongs do not pass.
"""
import functools
import json

import pytest
from families import BY_NAME, MODES, made_up_ids, normal
from harness import FABLE, Cluster, Standalone, in_threads, post

EOS = json.load(open(f"{FABLE}/config.json"))["eos_token_id"][0]
VOCAB = json.load(open(f"{FABLE}/tokenizer.json"))["model"]["vocab"]
# Single bytes of characters that take two to four of them, as the vocabulary spells bytes: sampled at random they make whole characters,
# halves and nonsense.
BYTE_IDS = [VOCAB[c] for c in "âĤ¬ÃŁ©ðŁĺĢ" if c in VOCAB]
BLOCK = 16
LENGTHS = [1, BLOCK - 1, BLOCK, BLOCK + 1, 700]
SEEDED = {"temperature": 0.9, "top_k": 60, "top_p": 0.95, "seed": 20240607}
PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.6, "presence_penalty": 0.4}


class Case:
    """One set of parameters: `must` decides which modes it is for, `may` is added where the family knows it."""

    def __init__(self, name, must=None, may=None, check=None, prompt=None, stop_at=None):
        self.name, self.must, self.may, self.check, self.prompt, self.stop_at = name, must or {}, may or {}, check, prompt, stop_at

    def fits(self, mode):
        return set(self.must) - {"ids"} <= mode.accepts and not (self.stop_at and "stop" not in mode.accepts)


def ends(reason_openai, reason_other):
    def check(mode, raw):
        assert mode.finish(raw) in (None, reason_openai if mode.family in ("chat", "completions") else reason_other)
    return check


def is_empty(mode, raw):
    assert mode.text(raw) == "" and mode.finish(raw) == "stop"


def has_broken_and_whole_characters(mode, raw):
    assert "\ufffd" in mode.text(raw)


CASES = [
    Case("greedy"),
    Case("greedy_penalties", {"repetition_penalty": 1.3}, PENALTIES),
    Case("seeded", SEEDED),
    Case("seeded_penalties", SEEDED, PENALTIES),
    Case("model_defaults", {"temperature": None, "seed": 5}),
    Case("min_p", {**SEEDED, "min_p": 0.1}),
    Case("typical_p", {**SEEDED, "typical_p": 0.6}),
    Case("one_token", {"max_tokens": 1}, {"details": True, "seed": 1}, ends("length", "length")),
    Case("two_tokens", {"max_tokens": 2}, {"details": True, "seed": 1}, ends("length", "length")),
    Case("stop", {"stop": None}, {"details": True, "seed": 1}, ends("stop", "stop_sequence"), stop_at=(0.5, 3)),
    Case("stop_early", {"stop": None}, {"details": True, "seed": 1}, ends("stop", "stop_sequence"), stop_at=(0.0, 1)),
    Case("stop_included", {"stop": None, "include_stop_str_in_output": True}, {}, ends("stop", "stop_sequence"), stop_at=(0.5, 4)),
    Case("stop_seeded", {"stop": None, **SEEDED}, {}, None, stop_at=(0.4, 2)),
    Case("stop_never", {"stop": ["\u2603", "no such text"]}),
    Case("details", {"details": True, "seed": 9}, {"perf_stat": True, "decoder_input_details": True}),
    Case("full_text", {"return_full_text": True, "details": True, "seed": 9, "truncate": 5}),
    Case("top_n_tokens", {"details": True, "seed": 9, "top_n_tokens": 3}),
    Case("end_at_once", {"logit_bias": {str(EOS): 100}}, {}, is_empty),
    Case("end_after_five", {"logit_bias": {str(EOS): 100}, "min_tokens": 5}, {}, ends("stop", None)),
    Case("ignore_eos", {"logit_bias": {str(EOS): 100}, "ignore_eos": True, "max_tokens": 6}, {}, ends("length", None)),
    Case("special_shown", {"logit_bias": {str(EOS): 100}, "ignore_eos": True, "skip_special_tokens": False, "max_tokens": 4}),
    Case("logprobs", {"logprobs": 3}),
    Case("logprobs_seeded", {"logprobs": 0, **SEEDED}, PENALTIES),
    Case("logprobs_stop", {"logprobs": 2, "stop": None}, stop_at=(0.5, 3)),
    Case("half_characters", {"logit_bias": {str(i): 80 for i in BYTE_IDS}, "temperature": 1.0, "top_k": -1, "seed": 3, "logprobs": 2},
         {}, has_broken_and_whole_characters),
    Case("half_first", {"logit_bias": {str(BYTE_IDS[0]): 100}, "max_tokens": 3}, {}, has_broken_and_whole_characters),
    Case("echo", {"echo": True, "logprobs": 2}),
    Case("usage_last", {"stream_options": {"include_usage": True}}),
    Case("usage_each", {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    Case("conversation", {"messages": [{"role": "system", "content": "You tell stories."},
                                       {"role": "user", "content": [{"type": "text", "text": "A fox"}, {"type": "text", "text": " and a hen"}]},
                                       {"role": "assistant", "content": "There was a fox."}, {"role": "user", "content": "And then?"}]}),
]
PAIRS = [(c, m) for c in CASES for m in MODES if c.fits(m)]
ID_MODES = [m for m in MODES if "ids" in m.accepts]
LONG = [(n, m, p) for n in LENGTHS for m in MODES for p in ("greedy", "seeded_penalties")]
WORDS = sorted(w[1:] for w in VOCAB if w[:1] == "\u0120" and len(w) > 4 and w[1:].isascii() and w[1:].islower())  # each, behind a space, one token


def prompt_of(case, mode):
    """A prompt of its own for each case, the same for all modes of it. Its first block is shared with no other case: how much of it the
    prefix cache holds then depends on the order of the requests alone."""
    i = CASES.index(case)
    return made_up_ids(21, i) if "ids_only" in mode.accepts else f"{i * 37} foxes, {i} hens and a {case.name} lived by the old mill. One day"


def body_of(base, case, mode):
    params = {k: v for k, v in {**case.may, **case.must}.items() if k in mode.accepts}
    if case.stop_at:  # a stop string that must come: a cut out of what the model says without it
        place, n = case.stop_at
        free = {**params, "max_tokens": 24}
        del free["stop"]
        free.pop("include_stop_str_in_output", None)
        said = plain_text(base, mode.family, prompt_of(case, mode), tuple(sorted((k, str(v)) for k, v in free.items())), json.dumps(free))
        at = int(len(said) * place)
        params["stop"] = ["\u2603", said[at:at + n]]
    return mode.body(prompt_of(case, mode), **params)


@functools.lru_cache(maxsize=None)
def plain_text(base, family, prompt, _key, params):
    mode = next(m for m in MODES if m.family == family and not m.stream)
    text = mode.text(mode.ask(base, mode.body(prompt, **json.loads(params)))[2])
    return text[len(prompt) + 1:] if family == "vllm" else text


@functools.lru_cache(maxsize=None)
def reference(base, mode_name, body):
    """What the single instance answers, asked alone and once."""
    return BY_NAME[mode_name].ask(base, json.loads(body))


def compare(whole, base, mode, body, keep_cached=True):
    want = reference(whole.base, mode.name, json.dumps(body))
    got = mode.ask(base, body)
    assert want[0] == 200, want[2]
    assert got[:2] == want[:2], got[2]
    assert normal(got[2], keep_cached) == normal(want[2], keep_cached)
    return got[2]


_compared = {}


def compared(pair, mode, body):
    """What the pair answered when it was compared, which is not asked again."""
    key = pair, mode, body
    if key not in _compared:
        _compared[key] = BY_NAME[mode].ask(pair, json.loads(body))[2]
    return _compared[key]


@pytest.mark.parametrize("case,mode", PAIRS, ids=[f"{c.name}-{m}" for c, m in PAIRS])
def test_alone(pair, whole, case, mode):
    # A stop string was found by asking the single instance first, which left that prompt in its cache alone.
    body = body_of(whole.base, case, mode)
    raw = compare(whole, pair.base, mode, body, keep_cached=not case.stop_at)
    _compared[pair.base, mode.name, json.dumps(body)] = raw
    if case.check:
        case.check(mode, raw)


def long_body(n, mode, params, overhead=None):
    """A prompt of n tokens: ids, or a text for families that take no ids; overhead: tokens that the tokenizer or the chat template adds."""
    extra = {"greedy": {}, "seeded_penalties": {**SEEDED, **PENALTIES}}[params]
    ids = made_up_ids(n, 1000 + n)
    prompt = ids if overhead is None else "A" + "".join(" " + WORDS[i % len(WORDS)] for i in ids[:max(1, n - overhead) - 1])
    return mode.body(prompt, **{k: v for k, v in extra.items() if k in mode.accepts})


@functools.lru_cache(maxsize=None)
def overhead_of(base, family):
    if family != "chat":
        return 1  # the token every text begins with
    return json.loads(post(base, "/v1/chat/completions", BY_NAME["chat"].body("A", max_tokens=1)).body)["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize("n,mode,params", LONG, ids=[f"{n}-{m}-{p}" for n, m, p in LONG])
def test_prompt_length(pair, whole, n, mode, params):
    """The shortest prompt of a family that takes text is one token more than what comes before every text."""
    overhead = None if "ids" in mode.accepts else overhead_of(whole.base, mode.family)
    raw = compare(whole, pair.base, mode, long_body(n, mode, params, overhead), keep_cached=False)
    tokens = max(n, (overhead or 0) + 1)
    if mode.family in ("chat", "completions"):
        assert mode.frames(raw)[-1]["usage"]["prompt_tokens"] == tokens
    elif overhead is not None:
        text = mode.body("")  # the prompt is where this body has ""
        prompt = long_body(n, mode, params, overhead)[next(k for k, v in text.items() if v == "")]
        assert post(whole.base, "/v1/tokenizer", {"inputs": prompt, "do_decode": False}).json["token_number"] == tokens


@pytest.mark.parametrize("mode", [m for m in MODES if m.twin], ids=str)
def test_pieces_join_to_the_whole(pair, whole, mode):
    twin = BY_NAME[mode.twin]
    for case in CASES:
        if not case.fits(mode) or not case.fits(twin) or "stream_options" in case.must:
            continue
        streamed, at_once = (compared(pair.base, m.name, json.dumps(body_of(whole.base, case, m))) for m in (mode, twin))
        text = twin.text(at_once)
        if mode.family == "vllm":  # the whole answer repeats the prompt, the pieces do not
            assert text.startswith(prompt_of(case, mode) + " ")
            text = text[len(prompt_of(case, mode)) + 1:]
        if "return_full_text" not in case.must:
            assert mode.text(streamed) == text, case.name
        assert mode.finish(streamed) == twin.finish(at_once), case.name


def groups_of_eight(items):
    """Neighbours differ in family and parameters."""
    n = -(-len(items) // 8)
    return [items[i::n] for i in range(n)]


EIGHTS = groups_of_eight(PAIRS)


@pytest.mark.parametrize("group", EIGHTS, ids=[f"{i}" for i in range(len(EIGHTS))])
@pytest.mark.parametrize("where", ["split", "whole"])
def test_eight_at_once(pair, whole, group, where):
    base = pair.base if where == "split" else whole.base
    bodies = [body_of(whole.base, c, m) for c, m in group]
    for b, i in zip(bodies, range(8)):  # a Triton id may be in use once
        if "id" in b:
            b["id"] = f"client-{i}"
    for (_, m), b in zip(group, bodies):
        reference(whole.base, m.name, json.dumps(b))
    in_threads([lambda m=m, b=b: compare(whole, base, m, b, keep_cached=False) for (_, m), b in zip(group, bodies)])


@pytest.fixture(scope="module", params=[16, 512])
def other_chunks(request):
    with Cluster(extra={"BatonConfig": {"chunkTokens": request.param}}) as c:
        yield c


@pytest.mark.parametrize("params", ["greedy", "seeded_penalties"])
def test_chunk_size(other_chunks, whole, params):
    jobs = [(m, long_body(n, m, params)) for n in LENGTHS for m in ID_MODES if m.family == "completions" or n > BLOCK]
    for m, b in jobs:
        compare(whole, other_chunks.base, m, b, keep_cached=False)
    for group in groups_of_eight(jobs):
        for i, (_, b) in enumerate(group):
            if "id" in b:
                b["id"] = f"client-{i}"
        in_threads([lambda m=m, b=b: compare(whole, other_chunks.base, m, b, keep_cached=False) for m, b in group])


@pytest.fixture(scope="module", params=["int8", "int4"])
def quantised(request):
    """(split, whole) with quantised weights; the split one in chunks of 16."""
    kind = {"BatonConfig": {"weightDtype": request.param}}
    with Standalone(extra=kind) as one, Cluster(extra={"BatonConfig": {**kind["BatonConfig"], "chunkTokens": 16}}) as two:
        yield two, one


def test_quantised_weights(quantised, whole):
    """Alone and eight at once; and the answers are not those of bf16, so the setting does something."""
    split, one = quantised
    jobs = [(m, long_body(n, m, p)) for p in ("greedy", "seeded_penalties") for n in LENGTHS for m in ID_MODES
            if m.family == "completions" and not m.stream]
    for m, b in jobs:
        compare(one, split.base, m, b, keep_cached=False)
    for where in (split, one):
        in_threads([lambda m=m, b=b: compare(one, where.base, m, b, keep_cached=False) for m, b in jobs[:8]])
    texts = [[m.text(reference(base, m.name, json.dumps(b))[2]) for m, b in jobs] for base in (one.base, whole.base)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("n", [BLOCK, BLOCK + 1, 3 * BLOCK + 5, 700])
def test_warm_prefix_cache(pair, whole, n):
    mode, ids = BY_NAME["completions"], made_up_ids(n, 5000 + n)
    body = mode.body(ids, **SEEDED)
    answers = [[json.loads(mode.ask(base, body)[2]) for _ in range(3)] for base in (pair.base, whole.base)]
    cached = [[(a["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0) for a in row] for row in answers]
    assert cached[0] == cached[1] and cached[0][0] == 0
    assert cached[0][1] == cached[0][2] == (n - 1) // BLOCK * BLOCK  # whole blocks, and at least one token is computed
    assert len({a["choices"][0]["text"] for row in answers for a in row}) == 1
