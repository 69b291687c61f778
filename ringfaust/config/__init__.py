"""Configuration: `queues.yaml` says what the queues are, `worker.yaml` what one process needs."""

from ringfaust.config.documents import ConfigError, Fault
from ringfaust.config.load import load, load_queues, load_worker
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.routes import Route
from ringfaust.config.security import Security
from ringfaust.config.worker import Web, WorkerConfig

__all__ = [
    "ConfigError",
    "Fault",
    "QueuesConfig",
    "Route",
    "Security",
    "Web",
    "WorkerConfig",
    "load",
    "load_queues",
    "load_worker",
]
