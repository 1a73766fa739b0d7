"""Goal: programs written against the clients of npm (openai with its Responses, @anthropic-ai/sdk, ollama, @ai-sdk/openai, @langchain/openai) work
through a coordinator with TLS and keys as they do in clear: each streams, calls a tool, gives up a stream, meets an error.
Method: one cluster with TLS on every plane, whose users show a key and no certificate; the programs of tests/cluster/npm with the CA and the key in
their environment, all at once; the judging happens here.
"""
import json

import npm_clients
import pytest
from harness import ANSWER_S, Cluster, get, in_threads, wait_for
from pki import KEY

STEPS = {"openai_client.mjs": "responses chat chat_stream tools errors embeddings abort",
         "anthropic_client.mjs": "whole stream tools errors abort",
         "ollama_client.mjs": "chat chat_stream tools errors abort",
         "ai_sdk_client.mjs": "whole stream tools errors abort",
         "langchain_client.mjs": "whole responses stream tools errors abort"}
NOBODYS = "nobody-knows-this-key"
# how a client says that its key is unknown
UNKNOWN = {"openai_client.mjs": ("chat", "AuthenticationError"), "anthropic_client.mjs": ("whole", "AuthenticationError"),
           "ollama_client.mjs": ("chat", "ResponseError"), "ai_sdk_client.mjs": ("whole", "AI_APICallError"),
           "langchain_client.mjs": ("whole", "AuthenticationError")}


def environment(pki, key=KEY):
    return {"NODE_EXTRA_CA_CERTS": pki.file("user", "ca.pem"), "OPENAI_API_KEY": key, "API_KEY": key}


@pytest.fixture(scope="module")
def cluster(pki):
    npm_clients.install()
    with Cluster(pki=pki, coord={"coordinator": {"tls_config": {"client_certificates": "optional"}}}) as c:
        assert c.base.startswith("https:") and get(c.base, "/v1/models", headers={"Authorization": f"Bearer {NOBODYS}"}).status == 401
        yield c


@pytest.fixture(scope="module")
def seen(cluster, pki):
    """{program: {step: what it printed}}; nothing that was given up goes on."""
    env = environment(pki)
    told = in_threads([lambda p=p, s=s: npm_clients.run(p, cluster.base, s, env) for p, s in STEPS.items()])
    wait_for(lambda: get(cluster.base, "/load").json == {"server_load": 0}, ANSWER_S, "nothing of it is under way")
    return dict(zip(STEPS, told))


# ---- what each client gave its program: (text, pieces of a stream of the same, calls of a tool, how an abort ended, (status, words) of an error)
def of_openai(s):
    chunks = [c["choices"][0]["delta"].get("content") or "" for c in s["chat_stream"]["chunks"] if c["choices"]]
    r, e = s["responses"], s["errors"]["stream"]
    assert r["whole"]["output_text"] == r["helper"]["output"][0]["content"][0]["text"] != "" and r["types"].count("response.output_text.delta") > 5
    assert r["seen"] >= 5 and r["abort"]["class"] == "APIUserAbortError" and type(r["arguments"]["tame"]) is bool
    assert (r["refused"]["class"], r["refused"]["param"]) == ("BadRequestError", "tools[0].type")
    assert [len(d["embedding"]) for d in s["embeddings"]["plain"]["data"]] == [len(d["embedding"]) for d in s["embeddings"]["float"]["data"]]
    calls = [s["tools"][k]["choices"][0]["message"]["tool_calls"][0]["function"] for k in ("whole", "streamed")]
    return (s["chat"]["choices"][0]["message"]["content"], chunks, [(c["name"], json.loads(c["arguments"])) for c in calls], s["abort"]["error"]["class"],
            (e["status"], e["message"]))


def of_anthropic(s):
    assert s["stream"]["message"]["content"] == s["whole"]["content"]
    e = s["errors"]["range"]
    return (s["whole"]["content"][0]["text"], s["stream"]["texts"], [(b["name"], b["input"]) for k in ("whole", "streamed") for b in s["tools"][k]],
            s["abort"]["class"], (e["status"], e["message"]))


def of_ollama(s):
    calls = s["tools"]["whole"] + [c for p in s["tools"]["streamed"] for c in p["message"].get("tool_calls", [])]
    e = s["errors"]["option"]
    assert 3 <= s["abort"]["n"] < 20 and s["errors"]["stream"]["status"] == 404
    return (s["chat"]["message"]["content"], [p["message"]["content"] for p in s["chat_stream"]],
            [(c["function"]["name"], c["function"]["arguments"]) for c in calls], s["abort"]["name"], (e["status"], e["message"]))


def of_ai_sdk(s):
    assert s["whole"]["provider"] == "openai.responses"
    e = s["errors"]["range"]
    return (s["whole"]["text"], s["stream"]["texts"], [(c["toolName"], c["input"]) for k in ("whole", "streamed") for c in s["tools"][k]], s["abort"],
            (e["status"], e["message"]))


def of_langchain(s):
    assert s["responses"] == s["whole"]["text"] and s["abort"]["pieces"] >= 2
    e = s["errors"]["range"]
    return (s["whole"]["text"], s["stream"], [(c["name"], c["args"]) for k in ("whole", "streamed") for c in s["tools"][k]], s["abort"]["error"]["name"],
            (e["status"], e["message"]))


CLIENTS = {
    "openai_client.mjs": (of_openai, {"APIUserAbortError"}, (422, "top_p")),
    "anthropic_client.mjs": (of_anthropic, {"APIUserAbortError"}, (400, "max_tokens")),
    "ollama_client.mjs": (of_ollama, {"AbortError"}, (400, "top_p")),
    "ai_sdk_client.mjs": (of_ai_sdk, {"abort"}, (400, "top_p")),
    "langchain_client.mjs": (of_langchain, {"AbortError", "ModelAbortError"}, (422, "top_p")),
}


@pytest.mark.parametrize("program", CLIENTS)
def test_a_client_works_as_in_clear(cluster, pki, seen, program):
    read, aborts, (status, word) = CLIENTS[program]
    text, pieces, calls, abort, error = read(seen[program])
    assert len(text) > 20 and "".join(pieces) == text and len([p for p in pieces if p]) > 8
    assert len(calls) >= 2 and all(name == "paint" and args["colour"] in ("red", "green", "blue") for name, args in calls), calls
    assert abort in aborts and error[0] == status and word in error[1], (abort, error)
    step, name = UNKNOWN[program]
    r = npm_clients.start(program, cluster.base, step, environment(pki, NOBODYS))
    assert r.returncode != 0 and name in r.stderr and "Incorrect API key" in r.stderr, r.stderr


def test_all_have_the_same_answer(seen):
    """Greedy, of one prompt, over Messages, Ollama's chats, Responses and chats."""
    texts = {p: CLIENTS[p][0](seen[p])[0] for p in CLIENTS if p != "openai_client.mjs"}  # whose conversation has a system message
    assert len(set(texts.values())) == 1, texts
