"""What counts when a host starts, and how two configurations differ (R128)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust import __version__
from ringfaust.client.configuring import settings_since
from ringfaust.config import ConfigError, QueuesConfig, applied
from ringfaust.config.agreement import fingerprint
from ringfaust.config.applied import configuration_in_use, newest_of
from ringfaust.config.differences import differences, summary
from ringfaust.config.worker import WorkerConfig
from ringfaust.core.catalog import Configuration
from ringfaust.errors import UnsupportedLevel
from ringfaust.protocol.document_checks import document_faults
from ringfaust.protocol.revisions import (
    ConfigurationLog,
    RaisedLevel,
    level_row,
    read_log,
    revision_rows,
)


def queues(**fields: Any) -> QueuesConfig:
    return QueuesConfig.model_validate({"queues": {"q": fields}})


def revision(number: int, content: QueuesConfig) -> Configuration:
    return Configuration(number, content.document(), "ann", "text", 1_700_000_000_000)


def test_without_a_revision_the_file_counts() -> None:
    file = queues(ring_size=3)
    found = newest_of([], file, "t")
    assert found == (file, file, (), 1, None, ())
    assert (found.note, found.revision) == ("", 0)


def test_the_newest_revision_counts_and_an_older_file_is_told() -> None:
    first, second = queues(ring_size=3), queues(ring_size=4)
    known = [revision(0, first), revision(1, second)]
    found = newest_of(known, first, "t")
    assert (found.queues, found.first) == (second, first)
    assert "differs from revision 1, which ann applied at 2023-11-14" in found.note
    assert "`ringfaust apply` puts the file into effect" in found.note
    assert (found.revision, list(map(str, found.differences))) == (
        1, ["~ queues q  ring_size: 4 -> 3"]
    )  # fmt: skip
    assert newest_of(known, second, "t").note == ""
    assert found.newest == known[1], "what a new partition begins with"


def test_other_order_of_the_routes_is_no_difference() -> None:
    """The worker said that its file differs, and `diff` showed nothing."""
    routes = [{"topic": name, "queue": name, "hop": "always"} for name in ("a", "b")]
    one, other = (
        QueuesConfig.model_validate({"routes": each, "queues": {"a": {}, "b": {}}})
        for each in (routes, routes[::-1])
    )
    assert newest_of([revision(1, one)], other, "t").note == ""


RIGHT_NAMES = ["q", "r", "a.b", "*", "#", "a.*"]
NAMES = st.sampled_from([*RIGHT_NAMES * 4, "a*", "x::y", "", "q" * 300, "nul\0"])
RIGHT_SETTINGS = [{}, {"ring_size": 3}, {"window": 1}]
WRONG_SETTINGS = [{"ring_size": -7}, {"ring_sise": 3}, {"selector": "a ="}]
SETTINGS = st.sampled_from([*RIGHT_SETTINGS * 8, *WRONG_SETTINGS])
TABLES = st.dictionaries(NAMES, SETTINGS, max_size=3)
DOCUMENTS = st.fixed_dictionaries({
    "routes": st.lists(
        st.fixed_dictionaries({
            "topic": st.sampled_from([*"tuvwxyz", "a b", ""]),
            "queue": st.sampled_from(["q", "r", "a.{key}", "a.b", "{key", "x::y", "", "none"]),
            "hop": st.sampled_from(["auto", "always", "never"]),
        }),
        max_size=3,
    ),
    "queues": TABLES,
    "settings": TABLES,
    "addresses": st.dictionaries(
        NAMES,
        st.fixed_dictionaries({}, optional={
            "routing": st.sampled_from(["multicast", "anycast"] * 4 + ["none"]),
            "compat": st.sampled_from(["default", "artemis"] * 4 + ["none"]),
            "retroactive_count": st.sampled_from([0, 3, 0, 3, 0, 3, -1, 1_000_000]),
            "subscriptions": TABLES,
        }),
        max_size=2,
    ),
})  # fmt: skip


@given(DOCUMENTS)
def test_a_worker_can_start_with_whatever_can_be_applied(document: dict[str, Any]) -> None:
    """R128. What was applied with a mistyped queue stopped every worker at its next start."""
    if not document_faults(document, {"app.control"}, 4):
        QueuesConfig.model_validate(document)


def test_a_setting_has_its_value_since_the_revision_that_brought_it() -> None:
    sizes = ({"ring_size": 3}, {"ring_size": 4}, {"ring_size": 4, "max_attempts": 2})
    known = [revision(number, queues(**fields)) for number, fields in enumerate(sizes)]
    since = settings_since(known, "q")
    assert {name: each.revision for name, each in since.items()} == {
        "ring_size": 1, "max_attempts": 2
    }  # fmt: skip
    assert since["ring_size"].who == "ann"
    assert (
        settings_since([*known, revision(3, queues(ring_size=3))], "q")["ring_size"].revision == 3
    )
    assert settings_since(known[:1], "q") == settings_since([], "q") == {}


def test_a_worker_with_any_file_has_the_fingerprint_of_those_that_run() -> None:
    first, second = queues(ring_size=3), queues(ring_size=4)
    known, worker = [revision(0, first), revision(1, second)], WorkerConfig()
    for file in (first, second, queues()):
        used = newest_of(known, file, "t")
        assert fingerprint(worker, used.first) == fingerprint(worker, first)


def test_a_revision_of_a_newer_version_is_named() -> None:
    unknown = Configuration(2, {"queues": {"q": {"of_tomorrow": 1}}})
    with pytest.raises(ConfigError, match="revision 2 in shop.configuration"):
        newest_of([unknown], queues(), "shop.configuration")


def test_rows_are_read_as_they_were_written_and_others_are_skipped() -> None:
    known = [revision(number, queues(ring_size=number + 1)) for number in (0, 1, 101)]
    rows = [(each.key, each.value) for each in revision_rows("t", known)]
    others = [
        (None, b"{}"),
        (b"other/1", b"{}"),
        (b"revision/7", b"no JSON"),
        (b"revision/8", b"[]"),
        (b"revision/9", b'{"revision":1e999,"configuration":{}}'),
    ]
    found = read_log([*others, *rows])
    assert found == ([known[0], known[2]], RaisedLevel()), "101 forgets 1"


def test_the_row_of_the_level_is_read_as_it_was_written() -> None:
    raised = RaisedLevel(2, "ann", 1_700_000_000_000)
    row = level_row("t", raised)
    others = (b"no JSON", b"[]", b'{"who":"bob"}', b'{"level":1e999}', None)
    more = [(b"level", value) for value in others]
    assert read_log([(row.key, row.value), *more]).level == raised
    assert read_log([(b"level", b'{"level":3,"of_tomorrow":1}')]).level == (3, "", 0)
    assert read_log([]).level.level == 1, "as before there were levels"


@pytest.mark.parametrize(("level", "refused"), [(1, False), (2, False), (3, True)])
async def test_who_does_not_support_the_level_in_use_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, level: int, *, refused: bool
) -> None:
    async def log(*_: object) -> ConfigurationLog:
        return ConfigurationLog([], RaisedLevel(level, "ann"))

    monkeypatch.setattr(applied, "configuration_log", log)
    if refused:
        with pytest.raises(UnsupportedLevel, match=rf"ringfaust {__version__} on .* is too old: "):
            await configuration_in_use(WorkerConfig(), queues())
    else:
        assert (await configuration_in_use(WorkerConfig(), queues())).level == level


def test_differences_name_the_entries_and_the_fields() -> None:
    before = QueuesConfig.model_validate(
        {
            "routes": [{"topic": "t", "queue": "q"}],
            "queues": {"q": {"ring_size": 2, "dedup_window_ms": 5}, "gone": {}},
            "addresses": {"p": {"subscriptions": {"a": {}}}},
        }
    )
    now = QueuesConfig.model_validate(
        {
            "routes": [{"topic": "t", "queue": "q", "hop": "always"}],
            "queues": {"q": {"ring_size": 3}, "new": {}},
            "addresses": {"p": {"subscriptions": {"a": {}, "b": {"ring_size": 1}}}},
            "settings": {"#": {"batch": 2}},
        }
    )
    found = differences(before.document(), now.document())
    assert list(map(str, found)) == [
        "~ routes t  hop: auto -> always",
        "- queues gone",
        "+ queues new",
        "~ queues q  dedup_window_ms: 5 -> default, ring_size: 2 -> 3",
        "~ addresses p  subscriptions.b: default -> {'ring_size': 1}",
        "+ settings #  batch: 2",
    ]
    assert summary(list(map(str, found))).startswith(
        "~ routes t  hop: auto -> always; - queues gone; "
    )
    assert differences(now.document(), now.document()) == []
