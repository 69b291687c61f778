"""What `ringfaust doctor` says of workers and queues, by what they publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from ringfaust import compiled
from ringfaust.cli.finding import Finding
from ringfaust.cli.queue import SPLIT_REMEDY
from ringfaust.cli.worker import ranges
from ringfaust.client import WorkerStatus
from ringfaust.config import WorkerConfig
from ringfaust.core.catalog import Catalog
from ringfaust.core.settings import QueueSpec, written_name
from ringfaust.protocol.status import CAUGHT_UP_RECORDS

_WITH_STANDBYS = 2
"""From so many workers on, partitions have standbys."""
_SHOWN = 5
"""Queues that one finding names."""


def judge_queues(split: Mapping[str, Sequence[int]]) -> list[Finding]:
    """What is wrong with queues that are in several partitions; `split`: by name, which (R113)."""
    if not split:
        return [Finding("queues", "ok", "each is in one partition")]
    shown = [
        f"{name!r} (partitions {', '.join(map(str, homes))})"
        for name, homes in sorted(split.items())[:_SHOWN]
    ]
    more = f" and {len(split) - _SHOWN:,} more" if len(split) > _SHOWN else ""
    text = f"queues of one name are in several partitions: {', '.join(shown)}{more}"
    return [Finding("queues", "warn", text, SPLIT_REMEDY)]


def judge_settings(published: Mapping[str, Mapping[str, Any]], catalog: Catalog) -> list[Finding]:
    """Which queues have other settings than the configuration: they were set live.

    Args:
        published: by queue, the settings that differ from the defaults.
        catalog: what the configuration declares.
    """
    different = []
    for name, settings in sorted(published.items()):
        declared = asdict(catalog.spec(name, {}))
        now = {each.name: each.default for each in fields(QueueSpec)} | dict(settings)
        names = [each for each in declared if now.get(each, declared[each]) != declared[each]]
        different += [
            f"{name!r}: {written_name(each)} is {now[each]!r}, "
            f"the configuration says {declared[each]!r}"
            for each in names
        ]
    if not different:
        return [Finding("settings", "ok", "the queues have the settings of the configuration")]
    more = f"; and {len(different) - _SHOWN:,} more" if len(different) > _SHOWN else ""
    text = (
        f"queues have other settings than the configuration: {'; '.join(different[:_SHOWN])}{more}"
    )
    remedy = "`ringfaust queue show` says which were set live; `queue reset` takes these back"
    return [Finding("settings", "warn", text, remedy)]


def judge_workers(
    found: Sequence[WorkerStatus], worker: WorkerConfig, now_ms: int
) -> list[Finding]:
    """What is wrong with the workers that have published their status."""
    wrong = []
    for each in found:
        if each.is_stale(now_ms):
            remedy = "see its log and whether it runs; if it is gone for good, ignore this"
            text = f"{each.worker} has been silent for {(now_ms - each.time_ms) // 1000} s"
            wrong.append(Finding("workers", "warn", text, remedy))
        elif each.stopped:
            wrong += [
                Finding(
                    "partitions", "fail",
                    f"partition {it.partition} has stopped at {it.at or 'no record'}: {it.reason}",
                    f"{it.remedy}: see ringfaust partition show {it.partition}",
                )
                for it in each.stopped
            ]  # fmt: skip
        elif not each.is_ready:
            why = each.problems[0] if each.problems else "for an unknown reason"
            text = f"{each.worker} is not ready: {why}"
            wrong.append(Finding("workers", "warn", text, "wait while it recovers, or see its log"))
        if abs(each.clock_skew_ms or 0) > worker.clock_skew_max_ms:
            text = f"the clock of {each.worker} differs by {each.clock_skew_ms:,} ms"
            wrong.append(Finding("workers", "fail", text, "set its clock, with NTP for example"))
    running = [each for each in found if not each.is_stale(now_ms)]
    used = max((level for each in running for level in each.level.values()), default=0)
    for each in running:
        if each.levels[1] < used:
            text = f"{each.worker} ({each.version}) is too old: level {used} is in use (R129)"
            remedy = "upgrade it: it gets no partitions, see ringfaust upgrade status"
            wrong.append(Finding("versions", "fail", text, remedy))
    versions = sorted({each.version for each in running})
    if len(versions) > 1:
        text = f"workers run different versions: {', '.join(versions)}"
        remedy = "upgrade all workers, then run ringfaust upgrade finish"
        wrong.append(Finding("versions", "warn", text, remedy))
    served = {str(number) for each in running for number in each.partitions}
    served |= {stopped.partition for each in running for stopped in each.stopped}
    missing = [number for number in range(worker.partitions) if str(number) not in served]
    if missing and running:
        text = f"nobody serves partition {', '.join(map(str, missing[:10]))}"
        wrong.append(Finding("workers", "warn", text, "wait for the rebalance, or start a worker"))
    wrong += _judge_standbys(running, worker)
    level = f", level {used}" if used else ""
    if wrong or not running:
        return wrong or [Finding("workers", "warn", "none runs", "start one: ringfaust worker")]
    return [Finding("workers", "ok", f"{len(running)} ready, version {versions[0]}{level}")]


def judge_engines(found: Sequence[WorkerStatus], now_ms: int) -> list[Finding]:
    """Which workers run as pure Python, which is slower."""
    return [
        Finding(
            "engine", "warn", f"that of {each.worker} is {each.engine}",
            "see `ringfaust version` where it is installed",
        )
        for each in found
        if each.engine.startswith(compiled.PURE) and not each.is_stale(now_ms)
    ]  # fmt: skip


def _judge_standbys(running: Sequence[WorkerStatus], worker: WorkerConfig) -> list[Finding]:
    """Which partitions would have to be read from the changelog if their worker died (R127)."""
    if worker.standby == 0 or len(running) < _WITH_STANDBYS:
        return []
    followed = {
        number
        for each in running
        for number, behind in each.standbys.items()
        if behind is not None and behind <= CAUGHT_UP_RECORDS
    }
    missing = sorted({number for each in running for number in each.partitions} - followed)
    if not missing:
        return []
    return [
        Finding(
            "standbys", "warn",
            f"partition {ranges(missing)} has no standby that is caught up: if its worker dies, "
            "the next one must read the changelog first",
            "wait until ringfaust worker ls shows that one is caught up; if none is shown, set "
            "standby: 1 in worker.yaml of more workers",
        )
    ]  # fmt: skip
