"""Goal: every decoder family computes what its definition says, in every kernel set, and what must not matter does not.
Method: a tiny random model of each (make_decoder.py) run by $BUILD/tests/oracle/logits and by an independent float64 forward pass
(reference_decoder.py): logits within 1e-4 of the largest, 64 greedy tokens equal. A reference that forgets one fact of its family must fall
outside: that is the test of the test."""
import json
import os
import subprocess

import numpy as np
import pytest

import make_adapter
import make_decoder
import make_gguf_decoder
import make_model
import reference
import reference_decoder
from test_engine import KERNELS, LOGITS, TOLERANCE, prompt, run, worst

PROMPT, NEW = 40, 64
TOKENS = {"phi3_long": 104, "phi4_mini": 104, "internlm2": 104, "dynamic": 104}


class Case:
    def __init__(self, folder, family):
        self.folder, self.family = folder, family
        make_decoder.write(str(folder), family, seed=7)
        self.config, self.tensors = reference.read_model(str(folder))
        text = self.config.get("text_config", self.config)
        self.ids = prompt({"vocab_size": text.get("vocab_size", 262208)}, PROMPT)
        self.n_tokens = TOKENS.get(family, 0)
        self.logits, self.tokens, _ = self.run(NEW)
        self.wanted = self.reference(self.ids + self.tokens)

    def run(self, greedy=0, **options):
        return run(self.folder, self.ids, greedy, tokens=self.n_tokens, **options)

    def reference(self, ids, config=None, **options):
        return reference_decoder.logits(config or self.config, self.tensors, ids, self.n_tokens, **options)


CASES = {}
WIDE = "baichuan2"  # its lm_head is known by the size of the vocabulary, which makes every run slow: one is enough


@pytest.fixture(params=sorted(make_decoder.FAMILIES))
def case(request, tmp_path_factory):
    if request.param not in CASES:
        CASES[request.param] = Case(tmp_path_factory.mktemp("decoder"), request.param)
    return CASES[request.param]


def test_logits_and_greedy_tokens(case):
    assert worst(case.logits, case.wanted[:PROMPT]) < TOLERANCE
    assert case.tokens == [int(t) for t in np.argmax(case.wanted[PROMPT - 1:-1], axis=1)]


def test_bits_do_not_depend_on_chunks_blocks_threads_or_neighbours(case):
    if case.family == WIDE:
        return
    for kv in ("f32", "int8"):
        base, tokens, _ = case.run(8, kv=kv, chunk=1, block=1)
        got, again, _ = case.run(8, kv=kv, chunk=16, block=7, threads=2, beside=5)
        assert got.tobytes() == base.tobytes() and again == tokens
    assert not np.array_equal(base, case.logits), "int8 KV rounds"


def test_narrow_weights_and_kv_stay_close(case):
    if case.family == WIDE:
        return
    wanted = case.wanted[:PROMPT]
    deep = 2 if case.config.get("num_hidden_layers", 1) > 30 else 1
    experts = "num_experts_per_tok" in case.config
    for weights, kv, near in (("bf16", "bf16", 0.08), ("f32", "bf16", 0.03), ("f32", "int8", 0.06)):
        got = case.run(weights=weights, kv=kv)[0]
        # What rounds may send a row whose choice is narrow to another expert: of such models it is the row in the middle that must be near.
        far = np.median(np.abs(got - wanted).max(axis=1)) / np.abs(wanted).max() if experts else worst(got, wanted)
        assert far < near * deep, (weights, kv)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("family", ["gemma2", "gemma3", "cohere_plus", "olmo2", "phi4_mini", "qwen2_moe"])
def test_kernel_sets_agree(family, kernels, tmp_path_factory):
    if family not in CASES:
        CASES[family] = Case(tmp_path_factory.mktemp("decoder"), family)
    case = CASES[family]
    assert worst(case.run(kernels=kernels)[0], case.wanted[:PROMPT]) < TOLERANCE


# Not in GGUF: dynamic NTK; factors that llama.cpp takes by the size of the model.
GGUF = [f for f in sorted(make_decoder.FAMILIES) if f not in ("llama4_seeing", "dynamic", "internlm2", "gemma2", "gemma3", "gemma3_seeing", "baichuan_alibi", "granite4_moe", "qwen3_moe_stacked", "deepseek_v3_stacked",
                                                                      "qwen3_moe_mixed", WIDE)]


@pytest.mark.parametrize("family", GGUF + ["internlm2", "gemma2", "gemma3"])
def test_gguf_files_give_the_same(tmp_path, family):
    over = {"internlm2": {"rope_scaling": None}, "gemma2": {"query_pre_attn_scalar": 24}, "gemma3": {"query_pre_attn_scalar": 24},
            "gpt_oss": {"swiglu_limit": 7.0}}  # llama.cpp has no key for it
    make_decoder.write(str(tmp_path / "hf"), family, seed=7, **over.get(family, {}))
    path = str(tmp_path / "model.gguf")
    config, tensors = make_gguf_decoder.write(str(tmp_path / "hf"), path)
    text = config.get("text_config", config)
    ids = prompt(text, PROMPT)
    got, _, _ = run(tmp_path, ids, model=path, tokens=TOKENS.get(family, 0))
    assert worst(got, reference_decoder.logits(config, tensors, ids, TOKENS.get(family, 0))) < TOLERANCE


# A fact of each family, and the config by which the reference forgets it.
FORGOTTEN = {
    "phi3": [{"sliding_window": None}],
    "phi3_long": [{"original_max_position_embeddings": 255}, {"rope_scaling": None}],
    "phi4_mini": [{"original_max_position_embeddings": 255}],
    "gemma2": [{"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"query_pre_attn_scalar": 24}, {"sliding_window": None},
               {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}],
    "gemma3": [{"rope_scaling": None}, {"rope_local_base_freq": 1e6}, {"sliding_window_pattern": 2}, {"sliding_window": 18}],
    "granite": [{"embedding_multiplier": 1.0}, {"attention_multiplier": 0.2}, {"residual_multiplier": 1.0}, {"logits_scaling": 1.0}],
    "granite4": [{"position_embedding_type": "nope"}],
    "smollm3": [{"no_rope_layers": [1, 1, 1, 1]}],
    "olmo3": [{"rope_scaling": None}, {"sliding_window": None}],
    "exaone4": [{"sliding_window": None}],
    "glm4": [{"partial_rotary_factor": 1.0}],
    "cohere": [{"logit_scale": 0.0625}],
    "cohere2": [{"sliding_window": 16}],
    "internlm2": [{"rope_scaling": None}],
    "exaone": [{"rope_scaling": None}],
    "dynamic": [{"rope_scaling": None}],
    "mixtral": [{"num_experts_per_tok": 1}],
    "qwen2_moe": [{"norm_topk_prob": True}, {"num_experts_per_tok": 2}, {"shared_expert_intermediate_size": 0}],
    "qwen3_moe": [{"norm_topk_prob": False}],
    "olmoe": [{"norm_topk_prob": True}],
    "granite_moe": [{"num_experts_per_tok": 2}, {"residual_multiplier": 1.0}],
    "granite_shared": [{"shared_intermediate_size": 0}],
    "deepseek_v2": [{"rope_scaling": None}, {"norm_topk_prob": True}, {"n_shared_experts": 0},
                    {"rope_scaling": {**make_decoder.deepseek_yarn(0.707), "mscale_all_dim": 0.0, "attention_factor": 1.0}}],
    "deepseek_v2_groups": [{"topk_method": "greedy"}, {"routed_scaling_factor": 1.0}, {"topk_group": 3}],
    "deepseek_v3": [{"topk_method": "group_limited_greedy"}, {"scoring_func": "softmax"}, {"topk_group": 4}, {"rms_norm_eps": 0.05}],
    "glm4_moe": [{"topk_group": 4}, {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"n_shared_experts": 0}, {"partial_rotary_factor": 1.0}],
    "llama4": [{"attention_chunk_size": 12}, {"attention_chunk_size": 14}, {"attention_chunk_size": None}, {"use_qk_norm": False},
               {"attn_temperature_tuning": False}, {"floor_scale": 8}, {"attn_scale": 0.5}, {"no_rope_layers": [1, 1, 1, 1]}, {"rope_scaling": None},
               {"num_experts_per_tok": 2}],
    "llama4_turns": [{"use_qk_norm": True}, {"num_experts_per_tok": 1}],
    "gpt_oss": [{"swiglu_limit": 7.0}, {"sliding_window": None}, {"swiglu_alpha": 1.0},
                {"layer_types": ["full_attention", "sliding_attention"]}, {"rope_scaling": None}],
}


@pytest.mark.parametrize("family", sorted(FORGOTTEN))
def test_a_forgotten_fact_shows(family, tmp_path_factory):
    if family not in CASES:
        CASES[family] = Case(tmp_path_factory.mktemp("decoder"), family)
    case = CASES[family]
    for change in FORGOTTEN[family]:
        wrong = case.reference(case.ids, config={**case.config, **change})
        assert worst(case.logits, wrong) > 10 * TOLERANCE, change


def test_short_sequences_of_longrope_and_dynamic_turn_plainly(tmp_path):
    """What may not grow beyond the trained context has the short list, or plain RoPE, whatever the context is."""
    for family in ("phi3_long", "dynamic"):
        folder = tmp_path / family
        make_decoder.write(str(folder), family, seed=7)
        config, tensors = reference.read_model(str(folder))
        ids = prompt(config, 30)
        got, _, _ = run(folder, ids, tokens=64)
        assert worst(got, reference_decoder.logits(config, tensors, ids, 64)) < TOLERANCE
        longer, _, _ = run(folder, ids, tokens=65)
        assert worst(longer, reference_decoder.logits(config, tensors, ids, 65)) < TOLERANCE
        assert not np.array_equal(got, longer)


@pytest.mark.parametrize("family", ["glm4", "cohere", "granite", "gemma2", "llama4"])
def test_adapters_follow_the_order_of_the_familys_rows(tmp_path, family):
    """GLM-4 and Command-R have the rows of q and k as RoPE's pairs, and so have their adapters; a residual multiplier takes the adapter in."""
    over = {"tie_word_embeddings": True} if family == "gemma2" else {}
    make_decoder.write(str(tmp_path / "base"), family, seed=7, **over)
    config, tensors = reference.read_model(str(tmp_path / "base"))
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    pairs = make_adapter.write_adapter(str(tmp_path / "adapter"), config, r=4, alpha=8, targets=targets, scale=0.3)
    for (layer, module), (a, b, _) in pairs.items():
        name = f"model.layers.{layer}.self_attn.{module}.weight"
        tensors[name] = tensors[name] + 2.0 * (b.astype(np.float64) @ a)
    ids = prompt(config, PROMPT)
    got, _, _ = run(tmp_path / "base", ids, adapter=tmp_path / "adapter")
    assert worst(got, reference_decoder.logits(config, tensors, ids)) < TOLERANCE


def refused(folder):
    p = subprocess.run([LOGITS, str(folder), "--ids", "1"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1, p.stdout
    assert len(p.stderr.strip().split("\n")) == 1
    return p.stderr


@pytest.mark.parametrize("family,change,says", [
    ("phi3_long", {"rope_scaling": {"type": "su", "short_factor": [1.0] * 6, "long_factor": [1.0] * 5}}, "rope_scaling.long_factor must be 6 numbers"),
    ("phi3", {"partial_rotary_factor": 0.01}, "partial_rotary_factor must be a share of head_dim"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be absent, null or 0, got true"),
    ("gemma2", {"attn_logit_softcapping": -1}, "attn_logit_softcapping must be a number from"),
    ("granite4", {"layer_types": ["attention", "mamba"]}, "layer_types must be 2 items"),
    ("granite4", {"num_local_experts": 4, "num_experts_per_tok": 2}, "tensor model.layers.0.block_sparse_moe.router.layer.weight, which config.json asks"),
    ("granite_moe", {"intermediate_size": 41}, "block_sparse_moe.input_linear.weight must have shape [6, 82, 48] by config.json, got [6, 80, 48]"),
    ("glm4_moe", {"n_group": 3}, "n_group must be a divisor of the experts"),
    ("glm4_moe", {"num_nextn_predict_layers": 0}, "tensor model.layers.2.eh_proj.weight is not used by the family glm4_moe"),
    ("gpt_oss", {"intermediate_size": 41}, "mlp.experts.gate_up_proj must have shape [6, 48, 82] by config.json, got [6, 48, 80]"),
    ("gpt_oss", {"hidden_act": "gelu"}, 'hidden_act must be "silu", got "gelu"'),
    ("smollm3", {"no_rope_layers": [1, 1, 2, 0]}, "no_rope_layers must be 4 items, each 1 (with RoPE) or 0 (without)"),
    ("cohere2", {"sliding_window": None}, "sliding_window must be an integer"),
    ("cohere", {"use_parallel_block": False}, "use_parallel_block must be absent, null or 1, got false"),
    ("exaone4", {"sliding_window_pattern": "LLX"}, "sliding_window_pattern must be an integer from 1 to 1024, or letters L and G"),
    ("mistral3", {"text_config": {"model_type": "ministral3"}}, 'text_config.model_type must be "mistral", got "ministral3"'),
    ("mistral3", {"quantization_config": {"quant_method": "odd"}}, "quantization_config.quant_method must be"),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts must be an integer from 1 to 1024, got 0"),
    ("qwen3_moe", {"num_experts_per_tok": 17}, "num_experts_per_tok must be an integer from 1 to 16, got 17"),
    ("qwen3_moe", {"num_experts": 17}, "tensor model.layers.0.mlp.gate.weight must have shape [17, 48] by config.json, got [16, 48]"),
    ("qwen3_moe", {"num_experts": 1024, "num_hidden_layers": 65}, "the experts of all layers must be at most 65536, got 66560"),
    ("qwen3_moe", {"moe_intermediate_size": 41}, "experts.0.gate_proj.weight must have shape [41, 48] by config.json, got [40, 48]"),
    ("qwen3_moe", {"mlp_only_layers": [2]}, "mlp_only_layers must be a list of layers, each from 0 to 1"),
    ("qwen3_moe", {"mlp_only_layers": [1]}, "tensor model.layers.1.mlp.gate_proj.weight, which config.json asks for, is missing"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv must be absent or null, got 8"),
    ("deepseek_v2", {"kv_lora_rank": 40}, "kv_lora_rank must be a multiple of 16 up to 576, got 40"),
    ("deepseek_v2", {"kv_lora_rank": 48}, "kv_a_proj_with_mqa.weight must have shape [56, 48] by config.json, got [40, 48]"),
    ("deepseek_v2", {"qk_rope_head_dim": 7}, "qk_rope_head_dim must be even, and with kv_lora_rank = 32 at most 576, got 7"),
    ("deepseek_v2", {"v_head_dim": 32}, "kv_b_proj.weight must have shape [176, 32] by config.json, got [112, 32]"),
    ("deepseek_v2", {"q_lora_rank": 8}, "tensor model.layers.0.self_attn.q_a_proj.weight, which config.json asks for, is missing"),
    ("deepseek_v2", {"q_lora_rank": "x"}, "q_lora_rank must be an integer from 1 to"),
    ("deepseek_v2", {"scoring_func": "tanh"}, 'scoring_func must be "softmax" or "sigmoid", got "tanh"'),
    ("deepseek_v2", {"topk_method": "x"}, 'topk_method must be "greedy", "group_limited_greedy" or "noaux_tc", got "x"'),
    ("deepseek_v2", {"moe_layer_freq": 2}, "moe_layer_freq must be absent, null or 1, got 2"),
    ("deepseek_v2", {"attention_bias": True}, "attention_bias must be absent or false for this model_type, got true"),
    ("deepseek_v3", {"rope_interleave": False}, "rope_interleave must be absent, null or 1, got false"),
    ("llama4", {"no_rope_layers": [1, 0]}, "no_rope_layers must be 4 items, each 1 (with RoPE) or 0 (without), got"),
    ("llama4", {"attention_chunk_size": 0}, "attention_chunk_size must be an integer from 1 to 2147483647, got 0"),
    ("llama4", {"layer_types": ["sliding_attention"] * 4}, 'layer_types must be 4 items, each "full_attention" or "chunked_attention"'),
    ("llama4", {"layer_types": ["chunked_attention"] * 4, "attention_chunk_size": None}, 'attention_chunk_size must be a number of tokens when layer_types names'),
    ("llama4", {"attn_temperature_tuning": "x"}, 'attn_temperature_tuning must be true or false, got "x"'),
    ("llama4", {"floor_scale": 0}, "floor_scale must be an integer from 1 to 2147483647, got 0"),
    ("llama4", {"attn_scale": -1}, "attn_scale must be a number from 0 to 1000, got -1"),
    ("llama4", {"moe_layers": [4]}, "moe_layers must be a list of layers, each from 0 to 3"),
    ("llama4", {"moe_layers": [1]}, "tensor model.layers.0.feed_forward.gate_proj.weight, which config.json asks for, is missing"),
    ("llama4", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step must be an integer from 1 to 1024, got 0"),
    ("llama4", {"intermediate_size": 41}, "feed_forward.experts.gate_up_proj must have shape [6, 48, 82] by config.json, got [6, 48, 80]"),
    ("llama4", {"rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 2.0, "high_freq_factor": 1.0,
                                 "original_max_position_embeddings": 64}}, "high_freq_factor must be low_freq_factor or larger, got 1"),
    ("glm4_moe", {"model_type": "deepseek_v4"}, 'model_type must be one of those in docs/models.md, the nearest is "'),
    ("qwen3_moe", {"model_type": "qwen3_next"}, 'model_type "qwen3_next" is not supported: it has layers of linear attention (gated delta net)'),
    ("qwen2_5_vl", {"model_type": "qwen3_5"}, 'model_type "qwen3_5" is not supported: it has layers of linear attention (gated delta net)'),
    ("granite4", {"model_type": "mamba2"}, 'model_type "mamba2" is not supported: it has state-space layers (Mamba)'),
    ("olmo2", {"model_type": "olmo4"}, 'model_type must be one of those in docs/models.md, the nearest is "olmo'),
])
def test_what_is_not_supported_is_named(tmp_path, family, change, says):
    make_decoder.write(str(tmp_path), family)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert says in refused(tmp_path), refused(tmp_path)


def test_of_equal_experts_the_first_are_chosen(tmp_path):
    """A router of zeros: all shares are equal, and the reference takes the lowest numbers."""
    config = make_decoder.make_config("qwen3_moe", norm_topk_prob=False)
    shapes = [(name, shape, 0.0 if name.endswith("mlp.gate.weight") else scale) for name, shape, scale in make_decoder.tensor_shapes("qwen3_moe", config)]
    make_model.write_model(str(tmp_path), config, seed=7, tensors=shapes)
    config, tensors = reference.read_model(str(tmp_path))
    ids = prompt(config, PROMPT)
    assert worst(run(tmp_path, ids)[0], reference_decoder.logits(config, tensors, ids)) < TOLERANCE


GGUF_EXPERTS = {
    "expert_count": (0, "expert_count must be an integer from 1 to 1024, got 0"),
    "expert_used_count": (17, "expert_used_count must be an integer from 1 to 16, got 17"),
    "expert_feed_forward_length": (39, "tensor blk.0.ffn_gate_exps.weight must have shape [16, 39, 48] by the metadata, got [16, 40, 48]"),
}


def test_stacked_experts_that_do_not_fit_are_named(tmp_path, monkeypatch):
    make_decoder.write(str(tmp_path / "hf"), "qwen3_moe", seed=7)
    path = str(tmp_path / "model.gguf")
    plain = make_gguf_decoder.metadata
    for key, (value, says) in GGUF_EXPERTS.items():
        monkeypatch.setattr(make_gguf_decoder, "metadata", lambda *a, key=key, value=value: [
            (name, kind, value if name == f"qwen3moe.{key}" else v) for name, kind, v in plain(*a)])
        make_gguf_decoder.write(str(tmp_path / "hf"), path)
        assert says in refused(path), refused(path)
    monkeypatch.setattr(make_gguf_decoder, "metadata", plain)
    cut = make_gguf_decoder.tensors_of
    monkeypatch.setattr(make_gguf_decoder, "tensors_of", lambda *a: [(n, x) for n, x in cut(*a) if n != "blk.1.ffn_down_exps.weight"])
    make_gguf_decoder.write(str(tmp_path / "hf"), path)
    assert "tensor blk.1.ffn_down_exps.weight, which the metadata asks for, is missing" in refused(path)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_bits_of_experts_in_few_bits_do_not_depend_on_chunks_threads_or_neighbours(tmp_path, weights):
    make_decoder.write(str(tmp_path), "qwen2_moe", seed=7)
    config, _ = reference.read_model(str(tmp_path))
    ids = prompt(config, PROMPT)
    base, tokens, _ = run(tmp_path, ids, 8, weights=weights, chunk=1, block=1)
    got, again, _ = run(tmp_path, ids, 8, weights=weights, chunk=16, block=7, threads=2, beside=5)
    assert got.tobytes() == base.tobytes() and again == tokens


def test_adapters_of_experts_are_refused(tmp_path):
    make_decoder.write(str(tmp_path / "base"), "olmoe", seed=7)
    config, _ = reference.read_model(str(tmp_path / "base"))
    make_adapter.write_adapter(str(tmp_path / "adapter"), config, r=4, alpha=8, targets=("q_proj", "gate_proj"), scale=0.3)
    p = subprocess.run([LOGITS, str(tmp_path / "base"), "--ids", "1", "--adapter", str(tmp_path / "adapter")], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "in a model with experts adapters may change the attention only" in p.stderr, p.stderr


def test_a_tensor_of_another_design_is_named(tmp_path):
    """OLMo 2's tensors are not all of EXAONE 4's, and Gemma 3's q_norm is none of Gemma 2's."""
    make_decoder.write(str(tmp_path), "gemma3")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}))
    assert "tensor model.layers.0.self_attn.k_norm.weight is not used by the family gemma2" in refused(tmp_path)
    assert os.path.exists(tmp_path / "model.safetensors")
