"""Goal: programs written against @grpc/grpc-js, with the .proto files of proto/grpc/, work against a cluster, in clear and under TLS: TGIS and Triton
whole and streamed, errors in a call and at its end, deadlines, calls that are cancelled.
Method: the npm package, pinned; tests/cluster/npm/grpc_client.mjs runs all steps in one process, one in clear and one under TLS side by side, and
prints what the client gave it; the judging happens here. What an abort leaves is waited for.
"""
import npm_clients
import pytest
from grpc_client import PROTO
from harness import ANSWER_S, in_threads, post, wait_for

OK, CANCELLED, INVALID, LATE, UNKNOWN, NO_KEY = 0, 1, 3, 4, 5, 16


@pytest.fixture(scope="module")
def seen(pair, tls_pair, pki):
    npm_clients.install()
    tls = {"API_KEY": pki.keys[0], "CA": pki.file("user", "ca.pem"), "CERT": pki.file("user", "client.pem"), "KEY": pki.file("user", "client.key"),
           "PASS": pki.password("user", "client")}
    steps = "whole stream infer errors stranger abort"
    told = in_threads([lambda c=c, env=env: npm_clients.run("grpc_client.mjs", c.base, steps, {"PROTO": PROTO, **env}) for c, env in ((pair, {}), (tls_pair, tls))])
    return dict(zip(("clear", "tls"), told))


@pytest.fixture(params=["clear", "tls"])
def one(request, seen):
    return seen[request.param]


def test_a_stream_adds_up(one, pair):
    text = one["whole"]["text"]
    ours = post(pair.base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}).json["choices"][0]
    assert text == ours["text"] and one["whole"]["generated_token_count"] == 12 and one["whole"]["stop_reason"] == "MAX_TOKENS"
    s = one["stream"]
    assert (s["status"], s["error"]) == (OK, None) and "".join(m["text"] for m in s["messages"]) == text
    assert len(s["messages"]) > 8 and s["messages"][-1]["generated_token_count"] == 12 and s["messages"][-1]["stop_reason"] == "MAX_TOKENS"


def test_many_requests_on_one_call(one):
    """Each by its id; one that is refused says so in its place, and those behind it are served."""
    seen, text = one["infer"], one["whole"]["text"]
    assert (seen["status"], seen["error"]) == (OK, None)
    by_id = {i: [m for m in seen["messages"] if m["id"] == i] for i in ("a", "b", "bad", "c")}
    assert sum(map(len, by_id.values())) == len(seen["messages"])
    assert "".join(m["text"] for m in by_id["a"]) == text and len(by_id["a"]) > 8
    for i in ("a", "b", "c"):
        assert text.startswith("".join(m["text"] for m in by_id[i])) and [m["last"] for m in by_id[i]] == [False] * (len(by_id[i]) - 1) + [True]
    assert len(by_id["bad"]) == 1 and "top_p" in by_id["bad"][0]["error"]


def test_errors(one):
    e = one["errors"]
    assert e["range"]["code"] == e["stream"]["status"] == e["stream"]["error"]["code"] == INVALID and not e["stream"]["messages"]
    assert e["range"]["details"] == e["stream"]["error"]["details"] == "max_new_tokens must be <= 512"
    assert (e["model"]["code"], e["model"]["details"].split(": ")[-1]) == (UNKNOWN, "'nope' is not found")
    assert e["late"]["status"] == LATE


def test_a_key_is_asked_for_under_tls(seen):
    assert seen["clear"]["stranger"]["status"] == OK and seen["tls"]["stranger"]["status"] == NO_KEY and not seen["tls"]["stranger"]["messages"]


def test_aborts_free_their_places(one, pair, tls_pair):
    for seen in one["abort"].values():
        assert seen["status"] == CANCELLED and seen["error"]["code"] == CANCELLED and 3 <= len(seen["messages"]) < 300
    for c in (pair, tls_pair):
        wait_for(lambda c=c: all(i.load()[2:] == (0, 0, 0) for i in c.prefills + c.decodes), ANSWER_S, "nothing of it is under way")
