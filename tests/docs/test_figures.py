"""The figures in the pages are those of the code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.core.settings import QueueSpec
from tests.chaos.disasters import DISASTERS
from tests.docs.pages import ROOT

KIB, MIB, MB, S = 1 << 10, 1 << 20, 1_000_000, 1_000
"""Units of the figures, in those of the constants: bytes and ms."""

FIGURES: list[tuple[str, str, str, float]] = [
    # page, its text with # for the figure, constant (and parts of its path, if needed), unit
    ("architecture", "one fetch (# records,", "FETCH_RECORDS", 1),
    ("architecture", "records, # MiB) more", "vendor.py FETCH_BYTES", MIB),
    ("architecture", "of one partition or # MiB,", "MAX_BATCH_BYTES", MIB),
    ("architecture", "at most # transitions", "SWEEP_AT_ONCE", 1),
    ("architecture", "up to # decoded queues", "QUEUES_DECODED", 1),
    ("architecture", "two memtables of # MiB", "MEMTABLE_BYTES", MIB),
    ("audit", "pieces of # offsets", "_BUCKET", 1),
    ("backfill", "up to # records of a slice", "_TRANSACTION_RECORDS", 1),
    ("backfill", "no progress for # s", "_STAND_BY_S", 1),
    ("backfill", "up to the first # bytes", "mapping.py ROW_BYTES", 1),
    ("client", "has # queued acks", "QUEUED_ACKS", 1),
    ("client", "acks stay queued, up to #", "QUEUED_ACKS", 1),
    ("client", "keeps up to # queues", "client status.py MOST_QUEUES", 1),
    ("client", "but at least # ms", "SHORTEST_INTERVAL_S", 1 / S),
    ("commands", "waits for an answer for # seconds", "cli ANSWER_MS", S),
    ("commands", "the # fullest queues", "SHOWN_QUEUES", 1),
    ("commands", "the latest # records with that key", "client _MOST_KEYED", 1),
    ("configuration", "up to # more", "FETCH_RECORDS", 1 / 2),
    ("console", "session of # hours", "SESSION_S", 3600),
    ("console", "has # characters or more", "SHORTEST_TOKEN", 1),
    ("console", "| sessions | #;", "MOST_SESSIONS", 1),
    ("console", "| wrong tokens | # a minute", "_FAILURES", 1),
    ("console", "from # bits of it", "_IPV6_PREFIX", 1),
    ("console", "# addresses are remembered", "MOST_ADDRESSES", 1),
    ("console", "| a form | # KiB", "_MOST_BYTES", KIB),
    ("console", "| messages moved at once | #", "MOST_MOVED", 1),
    ("console", "| queues in memory | #,", "client status.py MOST_QUEUES", 1),
    ("console", "| queues of a page | #", "PAGE_QUEUES", 1),
    ("console", "| messages of a page | #,", "PAGE_MESSAGES", 1),
    ("console", "with # bytes of each body |", "console queue_pages.py _BODY_BYTES", 1),
    ("console", "| a message's own page | # bytes", "console message_pages.py _BODY_BYTES", 1),
    ("console", "not text: # |", "_HEX_BYTES", 1),
    ("console", "| a value in Avro | # values", "MOST_VALUES", 1),
    ("console", "nested # deep", "MOST_DEPTH", 1),
    ("console", "| a trace | # lifecycles", "_MOST_LIFECYCLES", 1),
    ("console", "lifecycles of # events", "_MOST_EVENTS", 1),
    ("console", "and of a selection | #,", "PAGE_GONE", 1),
    ("console", "all that match | the latest #", "MOST_REDRIVEN", 1),
    ("console", "the console was started: the latest # rows", "console _MOST_ROWS", 1),
    ("console", "contents of a transaction | its first # sends", "_MOST_PENDING", 1),
    ("console", "| a search of them | # seconds", "_SEARCH_S", 1),
    ("console", "| chart | # points", "console POINTS", 1),
    ("console", "and the # queues that", "_WATCHED", 1),
    ("console", "| pages kept current | #", "MOST_LISTENERS", 1),
    ("console", "have not answered for # seconds, or", "BROKERS_SILENT_MS", S),
    ("console", "has said nothing for #, a banner", "WORKER_SILENT_MS", S),
    ("console", "login at the provider | # minutes", "_LOGIN_S", 60),
    ("console", "asked for again after # minutes", "METADATA_S", 60),
    ("faq", "`failover_after_ms` (# s by default)", "worker.yaml failover_after_ms", S),
    ("handlers", "at first after # s,", "RESTART_MIN_S", 1),
    ("handlers", "up to # s. One that", "RESTART_MAX_S", 1),
    ("handlers", "has not stopped # s after `grace_s`", "DISCONNECT_S", 1),
    ("handlers", "RingApp(grace_s=#)", "app GRACE_S", 1),
    ("how-to/kafka-is-down", "at intervals of up to # s;", "RETRY_MAX_S", 1),
    ("how-to/scale-out", "at first after # s,", "RESTART_MIN_S", 1),
    ("how-to/scale-out", "up to # s. If one", "RESTART_MAX_S", 1),
    ("how-to/scale-out", "has not stopped after # s is", "STOP_S", 1),
    ("http-api", "| a body | # bytes", "console MOST_BYTES", 1),
    ("http-api", "| a page of a list | # items", "MOST_ITEMS", 1),
    ("http-api", "by default, and # MiB;", "LIST_BYTES", MIB),
    ("http-api", "| messages moved at once | #", "MOST_MOVED", 1),
    ("http-api", "configuration is read | # s", "console ANSWER_MS", S),
    ("import", "up to # messages and", "TRANSACTION_RECORDS", 1),
    ("import", "messages and # MB", "TRANSACTION_BYTES", MB),
    ("import", "A file may have # MiB", "_FILE_BYTES", MIB),
    ("import", "and XML # levels", "DEPTH", 1),
    ("maintain", "in files of about # MB", "maintain FILE_BYTES", MIB),
    ("operations", "a transaction coordinator for up to # s", "COORDINATOR_TIMEOUT_S", 1),
    ("operations", "retries after # s", "RETRY_MIN_S", 1),
    ("operations", "growing intervals of up to # s", "RETRY_MAX_S", 1),
    ("operations", "libraries at most once every # s", "_REPEAT_S", 1),
    ("operations", "until other workers have them, for # s", "_LAST_HANDOVER_S", 1),
    ("operations", "of life for `failover_after_ms` (# s)", "worker.yaml failover_after_ms", S),
    ("semantics", "An old owner looks every # s", "_PROBE_S", 1),
    ("semantics", "has not turned for # s", "HUNG_AFTER_S", 1),
    ("semantics", "it waits for that for # s", "_LAST_HANDOVER_S", 1),
    ("operations", "(`session_timeout_ms`, # s)", "worker.yaml session_timeout_ms", S),
    ("operations", "`clock_skew_max_ms` (# s)", "worker.yaml clock_skew_max_ms", S),
    ("operations", "brokers have not answered for # s", "LOST_AFTER_S", 1),
    ("operations", "event loop has not turned for # s", "HUNG_AFTER_S", 1),
    ("operations", "It fetches again after # s", "fetcher.py _RETRY_S", 1),
    ("operations", "logs an error every # s,", "_RECHECK_INTERVAL_S", 1),
    ("operations", "stops, within # seconds if it runs", "assignment.py _WATCH_S", 1),
    ("operations", "created or recreated topic within # seconds", "assignment.py _WATCH_S", 1),
    ("operations", "does not answer within # s,", "observe _TIMEOUT_S", 1),
    ("operations", "not yet come within # records", "CAUGHT_UP_RECORDS", 1),
    ("operations", "The worker tries again every # seconds", "observe _RETRY_S", 1),
    ("operations", "then waits # s for its answer", "cli ANSWER_MS", S),
    ("operations", "at most # an answer", "worker metrics.py MOST_QUEUES", 1),
    ("operations", "For the first # pairs", "MOST_COUNTED", 1),
    ("operations", "takes up to # messages or", "STEP_TRANSITIONS", 1),
    ("operations", "messages or # MiB of message bodies", "STEP_BYTES", MIB),
    ("operations", "read from the store up to # at a time", "REFILL", 1),
    ("operations", "or until they reach # MiB", "REFILL_BYTES", MIB),
    ("operations", "remembers up to # ids (R119)", "SENT_IDS", 1),
    ("operations", "its limit of # KiB a second", "BYTES_PER_S", KIB),
    ("operations", "partition up to # MiB more", "worker decompression.py BATCH_BYTES", MIB),
    ("operations", "every # seconds. If all queues", "BEAT_S", 1),
    ("operations", "up to # MiB for each partition that it serves", "MEMTABLE_BYTES", MIB / 2),
    ("protocol", "at most # bytes, in UTF-8", "MAX_BYTES", 1),
    ("protocol", "to # characters. Default: the record", "ID_CHARS", 1),
    ("protocol", "have 1 to # characters", "NAME_CHARS", 1),
    ("protocol", "you accept, from 0 to #.", "CREDIT", 1),
    ("protocol", "acks up to # deliveries at once", "ACKS", 1),
    ("protocol", "cut off at # bytes", "REPLY_BYTES", 1),
    ("protocol", "looks at # queues at most", "queries.py MOST_QUEUES", 1),
    ("protocol", "looks at # messages at most", "MOST_MESSAGES", 1),
    ("protocol", "Of a key # bytes", "_KEY_BYTES", 1),
    ("protocol", "all headers together #.", "_HEADERS_BYTES", 1),
    ("protocol", "a record of events | #", "LINES_PER_RECORD", 1),
    ("protocol", "A record holds up to # lines", "LINES_PER_RECORD", 1),
    ("protocol", "written every # seconds", "BEAT_S", 1),
    ("protocol", "silent for # seconds", "STALE_MS", S),
    ("protocol", "first # pairs of queue and reason", "MOST_COUNTED", 1),
    ("protocol", "at most # KiB a second", "BYTES_PER_S", KIB),
    ("protocol", "publishes up to # queues", "worker status.py MOST_QUEUES", 1),
    ("protocol", "to the status topic | #", "worker status.py MOST_QUEUES", 1),
    ("protocol", "transactions of up to # messages", "TRANSACTION_RECORDS", 1),
    ("protocol", "messages and # MB", "TRANSACTION_BYTES", MB),
    ("protocol", "one for each # offsets", "PAGE_RECORDS", 1),
    ("protocol", "deliveries in one `ack_many` | #", "ACKS", 1),
    ("protocol", "remembers (R119) | #", "SENT_IDS", 1),
    ("protocol", "`max_groups` of a queue | #", "core GROUPS", 1),
    ("protocol", "after decompression | # bytes", "worker decompression.py BATCH_BYTES", 1),
    ("protocol", "| headers of a record | #", "core HEADERS", 1),
    ("protocol", "| a control record | # bytes", "MAX_BYTES", 1),
    ("protocol", "(default # bytes)", "worker.yaml max_record_bytes", 1),
    ("protocol", "group names, `reply` | # characters", "NAME_CHARS", 1),
    ("protocol", "| a message id | # characters", "ID_CHARS", 1),
    ("protocol", "| credit of a consumer | #", "CREDIT", 1),
    ("protocol", "| consumers of a queue | #", "CONSUMERS", 1),
    ("protocol", "| priorities | #", "PRIORITIES", 1),
    ("protocol", "| a selector | # characters", "SELECTOR_CHARS", 1),
    ("protocol", "| `ringfaust-properties` | # bytes", "PROPERTIES_BYTES", 1),
    ("protocol", "open in a partition | #", "XIDS", 1),
    ("protocol", "| sends and acks in one of them | #", "XID_OPERATIONS", 1),
    ("protocol", "| `retroactive_count` of an address | #", "core RETAINED", 1),
    ("protocol", "remembered of a consumer, at least | #", "ENDED_REMEMBERED", 1),
    ("protocol", "consumers remembered of a queue | #", "DEPARTED_REMEMBERED", 1),
    ("protocol", "consumers remembered with a message | #", "HOLDERS", 1),
    ("protocol", "| transitions in one sweep | #", "SWEEP_AT_ONCE", 1),
    ("rewind", "more than # transitions", "SWEEP_AT_ONCE", 1),
    ("semantics", "A sweep makes at most # such", "SWEEP_AT_ONCE", 1),
    ("semantics", "`max_attempts` (default #,", "queues.yaml max_attempts", 1),
    ("semantics", "`consumer_timeout_ms` (default # s", "queues.yaml consumer_timeout", S),
    ("semantics", "(`window_lease_ms`, default # min)", "queues.yaml window_lease", 60 * S),
    ("semantics", "`max_redrives` (default #)", "queues.yaml max_redrives", 1),
    ("semantics", "`max_groups` (default #)", "queues.yaml max_groups", 1),
    ("semantics", "`clock_skew_max_ms` (default # s)", "worker.yaml clock_skew_max_ms", S),
    ("semantics", "At least the last # ended deliveries", "ENDED_REMEMBERED", 1),
    ("semantics", "the last # consumers that detached", "DEPARTED_REMEMBERED", 1),
    ("semantics", "the last # consumers that held it", "HOLDERS", 1),
    ("semantics", "last # ids of a queue", "SENT_IDS", 1),
    ("semantics", "expands to at most # MiB", "worker decompression.py BATCH_BYTES", MIB),
    ("spark-ring", "in pages of # kB", "PAGE_BYTES", KIB),
    ("spark-ring", "waits up to # s for a pause", "_STOP_S", 1),
    ("troubleshooting", "With more than # repartitioned", "COPIED_PARTITIONS", 1),
]  # fmt: skip


SETTINGS = {"worker.yaml": WorkerConfig(), "queues.yaml": QueueSpec()}


def value(constant: str) -> float:
    """The value of a constant that is defined once, or the default of a setting."""
    *places, name = constant.split()
    for place in places:
        if place in SETTINGS:
            return float(getattr(SETTINGS[place], name))
    defined = re.compile(rf"^{name}(?:: \w+)? = ", re.MULTILINE)
    (path,) = (
        path
        for path in (ROOT / "ringfaust").rglob("*.py")
        if {*places} <= {*path.parts} and defined.search(path.read_text("utf-8"))
    )
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return float(getattr(module, name))


def words_of(page: str) -> str:
    """The text of a page, without its line breaks."""
    return " ".join((ROOT / "docs" / f"{page}.md").read_text("utf-8").split())


@pytest.mark.parametrize(
    ("page", "text", "constant", "unit"), FIGURES, ids=lambda each: str(each).replace(" ", "-")
)
def test_a_figure_is_that_of_the_code(page: str, text: str, constant: str, unit: float) -> None:
    figure = value(constant) / unit
    shown = f"{round(figure, 3):,}".removesuffix(".0")
    assert text.replace("#", shown) in words_of(page)


# --- performance --------------------------------------------------------------------------------

PERFORMANCE = (ROOT / "docs" / "performance.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def measured(load: str, figure: str) -> dict[str, str]:
    """A row of the table of results: medians by system, and those of the ratios."""
    rows = [line.split("|") for line in PERFORMANCE.splitlines()]
    cells = [[cell.split("(")[0].strip() for cell in row] for row in rows]
    header = next(row for row in cells if row[1:3] == ["load", "figure"])
    row = next(row for row in cells if row[1:3] == [load, figure])
    return dict(zip(header, row, strict=True))


@pytest.mark.parametrize(
    ("row", "load"),
    [
        ("a full ring that evicts", "evict"),
        ("send, receive and ack, one consumer", "cycle: individual, credit 1,000"),
    ],
)
def test_the_rates_of_the_readme_are_those_that_were_measured(row: str, load: str) -> None:
    found = measured(load, "messages/s")
    cells = "{ringfaust}/s | {Artemis}/s | {of Artemis}".format_map(found)
    assert f"| {row} | {cells} |" in README
    assert f"{found['of Artemis']} times as many" in words_of("faq")


def test_the_figures_in_large_print_are_those_that_were_measured() -> None:
    rate, latency = measured("evict", "messages/s"), measured("latency: 1,000/s", "latency p50, ms")
    assert f"| **{rate['ringfaust']}/s** |" in README
    assert f"{rate['of Artemis']} × the rate of ActiveMQ Artemis" in README
    assert f"| **{latency['ringfaust']} ms** |" in README
    assert f"Artemis takes {latency['Artemis']} ms;" in README


def test_the_credits_of_the_readme_are_those_that_were_measured() -> None:
    loads = [f"window: credit {credit}" for credit in (1, 10, 100)]
    rates = [measured(load, "messages/s")["ringfaust"] for load in loads]
    assert "{}/s, {}/s and {}/s".format(*rates) in README


def test_the_share_group_of_the_pages_is_that_which_was_measured() -> None:
    found = measured("cycle: individual, credit 1,000", "messages/s")
    ours, theirs = (int(found[name].replace(",", "")) for name in ("ringfaust", "share group"))
    assert f"delivered {found['share group']}/s, so ringfaust reaches {ours / theirs:.2f}" in README
    assert f"mode {ours / theirs:.2f} × that of the share group" in " ".join(PERFORMANCE.split())


def test_the_latencies_of_the_pages_are_those_that_were_measured() -> None:
    rounded: list[int] = []
    for percentile in ("p50", "p99"):
        found = measured("latency: 1,000/s", f"latency {percentile}, ms")
        ours, theirs = found["ringfaust"], found["Artemis"]
        assert f"| latency with acks at 1,000/s, {percentile} | {ours} ms | {theirs} ms |" in README
        rounded += [round(float(ours)), round(float(theirs))]
    text = "{} ms from send to receive instead of {}, and {} instead of {} at p99"
    assert text.format(*rounded) in words_of("faq")
    text = "in {1} ms where ringfaust takes {0}. At p99, Artemis takes {3} ms and ringfaust {2} "
    assert text.format(*rounded) in words_of("comparison")


# --- counts -------------------------------------------------------------------------------------


def test_the_tutorials_are_counted() -> None:
    words = ("six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    number = len([*(ROOT / "docs" / "tutorials").glob("[0-9]*.md")])
    assert f"[{words[number - 6]} tutorials]" in README
    assert f"[{words[number - 6].title()} tutorials]" in README


def test_the_kinds_of_faults_of_chaos_are_counted() -> None:
    assert f"{len(DISASTERS)} kinds of fault" in words_of("verification")
