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
    consumer_max_fetch_size: int
    consumer_metadata_max_age_ms: int
    consumer_connections_max_idle_ms: int
    id: str
    ssl_context: Any

class _Monitor:
    def track_tp_end_offset(self, tp: TP, offset: int) -> None: ...

class AppT:
    conf: _Settings
    monitor: _Monitor
    assignor: Any
    @property
    def should_stop(self) -> bool: ...
    async def crash(self, reason: BaseException) -> None: ...

class TopicT:
    async def send(self, *, value: bytes) -> Any: ...
