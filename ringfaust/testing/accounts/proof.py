"""The result of a reconciliation: the account of each queue, and every record that is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringfaust.core.model import Counts


@dataclass
class QueueAccount:
    """The account of one queue, counted from the topics (R100)."""

    queue: str
    counts: Counts = field(default_factory=Counts)
    faults: int = 0
    """How many faults concern this queue."""

    @property
    def balanced(self) -> bool:
        """Whether the account adds up and has no faults."""
        return self.counts.balanced and not self.faults


@dataclass
class Proof:
    """The result. A position is `topic/partition/offset` of an input topic."""

    accounts: dict[str, QueueAccount]
    inputs: int
    """Number of records in the input topics."""
    undecodable: int = 0
    """Of these, undecodable or too large; they went to the dead topic."""
    refused: int = 0
    """Of these, refused by their queue or sent to an unknown one."""
    rolled_back: int = 0
    """Of these, sent in a distributed transaction that was rolled back."""
    pending: int = 0
    """Of these, sent in a distributed transaction that is not decided."""
    missing: list[str] = field(default_factory=list)
    """Positions without an outcome."""
    duplicated: list[str] = field(default_factory=list)
    """Positions with more than one outcome."""
    altered: list[str] = field(default_factory=list)
    """Positions whose key, value or headers differ between input and output."""
    unexplained: list[str] = field(default_factory=list)
    """Positions that an output names and the input topics do not have."""
    gaps: list[str] = field(default_factory=list)
    """Offsets that the worker reported as gone before they were processed (R112), as
    `topic/partition/first-last`; without `last` if nobody knows where the log ended. They are not
    in the input topics any more, so they do not count as missing."""
    faults: list[str] = field(default_factory=list)
    """Everything else that is wrong, a sentence each."""

    @property
    def balanced(self) -> bool:
        """Whether every record is accounted for exactly once, unaltered."""
        lists = (self.missing, self.duplicated, self.altered, self.unexplained, self.faults)
        return not any(lists) and all(account.balanced for account in self.accounts.values())

    def problems(self, most: int = 5) -> list[str]:
        """Return what is wrong, a sentence per kind that names the first few; empty if nothing."""
        kinds = {
            "without an outcome": self.missing,
            "with more than one outcome": self.duplicated,
            "altered on the way": self.altered,
            "named by an output but not in the input topics": self.unexplained,
        }
        problems = [
            f"{len(found):,} {'record' if len(found) == 1 else 'records'} {kind}: "
            + ", ".join(found[:most])
            + (", …" if len(found) > most else "")
            for kind, found in kinds.items()
            if found
        ]
        problems += self.faults[:most]
        if len(self.faults) > most:
            problems.append(f"… and {len(self.faults) - most:,} more faults")
        problems += [
            f"queue {account.queue}: added {account.counts.added:,}, "
            f"accounted for {account.counts.messages + account.counts.gone:,}"
            for account in self.accounts.values()
            if not account.counts.balanced
        ]
        return problems
