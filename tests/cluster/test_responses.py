"""Goal: responses are kept, whoever made them: they can be read, followed, cancelled, deleted; another one goes on behind them, by their id or by
the ids of their items; nobody sees those of another owner; the one that follows has the very prompt of the whole conversation. All of it on a
coordinator and on an instance alone. Over restarts, and while instances die, where there is a folder.
Method: each request beside its twin that sends the whole conversation itself; streams read twice, from any event on, while they run and later."""
import json
import os
import re
import signal
import threading

import pytest
from harness import ANSWER_S, Cluster, Standalone, Stream, get, post, request, wait_for

PATH = "/v1/responses"
STORY = "Tell me a story about a fox."


@pytest.fixture(scope="module", params=["pair", "whole"])
def base(request):
    return request.getfixturevalue(request.param).base


def ask(base, **more):
    return post(base, PATH, {"model": "fable", "input": STORY, "max_output_tokens": 12, "temperature": 0, **more})


def made(base, **more):
    a = ask(base, **more)
    assert a.status == 200, a.text
    return a.json


def delete(base, path, **kw):
    return request(base + path, "DELETE", **kw)


def said(response):
    return "".join(p["text"] for i in response["output"] if i["type"] == "message" for p in i["content"])


def error(a):
    e = a.json["error"]
    return a.status, e["code"], e["param"]


def numbered(raw):
    return [json.loads(d) for d in re.findall(rb"^data: (.*)$", raw, re.M)]


def test_a_response_is_there_until_it_is_deleted(base):
    r = made(base, metadata={"k": "v"})
    assert get(base, f"{PATH}/{r['id']}").json == r
    assert get(base, f"{PATH}/{r['id']}?include[]=message.output_text.logprobs").json == r
    assert post(base, f"{PATH}/{r['id']}/cancel", {}).json == r  # it is over
    assert delete(base, f"{PATH}/{r['id']}").json == {"id": r["id"], "object": "response", "deleted": True}
    for a in (get(base, f"{PATH}/{r['id']}"), delete(base, f"{PATH}/{r['id']}"), post(base, f"{PATH}/{r['id']}/cancel", {}),
              get(base, f"{PATH}/{r['id']}/input_items"), get(base, f"{PATH}/{r['id']}?stream=true")):
        assert a.status == 404 and a.json["error"]["message"] == f"Response with id '{r['id']}' not found."
    assert error(ask(base, previous_response_id=r["id"])) == (400, "previous_response_not_found", "previous_response_id")


def test_what_is_not_to_be_kept_is_not(base):
    r = made(base, store=False)
    assert get(base, f"{PATH}/{r['id']}").status == 404
    bad = ask(base, tools=[{"type": "mcp"}])
    assert bad.status == 400 and "resp_" not in bad.text


def test_a_conversation_goes_on(base):
    """Behind two others, the first of them a stream; the instructions of earlier ones do not count."""
    first = numbered(post(base, PATH, {"input": STORY, "max_output_tokens": 12, "temperature": 0, "stream": True, "instructions": "You tell stories."}).body)[-1]["response"]
    second = made(base, input=[{"role": "user", "content": [{"type": "input_text", "text": "And then?"}]}], previous_response_id=first["id"])
    third = made(base, input="Why?", previous_response_id=second["id"])
    whole = [{"role": "user", "content": STORY}, {"role": "assistant", "content": said(first)}, {"role": "user", "content": "And then?"},
             {"role": "assistant", "content": said(second)}, {"role": "user", "content": "Why?"}]
    twin = made(base, input=whole)
    assert (said(third), third["usage"]["input_tokens"]) == (said(twin), twin["usage"]["input_tokens"])
    assert third["previous_response_id"] == second["id"] and third["instructions"] is None
    # two may go on behind the same one; without the one in the middle nothing does, but the others stay
    again = made(base, input="Why?", previous_response_id=second["id"])
    assert said(again) == said(third)
    counted = post(base, f"{PATH}/input_tokens", {"input": "Why?", "previous_response_id": second["id"]})
    assert counted.json == {"object": "response.input_tokens", "input_tokens": twin["usage"]["input_tokens"]}
    assert delete(base, f"{PATH}/{second['id']}").status == 200
    assert error(ask(base, previous_response_id=third["id"])) == (400, "previous_response_not_found", "previous_response_id")
    assert get(base, f"{PATH}/{third['id']}").json == third


def test_items_by_their_ids(base):
    """As the AI SDK sends a conversation back: what the server made by its id alone, what the client said by itself."""
    first = made(base)
    (item,) = first["output"]
    by_id = [{"role": "user", "content": STORY}, {"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "Why?"}]
    in_full = [{"role": "user", "content": STORY}, item, {"role": "user", "content": "Why?"}]
    a, b = made(base, input=by_id), made(base, input=in_full)
    assert (said(a), a["usage"]["input_tokens"]) == (said(b), b["usage"]["input_tokens"])
    (asked,) = get(base, f"{PATH}/{first['id']}/input_items").json["data"]
    c = made(base, input=[{"id": asked["id"]}, {"id": item["id"], "type": None}, {"role": "user", "content": "Why?"}])
    assert (said(c), c["usage"]["input_tokens"]) == (said(a), a["usage"]["input_tokens"])
    for wrong in (item["id"] + "9", "msg_1_0", "nothing", item["id"].replace("msg", "msg_")):
        bad = ask(base, input=[{"type": "item_reference", "id": wrong}])
        assert bad.status == 404 and bad.json["error"]["message"] == f"Item with id '{wrong}' not found.", bad.text


def test_calls_and_their_outputs(base):
    tools = [{"type": "function", "name": "paint", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red"]}}, "required": ["colour"],
                                                                 "additionalProperties": False}}]
    called = made(base, tools=tools, tool_choice="required", parallel_tool_calls=False, max_output_tokens=80)
    (call,) = called["output"]
    assert json.loads(call["arguments"]) == {"colour": "red"} and call["id"] != call["call_id"]
    done = made(base, previous_response_id=called["id"], input=[{"type": "function_call_output", "call_id": call["call_id"], "output": "done"}])
    twin = made(base, input=[{"role": "user", "content": STORY}, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}])
    assert (said(done), done["usage"]["input_tokens"]) == (said(twin), twin["usage"]["input_tokens"])
    a = ask(base, previous_response_id=called["id"])
    assert a.status == 400 and a.json["error"]["message"] == f"No tool output found for function call {call['call_id']}."


def test_items_far_behind_others_are_not_looked_for_without_end(base):
    """Each costs a walk over what stands before it, on the thread that serves everybody: 32 MiB in all."""
    many = [{"type": "message", "role": "user", "content": "x" * 400} for _ in range(2000)]
    r = made(base, input=many, truncation="auto")
    number = r["id"].removeprefix("resp_")

    def names(n):
        return [{"type": "item_reference", "id": f"msg_{number}_i{1999 - i}"} for i in range(n)]
    assert ask(base, input=names(4), truncation="auto").status == 200
    a = ask(base, input=names(100), truncation="auto")
    assert error(a) == (400, "context_length_exceeded", "input") and "32 MiB" in a.text, a.text


@pytest.mark.parametrize("arguments", ['{"age": -821000000000000}', '{"who": "a fox, red as fire", "ages": [1, 2.50, 1e3]}', '{ }', "no object"])
def test_arguments_of_a_call_reach_the_prompt_as_they_are(base, arguments):
    """As in a chat with the same call: the prompt has as many tokens, and the answer is the same."""
    r = made(base, input=[{"role": "user", "content": STORY}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
                          {"type": "function_call_output", "call_id": "c", "output": "red"}])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    chat = post(base, "/v1/chat/completions", {"model": "fable", "max_tokens": 12, "temperature": 0, "messages": [
        {"role": "user", "content": STORY}, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "red"}]})
    assert chat.status == 200, chat.text
    assert (said(r), r["usage"]["input_tokens"]) == (chat.json["choices"][0]["message"]["content"], chat.json["usage"]["prompt_tokens"])


def test_input_items_in_pages(base):
    items = [{"role": "user", "content": f"Part {i}."} for i in range(5)] + [{"type": "message", "id": "msg_own", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]
    r = made(base, input=items)
    path = f"{PATH}/{r['id']}/input_items"
    everything = get(base, path + "?order=asc").json
    ids = [i["id"] for i in everything["data"]]
    assert (everything["object"], everything["has_more"], everything["first_id"], everything["last_id"]) == ("list", False, ids[0], ids[-1])
    assert len(set(ids)) == 6 and ids[-1] == "msg_own" and everything["data"][2] == {
        "id": ids[2], "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Part 2."}]}
    page = get(base, path + "?limit=2").json
    assert [i["id"] for i in page["data"]] == ids[:-3:-1] and page["has_more"] is True
    seen, after = [], ""
    while True:
        page = get(base, f"{path}?limit=4&order=asc{after}").json
        seen += [i["id"] for i in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert seen == ids
    assert error(get(base, path + "?limit=0")) == (400, "invalid_value", "limit") and error(get(base, path + "?limit=101"))[0] == 400
    assert get(base, path + "?after=msg_other").status == 404


def test_a_stream_again(base):
    """From its first event on or from any other; the events have numbers and ids that say where to go on."""
    raw = post(base, PATH, {"input": STORY, "max_output_tokens": 8, "stream": True}).body
    told = numbered(raw)
    name = told[0]["response"]["id"]
    assert told[-1]["response"] == get(base, f"{PATH}/{name}").json
    assert get(base, f"{PATH}/{name}?stream=true").body == raw
    parts = raw.split(b"\n\n")
    for n in (0, 3, len(told) - 1, len(told) + 5):
        want = b"\n\n".join(parts[n + 1:])
        assert get(base, f"{PATH}/{name}?stream=true&starting_after={n}").body == want
        assert request(f"{base}{PATH}/{name}", headers={"Last-Event-ID": f"{name}:{n}"}).body == want
    assert error(get(base, f"{PATH}/{name}?stream=true&starting_after=x")) == (400, "invalid_value", "starting_after")
    assert error(get(base, f"{PATH}/{made(base)['id']}?stream=true"))[0] == 400  # it was no stream


def begin(base, **more):
    """A long stream that has said some words, and its id."""
    s = Stream(base, PATH, {"input": STORY, "max_output_tokens": 400, "ignore_eos": True, "temperature": 0, "stream": True, **more})
    head = s.read_until(6)
    return s, head, numbered(head)[0]["response"]["id"]


def test_a_stream_that_runs(base):
    s, head, name = begin(base)
    assert get(base, f"{PATH}/{name}").json["status"] == "in_progress"
    assert error(ask(base, previous_response_id=name)) == (400, "invalid_value", "previous_response_id")
    followed = {}

    def follow():
        followed["raw"] = get(base, f"{PATH}/{name}?stream=true").body
    t = threading.Thread(target=follow)
    t.start()
    raw = s.read_all()
    t.join(ANSWER_S)
    assert followed["raw"] == raw and numbered(raw)[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize("how", ["cancel", "delete", "leave"])
def test_it_can_be_ended(base, how):
    s, _, name = begin(base)
    if how == "cancel":
        r = post(base, f"{PATH}/{name}/cancel", {}).json
        assert r["status"] == "cancelled" and r["id"] == name
    elif how == "delete":
        assert delete(base, f"{PATH}/{name}").json["deleted"] is True
    else:
        s.abandon()
    if how != "leave":
        with pytest.raises(Exception):  # the connection ends without its proper end
            s.read_all()
            raise AssertionError("the stream ended as if it were whole")
    if how == "delete":
        assert get(base, f"{PATH}/{name}").status == 404
        return
    wait_for(lambda: get(base, f"{PATH}/{name}").json["status"] == "cancelled", ANSWER_S, "the response is cancelled")
    again = made(base, input="Why?", previous_response_id=name)  # behind what it was asked
    assert again["usage"]["input_tokens"] == made(base, input=[{"role": "user", "content": STORY}, {"role": "user", "content": "Why?"}])["usage"]["input_tokens"]


# ---- restarts, deaths
def test_they_outlive_the_coordinator_and_the_instances(tmp_path):
    folder = str(tmp_path)
    with Cluster(2, 1, coord={"pd": {"responses_dir": folder}}) as c:
        first = made(c.base)
        streamed = post(c.base, PATH, {"input": "And then?", "previous_response_id": first["id"], "max_output_tokens": 6, "stream": True}).body
        name = numbered(streamed)[0]["response"]["id"]
        gone = made(c.base)
        assert delete(c.base, f"{PATH}/{gone['id']}").status == 200
        wait_for(lambda: sorted(os.listdir(folder)) == sorted(f"{i}.kept" for i in (first["id"], name)), ANSWER_S, "two files")
        open(f"{folder}/resp_torn.kept", "w").write("{}\n")
        c.coordinator.kill(signal.SIGKILL)
        c.coordinator.start()
        c.prefills[0].kill(signal.SIGKILL)
        wait_for(c.is_ready, ANSWER_S, "the next coordinator serves")
        assert get(c.base, f"{PATH}/{first['id']}").json == first and get(c.base, f"{PATH}/{name}?stream=true").body == streamed
        assert get(c.base, f"{PATH}/{gone['id']}").status == 404 and not os.path.exists(f"{folder}/resp_torn.kept")
        wait_for(lambda: ask(c.base, previous_response_id=name).status == 200, ANSWER_S, "the conversation goes on at the other instance")


def test_an_instance_alone_keeps_them_and_tells_owners_apart(tmp_path):
    keys, folder = tmp_path / "keys", tmp_path / "kept"
    folder.mkdir()
    keys.write_text("first-key-0123456789\nother-key-0123456789\n")
    keys.chmod(0o600)
    mine, other = ({"Authorization": f"Bearer {k}-key-0123456789"} for k in ("first", "other"))
    with Standalone(extra={"BatonConfig": {"responsesDir": str(folder), "apiKeysFile": str(keys)}}) as s:
        body = {"input": STORY, "max_output_tokens": 6}
        first = post(s.base, PATH, body, headers=mine).json
        path = f"{s.base}{PATH}/{first['id']}"

        def check():
            assert request(path, headers=mine).json == first
            for a in (request(path, headers=other), request(path, "DELETE", headers=other), request(path + "/input_items", headers=other)):
                assert a.status == 404
            behind = {**body, "previous_response_id": first["id"]}
            by_id = {**body, "input": [{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "x"}]}
            for ask_behind, refused in ((behind, (400, "previous_response_not_found", "previous_response_id")), (by_id, (404, "not_found", "input"))):
                assert post(s.base, PATH, ask_behind, headers=mine).status == 200
                assert error(post(s.base, PATH, ask_behind, headers=other)) == refused
        check()
        wait_for(lambda: len(os.listdir(folder)) == 3, ANSWER_S, "three files")
        s.instance.kill(signal.SIGKILL)
        s.instance.start()
        wait_for(lambda: s.instance.load(), ANSWER_S, "it serves again")
        check()
