"""A Spark job's state that commit 6d179b1 wrote is read, and continued, as that commit does it."""

from __future__ import annotations

import base64
import json
from typing import Any

from ringfaust.core.catalog import Catalog
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.routes import Route
from ringfaust.spark.ring.micro_batch import BatchRules, JobStart, MicroBatch, OperatorConfig
from tests.fixtures.written import FOLDER, comparable, input_record
from tests.spark.test_ring_pages import MemoryPages

FIXTURE = json.loads((FOLDER / "spark.json").read_text())
CONFIG = FIXTURE["config"]


def read_pages() -> MemoryPages:
    pages = MemoryPages()
    pages.update({int(n): base64.b64decode(page) for n, page in FIXTURE["pages"].items()})
    return pages


def play(pages: MemoryPages, batch: dict[str, Any]) -> dict[str, list[Any]]:
    """Play one micro-batch; its outputs by topic."""
    config = OperatorConfig(
        rules=BatchRules(
            processor_config=ProcessorConfig(
                control_topic=CONFIG["control_topic"],
                repartition_topic="",
                routes=[Route(topic, queue) for topic, queue in CONFIG["routes"]],
                max_record_bytes=10_000,
                log_is_clock=False,
            ),
            catalog=Catalog(CONFIG["queues"], {}),
        ),
        cache_bytes=1 << 20,
        starts=[JobStart(ends={}, first_batch=CONFIG["first_batch"])],
    )
    micro_batch = MicroBatch(
        config, 0, pages, batch["at_ms"], batch=batch["batch"], new_buffer=list
    )
    found: dict[str, list[Any]] = {}
    for outputs in micro_batch.run([input_record(fields, 0) for fields in batch["records"]]):
        for topic, *record in comparable(outputs):
            found.setdefault(topic, []).append(record)
    micro_batch.close()
    return found


def test_pages_are_read_and_the_job_continues_the_same() -> None:
    """The pages hold several pages, and records that wait for a full queue."""
    pages = read_pages()
    assert len(pages) > 3
    assert [play(pages, batch) for batch in FIXTURE["continued"]] == FIXTURE["outputs"]
