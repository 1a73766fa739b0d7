"""Goal: a mixture of experts is served split as on one instance, byte for byte, and /metrics tells where its rows went.
Method: a tiny random model: one instance in standard mode reads it as a HuggingFace folder, a prefill and a decode instance as GGUF.
Prompts around a block's edge, greedy and drawn, alone and eight at once, with a cold and a warm prefix cache."""
import pytest
from families import made_up_ids
from harness import Cluster, Standalone, get
from test_metrics import Scrape
from tiny_models import answer, bodies, make_decoder, make_gguf_decoder, same_answers, with_tokenizer, write_both

LAYERS, EXPERTS, USED, NEW = 2, 6, 3, 20
BODIES = bodies((1, 16, 17, 200), 900, NEW)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    hf, gguf = write_both(tmp_path_factory.mktemp("experts"), "qwen2_moe")
    extra = {"BatonConfig": {"weightDtype": "f32", "chunkTokens": 64}}
    with Standalone(model=hf, extra=extra) as one, Cluster(model=gguf, extra=extra) as c:
        yield one, c


def test_split_is_whole(served):
    one, c = served
    same_answers([answer(one.base, body) for body in BODIES], c.base, BODIES)


def test_block_types_split_as_whole(tmp_path):
    """Nobody asks for a type: each matrix is multiplied in its own, here those of a Q4_K_M, on one instance and split."""
    make_decoder.write(str(tmp_path / "hf"), "qwen3_moe", seed=7, vocab_size=4096, max_position_embeddings=512, hidden_size=256, moe_intermediate_size=256,
                       num_experts=6, num_experts_per_tok=2)
    path = tmp_path / "gguf" / "model.gguf"
    path.parent.mkdir()
    make_gguf_decoder.write(str(tmp_path / "hf"), str(path),
                            own=lambda n: None if "ffn_gate_inp" in n else "Q6_K" if "down" in n or "attn_v" in n or n == "output.weight" else "Q4_K")
    with_tokenizer(path.parent)
    extra = {"BatonConfig": {"chunkTokens": 64}}
    with Standalone(model=str(path), extra=extra) as one:
        want = [answer(one.base, body) for body in BODIES]
    with Cluster(model=str(path), extra=extra) as c:
        same_answers(want, c.base, BODIES)


def test_metrics_tell_where_rows_went(served):
    one, c = served
    for d in (one, c.prefills[0], c.decodes[0]):
        def rows(layer):
            return {labels["expert"]: v for labels, v in s.all("moe_expert_rows_total", layer=str(layer))}
        before = Scrape(get(d.mgmt, "/metrics").text).sum("moe_expert_rows_total")
        answer(one.base if d is one else c.base, {**BODIES[0], "prompt": made_up_ids(40, 77)})
        s = Scrape(get(d.mgmt, "/metrics").text)
        assert s.types["moe_expert_rows_total"] == "counter"
        assert s.sum("moe_expert_rows_total") - before >= LAYERS * USED * (NEW - 1 if d is c.decodes[0] else 40)
        for layer in range(LAYERS):
            n = rows(layer)
            assert set(n) == {str(e) for e in range(EXPERTS)} and sum(n.values()) == sum(rows(0).values())
            imbalance, unused = s.sum("moe_expert_imbalance", layer=str(layer)), s.sum("moe_experts_unused", layer=str(layer))
            assert imbalance == pytest.approx(max(n.values()) * EXPERTS / sum(n.values())) and 1 <= imbalance <= EXPERTS / USED
            assert unused == sum(v == 0 for v in n.values())
    s = Scrape(get(c.external, "/metrics").text)
    names = {labels["instance_name"] for labels, _ in s.all("moe_expert_imbalance")}
    assert len(names) == 2 and len(s.all("moe_experts_unused")) == len(s.all("moe_expert_imbalance")) == 2 * LAYERS
    assert not s.all("moe_expert_rows_total"), "a series for each expert is the instance's alone"


def test_a_dense_model_has_no_such_series(whole):
    assert "moe_" not in get(whole.mgmt, "/metrics").text
