"""ringfaust: `ringfaust worker` processes, a producer, and consumers that use the client."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.kafka import Kafka
from bench.model import WARM_UPS, Figures, Load
from bench.peers.application import Application
from bench.peers.on_kafka import OnKafka
from bench.processes import until

DUE_AFTER_S = 20.0
"""Messages are scheduled this long before they come due, so that all are stored by then."""


class Ringfaust(OnKafka):
    """Each run has an application of its own, with new topics and state."""

    name = "ringfaust"

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(kafka)
        self._is_warm = False

    def carries(self, load: Load) -> bool:
        """Everything."""
        return True

    def run(self, load: Load) -> Figures:
        """Carry the load with a new application. Before the first one the broker is warmed up."""
        if not self._is_warm:
            self._is_warm = True
            for warm_up in WARM_UPS:
                self._carry(warm_up)
        return self._carry(load)

    def _carry(self, load: Load) -> Figures:
        kinds = {
            "evict": self._evict,
            "cycle": self._cycle,
            "latency": self._cycle,
            "hold": self._hold,
            "scheduled": self._scheduled,
            "restart": self._restart,
        }
        return kinds[load.kind](load)

    def _evict(self, load: Load) -> Figures:
        """The topic is filled before the worker starts; its full rings evict what it reads."""
        source = self._kafka.filled(load)
        with self._application(load, source) as app, ExitStack() as stack:
            workers = [stack.enter_context(app.worker(number)) for number in range(load.workers)]
            expected = load.messages - load.ring * load.rings
            topics = [f"{app.name}.evicted"]
            grown = self._kafka.growth(topics, load.workers, expected, workers)
        return {"per_second": grown.per_second, "worker_us": grown.cpu_us}

    def _cycle(self, load: Load) -> Figures:
        """A producer and a consumer at once; the clock runs in the consumer."""
        with self._live(load) as app, app.worker(0) as worker:
            with app.consumer(load, [worker]) as consumer:
                before_s = worker.cpu_s()
                with self._kafka.producer(load, app.source) as producer:
                    producer.wait()
                    consumer.wait()
                used_s = worker.cpu_s() - before_s
            return {**app.result(), "worker_us": used_s / load.messages * 1e6}

    def _hold(self, load: Load) -> Figures:
        """The consumers are slower than the producer: what they leave is evicted."""
        with self._live(load) as app, app.worker(0) as worker, ExitStack() as stack:
            for _ in range(load.consumers):
                stack.enter_context(app.consumer(load, [worker]))
            stack.enter_context(self._kafka.producer(load, app.source))
            topics = [f"{app.name}.evicted", f"{app.name}.dispatched"]
            held = load.consumers * load.credit
            grown = self._kafka.growth(topics, 1, load.messages - load.ring - held, [worker])
        return {"per_second": grown.per_second, "worker_us": grown.cpu_us}

    def _scheduled(self, load: Load) -> Figures:
        """All messages come due in the same second, while a consumer waits."""
        with self._live(load) as app, app.worker(0) as worker:
            due_s = time.time() + DUE_AFTER_S
            with self._kafka.producer(load, app.source, due_ms=int(due_s * 1_000)) as producer:
                producer.wait()
            with app.consumer(load, [worker]) as consumer:
                consumer.wait()
            result = app.result()
            delivered_s = result["ended_s"] - due_s
            return {"delivered_s": delivered_s, "in_order": result["in_order"]}

    def _restart(self, load: Load) -> Figures:
        """Fill the ring, then time workers from their start until they evict one more message."""
        with self._live(load) as app:
            with app.worker(0) as worker, self._kafka.producer(load, app.source) as producer:
                producer.wait()
                app.send_one_more(load)
                until(lambda: app.evicted() > 0, "the ring is full", [worker])
            warm_s = self._seconds_to_serve(app, load)
            shutil.rmtree(app.data_dir(0))
            cold_s = self._seconds_to_serve(app, load)
            with app.worker(0) as worker:
                end = app.evicted()
                app.send_one_more(load)
                until(lambda: app.evicted() > end, "a message is evicted", [worker])
                worker.kill()
            killed_s = self._seconds_to_serve(app, load)
        beyond_s = killed_s - app.session_timeout_s
        return {"warm_s": warm_s, "cold_s": cold_s, "after_session_s": beyond_s}

    def _seconds_to_serve(self, app: Application, load: Load) -> float:
        end = app.evicted()
        app.send_one_more(load)
        began = time.monotonic()
        with app.worker(0) as worker:
            until(lambda: app.evicted() > end, "a message is evicted", [worker], every_s=0.02)
            return time.monotonic() - began

    @contextmanager
    def _live(self, load: Load) -> Iterator[Application]:
        """An application that reads a new topic, which a producer fills during the run."""
        source = self._kafka.new_name("live")
        self._kafka.create(source, load.workers)
        with self._application(load, source) as app:
            yield app
        self._kafka.drop(source)

    @contextmanager
    def _application(self, load: Load, source: str) -> Iterator[Application]:
        app = Application(self._kafka, load, source)
        yield app
        self._end(app)

    def _end(self, app: Application) -> None:
        self._kafka.drop(app.name)
        shutil.rmtree(app.folder)
