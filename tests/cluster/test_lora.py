"""Goal: adapters work at run time, whole and split: loaded, chosen by name, mixed in one batch, drained before they go; a load through
the coordinator reaches all instances or none.
Method: random PEFT adapters for the bundled model (tests/oracle/make_adapter.py); a standard instance and a cluster get the same requests
and must give the same tokens; every error of the management plane with its status and text."""
import base64
import contextlib
import json
import os
import re
import sys

import grpc
import pytest
from grpc_client import Grpc
from harness import ANSWER_S, FABLE, READY_S, ROOT, Cluster, Standalone, Stream, events, get, in_threads, post, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402

SERVICE = "/inference.GRPCInferenceService/"
PROMPT = "Once upon a time there was a small dog"
LIMITS = {"BatonConfig": {"maxLoras": 3, "maxLoraRank": 16}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{name: path} of adapters; "one" and "two" are good."""
    top = tmp_path_factory.mktemp("adapters")
    with open(os.path.join(FABLE, "config.json")) as f:
        config = json.load(f)
    wrong = {**config, "hidden_size": config["hidden_size"] + 8}
    makes = {"one": dict(seed=1, r=8), "two": dict(seed=2, r=16, targets=("q_proj", "v_proj", "down_proj")), "rank17": dict(seed=3, r=17),
             "dora": dict(seed=4, use_dora=True), "rslora": dict(seed=5, r=4, alpha=4, use_rslora=True)}
    for name, options in makes.items():
        make_adapter.write_adapter(str(top / name), config, scale=0.5, **options)
    make_adapter.write_adapter(str(top / "otherbase"), wrong, seed=6)
    make_adapter.write_adapter(str(top / "missing"), config, seed=7,
                               drop=("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight",))
    (top / "empty").mkdir()
    pairs = make_adapter.write_adapter(str(top / "same"), config, r=8, seed=1, scale=0.5)
    make_adapter.write_gguf(str(top / "same.gguf"), config, pairs, 16)
    make_adapter.write_gguf(str(top / "model.gguf"), config, pairs, 16, over={"general.type": ("str", "model")})
    return {p.name: str(p) for p in top.iterdir()}


@pytest.fixture(scope="module")
def single():
    with Standalone(extra=LIMITS) as s:
        yield s


@pytest.fixture(scope="module")
def cluster():
    with Cluster(n_p=1, n_d=1, extra=LIMITS) as c:
        yield c


@pytest.fixture(params=["single", "cluster"])
def server(request):
    """Either kind; both give base and mgmt."""
    return request.getfixturevalue(request.param)


def make_infer(prompt):
    """A ModelInferRequest's fields."""
    data = base64.b64encode(prompt.encode()).decode()
    return {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": ["1"], "contents": {"bytes_contents": [data]}}],
            "parameters": {"max_tokens": {"int64_param": 16}, "temperature": {"double_param": 0.0}}}


def load(server, name, path, **more):
    return post(server.mgmt, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more}, timeout=ANSWER_S)


def unload(server, name):
    return post(server.mgmt, "/v1/unload_lora_adapter", {"lora_name": name}, timeout=ANSWER_S)


@contextlib.contextmanager
def loaded(folders, servers, *names):
    for s in servers:
        for name in names:
            a = load(s, name, folders[name])
            assert (a.status, a.text) == (200, f"Success: LoRA adapter '{name}' added successfully."), a.text
    try:
        yield
    finally:
        for s in servers:
            for name in names:
                unload(s, name)


def completion(server, model, **more):
    return post(server.base, "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0, **more})


def text(server, model, **more):
    a = completion(server, model, **more)
    assert a.status == 200, a.text
    assert a.json["model"] == model
    return a.json["choices"][0]["text"]


def ids(server):
    return [m["id"] for m in get(server.base, "/v1/models").json["data"]]


def test_same_tokens_whole_and_split(folders, single, cluster):
    with loaded(folders, (single, cluster), "one", "two"):
        said = {}
        for model in ("fable", "one", "two"):
            said[model] = text(single, model)
            assert text(cluster, model) == said[model]
            sampled = dict(temperature=0.9, seed=11, max_tokens=24)
            assert text(cluster, model, **sampled) == text(single, model, **sampled)
            several = [completion(s, model, n=3, **sampled).json["choices"] for s in (cluster, single)]
            assert several[0] == several[1] and len(several[0]) == 3
            beams = [completion(s, model, n=3, use_beam_search=True).json["choices"] for s in (cluster, single)]
            assert beams[0] == beams[1] and len(beams[0]) == 3
        assert len(set(said.values())) == 3


def test_every_family_names_an_adapter(folders, single, cluster):
    greedy = {"max_new_tokens": 16, "do_sample": False}
    with loaded(folders, (single, cluster), "one"):
        want, base = text(single, "one"), text(single, "fable")
        for s in (single, cluster):
            a = post(s.base, "/generate", {"inputs": PROMPT, "parameters": {**greedy, "adapter_id": "one"}})
            assert a.status == 200 and a.json["generated_text"] == want, a.text
            a = post(s.base, "/generate", {"inputs": PROMPT, "parameters": {**greedy, "adapter_id": "None"}})
            assert a.status == 200 and a.json["generated_text"] == base
            for name, said in (("one", want), ("None", base), ("fable", base)):
                a = post(s.base, "/generate", {"prompt": PROMPT, "model": name, "max_tokens": 16, "temperature": 0})
                assert a.status == 200 and a.json["text"][0].endswith(said), a.text
            st = Stream(s.base, "/v1/completions", {"model": "one", "prompt": PROMPT, "max_tokens": 16, "temperature": 0, "stream": True})
            pieces = events(st.read_all())
            assert "".join(c["text"] for p in pieces for c in p["choices"]) == want
            assert {p["model"] for p in pieces} == {"one"}
        chat = {"model": "one", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12, "temperature": 0}
        a, b = (post(s.base, "/v1/chat/completions", chat).json for s in (single, cluster))
        assert a["model"] == b["model"] == "one" and a["choices"] == b["choices"]
        plain = post(single.base, "/v1/chat/completions", {**chat, "model": "fable"}).json
        assert plain["choices"][0]["message"]["content"] != a["choices"][0]["message"]["content"]


def test_adapters_are_models_of_triton(folders, single, cluster):
    """Over REST and gRPC: described, listed, loaded, and answering by their own names; unknown ones as before."""
    tensors = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [PROMPT]}], "parameters": {"max_tokens": 16, "temperature": 0.0}}
    with loaded(folders, (single, cluster), "one"):
        want = text(single, "one")
        for s in (single, cluster):
            a = post(s.base, "/v2/models/one/infer", tensors)
            assert a.status == 200 and a.json["model_name"] == "one" and a.json["outputs"][0]["data"] == [want], a.text
            a = post(s.base, "/v2/models/one/generate", {"text_input": PROMPT, "parameters": {"max_new_tokens": 16, "do_sample": False}})
            assert a.status == 200 and a.json["text_output"] == want, a.text
            assert get(s.base, "/v2/models/one").json["name"] == "one"
            with Grpc(s.base) as g:
                said = g.call(SERVICE + "ModelInfer", {**make_infer(PROMPT), "model_name": "one"})
                assert said.model_name == "one" and said.raw_output_contents[0][4:].decode() == want
                assert g.call(SERVICE + "ModelMetadata", {"name": "one"}).name == "one"
                assert g.call(SERVICE + "ModelConfig", {"name": "one"}).config.name == "one"
                assert [m.name for m in g.call(SERVICE + "RepositoryIndex", {}).models] == ["fable", "one"]
                g.call(SERVICE + "RepositoryModelLoad", {"model_name": "one"})
                assert g.refusal(SERVICE + "RepositoryModelUnload", {"model_name": "one"}) == \
                    (grpc.StatusCode.INVALID_ARGUMENT, "failed to unload 'one': LoRA adapters are unloaded over the management plane, "
                     "POST /v1/unload_lora_adapter")
                assert g.refusal(SERVICE + "ModelInfer", {**make_infer(PROMPT), "model_name": "two"}) == \
                    (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'two' is not found")
            assert post(s.base, "/v2/models/two/infer", tensors).status == 404


def test_adapters_have_statistics_of_their_own(folders, single, cluster):
    with loaded(folders, (single, cluster), "one", "two"):
        for s in (single, cluster):
            def answered():
                said = get(s.base, "/v2/models/stats").json["model_stats"]
                return {m["name"]: (m["execution_count"], m["inference_count"]) for m in said}
            before = answered()
            assert set(before) == {"fable", "one", "two"}
            for model, prompts in (("one", PROMPT), ("fable", PROMPT), ("one", [PROMPT, "A fox"])):
                assert post(s.base, "/v1/completions", {"model": model, "prompt": prompts, "max_tokens": 4}).status == 200
            more = {"fable": (1, 1), "one": (2, 3), "two": (0, 0)}
            assert answered() == {m: (before[m][0] + n, before[m][1] + k) for m, (n, k) in more.items()}
            one, = get(s.base, "/v2/models/one/stats").json["model_stats"]
            assert one["name"] == "one" and one["execution_count"] == answered()["one"][0]
            with Grpc(s.base) as g:
                assert [m.name for m in g.call(SERVICE + "ModelStatistics", {}).model_stats] == ["fable", "one", "two"]
    for s in (single, cluster):
        assert get(s.base, "/v2/models/one/stats").status == 404


def test_adapters_and_base_at_once(server, folders):
    """One batch: whatever runs beside a request, and however many tokens are guessed, its tokens stay."""
    with loaded(folders, (server,), "one", "two"):
        models = ["fable", "one", "two"]
        body = dict(prompt=PROMPT * 3, max_tokens=48)
        alone = {m: text(server, m, **body) for m in models}
        together = in_threads([lambda m=m, i=i: text(server, m, **body, prompt_lookup_num_tokens=i // 3 * 4) for i, m in enumerate(models * 4)])
        assert together == [alone[m] for m in models * 4]


def test_same_prompt_other_adapter_shares_no_prefix(server, folders):
    """A cached prefix of the base must not reach an adapter, nor one of an adapter another."""
    long = {"prompt": PROMPT + " who lived in a big house by the sea. " * 6}
    with loaded(folders, (server,), "one", "two"):
        first = {m: text(server, m, **long) for m in ("one", "two", "fable")}
        assert {m: text(server, m, **long) for m in ("fable", "two", "one")} == first


def test_models_lists_adapters(server, folders):
    assert ids(server) == ["fable"]
    with loaded(folders, (server,), "two", "one"):
        assert ids(server) == ["fable", "two", "one"]
        one = get(server.base, "/v1/models/one").json
        assert (one["id"], one["root"], one["parent"]) == ("one", "one", "fable")
        assert get(server.base, "/v1/models").json["data"][0]["parent"] is None
    assert ids(server) == ["fable"]
    assert get(server.base, "/v1/models/one").status == 404


def test_unloading_drains(server, folders):
    """A stream under way ends whole; new requests do not find the adapter; the unload answers after the stream."""
    with loaded(folders, (server,), "one"):
        want = text(server, "one", max_tokens=500, ignore_eos=True)
        body = {"model": "one", "prompt": PROMPT, "max_tokens": 500, "temperature": 0, "ignore_eos": True, "stream": True}
        st = Stream(server.base, "/v1/completions", body)
        st.read_until(2)

        def refused():
            wait_for(lambda: completion(server, "one").status != 200, ANSWER_S, "the adapter is not found")
            a = load(server, "one", folders["one"])  # an instance whose unload is over takes it again, another refuses it in its own words
            return st.raw.count(b"[DONE]"), a

        answers = in_threads([lambda: unload(server, "one"), refused, st.read_all])
        a, (before, again), raw = answers
        assert (a.status, a.text) == (200, "Success: LoRA adapter 'one' removed successfully.")
        if before == 0 and again.status != 200:  # asked while it drained
            assert again.status == 409 and re.search(r"The LoRA adapter 'one' (is waiting to unload|has already been added)\.", again.text), again.text
        assert "".join(c["text"] for p in events(raw) for c in p["choices"]) == want
        last = server.decodes[0] if hasattr(server, "decodes") else server.instance
        assert "name=one event=draining" in last.log()  # the unload met the stream
    a = unload(server, "one")
    assert (a.status, a.json["error"]) == (404, "The LoRA adapter 'one' cannot be found.")


def test_unknown_adapters(server):
    greedy = {"max_new_tokens": 4, "do_sample": False}
    a = post(server.base, "/generate", {"inputs": PROMPT, "parameters": {**greedy, "adapter_id": "nobody"}})
    assert (a.status, a.json["error"]) == (422, "The LoRA adapter 'nobody' cannot be found.")
    a = post(server.base, "/generate", {"inputs": PROMPT, "parameters": {**greedy, "adapter_id": "no body"}})
    assert (a.status, a.json["error"]) == (422, "The format of adapter_id is invalid.")
    a = post(server.base, "/generate", {"prompt": PROMPT, "model": "nobody"})
    assert a.status == 422 and "nobody" in a.json["error"]
    for path, says in (("/v1/completions", "Not found given model"), ("/v1/chat/completions", "Model not found")):
        a = post(server.base, path, {"model": "nobody", "prompt": PROMPT, "messages": [{"role": "user", "content": "x"}]})
        assert a.status == 422 and a.json["error"].startswith(says), a.text


def test_an_adapter_in_gguf_says_the_same(server, folders):
    with loaded(folders, [server], "same"):
        want = text(server, "same")
        assert want != text(server, "fable")
        a = load(server, "poet", folders["same.gguf"])
        assert (a.status, a.text) == (200, "Success: LoRA adapter 'poet' added successfully."), a.text
        try:
            assert text(server, "poet") == want
        finally:
            unload(server, "poet")


def test_what_cannot_be_loaded(server, folders):
    invalid = "Call to load LoRA method failed: The LoRA adapter 'a' is invalid."
    cases = [
        ("rank17", 400, "Call to load LoRA method failed:LoRA rank is greater than max_lora_rank."),
        ("dora", 400, invalid + " adapter_config.json: use_dora must be"),
        ("otherbase", 400, invalid + " adapter_model.safetensors: tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"),
        ("model.gguf", 400, invalid + ' model.gguf: key general.type must be "adapter", got "model"'),
        ("missing", 400, invalid + " adapter_model.safetensors: tensor base_model.model.model.layers.0.mlp.up_proj.lora_A.weight is missing"),
    ]
    for name, status, begin in cases:
        a = load(server, "a", folders[name])
        assert a.status == status and a.json["error"].startswith(begin), a.text
        assert a.json["error_type"] == "Bad Request"
    for path in (folders["empty"], folders["one"] + "/nowhere", folders["one"] + "/nowhere.gguf"):
        a = load(server, "a", path)
        assert a.status == 404 and a.json["error"].startswith(
            f"Call to load LoRA method failed:Loading LoRA 'a' failed: No adapter found for '{path}'."), a.text
    for name in ("", "a b", "a/b", "a" * 257, 7, None, "fable", "None"):
        a = load(server, name, folders["one"])
        assert (a.status, a.json["error"]) == (400, "Input invalid lora name"), name
    for path in ("", folders["one"] + "/../one", "/tmp/a b", "x" * 1024, 7, None):
        a = load(server, "a", path)
        assert (a.status, a.json["error"]) == (400, "Input invalid lora path"), path
    for member in ("master_model", "master_mode", "base_model_name"):
        a = load(server, "a", folders["one"], **{member: "gpt"})
        assert (a.status, a.json["error"]) == (404, "Model gpt not found.")
    for body in (b"{", b"[]", b""):
        for path in ("load", "unload"):
            a = post(server.mgmt, f"/v1/{path}_lora_adapter", body)
            assert (a.status, a.json["error"]) == (400, "Req body converts to json fail.")
    assert get(server.mgmt, "/v1/load_lora_adapter").status == 405
    assert ids(server) == ["fable"]


def test_names_and_places_are_taken_once(server, folders):
    with loaded(folders, (server,), "one", "two", "rslora"):
        a = load(server, "one", folders["two"])
        assert (a.status, a.json["error"]) == (409, "The LoRA adapter 'one' has already been added.")
        a = load(server, "four", folders["two"])
        assert a.status == 400 and a.json["error"] == ("Call to load LoRA method failed:The number of LoRA adapters exceeds 'max_loras', "
                                                      "and none are currently unloading.")
        assert unload(server, "two").status == 200
        a = load(server, "four", folders["two"], master_model="fable", lora_int_id=4)
        assert a.status == 200 and ids(server) == ["fable", "one", "rslora", "four"]
        assert unload(server, "four").status == 200


def test_the_services_plane_has_no_such_path(cluster, folders):
    """Adapters are the operator's (inference-api 2.1)."""
    a = post(cluster.base, "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": folders["one"]})
    assert a.status == 404


def test_all_instances_or_none(cluster, folders):
    """One instance has another adapter of that name: the load is taken back from the other one."""
    prefill, decode = cluster.prefills[0], cluster.decodes[0]
    assert load(decode, "x", folders["two"]).status == 200
    try:
        a = load(cluster, "x", folders["one"])
        assert a.status == 409 and a.json["error"].startswith("The LoRA adapter 'x' has already been added. (instance "), a.text
        assert ids(prefill) == ["fable"]
    finally:
        assert unload(decode, "x").status == 200


def test_another_adapter_on_d_is_refused(cluster, folders):
    """The hash travels with the hand-over: D never decodes with another adapter than P prefilled with."""
    prefill, decode = cluster.prefills[0], cluster.decodes[0]
    assert load(prefill, "x", folders["one"]).status == 200
    try:
        a = completion(cluster, "x")
        assert (a.status, a.json["error"]) == (422, "The LoRA adapter 'x' cannot be found."), a.text
        assert load(decode, "x", folders["two"]).status == 200
        a = completion(cluster, "x")
        assert (a.status, a.json["error"]) == (422, "The LoRA adapter 'x' is another one here."), a.text
        assert unload(decode, "x").status == 200
        assert load(decode, "x", folders["one"]).status == 200
        assert completion(cluster, "x").status == 200
    finally:
        unload(prefill, "x")
        unload(decode, "x")
    assert completion(cluster, "fable").status == 200


def test_over_tls(tls_pair, folders, single):
    with loaded(folders, (tls_pair, single), "one"):
        assert text(tls_pair, "one") == text(single, "one")


def test_an_instance_that_comes_back_gets_the_adapters(folders):
    with Cluster(n_p=1, n_d=1, extra=LIMITS) as c:
        with loaded(folders, (c,), "one", "two"):
            want = {m: text(c, m) for m in ("one", "two")}
            c.decodes[0].kill()
            wait_for(lambda: not c.serving("decode"), READY_S, "the decode instance is missed")
            c.decodes[0].start()
            wait_for(c.all_serve, READY_S, "all instances serve again")
            assert ids(c.decodes[0]) == ["fable", "one", "two"]
            assert {m: text(c, m) for m in ("one", "two")} == want


def test_a_coordinator_that_restarts_learns_the_adapters(folders):
    """It was told of none: instances say what they have, and one that comes back is given it."""
    with Cluster(n_p=1, n_d=1, extra=LIMITS) as c:
        with loaded(folders, (c,), "one", "two"):
            want = {m: text(c, m) for m in ("one", "two")}
            c.coordinator.kill()
            c.coordinator.start()
            wait_for(lambda: c.is_ready() and c.all_serve(), READY_S, "the new coordinator serves")
            assert ids(c) == ["fable", "one", "two"]
            assert {m: text(c, m) for m in ("one", "two")} == want
            assert load(c, "one", folders["two"]).status == 409
            c.decodes[0].kill()
            wait_for(lambda: not c.serving("decode"), READY_S, "the decode instance is missed")
            c.decodes[0].start()
            wait_for(c.all_serve, READY_S, "all instances serve again")
            assert ids(c.decodes[0]) == ["fable", "one", "two"]
            assert {m: text(c, m) for m in ("one", "two")} == want
            assert unload(c, "one").status == 200
            assert [ids(i) for i in c.instances] == [["fable", "two"]] * 2


def test_an_adapter_of_one_configuration_is_given_to_all(folders):
    with Cluster(n_p=1, n_d=1, extra=LIMITS) as c:
        prefill = c.prefills[0]
        prefill.kill()
        prefill.conf["BatonConfig"]["loraModules"] = [f"one={folders['one']}"]
        c.coordinator.kill()
        prefill.start()
        c.coordinator.start()
        wait_for(lambda: c.is_ready() and c.all_serve(), READY_S, "all serve")
        assert [ids(i) for i in c.instances] == [["fable", "one"]] * 2
        assert text(c, "one") != text(c, "fable")


def test_adapters_of_the_configuration(folders):
    modules = [f"{name}={folders[file]}" for name, file in (("one", "same.gguf"), ("two", "two"))]
    extra = {"BatonConfig": {"loraModules": modules, "loraLegacyStatus": True}}
    with Standalone(extra=extra) as s:
        assert ids(s) == ["fable", "one", "two"]
        assert text(s, "one") != text(s, "fable")
        # loraLegacyStatus: the statuses of the reference
        a = load(s, "one", folders["one"])
        assert (a.status, a.text) == (200, "The LoRA adapter 'one' has already been added.")
        assert a.headers["Content-Type"].startswith("application/json")
        a = load(s, "a", folders["dora"])
        assert (a.status, a.text) == (200, "Call to load LoRA method failed: The LoRA adapter 'a' is invalid.")
        assert (load(s, "a b", "x").status, load(s, "a b", "x").text) == (503, "Input invalid lora name")
        assert (load(s, "a", "x y").status, load(s, "a", "x y").text) == (503, "Input invalid lora path")


def test_adapters_switched_off(folders):
    with Standalone(extra={"BatonConfig": {"maxLoras": 0}}) as s:
        a = load(s, "one", folders["one"])
        assert a.status == 501 and "maxLoras" in a.json["error"]
        assert completion(s, "fable").status == 200
