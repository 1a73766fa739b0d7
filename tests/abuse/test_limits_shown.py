"""Goal: every limit is seen before it is reached. Method: the series of both kinds of daemons against their settings."""
import re

from harness import Cluster, get


def series(text, name):
    return {m[1]: float(m[2]) for m in re.finditer(rf'^{name}{{[^}}]*reason="([a-z_]+)"[^}}]*}} (\S+)$', text, re.M)}


def test_limits_are_series_of_every_daemon():
    with Cluster(extra={"BatonConfig": {"limits": {"bodiesInFlightMiB": 8}}}, coord={"pd": {"limits": {"bodiesInFlightMiB": 16}}}) as c:
        own, merged = get(c.prefills[0].mgmt, "/metrics").text, get(c.external, "/metrics").text
        assert series(own, "instance_limit_max")["body_bytes"] == 8 << 20, own
        assert series(merged, "coordinator_limit_max")["body_bytes"] == 16 << 20, merged
        assert series(merged, "coordinator_limit_refused_total")["body_bytes"] == 0
        assert series(merged, "coordinator_limit_used")["body_bytes"] == 0
