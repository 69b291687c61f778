"""The private APIs behind `worker/faust/vendor.py` exist, and behave as the worker expects.

A failure here means that an update of Faust, mode or aiokafka has changed something that is not
part of its API. Do not adapt the test alone: find the use in `worker/faust/vendor.py`, read the new
code of the library, and run tests/broker/test_transport.py.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import faust
import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as PurePythonBuilder
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer, ThreadDelegateConsumer
from faust.transport.consumer import Fetcher as FaustFetcher
from faust.transport.drivers import aiokafka as driver
from faust.types import TP as FaustTP
from mode.threads import ServiceThread

import ringfaust
from ringfaust.worker.faust import vendor
from ringfaust.worker.faust.decompression import BATCH_BYTES
from ringfaust.worker.faust.fetcher import Fetcher
from ringfaust.worker.faust.membership import Membership, connection_options
from ringfaust.worker.faust.transport import BatchApp, BatchConsumer
from tests.worker.faust import stubs

TP = TopicPartition("in", 0)


def source(of: Any) -> str:
    return inspect.getsource(inspect.unwrap(of))


def takes(function: Callable[..., Any], *parameters: str) -> bool:
    return list(inspect.signature(inspect.unwrap(function)).parameters) == ["self", *parameters]


# --- Faust ---------------------------------------------------------------------------------------


def test_the_consumer_creates_its_thread_once_in_the_constructor() -> None:
    """If not: `FaustConsumer.new_thread` must be called elsewhere."""
    assert takes(ThreadDelegateConsumer._new_consumer_thread)
    assert takes(driver.Consumer._new_consumer_thread)
    text = source(ThreadDelegateConsumer.__init__)
    assert "self._thread = self._new_consumer_thread()" in text
    assert "self.add_dependency(self._thread)" in text


def test_the_fetcher_of_faust_does_nothing_but_drain_messages() -> None:
    """If not: `FaustConsumer.fetch_loop` no longer replaces the whole fetch loop."""
    assert takes(Consumer._drain_messages, "fetcher")
    assert inspect.iscoroutinefunction(Consumer._drain_messages)
    assert "await consumer._drain_messages(self)" in source(FaustFetcher._fetcher.fun)


def test_faust_subscribes_with_the_listener_of_the_consumer_class() -> None:
    """If not: Faust stops everything for each rebalance."""
    init = source(driver.AIOKafkaConsumerThread.__post_init__)
    assert "consumer.RebalanceListener(self)" in init
    assert "listener=self._rebalance_listener" in source(driver.AIOKafkaConsumerThread.subscribe)
    assert takes(driver.ConsumerRebalanceListener.on_partitions_revoked, "revoked")
    assert takes(driver.ConsumerRebalanceListener.on_partitions_assigned, "assigned")
    assert BatchConsumer.RebalanceListener is vendor.RebalanceListener


def test_faust_subscribes_even_without_streams() -> None:
    """If not: `BatchConsumer.subscribe` is not called, and the worker reads nothing."""
    assert takes(driver.Consumer.subscribe, "topics")
    assert "await self.app.consumer.subscribe(await self._update_indices())" in source(
        Conductor._subscriber.fun
    )
    app = BatchApp("pinned", broker="kafka://localhost:1")
    assert not [*app.topics, *app.agents]


def test_the_consumer_thread_creates_its_kafka_client_at_start() -> None:
    """If not: `FaustConsumerThread.new_kafka_consumer` is not called, or too late."""
    thread = driver.AIOKafkaConsumerThread
    assert takes(thread._create_worker_consumer, "transport")
    assert takes(thread._ensure_consumer)
    assert takes(thread.__post_init__)
    start = source(thread.on_start)
    assert "self._consumer = self._create_consumer(loop=self.thread_loop)" in start
    assert "return self._create_worker_consumer(transport)" in source(thread._create_consumer)
    assert "await self._consumer.stop()" in source(thread.on_thread_stop)
    assert "self._assignor" in source(thread._create_worker_consumer)


def test_faust_passes_the_kafka_client_no_option_that_is_unknown_here() -> None:
    """If not: check whether `Membership.new_kafka_consumer` or the fetcher needs the new option."""

    def options(function: Any) -> set[str]:
        (call,) = (
            node
            for node in ast.walk(ast.parse(inspect.cleandoc("\n" + source(function))))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and ast.unparse(node.func).endswith("AIOKafkaConsumer")
        )
        return {keyword.arg for keyword in call.keywords if keyword.arg}

    theirs = options(driver.AIOKafkaConsumerThread._create_worker_consumer)
    app = BatchApp("pinned", broker="kafka://localhost:1")
    ours = options(Membership.new_kafka_consumer) | {*connection_options(app.conf, app.transport)}
    assert theirs - ours == OF_READING


OF_READING = {
    "auto_offset_reset", "check_crcs", "fetch_max_wait_ms", "isolation_level",
    "max_partition_fetch_bytes", "max_poll_records",
}  # fmt: skip
"""Options that concern reading, which the member of the group does not do."""


def test_recovery_without_tables_only_starts_the_fetcher() -> None:
    """If not: the first assignment does not start `BatchConsumer.fetch_loop`."""
    assert takes(Recovery._resume_streams, "generation_id")
    assert inspect.iscoroutinefunction(Recovery._resume_streams)
    loop = source(Recovery._restart_recovery.fun)
    resumed = loop.index("await T(self._resume_streams)(generation_id=generation_id)")
    assert "if not self.tables" in loop[:resumed]
    assert loop[resumed:].index("continue") < loop[resumed:].index("_set_recovery_started")
    text = source(Recovery._resume_streams)
    steps = ("resume_partitions(", "consumer.perform_seek()", "_fetcher.maybe_start()")
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    assert "timeout=self.app.conf.broker_request_timeout" in text


def test_the_table_manager_starts_its_channels_and_its_recovery() -> None:
    """If not: `_NoTables.on_start` must do what Faust's does, without the wait."""
    assert takes(TableManager._update_channels)
    lines = [line.strip() for line in source(TableManager.on_start).splitlines()][2:]
    assert lines == [
        "await self.sleep(1.0)",
        "if not self.should_stop:",
        "await self._update_channels()",
        "await self.recovery.start()",
    ]


def test_the_app_creates_its_transport_and_stops_its_consumer_by_these_methods() -> None:
    """If not: `FaustApp.new_transport` or `before_consumer_stop` is not called."""
    assert takes(faust.App._new_transport)
    assert takes(faust.App._stop_consumer)
    assert inspect.iscoroutinefunction(faust.App._stop_consumer)
    assert "self._transport = self._new_transport()" in source(faust.App.transport.fget)
    assert "await self._stop_consumer()" in source(faust.App.on_stop)
    assert "if self._consumer is not None" in source(faust.App._stop_consumer)
    app = BatchApp("pinned", broker="kafka://localhost:1")
    assert app._consumer is None
    assert isinstance(app.tables, vendor._NoTables)
    assert type(app.transport).__name__ == "BatchTransport"


def test_the_kafka_client_is_missing_before_the_thread_starts() -> None:
    app = BatchApp("pinned", broker="kafka://localhost:1")
    with pytest.raises(faust.exceptions.ConsumerNotStarted):
        _ = app.reader._membership.kafka_consumer


def test_the_thread_runs_our_event_loop_and_closes_it() -> None:
    """If not: it runs a slower one, or nobody closes it."""
    assert "self.thread_loop = thread_loop or" in source(ServiceThread.__init__)
    assert "if self._close_thread_loop_on_stop:" in source(ServiceThread._start_thread)
    thread = BatchApp("pinned", broker="kafka://localhost:1").reader._membership
    assert isinstance(thread.thread_loop, uvloop.Loop)
    assert thread._close_thread_loop_on_stop
    thread.thread_loop.close()


def test_a_thread_that_has_ended_can_be_stopped() -> None:
    """If not: the traceback of a closed event loop follows the error that stopped the worker."""
    assert "call_soon_threadsafe(self._stopped.set)" in source(ServiceThread._stopped_set)
    thread = BatchApp("pinned", broker="kafka://localhost:1").reader._membership
    thread.thread_loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        ServiceThread._stopped_set(thread)
    thread._stopped_set()


@pytest.mark.parametrize("module", stubs.modules())
def test_the_type_stubs_declare_what_faust_and_mode_have(module: str) -> None:
    assert list(stubs.differences(module)) == []


# --- aiokafka ------------------------------------------------------------------------------------


def test_a_refusal_of_the_group_is_kept_until_somebody_fetches() -> None:
    """If not: `group_error` misses it, and a worker that may not join waits silently."""
    assert "self._coordinator = GroupCoordinator(" in source(AIOKafkaConsumer.start)
    assert "self._pending_exception = exc" in source(GroupCoordinator._push_error_to_user)
    assert "Errors.InconsistentGroupProtocolError" in source(
        CoordinatorGroupRebalance.perform_group_join
    )
    check = source(GroupCoordinator.check_errors)
    assert "self._error_consumed_fut.set_result(None)" in check  # and so the client goes on
    assert "self._pending_exception = None" in check
    assert "self._coordination_task = create_task(" in source(GroupCoordinator.__init__)
    join = source(GroupCoordinator.ensure_active_group)
    assert "await self._stop_heartbeat_task()" in join  # the one that has failed
    assert "self._start_heartbeat_task()" in join


def test_a_consumer_that_asks_for_it_joins_the_group_again() -> None:
    """If not: a topic that is deleted during a rebalance stays assigned until it exists again."""
    assert "_rejoin_needed_fut.set_result(None)" in source(GroupCoordinator.request_rejoin)
    assert "_rejoin_needed_fut.done()" in source(GroupCoordinator.need_rejoin)


OTHER, NEW = TopicPartition("other", 0), TopicPartition("new", 0)


async def test_the_member_of_the_group_reads_nothing() -> None:
    """If not: each record is fetched twice."""
    subscriptions = SubscriptionState()
    thread: Any = SimpleNamespace(kafka_consumer=SimpleNamespace(_subscription=subscriptions))
    vendor.FaustConsumerThread.read_nothing(thread)
    subscriptions.subscribe({"in", "other"})
    subscriptions.assign_from_subscribed({TP, OTHER})
    assert thread.assigned == {TP, OTHER}
    assert subscriptions.assigned_partitions() == set()
    subscriptions.begin_reassignment()
    assert not subscriptions.reassignment_in_progress
    subscriptions.assign_from_subscribed({OTHER})
    assert thread.assigned == {OTHER}
    assert "self._subscription = SubscriptionState(" in source(AIOKafkaConsumer.__init__)
    join = source(GroupCoordinator._on_join_prepare) + source(GroupCoordinator._on_join_complete)
    assert "self._subscription.begin_reassignment()" in join
    assert "self._subscription.assign_from_subscribed(assignment.partitions())" in join


async def test_other_topics_may_be_assigned_as_well_as_those_before() -> None:
    """If not: an answer of the group to what it was asked before ends the worker (R128)."""
    subscriptions, client, coordinator = SubscriptionState(), Mock(), Mock()
    subscriptions.subscribe({"in", "other"})
    subscriptions.assign_from_subscribed({TP})
    consumer = SimpleNamespace(
        _subscription=subscriptions, _client=client, _coordinator=coordinator
    )
    thread: Any = SimpleNamespace(kafka_consumer=consumer)
    thread.request_rejoin = lambda: vendor.FaustConsumerThread.request_rejoin(thread)
    vendor.FaustConsumerThread.subscribe_to(thread, frozenset({"in", "new"}))
    assert subscriptions.subscription.active
    client.set_topics.assert_called_with({"in", "new"})
    coordinator.request_rejoin.assert_called_with()
    subscriptions.assign_from_subscribed({OTHER, NEW})  # what it was asked before
    subscriptions.subscription._topics = frozenset({"in"})
    with pytest.raises(AssertionError):
        subscriptions.assign_from_subscribed({NEW})
    assert "self._client.set_topics(" in source(AIOKafkaConsumer.subscribe)
    assert "self._subscription.topics" in source(CoordinatorGroupRebalance.perform_group_join)


JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14


@pytest.mark.parametrize(
    ("key", "error_code", "told"),
    [
        (HEARTBEAT, 0, ["member"]), (SYNC_GROUP, 0, ["member"]), (HEARTBEAT, 27, []),
        (JOIN_GROUP, 0, []), (JOIN_GROUP, 25, []), (LEAVE_GROUP, 0, []),
        (HEARTBEAT, 82, ["twin"]), (SYNC_GROUP, 82, ["twin"]), (JOIN_GROUP, 82, ["twin"]),
        (LEAVE_GROUP, 82, []),
    ],
)  # fmt: skip
async def test_answers_tell_who_is_a_member_and_who_has_a_twin(
    key: int, error_code: int, told: list[str]
) -> None:
    """A member is who knows what the group has assigned.

    One that joins may have missed an assignment, and would shut out the new owner (R126). The Kafka
    client does not know the error of a twin.
    """

    async def send(*_: object) -> Any:
        return SimpleNamespace(API_KEY=key, error_code=error_code)

    client, found = SimpleNamespace(send=send), list[str]()
    thread: Any = SimpleNamespace(kafka_consumer=SimpleNamespace(_client=client))
    vendor.FaustConsumerThread.watch_answers(
        thread, lambda _: found.append("member"), lambda: found.append("twin")
    )
    await client.send(0, None)
    assert found == told
    assert errors.for_code(82) is errors.UnknownError


def test_a_member_can_leave_its_group_before_the_client_is_closed() -> None:
    """If not: a worker that stops cannot serve its partitions until others have them."""
    close = source(GroupCoordinator.close)
    assert "await self._maybe_leave_group()" in close
    assert "if self._closing.done():" in close  # the client closes it once more


async def test_nobody_who_stops_waiting_for_the_end_of_a_membership_cancels_the_coordination() -> (
    None
):
    """If so: the member does not leave the group."""

    async def joins() -> None:
        await asyncio.Event().wait()

    closed = asyncio.get_running_loop().create_future()
    coordinator: Any = SimpleNamespace(
        _closing=closed, _coordination_task=asyncio.ensure_future(joins())
    )
    coordinator.close = lambda: GroupCoordinator.close(coordinator)
    thread: Any = SimpleNamespace(kafka_consumer=SimpleNamespace(_coordinator=coordinator))
    ending = asyncio.ensure_future(vendor.FaustConsumerThread.close_coordinator(thread))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    await asyncio.sleep(0)
    assert closed.done()
    assert not coordinator._coordination_task.done()
    coordinator._coordination_task.cancel()


async def test_a_membership_that_has_not_begun_ends_at_once() -> None:
    """A worker may be stopped while it still connects. If not: an error, and it does not end."""
    thread: Any = SimpleNamespace(kafka_consumer=AIOKafkaConsumer(bootstrap_servers="nobody:1"))
    await vendor.FaustConsumerThread.close_coordinator(thread)
    assert thread.kafka_consumer._coordinator is None


def test_a_fetch_is_asked_and_answered_as_the_fetcher_expects() -> None:
    """If not: `Fetcher._fetch_from` and `_note` need the new request and answer."""
    assert takes(
        FetchRequest.__init__,
        "max_wait_time", "min_bytes", "max_bytes", "isolation_level", "topics", "rack_id",
    )  # fmt: skip
    answer = FetchResponse_v11.SCHEMA.fields[-1].array_of.fields[-1].array_of
    assert answer.names == (
        "partition", "error_code", "highwater_offset", "last_stable_offset", "log_start_offset",
        "aborted_transactions", "preferred_read_replica", "message_set",
    )  # fmt: skip
    assert FetchRequest(0, 0, 0, 0, []).prepare({1: (4, 17)}).API_VERSION == 11


class BadName(str):
    """Encodes to bytes that are not UTF-8."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


def test_undecodable_records_tell_where_they_are() -> None:
    """If not: the fetcher cannot pass an undecodable record, and a partition is stuck."""
    builder = PurePythonBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    for offset in range(10):
        headers = [(BadName("bad") if offset in {4, 7} else "fine", b"x")]
        builder.append(offset, 1, None, b"%d" % offset, headers)
    found: list[Any] = []
    records = vendor.decoded(TP, bytes(builder.build()), [], 0, checks_crcs=True)
    with pytest.raises(UnicodeDecodeError):
        vendor.take(found, records, None)
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert (records.next_fetch_offset, records.batch_end) == (4, 10)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own functions, with the limit, until the test is over."""
    for module in vendor.READERS_OF_BATCHES:
        for name in vendor.EXPANDERS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    vendor.limit_decompression()


def compressed(kind: int, value: bytes) -> bytes:
    """A batch of two records. `kind`: 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    builder = DefaultRecordBatchBuilder(2, kind, 0, -1, -1, 0, 1 << 30)
    for offset in range(2):
        builder.append(offset, 1, None, value, [])
    return bytes(builder.build())


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_the_client_expands_batches_with_our_functions(kind: int) -> None:
    """If not: a batch of 400 kB may take a gigabyte of memory."""
    small = list(DefaultRecordBatch(compressed(kind, b"x" * 9_000)))
    assert [len(record.value or b"") for record in small] == [9_000] * 2
    records = vendor.decoded(
        TP, compressed(kind, bytes(BATCH_BYTES // 2 + 1)), [], 0, checks_crcs=True
    )
    with pytest.raises(vendor.FETCH_ERRORS):
        next(iter(records))
    assert (records.next_fetch_offset, records.batch_end) == (0, 2)


# --- ours ----------------------------------------------------------------------------------------

FOREIGN = ("faust", "mode", "aiokafka", "rocksdict")
PACKAGE = Path(ringfaust.__file__).parent


def private_names(path: Path) -> set[str]:
    """Private attributes in a file of something that is not `self`, `cls` or `super()`."""
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr != "_replace"  # a public method of named tuples
        and ast.unparse(node.value) not in ("self", "cls")
    }


def overrides(path: Path) -> set[str]:
    """Private methods that a class of the file overrides, or private names it inherits."""
    found: set[str] = set()
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = __import__(name, fromlist=["*"])
    for item in vars(module).values():
        if not inspect.isclass(item) or item.__module__ != name:
            continue
        theirs = [base for base in item.__mro__ if base.__module__.partition(".")[0] in FOREIGN]
        used = {
            node.attr
            for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(item))))
            if isinstance(node, ast.Attribute)
        } | set(vars(item))
        found |= {
            f"{item.__name__}.{attribute}"
            for attribute in used
            if attribute.startswith("_")
            and not attribute.startswith("__")
            and any(attribute in vars(base) for base in theirs)
        }
    return found - {f"{each}._abc_impl" for each in [c.partition(".")[0] for c in found]}


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("worker", "kafka")
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        if path.name != "vendor.py"
    ],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_private_apis_are_used_in_vendor_modules_only(path: Path) -> None:
    assert private_names(path) | overrides(path) == set()


@pytest.mark.usefixtures("limited")
def test_a_batch_over_the_limit_leaves_nothing_behind() -> None:
    """R116. The worker seldom collects garbage: what each attempt had expanded stayed for long."""
    too_large = compressed(1, bytes(BATCH_BYTES // 2))
    fetcher = Fetcher(Mock(), max_records=10, max_partition_bytes=1, checks_crcs=False)
    tp = FaustTP(*TP)
    fetcher.seek(tp, 0)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(5):
            partition = fetcher._partitions[tp]
            partition.position = 0
            partition.unread = vendor.decoded(TP, too_large, [], 0, checks_crcs=False)
            (batch,) = fetcher._take([tp])
            assert len(batch.records) == 2
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left_bytes < BATCH_BYTES // 10
