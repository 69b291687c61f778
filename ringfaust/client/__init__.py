"""The asyncio client: send, consume, administer. See docs/client.md.

`ringfaust.client.sync` offers the same to programs without asyncio.
"""

from ringfaust.client.admin import Admin
from ringfaust.client.configuring import NotApplied
from ringfaust.client.consumer import RingConsumer
from ringfaust.client.errors import (
    BadArgument,
    ClientError,
    Closed,
    NoAnswer,
    NoTopic,
    OtherProcess,
    OutcomeUnknown,
    Refused,
    SettleRefused,
    StartedAlready,
    Unrouted,
)
from ringfaust.client.message import Message
from ringfaust.client.options import AckMode
from ringfaust.client.producer import RingProducer
from ringfaust.client.session import Session
from ringfaust.client.status import StatusReader
from ringfaust.client.status_rows import QueueRates, QueueStatus, StoppedPartition, WorkerStatus
from ringfaust.client.two_phase import TwoPhase
from ringfaust.protocol.lifecycle import Counts as QueueCounts

__all__ = [
    "Admin",
    "AckMode",
    "BadArgument",
    "ClientError",
    "Closed",
    "Message",
    "NoAnswer",
    "NoTopic",
    "NotApplied",
    "OtherProcess",
    "OutcomeUnknown",
    "QueueCounts",
    "QueueRates",
    "QueueStatus",
    "Refused",
    "RingConsumer",
    "RingProducer",
    "Session",
    "SettleRefused",
    "StartedAlready",
    "StatusReader",
    "StoppedPartition",
    "TwoPhase",
    "Unrouted",
    "WorkerStatus",
]
