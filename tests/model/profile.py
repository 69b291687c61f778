"""How hard hypothesis tries here: quick by default, long with RINGFAUST_HYPOTHESIS=deep."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

DEEP = os.environ.get("RINGFAUST_HYPOTHESIS") == "deep"
PROFILE = settings(
    max_examples=3_000 if DEEP else 75,
    stateful_step_count=100 if DEEP else 50,
    deadline=None,
    print_blob=True,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=list(HealthCheck),
)
WITHOUT_LIMIT = pytest.mark.timeout(0 if DEEP else 300)
"""A deep run takes as long as it takes."""
