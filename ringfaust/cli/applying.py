"""`ringfaust apply`, `diff` and `history`: the configuration that is in the log (R128)."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ringfaust.cli.operate import (
    AsJson,
    Target,
    Yes,
    confirm,
    operator,
    print_json,
    print_list,
    say,
    with_admin,
    with_application,
)
from ringfaust.cli.parts import where
from ringfaust.cli.worker import partitions_text
from ringfaust.errors import RingfaustError
from ringfaust.times import time_text

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.configuring import Applied
    from ringfaust.config import QueuesConfig, WorkerConfig
    from ringfaust.config.differences import Difference
    from ringfaust.core.catalog import Configuration
    from ringfaust.protocol.stored_rows import Feeds, JobOwner

_DIFFERS = 1
"""Exit status of `diff` if something differs; 2 is an error, as for every command."""

Revision = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Use this revision of the log in place of the file."),
]


class WrongRoutes(RingfaustError):
    """Routes that cannot take effect now. Nothing was changed; the text says what to do."""


class NoFile(RingfaustError):
    """Nothing names a folder, so the file would be the shipped example. Nothing was changed."""


class NoRevision(RingfaustError):
    """The log does not have this revision (any more). `ringfaust history` lists what it has."""


class NothingApplied(NoRevision):
    """No worker runs, and nothing was applied yet: workers begin with their queues.yaml."""


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """An entry that differs, as `diff` and `apply` print it."""

    section: str
    name: str
    what: str
    before: dict[str, Any]
    now: dict[str, Any]
    text: str
    """It as one line."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What `apply` would change."""

    revision: int
    """The present one; 0: nothing was applied yet."""
    differences: list[ShownDifference]
    behind: dict[int, int]
    """Partitions that use another revision, with that."""
    needs_stop: bool
    """Whether all workers have to be stopped for it, because a topic begins or ends to take the
    hop; or the ring job that has the rings, because the routes change."""


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """What `apply` has done."""

    revision: int
    differences: list[ShownDifference]
    partitions: list[int]
    """Those that have taken it up."""
    waiting: list[int]
    """Those that take it up when a worker serves them."""


@dataclass(frozen=True, slots=True)
class ShownRevision:
    """A revision, as `history` prints it."""

    revision: int
    applied_ms: int
    who: str
    text: str
    configuration: dict[str, Any]


def diff(*, target: Target, revision: Revision = None, as_json: AsJson = False) -> None:
    """Show what `apply` would change. Exit status: 0 nothing, 1 something, 2 an error.

    Example: ringfaust diff --config config
    """
    worker, asked = _load(target, revision)

    async def look(admin: Admin, worker: WorkerConfig) -> Diff:
        return (await _look(admin, worker, asked)).diff

    found = with_application(worker, look, needs_worker=False)
    if as_json:
        print_json(found)
    elif found.differences or found.behind:
        _print(found)
    else:
        say(f"nothing differs from revision {found.revision}")
    if found.differences or found.behind:
        raise typer.Exit(_DIFFERS)


def apply(
    *,
    target: Target,
    revision: Revision = None,
    message: Annotated[
        str, typer.Option(metavar="TEXT", help="Why. Default: what it changes.")
    ] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who. Default: USER@HOST.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put queues.yaml into effect, for all partitions at once and without a restart.

    With --revision, put an earlier revision into effect again.

    Example: ringfaust apply --config config --message "a smaller ring" --yes
    """
    worker, asked = _load(target, revision)
    place = where(worker)

    async def act(admin: Admin, worker: WorkerConfig) -> tuple[Diff, Applied]:
        from ringfaust.client.configuring import Applied

        looked = await _look(admin, worker, asked)
        wanted, found = looked.wanted, looked.diff
        if not (found.differences or found.behind):
            return found, Applied(found.revision, (), ())
        if not as_json:
            _print(found)
        await _check_routes(looked, admin, worker)
        confirm(f"This becomes revision {found.revision + 1}.", place, yes=yes)
        applied = await admin.apply(
            wanted.document(),
            who=by or operator(),
            text=message or _summary(found, revision),
            after=found.revision,
            is_stopped=looked.is_stopped,
        )
        return found, applied

    try:
        found, applied = with_application(worker, act, needs_worker=False)
    except NothingApplied as nothing:
        if revision is not None:
            raise
        if as_json:
            print_json(AppliedRevision(0, [], [], []))
        else:
            say(str(nothing))
        return
    if as_json:
        print_json(
            AppliedRevision(
                applied.revision, found.differences, [*applied.partitions], [*applied.waiting]
            )
        )
    elif not (applied.partitions or applied.waiting):
        say(f"nothing differs from revision {found.revision}")
    else:
        _print_applied(applied)


def history(*, target: Target, as_json: AsJson = False) -> None:
    """List what was applied, when and by whom: the newest last.

    Example: ringfaust history
    """
    found = with_admin(target, lambda admin: admin.history(), needs_worker=False)
    print_list(
        [
            ShownRevision(each.revision, each.applied_ms, each.who, each.text, {**each.document})
            for each in found
        ],
        ("revision", "applied", "by", "what"),
        lambda each: (
            each.revision,
            time_text(each.applied_ms) if each.applied_ms else "before revision 1",
            each.who, each.text or "-",
        ),
        as_json=as_json, nothing="nothing was applied yet: the workers use their queues.yaml",
    )  # fmt: skip


# --- the parts ------------------------------------------------------------------------------------


def _load(target: Target, revision: int | None) -> tuple[WorkerConfig, QueuesConfig | int]:
    """Read the configuration: worker.yaml, and the queues.yaml unless a revision is meant.

    Raises:
        NoFile: it is the shipped example, which nobody means for an application of their own.
    """
    place = target.place()
    if revision is not None:
        return place.load_worker(), revision
    if place.folder is None:
        raise NoFile("name the folder of the queues.yaml that is meant: --config DIR")
    return place.load()


class _Looked(NamedTuple):
    """What to apply, and to whom."""

    wanted: QueuesConfig
    diff: Diff
    is_stopped: bool
    """Whether neither workers nor a ring job use a configuration now."""
    job: JobOwner | None
    """The ring job that has the rings."""


async def _used(
    admin: Admin, worker: WorkerConfig
) -> tuple[Mapping[int, Configuration], JobOwner | None]:
    """What each partition uses, and the ring job that has the rings.

    Nothing, if no worker is in the group, and no job answers.
    """
    from ringfaust.client import NoAnswer
    from ringfaust.kafka.admin import open_admin
    from ringfaust.kafka.changelog_owner import changelog_ends
    from ringfaust.kafka.names import worker_group
    from ringfaust.protocol.records import Role

    changelog = worker.topic(Role.CHANGELOG)
    async with open_admin(worker.brokers()) as brokers:
        if (await brokers.group(worker_group(worker.application))).members:
            return await admin.configuration(), None
        there = (await brokers.existing([changelog])).get(changelog)
    if there is None:
        return {}, None
    ends = await changelog_ends(worker.client_options(), changelog, there.partitions)
    job = next((end.job for end in ends if end.job), None)
    if job is None:
        return {}, None
    try:
        return await admin.configuration(), job
    except NoAnswer:  # it keeps the rings when it stops
        return {}, job


async def _look(admin: Admin, worker: WorkerConfig, asked: QueuesConfig | int) -> _Looked:
    """What to apply, and what that changes. `asked`: the file, or a revision of the log."""
    from ringfaust.config.differences import differences
    from ringfaust.protocol.route_changes import feeds_of, hops_changed

    used, job = await _used(admin, worker)
    revisions = await admin.history()
    if not used and not revisions:
        raise NothingApplied(
            "no worker runs, and nothing was applied yet: start the workers with this queues.yaml"
        )
    wanted = _content(asked, revisions, worker) if isinstance(asked, int) else asked
    newest = max((*used.values(), *revisions), key=lambda each: each.revision)
    document = wanted.document()
    found = differences(newest.document, document)
    behind = {n: each.revision for n, each in used.items() if each.revision != newest.revision}

    def feeds(each: Configuration) -> Feeds:
        return feeds_of(each.document, len(used))

    now = feeds_of(document, len(used))
    if job:
        needs_stop = feeds(newest) != now
    else:  # like `apply`: a route that was dropped meanwhile counts, too
        logs = [revisions, *([each] for each in used.values())]
        needs_stop = any(hops_changed(map(feeds, log), now) for log in logs)
    diff = Diff(newest.revision, list(map(_shown, found)), behind, bool(used) and needs_stop)
    return _Looked(wanted, diff, not used, job)


async def _check_routes(looked: _Looked, admin: Admin, worker: WorkerConfig) -> None:
    """Refuse routes that cannot take effect now.

    Raises:
        WrongRoutes: a topic is missing or has another number of partitions; a ring job runs; or a
            worker of version 0.2.0, which reads routes only when it starts.
    """
    from ringfaust.cli.upgrade import look
    from ringfaust.config.topics import check_topics

    if looked.is_stopped or not any(each.section == "routes" for each in looked.diff.differences):
        return
    if looked.job is not None:
        raise WrongRoutes(
            f"the ring job with the checkpoint {looked.job.checkpoint} has the rings, and takes "
            "other routes only when it starts. Nothing was changed. Stop it, apply again, and "
            "start it"
        )
    if old := (await look(admin, worker)).too_old:
        raise WrongRoutes(
            f"{', '.join(old)} take other routes only when they start. Nothing was changed. "
            "Upgrade them first, and apply again"
        )
    topics = {route.topic for route in looked.wanted.routes}
    texts = [
        problem.text
        for problem in await check_topics(worker, looked.wanted)
        if problem.severity == "error" and problem.topic in topics
    ]
    if texts:
        raise WrongRoutes(f"{' '.join(texts)} Nothing was changed")


def _content(
    revision: int, revisions: Sequence[Configuration], worker: WorkerConfig
) -> QueuesConfig:
    from ringfaust.config.applied import queues_of
    from ringfaust.protocol.records import Role

    for each in revisions:
        if each.revision == revision:
            return queues_of(each, worker.topic(Role.CONFIGURATION))
    raise NoRevision(f"the log does not have revision {revision}: see `ringfaust history`")


def _shown(each: Difference) -> ShownDifference:
    return ShownDifference(**asdict(each), text=str(each))


def _print(found: Diff) -> None:
    for each in found.differences:
        say(each.text)
    for number, revision in found.behind.items():
        say(f"partition {number} uses revision {revision}, others use {found.revision}")
    if found.needs_stop:
        say("the routes differ: stop all workers, or the ring job, then apply, then start them")


def _summary(found: Diff, revision: int | None) -> str:
    from ringfaust.config.differences import summary

    text = summary([each.text for each in found.differences])
    return text if revision is None else f"back to revision {revision}: {text}"


def _print_applied(applied: Applied) -> None:
    if applied.partitions:
        say(f"revision {applied.revision} is in effect in {partitions_text(applied.partitions)}")
    if applied.waiting:
        say(
            f"revision {applied.revision} is in the log, and takes effect in "
            f"{partitions_text(applied.waiting)} when a worker serves them"
        )
