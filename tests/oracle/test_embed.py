"""Goal: encoders and decoders embed as their definition says, and score.
Method: tiny random models (make_encoder.py, make_model.py) run by $BUILD/tests/oracle/logits --pool, which lets two other
texts share every pass, and by an independent float64 forward pass (reference_encoder.py, reference.py). Vectors agree within
1e-4 of the largest number; where two runs of the engine must agree they agree bit for bit."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_encoder  # noqa: E402
import make_model  # noqa: E402
import reference  # noqa: E402
import reference_encoder  # noqa: E402
from test_engine import ALIKE, KERNELS, LOGITS, SECONDS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
TOLERANCE = 1e-4
N = 70


def run(folder, ids, pool, hidden, **options):
    """(vector [hidden], scores [labels])"""
    out = os.path.join(str(folder), "vector.bin")
    cmd = [LOGITS, str(folder), "--ids", ",".join(map(str, ids)), "--out", out, "--pool", pool]
    for k, v in options.items():
        cmd += ["--" + k, str(v)]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 0, p.stderr
    values = np.fromfile(out, np.float32)
    return values[:hidden], values[hidden:]


def some_ids(n, seed=5, vocab=211):
    return [int(t) for t in np.random.default_rng(seed).integers(0, vocab, n)]


def worst(got, want):
    return float(np.max(np.abs(got - want)) / np.max(np.abs(want)))


class Encoder:
    def __init__(self, folder, family):
        self.folder, self.family = folder, family
        make_encoder.write_encoder(str(folder), make_encoder.FAMILIES[family], seed=7, rooted="score" in family)
        self.config, self.tensors = reference.read_model(str(folder))
        self.ids = some_ids(N)
        self.rows = reference_encoder.rows(self.config, self.tensors, self.ids)
        self.hidden = self.rows.shape[1]


@pytest.fixture(scope="module", params=sorted(make_encoder.FAMILIES))
def encoder(request, tmp_path_factory):
    return Encoder(tmp_path_factory.mktemp("encoder"), request.param)


@pytest.mark.parametrize("kernels", ["ref", "auto"] + [name for name in KERNELS if name == "openblas"])
def test_vectors(encoder, kernels):
    for pool in ("mean", "cls", "last"):
        got, _ = run(encoder.folder, encoder.ids, pool, encoder.hidden, kernels=kernels, threads=2, block=8)
        assert worst(got, reference_encoder.pool(encoder.rows, pool)) < TOLERANCE, pool


def test_scores_of_pairs(encoder):
    if "score" not in encoder.family:
        pytest.skip("no head for scores")
    first = 23
    rows = reference_encoder.rows(encoder.config, encoder.tensors, encoder.ids, first)
    pool = encoder.config.get("classifier_pooling", "cls")
    _, got = run(encoder.folder, encoder.ids, pool, encoder.hidden, first=first)
    want = reference_encoder.score(encoder.config, encoder.tensors, rows)
    assert got.shape == want.shape
    assert worst(got, want) < TOLERANCE


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta", "nomic"])
def test_encoders_in_gguf_are_those_of_the_folder(tmp_path, family):
    make_encoder.write_encoder(str(tmp_path), make_encoder.FAMILIES[family], seed=7)
    config, tensors = reference.read_model(str(tmp_path))
    ids, rows, path = some_ids(N), None, tmp_path / "gguf" / "m.gguf"
    path.parent.mkdir()
    rows = reference_encoder.rows(config, tensors, ids)
    make_encoder.write_gguf(str(tmp_path), str(path))
    for pool in ("mean", "cls"):
        want, _ = run(tmp_path, ids, pool, rows.shape[1])
        got, _ = run(path.parent, ids, pool, rows.shape[1])
        assert worst(got, reference_encoder.pool(rows, pool)) < TOLERANCE
        assert worst(got, want) < 1e-6, pool  # an epsilon of four bytes


ENCODERS_REFUSED = {
    "a reranker": ("rank", {}, "key bert.pooling_type must be 0 (none), 1 (mean), 2 (cls) or 3 (last), got 4"),
    "rows that see those before them alone": ("mean", {"bert.attention.causal": ("bool", True)}, "key bert.attention.causal must be absent or 0 for bert, got 1"),
    "positions that stretch": ("mean", {"bert.rope.scaling.factor": ("f32", 4.0)}, "key bert.rope.scaling.factor must be absent or 1 for bert, got 4"),
    "positions that are not there": ("mean", {"bert.context_length": ("u32", 999)}, "tensor position_embd.weight must have shape [999, 64]"),
}


@pytest.mark.parametrize("story", ENCODERS_REFUSED)
def test_encoders_in_gguf_that_are_refused(tmp_path, story):
    pooling, over, says = ENCODERS_REFUSED[story]
    make_encoder.write_encoder(str(tmp_path / "hf"), make_encoder.FAMILIES["bert"], seed=7)
    make_encoder.write_gguf(str(tmp_path / "hf"), str(tmp_path / "m.gguf"), pooling, over=over)
    p = subprocess.run([LOGITS, str(tmp_path / "m.gguf"), "--ids", "1"], capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 1 and says in p.stderr, p.stderr


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
def test_bits_do_not_depend_on_neighbours_blocks_or_threads(encoder, weights):
    """Alone in the pass is not possible with --pool; another chunk size gives the pass other neighbours' places."""
    base = run(encoder.folder, encoder.ids, "mean", encoder.hidden, weights=weights, threads=1, block=1)
    for block, threads in ((16, 2), (128, 3), (7, 1)):
        again = run(encoder.folder, encoder.ids, "mean", encoder.hidden, weights=weights, threads=threads, block=block)
        assert again[0].tobytes() == base[0].tobytes() and again[1].tobytes() == base[1].tobytes()


def test_own_sets_agree_bit_for_bit(encoder):
    want = run(encoder.folder, encoder.ids, "mean", encoder.hidden, kernels="ref")
    for kernels in ALIKE:
        got = run(encoder.folder, encoder.ids, "mean", encoder.hidden, kernels=kernels)
        assert got[0].tobytes() == want[0].tobytes() and got[1].tobytes() == want[1].tobytes()


def test_bf16_weights_stay_close(encoder):
    got, _ = run(encoder.folder, encoder.ids, "mean", encoder.hidden, weights="bf16")
    want = reference_encoder.pool(encoder.rows, "mean")
    cosine = got @ want / np.linalg.norm(got) / np.linalg.norm(want)
    assert cosine > 0.999


@pytest.mark.parametrize("n", [1, 2, 12, 13, 14, 25, 150])
@pytest.mark.parametrize("family", ["bert", "modernbert", "nomic_long"])
def test_lengths_around_windows_and_tiles(tmp_path, family, n):
    make_encoder.write_encoder(str(tmp_path), make_encoder.FAMILIES[family], seed=3)
    config, tensors = reference.read_model(str(tmp_path))
    ids = some_ids(n, seed=n)
    want = reference_encoder.rows(config, tensors, ids).mean(axis=0)
    got, _ = run(tmp_path, ids, "mean", len(want), threads=2)
    assert worst(got, want) < TOLERANCE


def test_chunks_of_keys_beyond_the_first(tmp_path):
    """Attention goes through keys in chunks of 512; windows and whole rows cross their edges."""
    config = dict(make_encoder.FAMILIES["modernbert"], max_position_embeddings=1100, num_hidden_layers=2, hidden_size=32,
                  intermediate_size=16, num_attention_heads=2)
    make_encoder.write_encoder(str(tmp_path), config, seed=3)
    config, tensors = reference.read_model(str(tmp_path))
    ids = some_ids(1060)
    want = reference_encoder.rows(config, tensors, ids).mean(axis=0)
    for threads in (1, 3):
        got, _ = run(tmp_path, ids, "mean", len(want), threads=threads)
        assert worst(got, want) < TOLERANCE


# ---- each fact of a family shows in the numbers: the test of the test

@pytest.mark.parametrize("family,over", [
    ("bert", dict(layer_norm_eps=0.1)), ("xlm_roberta", dict(pad_token_id=2)), ("modernbert", dict(local_attention=22)),
    ("modernbert", dict(global_attn_every_n_layers=2)), ("modernbert", dict(local_rope_theta=160000.0)),
    ("modernbert", dict(hidden_activation="silu")), ("nomic", dict(rotary_emb_base=10000)),
    ("nomic_long", dict(max_trained_positions=40))])
def test_a_fact_that_is_changed_shows(tmp_path, family, over):
    make_encoder.write_encoder(str(tmp_path), make_encoder.FAMILIES[family], seed=7)
    config, tensors = reference.read_model(str(tmp_path))
    ids = some_ids(N)
    want = reference_encoder.rows(config, tensors, ids).mean(axis=0)
    with open(tmp_path / "config.json", "w") as f:
        json.dump(dict(config, **over), f)
    got, _ = run(tmp_path, ids, "mean", len(want))
    assert worst(got, want) > 10 * TOLERANCE
    want = reference_encoder.rows(dict(config, **over), tensors, ids).mean(axis=0)
    assert worst(got, want) < TOLERANCE


# ---- decoders

@pytest.mark.parametrize("family", ["llama2", "mistral", "qwen2", "qwen3"])
def test_decoders_embed(tmp_path, family):
    """The rows before the head: recovered from logits by a head that is the unit matrix."""
    config = make_model.make_config(family, vocab_size=211)
    make_model.write_model(str(tmp_path), config, seed=7)
    config, tensors = reference.read_model(str(tmp_path))
    tensors["lm_head.weight"] = np.eye(config["hidden_size"])
    ids = some_ids(N)
    rows = reference.logits(config, tensors, ids)
    for pool in ("mean", "cls", "last"):
        base = None
        for chunk in (N, 16, 7):
            got, _ = run(tmp_path, ids, pool, rows.shape[1], chunk=chunk, threads=2)
            assert worst(got, reference_encoder.pool(rows, pool)) < TOLERANCE, (pool, chunk)
            assert base is None or base == got.tobytes()
            base = got.tobytes()


def test_a_decoder_saved_as_an_embedder(tmp_path):
    """Qwen3-Embedding: no prefix, no head, Pooling says last token."""
    config = make_model.make_config("qwen3")
    make_model.write_model(str(tmp_path / "whole"), config, seed=7)
    full, tensors = reference.read_model(str(tmp_path / "whole"))
    bare = tmp_path / "bare"
    bare.mkdir()
    with open(bare / "config.json", "w") as f:
        json.dump(full, f)
    named = {k.removeprefix("model."): v for k, v in tensors.items() if k != "lm_head.weight"}
    keys = [(k, v.shape, k) for k, v in named.items()]
    make_model.write_file(str(bare / "model.safetensors"), keys, lambda n, key: named[key].ravel(), "f32")
    ids = some_ids(N)
    p = subprocess.run([LOGITS, str(bare), "--ids", "1", "--pool", "last"], capture_output=True, text=True)
    assert p.returncode == 1 and "lm_head.weight" in p.stderr
    make_encoder.write_pooling(str(bare), "last")
    want = run(tmp_path / "whole", ids, "last", config["hidden_size"])[0]
    got = run(bare, ids, "last", config["hidden_size"])[0]
    assert got.tobytes() == want.tobytes()


# ---- refusals

@pytest.mark.parametrize("family,over,says", [
    ("bert", dict(position_embedding_type="relative_key"), 'position_embedding_type must be "absolute"'),
    ("bert", dict(hidden_act="relu"), 'hidden_act must be "gelu", got "relu"'),
    ("bert", dict(is_decoder=True), "is_decoder must be absent, null or 0"),
    ("bert", dict(architectures=["BertForQuestionAnswering"]), 'architectures must be ["BertModel"] or'),
    ("nomic", dict(activation_function="glu"), 'activation_function must be "swiglu" or "silu", got "glu"'),
    ("nomic", dict(moe_every_n_layers=2), "moe_every_n_layers must be absent, null or 0"),
    ("nomic", dict(rotary_emb_fraction=0.5), "rotary_emb_fraction must be absent, null or 1"),
    ("modernbert", dict(attention_bias=True), "attention_bias must be absent, null or 0"),
    ("modernbert_score", dict(classifier_pooling="max"), 'classifier_pooling must be "cls" or "mean", got "max"'),
    ("xlm_roberta", dict(max_position_embeddings=170), "position_embeddings.weight must have shape [170, 64]"),
])
def test_refused_configs_say_what_is_wrong(tmp_path, family, over, says):
    make_encoder.write_encoder(str(tmp_path), make_encoder.FAMILIES[family])
    with open(tmp_path / "config.json") as f:
        config = json.load(f)
    with open(tmp_path / "config.json", "w") as f:
        json.dump(dict(config, **over), f)
    p = subprocess.run([LOGITS, str(tmp_path), "--ids", "1", "--pool", "mean"], capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 1
    assert says in p.stderr, p.stderr


@pytest.mark.parametrize("modules,says", [
    ([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}], "type must be Transformer, Pooling or Normalize"),
    ([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}], "1_Pooling/config.json: is missing"),
    ([{"type": "sentence_transformers.models.Pooling", "path": "../x"}], "the path of Pooling is not inside"),
    ({}, "modules.json: must be a list"),
])
def test_refused_modules_say_what_is_wrong(tmp_path, modules, says):
    make_encoder.write_encoder(str(tmp_path), make_encoder.FAMILIES["bert"])
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    p = subprocess.run([LOGITS, str(tmp_path), "--ids", "1", "--pool", "mean"], capture_output=True, text=True, timeout=SECONDS)
    assert p.returncode == 1
    assert says in p.stderr, p.stderr
