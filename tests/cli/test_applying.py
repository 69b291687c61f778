"""Whom `apply` and `diff` ask what is in use, and which routes `apply` refuses (R113, R128)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfaust.cli import applying
from ringfaust.cli.applying import WrongRoutes
from ringfaust.cli.main import main
from ringfaust.client import NoAnswer
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.documents import shipped
from ringfaust.config.topics import TopicProblem
from ringfaust.core.catalog import Configuration
from ringfaust.protocol.stored_rows import JobOwner

WORKER = WorkerConfig()
JOB = JobOwner("s3://rings", "query", 0, from_worker=False)
ROUTE = {"topic": "in", "queue": "q.{key}", "hop": "auto"}
BEFORE = {"routes": [], "queues": {"q.*": {}}, "addresses": {}, "settings": {}}
USED = {0: Configuration(3, BEFORE)}


class World:
    """A cluster: members of the group of workers, a job, and who answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members: list[str] = []
        self.job: JobOwner | None = None
        self.answers = True
        self.revisions = [USED[0]]
        self.problems: list[TopicProblem] = []
        self.too_old: list[str] = []
        self.admin: Any = self

        async def changelog_ends(_: object, topic: str, partitions: int) -> list[Any]:
            assert (topic, partitions) == ("ringfaust.changelog", 1)  # not 4, as in worker.yaml
            return [SimpleNamespace(job=self.job)]

        async def check_topics(*_: object) -> list[TopicProblem]:
            return self.problems

        async def upgrade(*_: object) -> Any:
            return SimpleNamespace(too_old=self.too_old)

        def with_application(worker: WorkerConfig, act: Any, **_: object) -> Any:
            return asyncio.run(act(self, worker))

        monkeypatch.setattr(applying, "with_application", with_application)
        monkeypatch.setattr("ringfaust.cli.upgrade.look", upgrade)
        monkeypatch.setattr("ringfaust.kafka.admin.open_admin", self._open)
        monkeypatch.setattr("ringfaust.kafka.changelog_owner.changelog_ends", changelog_ends)
        monkeypatch.setattr("ringfaust.config.topics.check_topics", check_topics)

    @asynccontextmanager
    async def _open(self, *_: object) -> AsyncIterator[Any]:
        yield self

    async def group(self, name: str) -> Any:
        return SimpleNamespace(members=self.members)

    async def existing(self, names: list[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(partitions=1) for name in names}

    async def configuration(self) -> dict[int, Configuration]:
        if not self.answers:
            raise NoAnswer("no worker answered")
        return USED

    async def history(self) -> list[Configuration]:
        return self.revisions

    async def look(self, **route: str) -> Any:
        wanted = QueuesConfig.model_validate({**BEFORE, "routes": [{**ROUTE, **route}]})
        return await applying._look(self.admin, WORKER, wanted)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_ring_job_that_has_stopped_gets_other_routes_with_its_next_start(
    world: World,
) -> None:
    """It keeps the rings, so its row in the changelog does not tell whether it runs."""
    world.job, world.answers = JOB, False
    looked = await world.look()
    assert looked.is_stopped
    assert not looked.diff.needs_stop
    assert [each.name for each in looked.diff.differences] == ["in"]
    await applying._check_routes(looked, world.admin, WORKER)


async def test_a_ring_job_that_runs_is_refused_other_routes(world: World) -> None:
    world.job = JOB
    looked = await world.look()
    assert not looked.is_stopped
    assert looked.diff.needs_stop
    with pytest.raises(WrongRoutes, match="s3://rings has the rings, and takes other routes only"):
        await applying._check_routes(looked, world.admin, WORKER)


async def test_workers_that_do_not_answer_are_no_stopped_job(world: World) -> None:
    world.members, world.job, world.answers = ["one"], JOB, False
    with pytest.raises(NoAnswer):
        await world.look()


@pytest.mark.parametrize("hop", ["never", "always"])
async def test_a_topic_that_had_the_other_hop_in_an_earlier_revision_needs_a_stop(
    world: World, hop: str
) -> None:
    """The newest revision does not have the topic. `apply` refuses it, so `diff` must tell."""
    world.members = ["one"]
    earlier = Configuration(2, {**BEFORE, "routes": [{**ROUTE, "hop": "never"}]})
    world.revisions = [earlier, USED[0]]
    looked = await world.look(hop=hop)
    assert looked.diff.needs_stop is (hop == "always")


async def test_the_topics_of_routes_must_be_as_at_a_start(world: World) -> None:
    world.members = ["one"]
    missing = TopicProblem("in", "missing", "error", "Topic in does not exist.")
    world.problems = [missing, TopicProblem("other", "missing", "error", "Another problem.")]
    looked = await world.look()
    with pytest.raises(WrongRoutes) as refused:
        await applying._check_routes(looked, world.admin, WORKER)
    assert str(refused.value) == "Topic in does not exist. Nothing was changed"
    world.problems = []
    await applying._check_routes(looked, world.admin, WORKER)


async def test_a_worker_of_0_2_0_is_not_given_other_routes(world: World) -> None:
    """It would go on reading those of its start (R129)."""
    world.members, world.too_old = ["one"], ["host-1 (0.2.0)"]
    looked = await world.look()
    with pytest.raises(WrongRoutes, match=r"host-1 \(0.2.0\) take other routes only when"):
        await applying._check_routes(looked, world.admin, WORKER)


def test_before_the_first_start_there_is_nothing_to_apply(world: World) -> None:
    """The chart's job runs before the workers: after an installation that failed, for example."""
    world.revisions = []
    place = ["--config", str(shipped("config"))]
    done = CliRunner().invoke(main, ["apply", "--yes", *place])
    assert done.exit_code == 0, done.output
    assert "nothing was applied yet: start the workers with this queues.yaml" in done.stdout
    shown = CliRunner().invoke(main, ["apply", "--yes", "--json", *place])
    assert json.loads(shown.stdout) == {
        "revision": 0, "differences": [], "partitions": [], "waiting": [],
    }  # fmt: skip
    for command in (["apply", "--yes", "--revision", "1"], ["diff", *place]):
        refused = CliRunner().invoke(main, command)
        assert refused.exit_code == 2 and "nothing was applied yet" in refused.output


@pytest.mark.parametrize("command", ["apply", "diff"])
def test_an_earlier_revision_is_found_beside_a_file_that_is_not_valid(
    world: World, tmp_path: Path, command: str
) -> None:
    """Nobody asks for the file, which may be the reason to go back."""
    (tmp_path / "queues.yaml").write_text("quues: {}\n")
    where = ["--config", str(tmp_path), "--revision"]
    done = CliRunner().invoke(main, [command, *where, "3"])
    assert (done.exit_code, done.stdout) == (0, "nothing differs from revision 3\n"), done.output
    refused = CliRunner().invoke(main, [command, *where, "2"])
    assert "the log does not have revision 2" in refused.stderr


@pytest.mark.parametrize("command", ["apply --yes", "diff"])
def test_the_shipped_example_is_not_applied_to_another_application(
    world: World, command: str
) -> None:
    where = ["--bootstrap-servers", "shop:9092", "--application", "shop"]
    refused = CliRunner().invoke(main, [*command.split(), *where])
    assert (refused.exit_code, "queues.yaml that is meant: --config DIR" in refused.stderr) == (
        2,
        True,
    )
