"""Who takes part in distributed transactions (R81, ADR 49)."""

from __future__ import annotations

from uuid import uuid4

OWNER = uuid4().hex
"""The owner of the transactions that this process begins. It is a secret: it lets others join."""
