"""A busy history to rewind: seeded, with all commands, and consumers that settle deliveries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.model import AckMode
from ringfaust.protocol.events import WRITERS, done_line, event_tail
from ringfaust.protocol.listing import list_queue
from tests.model.harness import PAYLOAD, DictStore, Partition

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {"ring_size": 5},
    "mixed": {
        "ring_size": 4, "evict": "lowest_priority", "scheduled_when_full": "displace",
        "redelivery_delay": 20, "redelivery_multiplier": 2.0, "redelivery_jitter": 0.5,
    },
    "strict": {
        "ring_size": 3, "evict": "head", "max_attempts": 2, "shrink": "eager", "batch": 2,
        "max_active_consumers": 2, "max_backup_consumers": 1, "consumer_timeout": 60,
    },
    "window": {"ring_size": 6, "window": 3},
}  # fmt: skip
DAY_MS = 86_400_000
CONSUMERS = ("ann", "bob", "cid")
_SETTINGS: tuple[dict[str, object], ...] = (
    {"ring_size": 2}, {"ring_size": 6}, {"ring_size": 4, "shrink": "eager"}, {"max_attempts": 3},
    {"evict": "oldest"}, {"scheduled_when_full": "displace"}, {"shrink": "lazy"}, {"window": 2},
    {"window": 0}, {"redelivery_delay": 10}, {},
)  # fmt: skip
_WEIGHTS = {
    "send": 60, "tick": 10, "ack": 9, "release": 6, "reject": 2, "attach": 6, "detach": 2,
    "credit": 4, "heartbeat": 3, "recover": 2, "rollback": 1, "configure": 2, "pause": 1,
    "resume": 2, "purge": 0.5, "remove": 1, "move": 1, "cancel": 1, "deliver": 2, "delete": 0.3,
}  # fmt: skip


class History:
    """Draws commands one by one, and runs each in memory so that the next one fits.

    Time advances with the ticks.
    """

    def __init__(self, seed: int, queues: dict[str, dict[str, Any]] = QUEUES) -> None:
        self.partition = Partition(DictStore(), queues)
        self.now_ms = 1_000
        self._random = random.Random(seed)
        self._queues = list(queues)
        self._sent = 0

    def draw(self) -> tuple[c.Command, list[Any]]:
        """The next command, at `now_ms`, and its effects."""
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        command = self._command(kind)
        return command, self.partition.step(command, self.now_ms).all_effects

    def _command(self, kind: str) -> c.Command:  # noqa: PLR0912 - a list of cases
        pick = self._random.choice
        queue = pick(self._queues)
        consumer = pick(CONSUMERS)
        match kind:
            case "send":
                return self._send(queue)
            case "tick":
                self.now_ms += pick((1, 3, 10, 30))
                return c.Sweep()
            case "ack" | "release" | "reject":
                return self._settle(kind, queue)
            case "attach":
                mode = pick((AckMode.INDIVIDUAL,) * 4 + (AckMode.CLIENT, AckMode.NONE))
                priority, session = pick((0, 0, 0, 5)), pick(("", "", "s"))
                return c.Attach(queue, consumer, pick((0, 1, 2, 4)), priority, mode, session)
            case "detach":
                return c.Detach(queue, consumer)
            case "credit":
                return c.Credit(queue, consumer, pick((1, 1, 2)))
            case "heartbeat":
                return c.Heartbeat(queue, consumer)
            case "recover":
                return c.Recover(queue, consumer)
            case "rollback":
                return c.Rollback("s")
            case "configure":
                return c.Configure(queue, pick(_SETTINGS))
            case "pause":
                return c.Pause(queue, "dispatch")
            case "resume":
                return c.Resume(pick((queue, *self._paused())), "dispatch")
            case "purge":
                return c.Purge(queue)
            case "delete":
                return c.DeleteQueue(queue)
            case "move":
                return c.Move(queue, self._waiting(queue), pick(self._queues))
            case "remove":
                return c.Remove(queue, self._waiting(queue))
            case "cancel":
                return c.CancelScheduled(queue, self._scheduled(queue))
            case _:
                return c.DeliverNow(queue, self._scheduled(queue))

    def _send(self, queue: str) -> c.Send:
        pick, now = self._random.choice, self.now_ms
        self._sent += 1
        due_ms = now + pick((5, 20, 40)) if pick((0, 0, 0, 0, 1)) else 0
        expires_ms = now + pick((4, 25, 80)) if pick((0, 0, 0, 0, 1)) else 0
        group = pick(("", "", "", "g", "h"))
        priority = pick((4, 4, 4, 9, 1))
        return c.Send(
            queue, f"m{self._sent}", now, priority, due_ms, expires_ms, group, 100, PAYLOAD
        )

    def _settle(self, kind: str, queue: str) -> c.Command:
        pick = self._random.choice
        found = self.partition.state.queue(queue)
        held = [delivery for _, delivery in found.deliveries] if found else []
        if not held:
            return c.Ack(queue, pick(CONSUMERS), "m1")
        delivery = pick(held)
        about = (queue, delivery.consumer, delivery.message.id, delivery.number)
        if kind == "release":
            return c.Release(*about, delay_ms=pick((None, None, 0, 15)))
        return c.Ack(*about) if kind == "ack" else c.Reject(*about, text="no good")

    def _waiting(self, queue: str) -> str:
        found = self.partition.state.queue(queue)
        ready = [message.id for message in found.in_order()] if found else []
        return self._random.choice(ready or [self._scheduled(queue)])

    def _scheduled(self, queue: str) -> str:
        found = self.partition.state.queue(queue)
        ids: list[str] = [message.id for _, message in found.scheduled] if found else []
        return self._random.choice(ids or ["nobody"])

    def _paused(self) -> Iterator[str]:
        return (q.name for q in self.partition.state.queues.values() if q.paused)


class RecordedHistory:
    """A busy history: its lines, and the contents of each queue after each step.

    Args:
        seed: of the commands.
        commands: how many.
        a_day: how many there are in a day; None: all.
    """

    def __init__(self, seed: int, commands: int, a_day: int | None = None) -> None:
        history = History(seed)
        state = history.partition.state
        self.batches: list[list[str]] = []
        self.held: dict[tuple[str, int], dict[str, Any]] = {}
        """The last answer to `list` by queue and step."""
        self.steps_until: dict[int, int] = {}
        """The last step by time."""
        self.steps: list[int] = []
        """The last step by number of the command."""
        for number in range(commands):
            if a_day and number and number % a_day == 0:
                history.now_ms += DAY_MS
            command, effects = history.draw()
            by = f"app.control/0/{number}"
            tail = event_tail(state.now_ms, by)
            lines = [WRITERS[type(effect)](effect, state.step) + tail for effect in effects]
            if not any(isinstance(effect, e.Refused) for effect in effects):
                lines.append(
                    done_line(state.step, "tick" if isinstance(command, c.Sweep) else "other", tail)
                )
            self.batches.append(lines)
            self.steps_until[state.now_ms] = state.step
            for queue in state.queues.values():
                self.held[queue.name, state.step] = list_queue(queue, 10_000)
            self.steps.append(state.step)

    def states(self, queue: str, step: int) -> dict[str, str]:
        """The state of each message that the queue held."""
        answer = self.held[queue, step]
        held = [each for ids in answer["delivering"].values() for each in ids]
        return (
            dict.fromkeys(answer["ready"], "ready")
            | dict.fromkeys(held, "delivering")
            | dict.fromkeys(answer["scheduled"], "scheduled")
        )
