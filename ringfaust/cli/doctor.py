"""`ringfaust doctor`: is everything as it should be? Each check tells what it found."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ringfaust import compiled
from ringfaust.cli.finding import Finding, Level
from ringfaust.cli.judge import judge_engines, judge_queues, judge_settings, judge_workers
from ringfaust.cli.lake_lag import lake_lag
from ringfaust.cli.operate import Target, print_json, say
from ringfaust.cli.permissions import permissions
from ringfaust.client import ClientError, StatusReader
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.agreement import fingerprint
from ringfaust.config.applied import configuration_in_use
from ringfaust.config.differences import summary
from ringfaust.config.topics import check_topics, wanted_topics
from ringfaust.config.worker import machine_bytes
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import existing_partitions, open_admin
from ringfaust.kafka.broker_time import clock_skew_ms
from ringfaust.kafka.names import worker_group, worker_protocol
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.probe import answering
from ringfaust.kafka.reader import committed_reader
from ringfaust.kafka.topic_ids import topic_ids
from ringfaust.protocol.records import Role
from ringfaust.times import wall_ms
from ringfaust.transactional.clients import connected

HANGING_MS = 120_000
"""A transaction that has been open for longer hangs: those of workers and clients end, or are
aborted, within a minute."""
LAG_RECORDS = 100_000
_WARN_FREE = 0.10
_WARN_FREE_BYTES = 2 << 30
_FAIL_FREE_BYTES = 200 << 20
_READ_TIMEOUT_MS = 5_000


def run(target: Target, *, as_json: bool) -> int:
    """Print what every check finds. Returns 1 if one has failed.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    worker, queues = target.load()

    async def collect() -> list[Finding]:
        found = []
        async for finding in examine(worker, queues):
            found.append(finding)
            if not as_json:
                _print(finding)
        return found

    found = asyncio.run(collect())
    if as_json:
        print_json(found)
    else:
        fails, warns = (sum(each.level == level for each in found) for level in ("fail", "warn"))
        say(f"{len(found)} checks: {fails} failed, {warns} to look at")
    return 1 if any(each.level == "fail" for each in found) else 0


def _print(finding: Finding) -> None:
    say(f"{finding.level.ljust(4)}  {finding.check.ljust(12)}  {finding.text}")
    if finding.remedy and finding.level != "ok":
        say(f"      {'':12}  -> {finding.remedy}")


async def examine(worker: WorkerConfig, queues: QueuesConfig) -> AsyncIterator[Finding]:
    """Yield what each check finds, beginning with what the others need."""
    yield disk(worker.data_dir)
    yield memory(worker)
    yield engine()
    try:
        await answering(worker.brokers())
        cluster = await topic_ids(worker.client_options(), [])
        async with open_admin(worker.brokers()):
            pass
    except (RingfaustError, KafkaError, OSError, TimeoutError) as error:
        remedy = "check bootstrap_servers and security in worker.yaml, and that brokers run"
        yield Finding("brokers", "fail", _reason(error), remedy)
        return
    yield Finding("brokers", "ok", f"{worker.bootstrap_servers} answers, cluster {cluster.cluster}")
    try:
        used = await configuration_in_use(worker, queues)
    except (RingfaustError, KafkaError, OSError, TimeoutError) as error:
        yield Finding("configuration", "fail", _reason(error), _remedy(error, worker))
        return
    if used.note:
        changes = summary([str(each) for each in used.differences])
        which = f"revision {used.revision}, which is in effect"
        text = f"this queues.yaml differs from {which}: {changes}"
        remedy = "`ringfaust apply` puts the file into effect"
        yield Finding("configuration", "warn", text, remedy)

    async def group(worker: WorkerConfig, _: QueuesConfig) -> list[Finding]:
        return await _group(worker, used.first)

    checks = {
        "acls": permissions, "topics": _topics, "group": group, "clock": _clock, "lag": _lag,
        "transactions": _transactions, "workers": _workers, "lake": lake_lag,
    }  # fmt: skip
    for name, check in checks.items():
        try:
            for finding in await check(worker, used.queues):
                yield finding
        except (RingfaustError, KafkaError, OSError, TimeoutError) as error:
            yield Finding(name, "fail", _reason(error), _remedy(error, worker))


def _reason(error: Exception) -> str:
    """Why something failed, on one line."""
    text = str(error) if isinstance(error, RingfaustError) else ""
    return " ".join((text or f"{type(error).__name__}: {error}".rstrip(": ")).split())


def _remedy(error: Exception, worker: WorkerConfig) -> str:
    if "Authorization" in type(error).__name__:
        return (
            f"grant this user what docs/operations.md lists for topics, the group "
            f"{worker.application} and transactional ids {worker.application}-"
        )
    return "check the brokers' log, then run this again"


# --- this machine -------------------------------------------------------------------------------


def disk(data_dir: Path) -> Finding:
    """Whether there is room for the state on this machine."""
    try:
        place = next(each for each in (data_dir, *data_dir.parents) if each.exists())
        total, _, free = shutil.disk_usage(place)
    except OSError as error:
        text = f"{data_dir} cannot be looked at: {error.strerror}"
        return Finding("disk", "warn", text, "run this as the worker's user")
    text = f"{data_dir}: {free / 2**30:,.1f} GiB of {total / 2**30:,.1f} GiB are free"
    remedy = "free some, or put data_dir on a larger disk: a worker stops when it is full"
    if free < _FAIL_FREE_BYTES:
        return Finding("disk", "fail", text, remedy)
    if free < _WARN_FREE_BYTES or free < total * _WARN_FREE:
        return Finding("disk", "warn", text, remedy)
    return Finding("disk", "ok", text)


def memory(worker: WorkerConfig) -> Finding:
    """Whether what this worker may hold fits into its budget, and the budget into the machine."""
    from ringfaust.worker.observe.memory import PARTITION_BYTES  # noqa: PLC0415 - loads Faust and RocksDB

    machine, parts = machine_bytes(), worker.cache_bytes + worker.partitions * PARTITION_BYTES
    text = (
        f"memory_bytes is {worker.memory_bytes / 2**30:,.1f} GiB of {machine / 2**30:,.1f} GiB: "
        f"caches {worker.cache_bytes / 2**30:,.1f} GiB, and up to {PARTITION_BYTES >> 20} MiB for "
        f"each of {worker.partitions} partitions"
    )
    if worker.memory_bytes >= machine:
        return Finding("memory", "warn", text, "lower memory_bytes: the process could be killed")
    if parts > worker.memory_bytes:
        remedy = "raise memory_bytes, lower cache_bytes, or run more workers: intake could pause"
        return Finding("memory", "warn", text, remedy)
    return Finding("memory", "ok", text)


def engine() -> Finding:
    """Whether a worker of this installation runs compiled."""
    level: Level = "warn" if compiled.REMEDY else "ok"
    return Finding("engine", level, compiled.KIND, compiled.REMEDY)


# --- the brokers --------------------------------------------------------------------------------


async def _topics(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """Topics, their settings and copies, and the coordinator of transactions."""
    names = [each.name for each in wanted_topics(worker, queues)]
    levels: dict[str, Level] = {"error": "fail", "warning": "warn"}
    found = []
    for problem in await check_topics(worker, queues):
        text, _, remedy = problem.text.partition(". ")
        what = "transactions" if problem.what == "coordinator" else "topics"
        found.append(Finding(what, levels[problem.severity], text, remedy))
    if not found:
        found.append(Finding("topics", "ok", f"all {len(names)} exist and are as declared"))
    known = await topic_ids(worker.client_options(), names)
    if known.topics and not all(known.topics.values()):
        remedy = "upgrade to Kafka 3.1 or later, or never delete and recreate a topic"
        text = "these brokers do not know the ids of topics: a recreated topic is not noticed"
        found.append(Finding("versions", "warn", text, remedy))
    return found


async def _group(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """The coordinator of the group, and whether its members have these settings."""
    name = worker_group(worker.application)
    async with open_admin(worker.brokers()) as admin:
        group = await admin.group(name)
    if not group.members:
        text = f"no worker is in group {name}"
        return [Finding("group", "warn", text, "start one: ringfaust worker")]
    if group.protocol and group.protocol != worker_protocol(fingerprint(worker, queues)):
        text = f"the workers of group {name} have other settings than these files"
        remedy = "use the workers' files; ringfaust config check prints the fingerprint"
        return [Finding("group", "fail", text, remedy)]
    return [Finding("group", "ok", f"{len(group.members)} in group {name}, with these settings")]


async def _clock(worker: WorkerConfig, _: QueuesConfig) -> list[Finding]:
    """The clock of this machine. The check writes in a transaction, which it aborts."""
    topic = worker.topic(Role.HOP)
    if not await existing_partitions(worker.brokers(), [topic]):  # writing to it might create it
        text = f"not compared: topic {topic} does not exist"
        return [Finding("clock", "warn", text, "ringfaust topics create")]
    me = f"doctor/{uuid4().hex[:8]}"
    skew_ms = await clock_skew_ms(worker.client_options(), worker.application, me)
    side = "ahead of" if skew_ms > 0 else "behind"
    text = f"this machine is {abs(skew_ms):,} ms {side} the brokers"
    if abs(skew_ms) > (most := worker.clock_skew_max_ms):
        remedy = f"set the clocks, with NTP for example: clock_skew_max_ms is {most:,} ms"
        return [Finding("clock", "fail", text, remedy)]
    return [Finding("clock", "ok", text if skew_ms else "this machine agrees with the brokers")]


async def _lag(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """How many records of the inputs are behind the group's offsets."""
    inputs = [route.topic for route in queues.routes]
    inputs += [worker.topic(Role.CONTROL), worker.topic(Role.HOP)]
    tps = await existing_partitions(worker.brokers(), inputs)
    if not tps:
        return [Finding("lag", "ok", "there is nothing to read")]
    async with committed_reader(worker.client_options()) as reader:
        ends = await reader.end_offsets(tps)
        begins = await reader.beginning_offsets(tps)
    known = await group_offsets(worker.client_options(), worker_group(worker.application), tps)
    behind: dict[str, int] = {}
    for tp, end in ends.items():
        offset = known[tp].offset if tp in known else begins[tp]
        behind[tp.topic] = behind.get(tp.topic, 0) + max(end - offset, 0)
    most = max(behind, key=lambda topic: behind[topic], default="")
    total = sum(behind.values())
    text = f"{total:,} records are not read yet"
    if total > LAG_RECORDS:
        remedy = "if it grows, add workers, or resume the queue that is paused or full"
        return [Finding("lag", "warn", f"{text}, {behind[most]:,} of them in {most}", remedy)]
    return [Finding("lag", "ok", text)]


async def _transactions(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """Transactions that have been open for long: no reader gets past them."""
    names = [each.name for each in wanted_topics(worker, queues)]
    hanging: list[Finding] = []
    tps = await existing_partitions(worker.brokers(), names)
    if not tps:
        return [Finding("transactions", "ok", "there are no topics")]
    client = worker.client_options()
    async with committed_reader(client) as committed:
        stable = await committed.end_offsets(tps)
    uncommitted = AIOKafkaConsumer(**client, auto_offset_reset="none")
    async with connected(uncommitted) as reader:
        ends = await reader.end_offsets(tps)
        for tp in tps:
            if stable[tp] >= ends[tp]:
                continue
            since_ms = await _time_at(reader, tp, stable[tp])
            if since_ms and wall_ms() - since_ms > HANGING_MS:
                minutes = (wall_ms() - since_ms) // 60_000
                text = f"{tp.topic}/{tp.partition} has a transaction open for {minutes} min"
                remedy = (
                    "find its producer: kafka-transactions.sh find-hanging --topic "
                    f"{tp.topic} --partition {tp.partition}; abort ends it"
                )
                hanging.append(Finding("transactions", "fail", text, remedy))
    return hanging or [Finding("transactions", "ok", "none hangs")]


async def _time_at(reader: AIOKafkaConsumer, tp: TopicPartition, offset: int) -> int:
    """When the record at an offset, or the next one, was written; 0: it cannot be read."""
    reader.assign([tp])
    reader.seek(tp, offset)
    found = await reader.getmany(tp, timeout_ms=_READ_TIMEOUT_MS, max_records=1)
    return int(found[tp][0].timestamp) if found.get(tp) else 0


# --- the workers --------------------------------------------------------------------------------


async def _workers(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """What the workers report."""
    try:
        async with StatusReader(
            bootstrap_servers=worker.bootstrap_servers,
            application=worker.application,
            client_options=worker.security.client_options(),
        ) as status:
            found, split, rows = status.workers(), status.split_queues(), status.queues()
    except ClientError as error:
        return [Finding("workers", "warn", str(error).partition(":")[0], "ringfaust topics create")]
    return [
        *judge_workers(found, worker, wall_ms()),
        *judge_engines(found, wall_ms()),
        *judge_queues(split),
        *judge_settings({each.queue: each.settings for each in rows}, queues.catalog()),
    ]
