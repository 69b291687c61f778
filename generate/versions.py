"""The version of ringfaust in files that cannot import it: deployment files, and pages."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from ringfaust import __version__

ROOT = Path(__file__).parents[1]
_VERSION = r"\d+\.\d+\.\d+"
_PLACES = re.compile(
    # an image, such as ringfaust-spark:0.2.0; the name of a wheel or sdist; a requirement
    rf"(?P<before>ringfaust(?:-spark)?:|ringfaust(?:_client|_spark)?-|ringfaust\[\w+\]==){_VERSION}"
    # of the project or the chart
    rf"|(?P<field>^(?:version = \"|version: |appVersion: )){_VERSION}",
    re.MULTILINE,
)

VERSIONED = (
    "pyproject.toml",
    "deploy/helm/ringfaust/Chart.yaml",
    "deploy/kubernetes/ringfaust.yaml",
    "deploy/spark/lake.yaml",
    "deploy/spark/ring.yaml",
    "docs/install.md",
    "docs/spark.md",
)
"""Files that name the version. `ringfaust/__init__.py` is where a release changes it."""


def versioned(name: str) -> str:
    """The text of a file, with the present version."""
    text = (ROOT / name).read_text("utf-8")
    return _PLACES.sub(lambda found: f"{found['before'] or found['field']}{__version__}", text)


FILES = {name: partial(versioned, name) for name in VERSIONED}
"""By path in the repository: the function that returns the text."""
