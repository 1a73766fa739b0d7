"""Whose a request is: ids that cannot be guessed and belong to the key that made them, and a prefix cache that tells one key nothing of
another's prompts. Each against a cluster and against a standalone instance."""
import contextlib
import os
import shutil
import tempfile

import pytest
from harness import Cluster, Standalone, Stream, events, get, post, wait_for

A, B = "alpha-key-0123456789", "beta-key-0123456789"
STOP = "/v2/models/fable/stopInfer"
STORY = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 480, "temperature": 0.8, "stream": True}
WAIT_S = 30


def as_(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module", params=["cluster", "standalone"])
def keyed(request):
    folder = tempfile.mkdtemp(prefix="baton-keys-")
    path = os.path.join(folder, "keys")
    with open(path, "w") as f:
        f.write(f"{A}\n{B}\n")
    os.chmod(path, 0o600)
    try:
        with (Cluster(coord={"coordinator": {"apiKeysFile": path}}) if request.param == "cluster"
              else Standalone(extra={"BatonConfig": {"apiKeysFile": path}})) as c:
            yield c
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def story(c, key, **more):
    s = Stream(c.base, "/v1/completions", {**STORY, **more}, headers=as_(key))
    try:
        s.read_until(1)
        yield s, events(s.raw)[0]["id"]
    finally:
        s.conn.close()


def stop(c, key, req_id):
    return post(c.base, STOP, {"id": req_id}, headers=as_(key))


def number(req_id):
    return int(req_id.removeprefix("endpoint_common_"))


def test_an_id_is_stopped_by_its_key_alone(keyed):
    with story(keyed, A) as (s, req_id):
        a = stop(keyed, B, req_id)
        assert a.status == 404 and a.json["error"] == f"Stop request id {req_id} not found."
        assert stop(keyed, B, req_id).status == 404  # nor does the attempt hide it from its owner
        n = len(s.raw)
        s.read_until(3)
        assert len(s.raw) > n  # it goes on
        assert stop(keyed, A, req_id).status == 200
        assert events(s.read_all())[-1]["choices"][0]["finish_reason"] == "stop"


def test_two_keys_may_use_one_client_id(keyed):
    """A client's own id is its key's: no clash, and each stops its own."""
    with story(keyed, A, request_id="same") as (first, _), story(keyed, B, request_id="same") as (second, _):
        assert stop(keyed, B, "same").status == 200
        assert events(second.read_all())[-1]["choices"][0]["finish_reason"] == "stop"
        first.read_until(3)
        assert stop(keyed, A, "same").status == 200
        assert events(first.read_all())[-1]["choices"][0]["finish_reason"] == "stop"


def test_triton_ids_clash_within_a_key_only(keyed):
    path = "/v2/models/fable/generate_stream"
    body = {"text_input": "Once upon a time", "id": "mine", "parameters": {"max_new_tokens": 480, "temperature": 0.9, "do_sample": True}}
    s = Stream(keyed.base, path, body, headers=as_(A))
    s.read_until(1)
    assert post(keyed.base, path, body, headers=as_(A)).status in (400, 500)  # coordinator; instance
    other = Stream(keyed.base, path, body, headers=as_(B))
    other.read_until(1)
    assert other.status == 200
    assert stop(keyed, B, "mine").status == 200 and stop(keyed, A, "mine").status == 200
    for x in (s, other):
        x.read_all()


def test_an_id_that_looks_like_another_s_request(keyed):
    """B calls its request by the id of A's: what B does with it stays B's."""
    with story(keyed, A) as (s, req_id), story(keyed, B, request_id=req_id) as (mine, _):
        assert stop(keyed, B, req_id).status == 200
        assert events(mine.read_all())[-1]["choices"][0]["finish_reason"] == "stop"
        s.read_until(4)
        assert stop(keyed, A, req_id).status == 200
        s.read_all()


def test_ids_do_not_follow_from_each_other(keyed):
    ids = [number(post(keyed.base, "/v1/completions", {**STORY, "max_tokens": 1, "stream": False}, headers=as_(A)).json["id"]) for _ in range(6)]
    assert len(set(ids)) == 6 and all(0 < i < 1 << 63 for i in ids)
    steps = [b - a for a, b in zip(ids, ids[1:])]
    assert min(abs(s) for s in steps) > 1 << 32, ids  # a counter has steps of 1, a clock of some millions
    assert max(ids) > 1 << 56  # all 63 bits are used


BLOCK = 16  # cacheBlockSize


def cached(c, key, prompt):
    a = post(c.base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": 2, "temperature": 0}, headers=as_(key))
    assert a.status == 200, a.text
    return a.json["usage"]["prompt_tokens_details"]["cached_tokens"], a.json["choices"][0]["text"]


def test_prefix_blocks_belong_to_a_key(keyed):
    prompt = " ".join(f"secret{i}" for i in range(40))
    first = cached(keyed, A, prompt)
    assert first[0] == 0
    assert cached(keyed, B, prompt) == (0, first[1])  # computed anew, with the same answer
    hit = cached(keyed, A, prompt)
    assert hit[0] >= 64 and hit[1] == first[1]
    assert cached(keyed, B, prompt) == hit


def test_the_internal_header_is_not_a_clients(keyed):
    """baton-tenant of a client is neither obeyed nor passed on: B does not reach A's blocks with it."""
    prompt = " ".join(f"hidden{i}" for i in range(40))
    tenant = "key-00112233445566778899aabbccddeeff"
    for key in (A, B):
        a = post(keyed.base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": 2, "temperature": 0},
                 headers={**as_(key), "baton-tenant": tenant})
        assert a.status == 200 and a.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_d_holds_no_blocks_of_another_key(keyed):
    """What P need not send because D holds it, or need not compute since D has it and computes the rest itself, is D's owner's too."""
    if isinstance(keyed, Standalone):
        pytest.skip("no hand-over")
    prompt = " ".join(f"moved{i}" for i in range(40))

    def held():
        wait_for(lambda: get(keyed.mgmt, "/v2/status").json["recentRequests"], WAIT_S, "a record")
        record = get(keyed.mgmt, "/v2/status").json["recentRequests"][0]
        return record["cachedTokens"] // BLOCK if record["p"] == record["d"] else record["kvBlocksHeld"]

    seen = []
    for key in (A, B, A, B):
        cached(keyed, key, prompt)
        seen.append(held())
    assert seen[:2] == [0, 0] and seen[2] >= 4 and seen[3] >= 4, seen


def test_sharing_on_purpose():
    folder = tempfile.mkdtemp(prefix="baton-keys-")
    path = os.path.join(folder, "keys")
    with open(path, "w") as f:
        f.write(f"{A}\n{B}\n")
    os.chmod(path, 0o600)
    try:
        with Standalone(extra={"BatonConfig": {"apiKeysFile": path, "prefixCacheScope": "all"}}) as s:
            prompt = " ".join(f"shared{i}" for i in range(40))
            assert cached(s, A, prompt)[0] == 0
            assert cached(s, B, prompt)[0] >= 64
    finally:
        shutil.rmtree(folder)
