"""What a check of `ringfaust doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    level: Level
    text: str
    remedy: str = ""
    """What to do; empty if there is nothing to do."""
