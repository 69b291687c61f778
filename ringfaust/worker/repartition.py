"""One partition of a producers' topic whose records take the hop, forwarded.

They belong to queues that live in any partition of ours, and the topic may have more or fewer
partitions than we have, so no `Partition` can own them. Nothing is kept: each batch is one
transaction of the forwarded records and the position behind them, which is the group's offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringfaust.kafka.names import repartition_transactional_id
from ringfaust.kafka.transactions import RecordBatches
from ringfaust.processor.processor import Outputs
from ringfaust.processor.repartition import Repartitioner
from ringfaust.protocol.records import InRecord
from ringfaust.protocol.routes import Route
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.input_positions import Bounds, start_positions
from ringfaust.worker.task import Loop


class RepartitionTask(Loop):
    """See the head of this file."""

    def __init__(self, route: Route, number: int, shared: WorkerContext) -> None:
        transactional_id = repartition_transactional_id(shared.application, route.topic, number)
        super().__init__(number, frozenset({route.topic}), transactional_id, shared)
        self._route = route
        self._begin = 0
        """Where to begin if nothing has been committed."""

    @property
    def name(self) -> str:
        """For the log."""
        return f"{self._route.topic}, partition {self.number}"

    async def open(self, bounds: Mapping[str, Bounds]) -> Mapping[str, int]:
        """Take the partition over. Returns the position of its topic."""
        committed = await self._open()
        positions = start_positions(self.number, committed, bounds, committed)
        self._begin = self._hop.position = positions[self._route.topic]
        return positions

    async def _resume(self, committed: Mapping[str, int]) -> None:
        """Go on behind what was committed."""
        assert self._committer is not None
        self._hop = Repartitioner(
            self._route,
            self._shared.partitions,
            self._shared.processor_config.max_record_bytes,
            max(self._begin, committed.get(self._route.topic, 0)),
            self._committer.gather,
        )

    def _release(self) -> None:
        """Nothing more than the committer was opened."""

    def _positions(self) -> Mapping[str, int]:
        return {self._route.topic: self._hop.position}

    def _decide(self, records: list[InRecord], wall_ms: int) -> None:
        self._hop.take(records, wall_ms)

    async def _do_turn(self, records: list[InRecord], wall_ms: int) -> None:
        await self._decide_all(records, wall_ms)
        await self._landed()
        if outputs := self._hop.outputs():
            self._launch(self._fly(outputs, self._positions()))

    async def _fly(self, outputs: Outputs[RecordBatches], offsets: Mapping[str, int]) -> None:
        assert self._committer is not None
        await self._committer.commit(outputs, [], offsets)
