"""The usual Faust idiom: a table that holds the whole queue and is rewritten for each message."""

from __future__ import annotations

import shutil

from bench.model import Figures, Load
from bench.peers.on_kafka import OnKafka
from bench.processes import program

SHARE = 0.005
"""It is slow, so it gets this share of the messages beyond the first ring."""


class FaustIdiom(OnKafka):
    """See `bench.programs.faust_queue`."""

    name = "Faust idiom"

    def carries(self, load: Load) -> bool:
        """One ring that evicts. What else a queue needs, the idiom has no answer to."""
        return load.workload == "evict"

    def run(self, load: Load) -> Figures:
        """Keep the newest messages of the input topic."""
        kafka = self._kafka
        name = kafka.new_name("faust")
        target = f"{name}.evicted"
        kafka.create(target)
        folder = kafka.folder / name
        folder.mkdir()
        options = {
            "application": name,
            "servers": kafka.servers,
            "topic": kafka.filled(load),
            "target": target,
            "ring": load.ring,
            "data_dir": str(folder / "state"),
        }
        with program("faust_queue", folder / "faust.log", **options) as process:
            evicted = max(int(load.messages * SHARE), 50)
            grown = kafka.growth([target], 1, evicted, [process])
        kafka.drop(name)
        shutil.rmtree(folder)
        return {"per_second": grown.per_second, "worker_us": grown.cpu_us}
