"""The report: one self-contained page, and its charts as separate files."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from pyspark.sql import functions as F

from ringfaust import __version__
from ringfaust.spark.audit.accounts import COUNTS, FLOWS
from ringfaust.spark.audit.report.charts import THEMES, charts, png
from ringfaust.spark.audit.report.figures import figures
from ringfaust.spark.audit.show import by_severity, describe, headline, remarks, top_queues
from ringfaust.spark.audit.verdict import Verdict

_MAX_QUEUES = 12
_MAX_WINDOWS = 24
_MAX_FINDINGS = 50


def write_report(folder: Path, application: str, verdict: Verdict) -> Path:
    """Write report.html, whose path it returns, and each chart as PNG for light and dark pages."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figures(verdict)
    pictures = []
    for chart in charts(drawn):
        sources = {}
        for theme in THEMES:
            picture = png(chart, drawn, theme)
            (folder / f"{chart.name}-{theme}.png").write_bytes(picture)
            sources[theme] = "data:image/png;base64," + b64encode(picture).decode()
        pictures.append({"title": chart.title, "caption": chart.caption, **sources})
    found = by_severity(verdict).limit(_MAX_FINDINGS)
    # Producers choose queue names and ids, so everything is escaped.
    environment = Environment(
        loader=PackageLoader("ringfaust.spark.audit.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.jinja").render(
        application=application,
        version=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        begin=_time(drawn.begin_ms),
        end=_time(drawn.end_ms),
        verdict=verdict,
        headline=headline(verdict),
        remarks=remarks(verdict),
        counts=COUNTS,
        flows=FLOWS,
        queues=top_queues(verdict, _MAX_QUEUES),
        pictures=pictures,
        windows=_windows(verdict),
        findings=[describe(row.asDict()) for row in found.collect()],
        more_findings=max(0, sum(verdict.kinds.values()) - _MAX_FINDINGS),
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _windows(verdict: Verdict) -> list[dict[str, object]]:
    """The last time windows, summed over all queues."""
    if verdict.windows is None:
        return []
    last = verdict.windows.groupBy("start").agg(
        *[F.sum(name).alias(name) for name in FLOWS], F.bool_and("balanced").alias("balanced")
    )
    last = last.orderBy(F.desc("start")).limit(_MAX_WINDOWS)
    # As text: Python would convert times to the zone of the machine.
    last = last.withColumn("start", F.date_format("start", "yyyy-MM-dd HH:mm:ss"))
    return [row.asDict() for row in last.collect()]
