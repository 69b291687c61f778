"""What a person, a log reader and Prometheus learn about a ring job."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.spark.metrics import MonitorCannotListen
from ringfaust.spark.ring.monitor import JobMonitor
from ringfaust.testing.broker import free_port


def report(batch: int, records: int = 100) -> Any:
    """A report of Spark, as far as it is read."""
    source = {"endOffset": {"sent": {"0": 40}}, "latestOffset": {"sent": {"0": 50, "1": 2}}}
    return SimpleNamespace(
        json=json.dumps(
            {
                "batchId": batch,
                "durationMs": {"triggerExecution": 500},
                "numInputRows": records,
                "sources": [source, {"endOffset": None, "latestOffset": None}],
                "stateOperators": [{"memoryUsedBytes": 1_000}],
                "observedMetrics": {"rings": {"dispatched": 3, "evicted": 90, "dead": None}},
            }
        )
    )


def test_each_micro_batch_counts_once() -> None:
    monitor = JobMonitor(WorkerConfig())
    monitor.update([report(0), report(1)])
    monitor.update([report(0), report(1), report(2, records=0)])
    assert monitor.summary() == (
        "200 records in 2 micro-batches: 9 dispatched, 270 evicted, 0 dead"
    )


def test_with_json_logs_each_micro_batch_with_records_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    monitor = JobMonitor(WorkerConfig(log_format="json"))
    with monitor.show():
        monitor.update([report(7), report(8, records=0)])
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert said["message"] == "micro-batch" and said["level"] == "info"
    assert (said["batch"], said["seconds"], said["records"]) == (7, 0.5, 100)
    assert (said["lag"], said["state_bytes"], said["evicted"]) == (12, 1_000, 90)


def test_prometheus_reads_the_metrics_of_the_driver() -> None:
    port = free_port()
    worker = WorkerConfig(web={"enabled": True, "port": port})  # type: ignore[arg-type]
    monitor = JobMonitor(worker)
    monitor.update([report(0)])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "ringfaust_spark_evicted_total 90.0" in text
    assert "ringfaust_spark_lag_records 12.0" in text
    stranger = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Host": "evil.example"}
    )
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(stranger, timeout=10)
    with pytest.raises(MonitorCannotListen, match=f"port {port}"):
        JobMonitor(worker)
