"""The report: it states the results, shows every chart and escapes every name."""

from __future__ import annotations

import base64
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.report.charts import charts, duration, png
from ringfaust.spark.audit.report.figures import Figures, figures
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.show import headline
from tests.spark.audit_history import audit
from tests.testing.test_accounts import History, history

__all__ = ["history"]
CHARTS = ("depth", "eviction-rate", "age-at-eviction", "time-to-overwrite", "redeliveries")
NASTY = '<script>alert("$x")</script>'
QUEUES = QueuesConfig.model_validate(
    {"routes": [{"topic": "in", "queue": "q.{key}"}], "queues": {"#": {"ring_size": 2}}}
)


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert picture.startswith(b"\x89PNG")
    return struct.unpack(">II", picture[16:24])  # type: ignore[return-value]


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the machine."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_page_shows_the_findings_and_every_chart(
    spark: SparkSession, history: History, tmp_path: Path, tokyo: None
) -> None:
    for number in range(9):
        history.send(NASTY, b"%d" % number)
        history.now_ms += 400
    history.drop(Role.EVICTED, 0)
    verdict = audit(spark, history, window="1 second")
    page = write_report(tmp_path / "new", "app & co", verdict)
    text = page.read_text(encoding="utf-8")
    assert not verdict.balanced
    assert "The accounts do not balance: 1 missing" in text
    assert headline(verdict) in text
    assert "source in/0/0" in text
    assert "app &amp; co" in text
    assert "<script" not in text
    assert "q.&lt;script&gt;" in text
    assert '<th scope="row">1970-01-01 00:00:01</th>' in text  # in UTC
    for name in ("evicted", "acked"):
        assert f"<td>{verdict.totals[name]}</td>" in text
    assert text.count("<figure") == len(CHARTS)
    assert len(re.findall(r'<img alt="Chart: [^"]{20,}"', text)) == len(CHARTS)
    inside = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", text)
    files = sorted(page.parent.glob("*.png"))
    names = {f"{name}-{theme}.png" for name in CHARTS for theme in ("light", "dark")}
    assert {path.name for path in files} == names
    assert len(inside) == len(files)
    assert {base64.b64decode(each) for each in inside} == {path.read_bytes() for path in files}
    for path in files:
        assert size(path.read_bytes()) == (1232, 792)
        assert path.stat().st_size > 5_000
    drawn = figures(verdict, top=1)
    assert drawn.depth.iloc[-1].to_dict() == {
        name: verdict.totals[name] for name in ("ready", "delivering", "scheduled")
    }
    assert (drawn.evictions * drawn.step_ms / 1000).to_numpy().sum() == verdict.totals["evicted"]
    assert list(drawn.evictions.columns) == [f"q.{NASTY}", None]
    assert drawn.ages["count"].sum() == verdict.totals["evicted"]
    assert list(drawn.lifetimes["count"]) == [7, 2]
    assert (drawn.handovers.sum(), drawn.handovers.loc[2:].sum()) == (7, 2)


def test_a_history_without_evictions_has_fewer_charts() -> None:
    none = pd.DataFrame({"queue": [], "count": [], "p10": [], "p50": [], "p90": []})
    drawn = Figures(
        begin_ms=0,
        end_ms=100,
        step_ms=100,
        depth=pd.DataFrame({"ready": [1, 1]}, index=[0, 100]),
        evictions=pd.DataFrame(index=[0, 100]),
        ages=pd.DataFrame({"low_ms": [], "count": []}),
        age_ms=(0, 0, 0),
        lifetimes=none,
        handovers=pd.Series(dtype=int),
    )
    (only,) = charts(drawn)
    assert only.caption == "Messages held in all queues, by state. Maximum 1, at the end 1."
    light = png(only, drawn, "light")
    assert size(light) == (1232, 792)
    assert light != png(only, drawn, "dark")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (36e5, "1 h"),
     (2 * 864e5, "2 d")],
)  # fmt: skip
def test_durations_use_the_largest_unit_that_fits(ms: float, text: str) -> None:
    assert duration(ms) == text
