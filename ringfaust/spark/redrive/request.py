"""The request of `ringfaust spark redrive`, and its plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ringfaust.spark.backfill.job import JobProfile, job_name

MAX_REDRIVES = 5
"""Default of the number of redrives after which a message is left out (R43)."""


class LakeRole(StrEnum):
    """Which records of the lake to send again."""

    DEAD = "dead"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRedriveRequest:
    """Which messages to send again, and where to."""

    lake: str
    """Folder or URI of the lake."""
    role: LakeRole
    where: str
    """SQL condition over the columns of the lake's table `records`."""
    to_topic: str | None = None
    """The target topic; None: the topic that each message came from."""
    name: str | None = None
    """Name of the job; None: made from the condition and the target."""
    rate: float | None = None
    """Records per second, over all tasks; None: unlimited."""
    max_redrives: int = MAX_REDRIVES
    again: bool = False
    """Also send messages that a redrive has sent before."""

    @property
    def job(self) -> str:
        """The name of the job, by which earlier versions kept what it sent.

        Raises:
            CannotBackfill: the name is invalid.
        """
        return job_name(self.name, self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """Equal for the same condition and target."""
        parts = json.dumps([self.role, self.where, self.to_topic])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @property
    def about(self) -> str:
        """A description."""
        return f"{self.role} messages where {self.where}, to {self.to_topic or 'their own topics'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRedrivePlan:
    """The messages that match the condition."""

    profile: JobProfile
    """Those that no redrive has sent yet and that are below the limit."""
    queues: Mapping[tuple[str, str], int]
    """Number of messages by target topic and queue."""
    already_sent: int
    """Number of messages that a redrive has sent before."""
    over_limit: int
    """Number of messages that were redriven too often."""
