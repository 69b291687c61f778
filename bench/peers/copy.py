"""The upper limit: an aiokafka program that copies records in transactions and decides nothing."""

from __future__ import annotations

from bench.model import Figures, Load
from bench.peers.on_kafka import OnKafka
from bench.processes import program


class Copy(OnKafka):
    """See `bench.programs.copy`."""

    name = "aiokafka copy"

    def carries(self, load: Load) -> bool:
        """It copies whatever is to be evicted, from one partition."""
        return load.kind == "evict" and load.workers == 1 and not load.ringfaust_only

    def run(self, load: Load) -> Figures:
        """Copy the input topic."""
        kafka = self._kafka
        target = kafka.new_name("copy")
        kafka.create(target)
        source = kafka.filled(load)
        log = kafka.folder / f"{target}.log"
        options = {"servers": kafka.servers, "topic": source, "target": target}
        with program("copy", log, messages=load.messages, **options) as process:
            grown = kafka.growth([target], 1, load.messages, [process])
        kafka.drop(target)
        return {"per_second": grown.per_second, "worker_us": grown.cpu_us}
