"""Operate queues: look at them, change them, and settle what is stuck (R34, R71, R90)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product
from typing import Any, Unpack

from ringfaust.client import configuring
from ringfaust.client.configuring import Applied, NotApplied, Raised
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.errors import NoAnswer, Refused
from ringfaust.client.inspected import (
    MessageDetails,
    MessagePage,
    Pausable,
    QueueDetails,
    QueueSummary,
    SettingSince,
    XidDetails,
)
from ringfaust.client.locate import UNKNOWN_QUEUE, ask_known
from ringfaust.client.resource import Connected
from ringfaust.core.patterns import is_pattern
from ringfaust.errors import BadSetting
from ringfaust.protocol.lifecycle import HELD_STATES, HeldState
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.revisions import Configuration, RaisedLevel

_ALL_QUEUES = "#"
_QUEUES_PER_PAGE = 2_000
_CONSUMERS = 1_000
_MESSAGES_PER_PAGE = 100
_BODY_BYTES = 1_000
_MOVED_AT_ONCE = 100


class Admin(Connected):
    """An operator's connection to one application. It finds the partition of a queue by itself.

    ::

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            await admin.configure("orders", {"ring_size": 500})
            async for message in admin.browse("orders"):
                print(message.id, message.value)

    Every method raises `Refused` if a worker refuses the command (R103), with the reason
    `unknown_queue` if there is no such queue; `NoAnswer` if a partition has no worker, or the
    brokers hang; and `KafkaError` if the brokers fail.

    Args:
        options: see `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid.
        TypeError: there is no such option.
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(options)

    # --- looking ---------------------------------------------------------------------------------

    async def queues(self, pattern: str = _ALL_QUEUES) -> list[QueueSummary]:
        """Return the queues whose names match a pattern, in order of their names.

        Args:
            pattern: words separated by `.`; `*` matches one word, `#` any number of words.
        """
        pages = await asyncio.gather(*(self._queues_in(p, pattern) for p in self._partitions))
        found: dict[str, list[QueueSummary]] = {}
        for summary in (each for page in pages for each in page):
            found.setdefault(summary.queue, []).append(summary)
        return [each for name in sorted(found) for each in self._homes_of(name, found[name])]

    def _homes_of(self, queue: str, found: Sequence[QueueSummary]) -> Sequence[QueueSummary]:
        homes = self._homes(queue, {each.partition: each.counts["added"] for each in found})
        return [each for each in found if each.partition in homes]

    def _homes(self, queue: str, added: Mapping[int, int]) -> tuple[int, ...]:
        """The partitions that have a queue, of those that know it; the fullest first.

        A queue that is only declared is known to every partition until its first message. Then it
        has one home, unless producers spread records with one key (R113).

        Args:
            queue: its name.
            added: by partition that knows the queue, how many messages it has received.
        """
        by_name = partition_of(queue, len(self._partitions))
        ranked = sorted(added, key=lambda each: (-added[each], each != by_name, each))
        return tuple(each for each in ranked if added[each]) or tuple(ranked[:1])

    async def _queues_in(self, partition: int, pattern: str) -> list[QueueSummary]:
        found: list[QueueSummary] = []
        after: str | None = ""
        while after is not None:
            asked = {"pattern": pattern, "after": after, "limit": _QUEUES_PER_PAGE}
            answer = await self._ask(partition, "list_queues", **asked)
            found += [QueueSummary.read(partition, fields) for fields in answer["queues"]]
            after = answer["next"]
        return found

    async def queue(self, queue: str) -> QueueDetails:
        """Return what a queue holds, its settings and its consumers.

        If several partitions have it, where it has received most messages: see `homes`.
        """
        homes = await self._find(queue)
        return await self._details(queue, homes[0], homes)

    async def homes(self, queue: str) -> list[QueueDetails]:
        """Return what a queue holds in each partition that has it.

        It is one, unless producers spread records with one key over partitions (R113).
        """
        homes = await self._find(queue)
        return [await self._details(queue, each, homes) for each in homes]

    async def _find(self, queue: str) -> tuple[int, ...]:
        """The partitions that have a queue; see `_homes`."""
        answers = (await self._ask_about(queue)).items()
        used = {each: says["counts"]["added"] for each, says in answers if says["exists"]}
        if not used:
            raise Refused(UNKNOWN_QUEUE, queue, "no message has arrived for it yet")
        return self._homes(queue, used)

    async def _ask_about(self, queue: str) -> dict[int, dict[str, Any]]:
        """What each partition that knows a queue answers: it may have come to others (R113)."""
        answers = await self._ask_known("list", queue=queue, limit=0)
        if is_pattern(queue):  # it may match itself, and is no queue for that
            answers = {number: each for number, each in answers.items() if each["exists"]}
        if answers:
            return answers
        raise Refused(UNKNOWN_QUEUE, queue, "no partition has this queue")

    async def _details(self, queue: str, partition: int, homes: tuple[int, ...]) -> QueueDetails:
        """What a queue holds in a partition, with all its consumers."""
        asked = {"queue": queue, "limit": _CONSUMERS}
        answer = await self._ask(partition, "list", **asked)
        consumers = await self._all(partition, "list", "consumers", answer, **asked)
        others = tuple(each for each in homes if each != partition)
        return QueueDetails.read(queue, partition, others, {**answer, "consumers": consumers})

    async def _all(
        self, partition: int, kind: str, field: str, answer: Mapping[str, Any], **asked: Any
    ) -> list[Mapping[str, Any]]:
        """A list from an answer and the pages that follow it. Older workers have no pages."""
        found = list(answer[field])
        while (after := answer.get("next")) is not None:
            answer = await self._ask(partition, kind, after=after, **asked)
            found += answer[field]
        return found

    async def browse(
        self,
        queue: str,
        *,
        state: HeldState = "ready",
        message: str = "",
        selector: str = "",
        body_bytes: int = _BODY_BYTES,
    ) -> AsyncIterator[MessageDetails]:
        """Yield a queue's messages: ready ones in delivery order, others by number or due time.

        It pages: what enters or leaves the queue meanwhile may be missing.

        Args:
            queue: the queue.
            state: which messages.
            message: only those with this id.
            selector: only those that match (R15).
            body_bytes: how much of each body to fetch, up to 100,000.
        """
        for partition in await self._find(queue):
            async for each in self._browse_in(
                partition, queue, state=state, message=message, selector=selector,
                body_bytes=body_bytes,
            ):  # fmt: skip
                yield each

    async def _browse_in(
        self, partition: int, queue: str, **options: Any
    ) -> AsyncIterator[MessageDetails]:
        """Yield what `browse` does of one partition."""
        after: str | None = ""
        while after is not None:
            page = await self.browse_page(queue, after=after, partition=partition, **options)
            for each in page.messages:
                yield each
            after = page.after

    async def browse_page(
        self,
        queue: str,
        *,
        state: HeldState = "ready",
        message: str = "",
        selector: str = "",
        after: str = "",
        limit: int = _MESSAGES_PER_PAGE,
        body_bytes: int = _BODY_BYTES,
        partition: int | None = None,
    ) -> MessagePage:
        """Return one page of what `browse` yields.

        Args:
            queue: the queue.
            state: which messages.
            message: only those with this id.
            selector: only those that match (R15).
            after: `after` of the page before; empty: the first page.
            limit: the most messages of the page, up to 10,000.
            body_bytes: how much of each body to fetch, up to 100,000.
            partition: one of its `homes`; by default where it has received most messages.
        """
        chosen = (await self._find(queue))[0] if partition is None else partition
        answer = await self._ask(
            chosen, "browse", queue=queue, state=state, message=message, selector=selector,
            after=after, limit=limit, body_bytes=body_bytes,
        )  # fmt: skip
        read = (MessageDetails.read(queue, state, fields) for fields in answer["messages"])
        return MessagePage(messages=tuple(read), after=answer["next"])

    async def message(
        self, queue: str, message: str, *, body_bytes: int = 100_000
    ) -> MessageDetails | None:
        """Return the first message with that id, in whatever state; None if there is none."""
        homes = await self._find(queue)
        asked: dict[str, Any] = {"message": message, "body_bytes": body_bytes}
        for state, partition in product(HELD_STATES, homes):
            async for found in self._browse_in(partition, queue, state=state, **asked):
                return found
        return None

    async def xids(self) -> list[XidDetails]:
        """Return the undecided distributed transactions (R81), in order of their names."""
        answers = await self._ask_known("list_xids")
        found: dict[str, dict[int, Mapping[str, Any]]] = {}
        for partition, answer in answers.items():
            for fields in await self._all(partition, "list_xids", "xids", answer):
                found.setdefault(fields["name"], {})[partition] = fields
        return [
            XidDetails(
                xid=name,
                prepared=all(each["prepared"] for each in parts.values()),
                operations=sum(each["operations"] for each in parts.values()),
                began_ms=min(each["began_ms"] for each in parts.values()),
                partitions=tuple(sorted(parts)),
            )
            for name, parts in sorted(found.items())
        ]

    # --- the configuration -----------------------------------------------------------------------

    async def configuration(self) -> dict[int, Configuration]:
        """Return the configuration that each partition uses (R128), by number.

        Raises:
            NoAnswer: a partition has no worker.
        """
        return await configuring.present_configurations(self._request, self._partitions)

    async def history(self) -> list[Configuration]:
        """Return what was applied, in order: the last 100 revisions, and what was before them.

        Raises:
            NotApplied: the configuration topic does not exist.
        """
        return (await configuring.configuration_log(self.connection)).revisions

    async def settings_since(self, queue: str) -> dict[str, SettingSince]:
        """Return since when the configuration gives a queue what `apply` brought, by setting.

        What it gave before the oldest known revision is not among them.
        """
        try:
            return configuring.settings_since(await self.history(), queue)
        except (NotApplied, BadSetting):
            return {}  # nothing was applied, or by a newer version, and its workers know best

    async def apply(
        self,
        document: Mapping[str, Any],
        *,
        who: str = "",
        text: str = "",
        after: int | None = None,
        is_stopped: bool = False,
    ) -> Applied:
        """Apply a configuration to all partitions or to none (R128).

        Args:
            document: the content of a `queues.yaml` that is valid: `routes`, `queues`, `addresses`
                and `settings`; at most 256 KiB as JSON.
            who: who applies it.
            text: what it changes, or why.
            after: the revision that it is meant to follow; None: the newest.
            is_stopped: no worker runs. Then nobody is asked, and nobody is waited for.

        Raises:
            NotApplied: another revision was applied meanwhile; or the routes would move queues
                with messages, begin or end the hop of a topic, or read one that has another number
                of partitions (R113).
            BadArgument: it is too large, or not a configuration.
            NoAnswer: a partition has no worker.
            OutcomeUnknown: the brokers failed while it was written.
        """
        return await configuring.apply(
            self.connection, document, who=who, text=text, after=after, is_stopped=is_stopped,
            queues_in=self._queues_in, request=self._request,
        )  # fmt: skip

    async def feature_level(self) -> RaisedLevel:
        """Return the feature level of the application, and who has raised it (R129).

        Raises:
            NotApplied: the configuration topic does not exist.
        """
        return (await configuring.configuration_log(self.connection)).level

    async def raise_level(self, level: int, *, who: str = "") -> Raised:
        """Let all partitions use a feature level, for good (R129).

        Check before that every worker supports it, as `ringfaust upgrade finish` does.

        Args:
            level: one that all workers support.
            who: who raises it.

        Raises:
            NotApplied: another one changed the configuration topic at the same moment.
            Refused: a worker does not support it. Its partitions keep the level that they have.
            NoAnswer: a partition has no worker.
            OutcomeUnknown: the brokers failed while it was written.
        """
        return await configuring.raise_level(self.connection, level, who)

    # --- changing queues -------------------------------------------------------------------------

    async def create_queue(
        self, queue: str, settings: Mapping[str, Any] | None = None, *, partition: int | None = None
    ) -> None:
        """Create a queue that queues.yaml does not declare (R71).

        Args:
            queue: its name; `ADDRESS::NAME` joins that address.
            settings: its settings, by the names in queues.yaml.
            partition: where it lives. By default where the records of its name are repartitioned.
        """
        name = queue.partition("::")[0]
        chosen = partition_of(name, len(self._partitions)) if partition is None else partition
        await self._do(chosen, "create_queue", queue=queue, settings=dict(settings or {}))

    async def configure(self, queue: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a queue. They win over queues.yaml; None takes one back."""
        await self._do_everywhere("configure", queue, settings=dict(settings))

    async def configure_address(self, address: str, settings: Mapping[str, Any]) -> None:
        """Change settings of an address: `retroactive_count`, `routing` (R71)."""
        partition = partition_of(address, len(self._partitions))
        await self._do(partition, "configure_address", address=address, settings=dict(settings))

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue: evict what is ready, return what is held, remove what is scheduled."""
        await self._do_in(queue, "delete_queue")

    async def pause(self, queue: str, what: Pausable = "dispatch") -> None:
        """Stop handing out messages, or reading new ones."""
        await self._do_everywhere("pause", queue, what=what)

    async def resume(self, queue: str, what: Pausable = "dispatch") -> None:
        """Undo `pause`."""
        await self._do_everywhere("resume", queue, what=what)

    async def purge(self, queue: str) -> None:
        """Evict all ready messages."""
        await self._do_in(queue, "purge")

    # --- changing messages and consumers ---------------------------------------------------------

    async def remove(self, queue: str, message: str) -> None:
        """Remove one ready or scheduled message."""
        await self._do_to_message(queue, "remove", message=message)

    async def move(self, queue: str, message: str, to: str) -> None:
        """Move one ready or scheduled message to another queue of the same partition."""
        await self._do_to_message(queue, "move", message=message, to=to)

    async def move_oldest(self, queue: str, to: str, most: int) -> AsyncIterator[int]:
        """Move the oldest ready messages to another queue of the same partition.

        A message that leaves the queue meanwhile is skipped.

        Args:
            queue: the queue that they leave.
            to: the queue that they enter.
            most: how many to move.

        Yields:
            How many have been moved so far.
        """
        found: list[tuple[int, str]] = []
        for partition in await self._find(queue):
            async for each in self._browse_in(partition, queue, body_bytes=0):
                if len(found) == most:
                    break
                found.append((partition, each.id))
        moved = 0
        yield moved
        for start in range(0, len(found), _MOVED_AT_ONCE):
            results = await asyncio.gather(
                *(
                    self._do(partition, "move", queue=queue, message=message, to=to)
                    for partition, message in found[start : start + _MOVED_AT_ONCE]
                ),
                return_exceptions=True,
            )
            for result in results:
                has_left = isinstance(result, Refused) and result.reason == "bad_command"
                if isinstance(result, BaseException) and not has_left:
                    raise result
                moved += result is None
            yield moved

    async def deliver_now(self, queue: str, message: str) -> None:
        """Make one scheduled message due now."""
        await self._do_to_message(queue, "deliver_now", message=message)

    async def cancel_scheduled(self, queue: str, message: str) -> None:
        """Cancel one scheduled message."""
        await self._do_to_message(queue, "cancel_scheduled", message=message)

    async def close_consumer(self, queue: str, consumer: str) -> None:
        """Detach a consumer; what it holds returns to the queue (R20)."""
        homes = await self.homes(queue)
        names = {each.partition: [one.consumer for one in each.consumers] for each in homes}
        attached = [partition for partition in names if consumer in names[partition]]
        for partition in attached or [homes[0].partition]:  # which says that there is none
            await self._do(partition, "detach", queue=queue, consumer=consumer)

    async def commit_xid(self, xid: str) -> None:
        """Commit a prepared distributed transaction in every partition that has it (R81)."""
        await self._decide("commit", xid)

    async def rollback_xid(self, xid: str) -> None:
        """Roll back a distributed transaction in every partition that has it (R81)."""
        await self._decide("rollback_xid", xid)

    async def _decide(self, kind: str, xid: str) -> None:
        found = next((each for each in await self.xids() if each.xid == xid), None)
        if found is None:
            raise Refused("bad_command", xid, "no partition has this transaction")
        if kind == "commit" and not found.prepared:  # or one partition commits, and another not
            raise Refused("bad_command", xid, "not all partitions have it prepared: roll it back")
        for partition in found.partitions:
            await self._do(partition, kind, xid=xid)

    # --- partitions that have stopped ------------------------------------------------------------

    async def retry_partition(self, partition: str, *, by: str = "") -> None:
        """Make a stopped partition try again. Returns when it runs again (R123).

        If it has not stopped, nobody answers. `StatusReader.workers` tells which have.

        Args:
            partition: its number; or TOPIC/NUMBER, for a partition of a repartitioned topic.
            by: who asks, for the log.
        """
        await self._order(partition, "retry_partition", by=by)

    async def skip_record(self, partition: str, at: str, *, by: str = "") -> None:
        """Move the record at which a partition has stopped to the dead topic (R123).

        Args:
            partition: its number; or TOPIC/NUMBER, for a partition of a repartitioned topic.
            at: the record: topic/partition/offset.
            by: who asks, for the dead record and the log.
        """
        await self._order(partition, "skip_record", at=at, by=by)

    async def _order(self, partition: str, kind: str, **fields: Any) -> None:
        number = partition.rpartition("/")[2]
        if not (number.isdecimal() and len(number) < 10):
            raise Refused("bad_command", partition, "a partition is a number, or TOPIC/NUMBER")
        order = {"type": kind, "partition": partition, **fields}
        await self._request(int(number) % len(self._partitions), order)

    # --- asking ----------------------------------------------------------------------------------

    @property
    def _partitions(self) -> list[int]:
        return sorted(self.connection.partitions)

    async def _request(self, partition: int, command: Mapping[str, Any]) -> dict[str, Any]:
        """Write a command and wait for the reply. Unlike a consumer, it does not wait for brokers.

        Raises:
            NoAnswer: it took longer than `timeout_ms`; the command may take effect later.
        """
        connection = self.connection
        try:
            async with asyncio.timeout(connection.timeout_ms / 1000) as limit:
                return await connection.request(partition, command)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NoAnswer(
                f"nothing answered within {connection.timeout_ms} ms; check that the brokers run, "
                f"and a worker of the application {connection.application!r}"
            ) from None

    async def _do(self, partition: int, kind: str, **fields: Any) -> None:
        await self._request(partition, {"type": kind, **fields})

    async def _ask(self, partition: int, kind: str, **fields: Any) -> dict[str, Any]:
        body = await self._request(partition, {"type": kind, **fields})
        answer: dict[str, Any] = body["answer"]
        return answer

    async def _ask_known(self, kind: str, **fields: Any) -> dict[int, dict[str, Any]]:
        return await ask_known(self._request, self._partitions, {"type": kind, **fields})

    async def _do_in(self, queue: str, kind: str, **fields: Any) -> None:
        """Do something in each partition of a queue that is in use."""
        for partition in await self._find(queue):
            await self._do(partition, kind, queue=queue, **fields)

    async def _do_to_message(self, queue: str, kind: str, **fields: Any) -> None:
        """Do something to one message, in the first partition of its queue that has it."""
        refusals: dict[int, Refused] = {}
        for partition in await self._find(queue):
            try:
                return await self._do(partition, kind, queue=queue, **fields)
            except Refused as refused:
                refusals[partition] = refused
        # A partition without the message says no more than that.
        told = next((r for r in refusals.values() if r.reason != "bad_command"), None)
        first = told or next(iter(refusals.values()))
        if len({str(refused) for refused in refusals.values()}) == 1:
            raise first
        texts = (f"in partition {number}: {r.text}" for number, r in sorted(refusals.items()))
        raise Refused(first.reason, first.about, "; ".join(texts))

    async def _do_everywhere(self, kind: str, queue: str, **fields: Any) -> None:
        """Do something that also prepares a queue, which may get its first message anywhere."""
        answers = await self._ask_about(queue)
        used = [each for each, answer in answers.items() if answer["counts"]["added"]]
        for partition in used or answers:
            await self._do(partition, kind, queue=queue, **fields)
