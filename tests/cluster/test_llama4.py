"""Goal: Llama 4 is served split as on one instance, byte for byte, in prompts over a border of its chunks and blocks of KV.
Method: a tiny random model: one instance in standard mode reads it as a HuggingFace folder, a prefill and a decode instance as GGUF, with KV in
bf16 and in int8. Prompts that end before, at and behind a chunk, answers that run into the next, greedy and drawn, alone and eight at once,
with a cold and a warm prefix cache."""
import pytest
from harness import Cluster, Standalone
from tiny_models import answer, bodies, same_answers, write_both

CHUNK = 50
BODIES = bodies((1, CHUNK - 1, CHUNK, 200), 700)


@pytest.fixture(scope="module", params=["bf16", "int8"])
def served(request, tmp_path_factory):
    hf, gguf = write_both(tmp_path_factory.mktemp("llama4"), "llama4", attention_chunk_size=CHUNK, floor_scale=60)
    extra = {"BatonConfig": {"weightDtype": "f32", "chunkTokens": 64, "kvDtype": request.param}}
    with Standalone(model=hf, extra=extra) as one, Cluster(model=gguf, extra=extra) as c:
        yield one, c


def test_split_is_whole(served):
    one, c = served
    same_answers([answer(one.base, body) for body in BODIES], c.base, BODIES)
