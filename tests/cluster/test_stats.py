"""Goal: Triton's statistics (kserve-runtimes 10, 11) count what was asked for, exactly: on a coordinator whose instances share each request, and
on an instance alone, over REST and gRPC, for the model and each adapter.
Method: requests of several families that are answered, refused, stopped and left; the counts before and after, which must differ by what was asked
and be the same split and alone. Parts of a time must make up the whole.
"""
import time

import grpc
import pytest
from grpc_client import shown
from harness import ANSWER_S, Stream, get, post, wait_for

MODEL = "/v2/models/fable"
METHOD = "/inference.GRPCInferenceService/ModelStatistics"
PARTS = ("queue", "compute_input", "compute_infer", "compute_output")
ALL = ("success", "fail", *PARTS, "cache_hit", "cache_miss")


def stats(server, model="fable"):
    a = get(server.base, f"/v2/models/{model}/stats")
    assert a.status == 200, a.text
    one, = a.json["model_stats"]
    assert (one["name"], one["version"]) == (model, "1")
    assert (one["response_stats"], one["batch_stats"], one["memory_usage"]) == ({}, [], [])
    assert tuple(one["inference_stats"]) == ALL
    return one


def counts(one):
    """What may be compared of two servers."""
    s = one["inference_stats"]
    assert one["execution_count"] == s["success"]["count"] == s["queue"]["count"] == s["compute_output"]["count"]
    assert s["cache_hit"] == s["cache_miss"] == {"count": 0, "ns": 0}
    assert sum(s[p]["ns"] for p in PARTS) == s["success"]["ns"]
    return {"ok": s["success"]["count"], "failed": s["fail"]["count"], "prompts": one["inference_count"]}


def grown(server, before, ok=0, failed=0, prompts=None, model="fable"):
    """The counts of a moment later, which must be those of before and so many more."""
    want = {"ok": before["ok"] + ok, "failed": before["failed"] + failed, "prompts": before["prompts"] + (ok if prompts is None else prompts)}
    wait_for(lambda: sum(counts(stats(server, model)).values()) >= sum(want.values()), ANSWER_S, "the counts")
    assert counts(stats(server, model)) == want
    return want


def completion(server, prompt, **more):
    return post(server.base, "/v1/completions", {"model": "fable", "prompt": prompt, "max_tokens": 4, "temperature": 0, **more})


def test_counts_grow_by_what_was_asked(pair, whole):
    for s in (pair, whole):
        now = counts(stats(s))
        for path, body in (("/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4}),
                           ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}),
                           ("/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 1}}),
                           (MODEL + "/generate", {"text_input": "Once", "parameters": {"max_new_tokens": 4}}),
                           ("/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4, "n": 3, "temperature": 0.9})):
            assert post(s.base, path, body).status == 200
            now = grown(s, now, ok=1)
        assert completion(s, ["Once", "There was", "A fox"]).status == 200
        now = grown(s, now, ok=1, prompts=3)
        Stream(s.base, MODEL + "/generate_stream", {"text_input": "Once", "parameters": {"max_new_tokens": 6}}).read_all()
        now = grown(s, now, ok=1)
        for refused in (completion(s, "Once", temperature=-1), completion(s, "Once", model="nope"), post(s.base, "/generate", b"{"),
                        get(s.base, "/v1/models")):
            assert refused.status in (200, 400, 404, 422)
        assert post(s.base, "/tokenize", {"model": "fable", "prompt": "Once"}).status == 200
        grown(s, now)


def test_who_leaves_or_stops_has_failed(pair, whole):
    long = {"text_input": "Once upon a time", "parameters": {"max_new_tokens": 400, "do_sample": True, "temperature": 1.5, "ignore_eos": True}}
    for s in (pair, whole):
        now = counts(stats(s))
        st = Stream(s.base, MODEL + "/generate_stream", long)
        st.read_until(2)
        st.abandon()
        now = grown(s, now, failed=1)
        st = Stream(s.base, MODEL + "/generate_stream", {**long, "id": "stats-1"})
        st.read_until(2)
        assert post(s.base, MODEL + "/stopInfer", {"id": "stats-1"}).status == 200
        st.read_all()
        grown(s, now, failed=1)


def test_times_are_those_of_the_requests(pair, whole):
    for s in (pair, whole):
        before, began = stats(s), time.time()
        assert completion(s, "Once upon a time", max_tokens=64, ignore_eos=True).status == 200
        took, after = time.time() - began, stats(s)
        ns = {k: after["inference_stats"][k]["ns"] - before["inference_stats"][k]["ns"] for k in ALL}
        assert 0 < ns["compute_input"] and 0 < ns["compute_infer"] and ns["success"] <= took * 1e9 and ns["fail"] == 0
        assert began * 1000 - 1 <= after["last_inference"] <= time.time() * 1000 + 1


def test_grpc_tells_the_same(pair, whole, split, alone):
    for s, g in ((pair, split), (whole, alone)):
        said = get(s.base, "/v2/models/stats").json["model_stats"]
        assert [m["name"] for m in said] == ["fable"] and said == [stats(s)]
        for asked in ({"name": "fable"}, {"name": "fable", "version": "1"}, {}):
            m, = g.call(METHOD, asked).model_stats
            one, rest = stats(s), shown(m)
            assert (m.name, m.version, m.last_inference) == ("fable", "1", one["last_inference"])
            assert (m.inference_count, m.execution_count) == (one["inference_count"], one["execution_count"])
            for k in ALL:
                d = getattr(m.inference_stats, k)
                assert {"count": d.count, "ns": d.ns} == one["inference_stats"][k]
            assert not {"batch_stats", "memory_usage", "response_stats"} & set(rest)
        assert "statistics" in g.call("/inference.GRPCInferenceService/ServerMetadata", {}).extensions


def test_unknown_ones(pair, whole, split, alone):
    for s, g in ((pair, split), (whole, alone)):
        a = get(s.base, "/v2/models/nope/stats")
        assert (a.status, a.json["error"]) == (404, "Request for unknown model: 'nope' is not found")
        assert g.refusal(METHOD, {"name": "nope"}) == (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'nope' is not found")
        assert g.refusal(METHOD, {"name": "fable", "version": "2"}) == \
            (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'fable' version 2 is not found")
        assert g.refusal(METHOD, {"name": "x" * 300})[0] == grpc.StatusCode.NOT_FOUND
        assert g.refusal(METHOD, {"name": "fable\0"})[0] == grpc.StatusCode.NOT_FOUND
        assert g.refusal(METHOD, b"\x0a\xff")[0] == grpc.StatusCode.INTERNAL
        assert get(s.base, MODEL + "/versions/1/stats").json["model_stats"][0]["name"] == "fable"
        assert post(s.base, MODEL + "/stats", {}).status == 405


def test_a_key_is_asked_for(tls_pair, tls_whole):
    for s in (tls_pair, tls_whole):
        assert get(s.base, MODEL + "/stats").status == 200
        assert get(s.base, MODEL + "/stats", headers={"Authorization": "Bearer wrong"}).status == 401
