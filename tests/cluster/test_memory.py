"""Goal: the cluster is small: with the bundled model an instance stays below 150 MB of resident memory and the coordinator below 30 MB, also
after it worked.
Method: VmRSS of each process after requests of every size and eight streams at once; a second round of the same work adds next to nothing.
Sanitizers multiply memory, so there is nothing to measure under them.
"""
import pytest
from families import BY_NAME, made_up_ids
from harness import BUILD, Cluster, Stream, in_threads, post

INSTANCE_KB, COORDINATOR_KB, GROWTH_KB = 150_000, 30_000, 8_000
pytestmark = pytest.mark.skipif("asan" in BUILD or "tsan" in BUILD, reason="a sanitizer's shadow memory counts as resident: run without one")


def resident_kb(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def work(cluster):
    """Short and long prompts, each family once, and eight streams at once."""
    for mode in ("chat", "tgi_generate", "vllm", "infer", "triton_generate", "completions"):
        assert post(cluster.base, BY_NAME[mode].path, BY_NAME[mode].body("Once upon a time")).status == 200
    whole = BY_NAME["completions"]
    assert post(cluster.base, whole.path, whole.body(made_up_ids(1000, 1), max_tokens=20)).status == 200

    def one(salt):
        mode = BY_NAME["completions_stream"]
        s = Stream(cluster.base, mode.path, mode.body(made_up_ids(400, 70 + salt), max_tokens=200, ignore_eos=True))
        assert s.read_all().endswith(b"data: [DONE]\n\n")

    in_threads([lambda i=i: one(i) for i in range(8)])


def test_resident_memory():
    with Cluster() as cluster:  # its own, so that what other tests did is not in the figures; KV pool of 48 MiB as in cluster-conf/1p1d
        work(cluster)
        seen = {d.name: resident_kb(d) for d in cluster.daemons}
        assert seen["coordinator"] < COORDINATOR_KB and all(seen[i.name] < INSTANCE_KB for i in cluster.instances), seen
        for _ in range(2):
            work(cluster)
        later = {d.name: resident_kb(d) for d in cluster.daemons}
        grown = {name: later[name] - seen[name] for name in seen}
        assert all(kb < GROWTH_KB for kb in grown.values()), f"{seen} grew by {grown} kB in two more rounds"
