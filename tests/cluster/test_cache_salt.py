"""Goal: prompt blocks are shared by requests of one owner that send the same cache_salt, and by no others: no salt is another's blocks, nor is a
salt that is spelt as an owner's name; on Chat, Completions and Responses, on one instance and split.
Method: how many tokens of a prompt an answer says it found (cached_tokens).
"""
import hashlib
import itertools

import pytest
from harness import Cluster, Standalone, post
from pki import Pki

BLOCK = 128
KEYS = ("first-key-0123456789abcdef", "second-key-0123456789abcdef")
OPENAI = {"BatonConfig": {"errorStyle": "openai"}}
COORDINATOR = {"coordinator": {"errorStyle": "openai"}}
fresh = itertools.count(1)


def prompt():
    """Two blocks and a bit that no test has sent before."""
    n = next(fresh)
    return " ".join(f"The fox number {n} met hare {i}." for i in range(40))


def completions(text, **more):
    return "/v1/completions", {"model": "fable", "prompt": text, "max_tokens": 1, **more}


def chat(text, **more):
    return "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": text}], "max_tokens": 1, **more}


def responses(text, **more):
    return "/v1/responses", {"model": "fable", "input": text, "max_output_tokens": 1, "store": False, **more}


def cached(base, ask, headers=None):
    path, body = ask
    a = post(base, path, body, headers=headers)
    assert a.status == 200, a.text
    usage = a.json["usage"]
    return (usage.get("input_tokens_details") or usage.get("prompt_tokens_details"))["cached_tokens"]


@pytest.fixture(scope="module")
def servers():
    with Standalone(extra=OPENAI) as one, Cluster(extra=OPENAI, coord=COORDINATOR) as two:
        yield {"one": one, "split": two}


@pytest.mark.parametrize("where", ["one", "split"])
@pytest.mark.parametrize("family", [completions, chat, responses], ids=["completions", "chat", "responses"])
def test_only_the_same_salt_shares(servers, where, family):
    base, text = servers[where].base, prompt()
    first = [cached(base, family(text, **more)) for more in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "b "})]
    again = [cached(base, family(text, **more)) for more in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "b "}, {"cache_salt": None})]
    assert first == [0, 0, 0, 0] and min(again) >= 2 * BLOCK and len(set(again)) == 1, (first, again)


@pytest.mark.parametrize("where", ["one", "split"])
def test_families_share_under_a_salt(servers, where):
    """A salt is the request's, not the path's: what a chat has left a response finds."""
    base, text = servers[where].base, prompt()
    assert cached(base, chat(text, cache_salt="mine")) == cached(base, responses(text)) == 0
    assert cached(base, responses(text, cache_salt="mine")) >= 2 * BLOCK


@pytest.mark.parametrize("where", ["one", "split"])
def test_what_is_no_salt(servers, where):
    base = servers[where].base
    for family in (completions, chat, responses):
        for salt, text in (("", "1 to 256 bytes"), ("x" * 257, "1 to 256 bytes"), ("a\0b", "1 to 256 bytes"), (5, "must be string"), (["a"], "must be string")):
            path, body = family("hi", cache_salt=salt)
            a = post(base, path, body)
            assert a.status == 400 and a.json["error"]["param"] == "cache_salt" and text in a.json["error"]["message"], a.text
        assert cached(base, family("hi", cache_salt="ä" * 128)) == 0


@pytest.fixture(scope="module", params=["one", "split"])
def owned(request):
    with Pki(keys=KEYS) as pki:
        maker = (lambda: Standalone(extra=OPENAI, pki=pki)) if request.param == "one" else (lambda: Cluster(extra=OPENAI, coord=COORDINATOR, pki=pki))
        with maker() as server:
            yield server


def test_an_owner_is_no_salt(owned):
    """Neither an equal salt nor one that is spelt as the other's name, its key or the hash of it leads to another owner's blocks."""
    first, second = ({"Authorization": f"Bearer {k}"} for k in KEYS)
    text = prompt()
    assert cached(owned.base, completions(text), first) == 0 and cached(owned.base, completions(text, cache_salt="s"), first) == 0
    digest = hashlib.sha256(KEYS[0].encode()).hexdigest()
    for salt in (None, "s", KEYS[0], digest, "key-" + digest[:32]):
        assert cached(owned.base, completions(text, cache_salt=salt), second) == 0, salt
        assert cached(owned.base, completions(text, cache_salt=salt), second) >= 2 * BLOCK, salt
    assert cached(owned.base, completions(text), first) >= 2 * BLOCK and cached(owned.base, completions(text, cache_salt="s"), first) >= 2 * BLOCK
