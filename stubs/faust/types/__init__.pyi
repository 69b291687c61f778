from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

class TP(NamedTuple):
    topic: str
    partition: int

class _Settings:
    broker_client_id: str
    broker_consumer: Any
    broker_max_poll_records: int
    broker_max_poll_interval: float
    broker_request_timeout: float
    broker_check_crcs: bool
    broker_session_timeout: float
    broker_rebalance_timeout: float
    broker_heartbeat_interval: float
    broker_credentials: Any
    consumer_group_instance_id: str | None
    consumer_auto_offset_reset: str
    consumer_max_fetch_size: int
    consumer_metadata_max_age_ms: int
    consumer_connections_max_idle_ms: int
    id: str
    ssl_context: Any

class _Monitor:
    def track_tp_end_offset(self, tp: TP, offset: int) -> None: ...

class _Conductor:
    async def on_partitions_assigned(self, assigned: set[TP]) -> None: ...

class AppT:
    conf: _Settings
    monitor: _Monitor
    assignor: Any
    topics: _Conductor
    consumer_generation_id: int
    @property
    def should_stop(self) -> bool: ...
    async def crash(self, reason: BaseException) -> None: ...
    def create_event(self, key: Any, value: Any, headers: Any, message: Message) -> EventT: ...

class Message:
    key: Any
    value: Any
    headers: Any
    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: float,
        timestamp_type: int,
        headers: Any,
        key: bytes | None,
        value: bytes | None,
        checksum: bytes | None,
        *,
        tp: TP | None = None,
        generation_id: int | None = None,
    ) -> None: ...

class EventT: ...

class StreamT:
    def add_processor(self, processor: Callable[[Any], Any]) -> None: ...
    def __aiter__(self) -> AsyncIterator[object]: ...

class TopicT:
    async def send(self, *, value: bytes) -> Any: ...
