"""Configuration: `queues.yaml` defines the queues, `worker.yaml` configures one process."""

from __future__ import annotations

from ringfaust.config.documents import ConfigError, Fault
from ringfaust.config.load import load, load_queues, load_worker, origins
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.routes import RouteConfig
from ringfaust.config.security import SecurityConfig
from ringfaust.config.worker import WebConfig, WorkerConfig

__all__ = [
    "ConfigError",
    "Fault",
    "QueuesConfig",
    "RouteConfig",
    "SecurityConfig",
    "WebConfig",
    "WorkerConfig",
    "load",
    "load_queues",
    "load_worker",
    "origins",
]
