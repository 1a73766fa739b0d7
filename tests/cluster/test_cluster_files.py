"""Goal: the two files of the reference's controller (cluster-api 7.8) say what the cluster is, for tools that read them, and a coordinator starts with
the second when its instances have forgotten all; a file that is not to be trusted is ignored, and that is said.
Method: clusters with a folder for the files; they are read while things change; all processes are ended and started again.
"""
import json
import os
import stat

from harness import READY_S, SLOW, Cluster, get, post, wait_for


def files(c):
    folder = os.path.join(c.folder, "logs")
    os.mkdir(folder)
    return os.path.join(folder, "controller_process_status.json"), os.path.join(folder, "cluster_status_output.json")


def read(path):
    with open(path) as f:
        return json.load(f)


def rows(path):
    return {s["id"]: s for s in read(path)["server"]}


def all_serve(c, n_p, n_d):
    wait_for(lambda: c.is_ready() and len(c.serving("prefill")) == n_p and len(c.serving("decode")) == n_d, READY_S, f"{n_p} P and {n_d} D serve")


def test_they_say_what_is_so_and_the_next_coordinator_starts_with_it():
    c = Cluster(1, 2)
    process, status = files(c)
    with c:
        ids = {i["id"]: i for i in c.status()["instances"]}
        wait_for(lambda: os.path.exists(process) and os.path.exists(status), 10 * SLOW, "they are there")
        assert stat.S_IMODE(os.stat(process).st_mode) & ~0o640 == stat.S_IMODE(os.stat(status).st_mode) & ~0o640 == 0
        shown = wait_for(lambda: all(s["is_initialized"] for s in read(process)["server"]) and rows(process), 10 * SLOW, "all are initialised")
        p, d = c.serving("prefill")[0], c.serving("decode")[0]
        assert set(shown) == set(ids) and shown[p]["current_role"] == 80 and shown[d]["current_role"] == 68
        assert sorted(shown[p]["peers"]) == sorted(c.serving("decode")) and shown[d]["active_peers"] == [p]
        assert shown[d]["static_info"]["total_block_num"] > 0 and shown[d]["model_name"] == "fable" and not shown[d]["is_faulty"]
        assert {s["role"] for s in read(status)["server"]} == {80, 68} and read(status)["coordinator"][0]["is_healthy"] is True
        # roles that no label and no ratio would give, and an order
        assert post(c.mgmt, "/v1/instances/role", {"id": d, "role": "prefill"}).status == 200
        all_serve(c, 2, 1)
        assert post(c.mgmt, "/v1/instances/drain", {"id": d}).status == 200
        want = {i: (r["current_role"], i == d) for i, r in rows(process).items()} | {d: (80, True)}
        wait_for(lambda: {i: (r["current_role"], r["is_drained"]) for i, r in rows(process).items()} == want, 10 * SLOW, "it is written")
        for daemon in [c.coordinator] + c.instances:
            daemon.kill()
        c.coordinator.start()
        wait_for(lambda: "event=loaded" in c.coordinator.log(), 20 * SLOW, "it has read the file")
        for i in c.instances:
            i.start()
        wait_for(lambda: c.is_ready() and len(c.serving("prefill")) == len(c.serving("decode")) == 1, READY_S, "they serve again")
        after = {i["id"]: i for i in c.status()["instances"]}
        assert set(after) == set(ids) and all(after[i]["management"] == ids[i]["management"] for i in ids)
        assert after[d]["wantedRole"] == "prefill" and after[d].get("draining") == "order"
        # a file that others may write is not believed
        c.coordinator.kill()
        os.chmod(process, 0o666)
        c.coordinator.start()
        wait_for(lambda: "event=ignored" in c.coordinator.log(), 20 * SLOW, "it says so")
        assert "it must be a file of this user that nobody else may write" in c.coordinator.log()
        assert post(c.mgmt, "/v1/instances/undrain", {"id": d}).status == 200


def test_without_the_folder_nothing_is_written():
    with Cluster(1, 1) as c:
        wait_for(lambda: c.coordinator.log().count("event=no_folder") == 2, 20 * SLOW, "each is said once")
        get(c.mgmt, "/v2/status")
        assert not [f for f in os.listdir(c.folder) if "status" in f]
