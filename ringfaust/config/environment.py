"""Settings of worker.yaml from the environment: `RINGFAUST_WEB__PORT` is `web.port`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from ringfaust.config.worker import OLD_NAMES, WorkerConfig

_PREFIX, _NESTED = "RINGFAUST_", "__"
_OTHERS = {"pure", "config", "cache", "console_token", "console_read_token"}
"""Variables of ours that are no settings of a worker."""
_READ_CHARS = 600
"""No number or truth value is longer."""


def variable(place: Sequence[int | str]) -> str:
    """Return the variable for a setting: for `("web", "port")`, `RINGFAUST_WEB__PORT`."""
    return _PREFIX + _NESTED.join(map(str, place)).upper()


def read_variables() -> dict[str, Any]:
    """Return the settings that the environment contains, nested as in worker.yaml.

    Numbers and truth values are converted; a text that is neither stays, for the model to refuse.
    An empty variable counts as not set.
    """
    if not _variables():
        return {}
    # Slow to import, and most commands run without such variables.
    from pydantic_settings import (  # noqa: PLC0415
        BaseSettings,
        EnvSettingsSource,
        SettingsConfigDict,
    )

    class Variables(WorkerConfig, BaseSettings):
        clock_skew_max: int | None = None
        """Its old name (`OLD_NAMES`)."""
        model_config = SettingsConfigDict(
            env_prefix=_PREFIX,
            env_nested_delimiter=_NESTED,
            env_ignore_empty=True,
            env_parse_none_str="null",
            enable_decoding=False,
        )

    source = EnvSettingsSource(Variables)
    # A longer text stays: the source reads it as JSON, which Python may refuse.
    source.env_vars = {
        name: text for name, text in source.env_vars.items() if len(text or "") <= _READ_CHARS
    }
    found = source()
    for name in _variables():
        # The source leaves out what no setting can contain, such as `partitions.x`.
        _put(found, name.upper().removeprefix(_PREFIX).lower().split(_NESTED), os.environ[name])
    return found


def _put(found: dict[str, Any], place: Sequence[str], text: str) -> None:
    """Put a text where nothing is, for the model to refuse."""
    *groups, last = place
    for group in groups:
        if not isinstance(found.get(group), dict):
            found[group] = {}
        found = found[group]
    if text:
        found.setdefault(last, text)


def drop_variables() -> None:
    """Remove the settings from the environment of this process, and so of those that it starts.

    Demos, scenarios and tests bring their own settings: they must not reach a cluster that a
    variable happens to name.
    """
    for name in _variables():
        del os.environ[name]


def _variables() -> list[str]:
    """Return the names of the variables that are settings."""
    return [name for name in os.environ if _setting(name) in _known()]


def misspelled_variables() -> list[str]:
    """Return a sentence for each variable that is no setting, but looks like one.

    It is no error: Kubernetes, for one, sets variables that begin with the name of a service.
    """
    known = _known()
    found = []
    for name in sorted(os.environ):
        own = _setting(name)
        if own and own not in known and own not in _OTHERS:
            close = get_close_matches(own, known, n=1, cutoff=0.75)
            found += [f"{name} is not a setting; did you mean {variable(close)}?"] if close else []
    return found


def _known() -> list[str]:
    """Return the names of all settings, also the old ones."""
    return [*WorkerConfig.model_fields, *OLD_NAMES]


def _setting(name: str) -> str:
    """Return the setting that a variable would set, or its group; "" if it is not one of ours."""
    upper = name.upper()
    if not upper.startswith(_PREFIX):
        return ""
    return upper.removeprefix(_PREFIX).partition(_NESTED)[0].lower()
