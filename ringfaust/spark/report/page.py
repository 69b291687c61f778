"""The report: one page that holds everything, and its pictures beside it."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from pyspark.sql import functions as F

from ringfaust import __version__
from ringfaust.spark.audit.accounts import COUNTS
from ringfaust.spark.audit.show import by_gravity, headline, in_words, remarks, top_queues
from ringfaust.spark.audit.verdict import Verdict
from ringfaust.spark.report.charts import DARK, LIGHT, charts, png
from ringfaust.spark.report.figures import figures

_MOST_QUEUES = 12
_MOST_WINDOWS = 24
_MOST_FINDINGS = 50


def write_report(folder: Path, application: str, verdict: Verdict) -> Path:
    """Write report.html, and each chart as PNG for light and dark pages.

    Args:
        folder: made if it is not there; what is in it under these names is replaced.
        application: whose accounts they are.
        verdict: of the audit.

    Returns:
        The path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figures(verdict)
    pictures = []
    for chart in charts(drawn):
        sources = {}
        for theme in (LIGHT, DARK):
            picture = png(chart, theme)
            (folder / f"{chart.name}-{theme.name}.png").write_bytes(picture)
            sources[theme.name] = "data:image/png;base64," + b64encode(picture).decode()
        pictures.append({"title": chart.title, "caption": chart.caption, **sources})
    # Names of queues and ids are whatever producers wrote: all of it is escaped.
    environment = Environment(
        loader=PackageLoader("ringfaust.spark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.jinja").render(
        application=application,
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        begin=_time(drawn.begin_ms),
        end=_time(drawn.end_ms),
        verdict=verdict,
        headline=headline(verdict),
        remarks=remarks(verdict),
        counts=COUNTS,
        queues=top_queues(verdict, _MOST_QUEUES),
        pictures=pictures,
        windows=_windows(verdict),
        findings=_findings(verdict),
        more_findings=max(0, sum(verdict.kinds.values()) - _MOST_FINDINGS),
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _findings(verdict: Verdict) -> list[str]:
    return [in_words(row.asDict()) for row in by_gravity(verdict).limit(_MOST_FINDINGS).collect()]


def _windows(verdict: Verdict) -> list[dict[str, object]]:
    """The last windows of time, all queues together."""
    if verdict.windows is None:
        return []
    names = ("added", "acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
    last = verdict.windows.groupBy("start").agg(
        *[F.sum(name).alias(name) for name in names], F.bool_and("balanced").alias("balanced")
    )
    last = last.orderBy(F.desc("start")).limit(_MOST_WINDOWS)
    return [
        row.asDict() | {"start": row["start"].strftime("%Y-%m-%d %H:%M:%S")}
        for row in last.collect()
    ]
