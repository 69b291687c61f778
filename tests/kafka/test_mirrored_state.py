"""What `restore` writes into state that was mirrored from another cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ringfaust.kafka import mirrored_state
from ringfaust.kafka.mirrored_state import StateEnd, begin_at
from ringfaust.protocol.stored_rows import (
    INPUTS_KEY,
    POSITIONS_KEY,
    InputState,
    read_inputs,
    read_positions,
)


async def test_no_position_of_the_other_cluster_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its id, that of a topic without a route was taken for one of this cluster."""
    written: dict[bytes, Any] = {}

    async def commit(*arguments: Any) -> None:
        rows: Sequence[tuple[bytes, bytes | None]] = arguments[-1]
        written.update(rows)

    monkeypatch.setattr(mirrored_state, "commit_changelog", commit)
    positions = {"in": 7, "without-route": 9, "far/0/old": 5}
    inputs = {"in": InputState("old", 2), "without-route": InputState("old", 1)}
    end = StateEnd(positions, inputs, {}, is_of_job=False)
    await begin_at({}, "shop", "log", 0, end=end, positions={"in": 4}, ids={"in": "new"})
    assert read_positions(written[POSITIONS_KEY]) == {"in": 4}
    assert read_inputs(written[INPUTS_KEY]) == {"in": InputState("new", 2)}
