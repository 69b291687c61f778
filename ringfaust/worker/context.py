"""What all partitions of a worker share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import Cache

from ringfaust.core.catalog import Catalog
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.worker.transport import BatchConsumer


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all partitions of a worker share."""

    application: str
    partitions: int
    """How many each topic of ours has."""
    topics: Mapping[str, str]
    """Our topics' names by role."""
    client: Mapping[str, Any]
    """Options of any Kafka client."""
    data_dir: Path
    cache: Cache
    cache_bytes: int
    """Bound of the decoded state of one partition."""
    batch_records: int
    tick_ms: int
    tombstone_ms: int
    """How long the changelog tells that a row was removed: older local state is rebuilt."""
    fenced_wait_s: float
    """How long who was fenced waits for the rebalance that tells why."""
    processor_config: ProcessorConfig
    catalog: Catalog
    reader: Callable[[], BatchConsumer]
    crash: Callable[[BaseException], None]
    """Stops the worker with this error."""
