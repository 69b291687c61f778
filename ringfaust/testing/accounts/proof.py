"""What the proof of the accounts found: a row for each queue, and each record that is not right."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class QueueAccount:
    """The account of one queue, counted from the topics (R100)."""

    queue: str
    added: int = 0
    acked: int = 0
    evicted: int = 0
    expired: int = 0
    dead: int = 0
    removed: int = 0
    moved_out: int = 0
    lost: int = 0
    ready: int = 0
    delivering: int = 0
    scheduled: int = 0
    refused: int = 0
    """Sends that it did not take (R60); they are not `added`."""
    faults: int = 0
    """How many things are wrong that could be laid to this queue."""

    @property
    def accounted(self) -> int:
        """What is held or has left, by whatever way."""
        return (
            self.acked + self.evicted + self.expired + self.dead + self.removed + self.moved_out
            + self.lost + self.ready + self.delivering + self.scheduled
        )  # fmt: skip

    @property
    def balanced(self) -> bool:
        """Does it add up, with nothing wrong?"""
        return self.added == self.accounted and not self.faults


@dataclass
class Proof:
    """What was found. Positions are `topic/partition/offset` of the input topics."""

    rows: dict[str, QueueAccount]
    inputs: int
    """Records of the input topics."""
    unreadable: int = 0
    """Of these: made no sense or were too large, and went to the dead topic."""
    refused: int = 0
    """Of these: named no queue that there is, or one that did not take them."""
    rolled_back: int = 0
    """Of these: were sent in a distributed transaction that was rolled back."""
    pending: int = 0
    """Of these: wait for the decision about theirs."""
    missing: list[str] = field(default_factory=list)
    """Positions without a fate."""
    doubled: list[str] = field(default_factory=list)
    """Positions with more than one."""
    altered: list[str] = field(default_factory=list)
    """Positions whose key, value or headers went out other than they came in."""
    unexplained: list[str] = field(default_factory=list)
    """Positions that output names and the input topics do not have."""
    faults: list[str] = field(default_factory=list)
    """All else, one sentence each."""

    @property
    def balanced(self) -> bool:
        """Is every record accounted for, exactly once and unaltered?"""
        lists = (self.missing, self.doubled, self.altered, self.unexplained, self.faults)
        return not any(lists) and all(row.balanced for row in self.rows.values())

    def words(self, most: int = 5) -> list[str]:
        """What is wrong, a sentence a kind with the first few named; empty if nothing is."""
        kinds = {
            "without any fate": self.missing,
            "with more than one fate": self.doubled,
            "that went out altered": self.altered,
            "that output names, but the input topics do not have": self.unexplained,
        }
        told = [
            f"{len(found):,} {'record' if len(found) == 1 else 'records'} {kind}: "
            + ", ".join(found[:most])
            + (", …" if len(found) > most else "")
            for kind, found in kinds.items()
            if found
        ]
        told += self.faults[:most]
        if len(self.faults) > most:
            told.append(f"… and {len(self.faults) - most:,} more faults of such kinds")
        told += [
            f"queue {row.queue}: added {row.added:,}, accounted for {row.accounted:,}"
            for row in self.rows.values()
            if row.added != row.accounted
        ]
        return told
