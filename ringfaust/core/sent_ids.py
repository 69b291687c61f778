"""What a queue with a dedup window remembers of the messages it received (R119).

A row for each id says when its message was sent. Pages of `PAGE` ids keep the order in which they
came, so that the oldest can be forgotten, a page at a time. A page costs a message a share of one
row, and not a second row. Nothing is decoded beyond the batch.
"""

from __future__ import annotations

from typing import NamedTuple

from ringfaust.core.table import Kind, Rows, WriteSet

PAGE = 100
"""Ids in a page."""


class SentId(NamedTuple):
    """What is stored under an id: the last message of that id."""

    number: int
    """How many ids came before it."""
    sent_ms: int
    sequence: int


class SentPage(NamedTuple):
    """Ids in the order in which they came."""

    last_ms: int
    """The latest time of their sends."""
    ids: tuple[str, ...]


class SentIds:
    """The tables of one queue; `transitions.placing` changes them."""

    __slots__ = ("by_id", "pages")

    def __init__(self, write_set: WriteSet, queue: str) -> None:
        self.by_id = Rows(write_set, Kind.SENT_ID, queue)
        self.pages = Rows(write_set, Kind.SENT_PAGE, queue)

    def find(self, message_id: str) -> SentId | None:
        """The last message of that id, if it is still remembered."""
        return self.by_id.get(message_id)
