"""Conversion between sends and messages."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core.model import Message


def unsent(send: c.Send) -> Message:
    """The message of a send that has no place in a queue; its sequence is 0."""
    return Message(
        send.id, 0, 0, send.priority, send.sent_ms, send.expires_at_ms, send.due_ms, send.group,
        0, 0, (), send.size_bytes, send.payload, send.persistent,
    )  # fmt: skip


def send_of(message: Message, queue: str, sent_ms: int, due_ms: int = 0) -> c.Send:
    """A send of an existing message: one that was retained, moved, or held by a transaction."""
    return c.Send(
        queue, message.id, sent_ms, message.priority, due_ms, message.expires_at_ms,
        message.group, message.size_bytes, message.payload, message.persistent,
    )  # fmt: skip
