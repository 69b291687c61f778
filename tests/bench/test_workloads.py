"""The bookkeeping of the benchmark: its loads, and how results are summed up and published."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from bench import page
from bench.__main__ import chosen
from bench.model import Load
from bench.peers.artemis import Artemis
from bench.peers.share_group import ShareGroup
from bench.publish import merged
from bench.results import Line, Results, read
from bench.workloads import workloads

EVICT = Load("evict", "", "evict", 1_000)
CYCLE = Load("cycle", "individual, credit 10", "cycle", 1_000)
WHERE = {
    "at": "2026-01-01", "commit": "abc", "processor": "p", "cores": 2, "memory_gib": 4,
    "python": "3.11", "java": "17", "broker": "kafka", "engine": "compiled",
}  # fmt: skip


def results(load: Load, *pairs: tuple[float, float], **more: str) -> Results:
    """Rounds of ringfaust and Artemis."""
    ours = Line(load, "ringfaust", [{"per_second": our} for our, _ in pairs])
    theirs = Line(load, "Artemis", [{"per_second": their} for _, their in pairs])
    return Results({**WHERE, **more}, [ours, theirs])


def test_the_loads_of_a_run_differ_by_name() -> None:
    titles = [load.title for loads in workloads(1).values() for load in loads]
    assert len(set(titles)) == len(titles)


def test_only_picks_workloads_and_an_unknown_one_is_an_error() -> None:
    assert {load.workload for load in chosen("cycle, evict", 1)} == {"evict", "cycle"}
    with pytest.raises(typer.BadParameter, match="there is no workload evicting"):
        chosen("evicting", 1)


@pytest.mark.parametrize("peer", [ShareGroup(), Artemis(fsync=False)], ids=lambda peer: peer.name)
def test_a_peer_with_a_broker_of_its_own_warms_it_up_once(
    peer: ShareGroup | Artemis, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: list[Load] = []
    carry = "_consume" if isinstance(peer, ShareGroup) else "_perf"
    monkeypatch.setattr(peer, carry, lambda load: carried.append(load) or {})
    (cycle,) = chosen("cycle", 1)[:1]
    peer.run(cycle)
    peer.run(cycle)
    *warm_ups, first, second = carried
    assert {load.workload for load in warm_ups} == {"warm-up"}
    assert (first, second) == (cycle, cycle)


def test_the_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    header, row = page.rows(results(EVICT, (10, 20), (30, 30), (50, 10)))
    assert header == ["load", "figure", "ringfaust", "Artemis", "of Artemis"]
    assert row == ["evict", "messages/s", "30.0 (10.0–50.0)", "20.0 (10.0–30.0)", "1.00"]


def test_results_are_read_back_as_written(tmp_path: Path) -> None:
    written = results(EVICT, (10, 20))
    written.write(tmp_path / "results.json")
    assert read(tmp_path / "results.json") == written


def test_parts_are_merged_and_a_repeated_load_counts_once() -> None:
    parts = [results(EVICT, (1, 1)), results(CYCLE, (2, 2)), results(EVICT, (3, 3))]
    both = merged(parts)
    assert set(both.loads()) == {EVICT, CYCLE}
    line = both.line(EVICT, "ringfaust")
    assert line is not None and line.rounds == [{"per_second": 3}]


def test_parts_of_two_commits_are_not_merged() -> None:
    with pytest.raises(typer.BadParameter, match="differ in commit: abc and def"):
        merged([results(EVICT, (1, 1)), results(CYCLE, (2, 2), commit="def")])


def test_figures_of_pure_python_are_not_published() -> None:
    with pytest.raises(typer.BadParameter, match="not compiled but pure Python: slower: run"):
        merged([results(EVICT, (1, 1), engine="pure Python: slower")])


def test_publishing_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    (tmp_path / "performance.md").write_text(text)
    page.publish(results(EVICT, (10, 20)), tmp_path)
    page.publish(results(EVICT, (30, 20)), tmp_path)
    published = (tmp_path / "performance.md").read_text()
    assert "| evict | messages/s | 30.0 | 20.0 | 1.50 |" in published
    assert "10.0" not in published
    assert published.partition(page.BEGIN)[0] == text.partition(page.BEGIN)[0]
    assert published.partition(page.END)[2] == text.partition(page.END)[2]
    assert (tmp_path / "performance-rates.svg").exists()
