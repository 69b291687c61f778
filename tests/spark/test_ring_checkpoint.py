"""What is stored beside the checkpoint comes back as it was."""

from __future__ import annotations

from pathlib import Path

from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.spark.ring.checkpoint import _DECISIVE, _other_rules
from ringfaust.spark.ring.micro_batch import batch_rules

SHIPPED = Path(__file__).parents[2] / "config"


def stored(worker: WorkerConfig, queues: QueuesConfig) -> dict[str, object]:
    return {
        "queues": queues.model_dump(mode="json", exclude_unset=True),
        "worker": {name: getattr(worker, name) for name in _DECISIVE},
    }


def test_the_configuration_of_an_earlier_run_is_read_back() -> None:
    worker, queues = load(SHIPPED)
    assert QueuesConfig.model_validate(stored(worker, queues)["queues"]) == queues
    other = worker.model_copy(update={"max_record_bytes": 5_000, "cloud_events": True})
    rules = _other_rules(stored(other, queues), stored(worker, queues), worker)
    assert rules is not None
    assert rules.processor_config == batch_rules(other, queues, queues).processor_config
    assert rules.processor_config.max_record_bytes == 5_000
    assert rules.processor_config.cloud_events_of == worker.application


def test_a_start_that_did_not_store_a_setting_is_read_with_the_current_one() -> None:
    """Earlier versions did not store `cloud_events`."""
    worker, queues = load(SHIPPED)
    now = worker.model_copy(update={"cloud_events": True})
    old = {**stored(worker, queues), "worker": {"max_record_bytes": 5_000, "clock": "wall"}}
    rules = _other_rules(old, stored(now, queues), now)
    assert rules is not None
    assert rules.processor_config.max_record_bytes == 5_000
    assert rules.processor_config.cloud_events_of == worker.application


def test_the_same_configuration_is_not_sent_twice() -> None:
    worker, queues = load(SHIPPED)
    assert _other_rules(stored(worker, queues), stored(worker, queues), worker) is None
    assert _other_rules({"started_ms": 1}, stored(worker, queues), worker) is None, "an old file"


def test_what_counted_before_the_first_apply_is_read_back_too() -> None:
    """R128: a repeated batch of a partition that has kept nothing has its catalog again."""
    worker, queues = load(SHIPPED)
    first = queues.model_copy(update={"queues": {"orders": {"ring_size": 7}}})
    then = {**stored(worker, queues), "first": first.model_dump(mode="json", exclude_unset=True)}
    now = {**then, "queues": {}}
    rules = _other_rules(then, now, worker)
    assert rules is not None
    assert rules.catalog.spec("orders", {}).ring_size == 7
    assert rules.processor_config.configuration is not None
    assert rules.processor_config.configuration.document == first.document()
    assert _other_rules(then, then, worker) is None
