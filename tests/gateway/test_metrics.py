"""Figures of the server: counted while it works, shown to admins, in a format that a monitor reads."""

import logging
import re

from wellkept.gateway.metrics import Metrics, measure_memory

from .conftest import serve

SAMPLE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"\n]*"\})? -?[0-9.e+]+$')


def read(client):
    """Return the samples by name, after a check of every line."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert all(line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.match(line) for line in lines), lines
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_requests_and_turns_are_counted(served):
    """By status and outcome; buckets are cumulative."""
    client = served.client()
    client.get("/api/nothing-here")
    client.post("/api/chat", json={"message": "hi", "stream": False})
    found = read(client)
    assert found['kept_requests_total{status="404"}'] == 1
    assert found['kept_turns_total{outcome="done"}'] == 1
    assert found["kept_turn_seconds_count"] == found['kept_turn_seconds_bucket{le="+Inf"}'] == 1
    assert (found["kept_turns_running"], found["kept_open_conversations"]) == (0, 1)
    assert (found["kept_outbox_waiting"], found["kept_platform_messages_waiting"]) == (0, 0)
    assert found["kept_resident_memory_bytes"] > 10_000_000


def test_only_admins_see_them(served):
    """Neither strangers nor other users."""
    token, ann = served.token(), served.token("ann")
    assert served.client("").get("/metrics").status_code == 401
    assert served.client(ann).get("/metrics").status_code == 403
    assert read(served.client(token))


def test_buckets_hold_what_is_not_longer():
    """A turn of exactly a bound belongs to it."""
    metrics = Metrics()
    for seconds in (0.05, 0.1, 7.0, 1_000.0):
        metrics.count_turn(seconds, "done")
    text = metrics.render([])
    counts = [int(found) for found in re.findall(r'_bucket\{le="[^"]+"\} (\d+)', text)]
    assert (counts[0], counts[-2], counts[-1]) == (2, 3, 4)
    assert counts == sorted(counts)
    assert "kept_turn_seconds_sum 1007.15" in text


def test_the_process_is_logged_at_start_and_stop(home, caplog):
    """One line each."""
    with caplog.at_level(logging.INFO, logger="wellkept.gateway.metrics"), serve(home):
        pass
    said = [record.getMessage().partition(":")[0] for record in caplog.records if "memory" in record.getMessage()]
    assert said == ["at start", "at stop"]


def test_memory_where_the_system_does_not_tell(monkeypatch):
    """The peak stands for it."""
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_arguments, **_options: "")
    assert measure_memory() > 10_000_000
