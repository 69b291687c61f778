"""Where the settings of a worker come from: command line, environment, worker.yaml, defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from ringfaust.config.documents import ConfigError, ConfigErrors, Document, Fault, check, read
from ringfaust.config.environment import read_variables, variable
from ringfaust.config.worker import OLD_NAMES, WorkerConfig, with_new_names

_ENVIRONMENT = "the environment"


class Origin(NamedTuple):
    """A setting, its value, and where that comes from."""

    name: str
    """Path of the setting, such as `web.port`."""
    value: object
    source: str
    """`default`, a file and its line, a variable, or `command line`."""


class WorkerSources:
    """What each source says about the settings of a worker. A later source wins."""

    def __init__(self, path: Path | None, given: Mapping[str, object]) -> None:
        """Read the file and the environment.

        Args:
            path: the worker.yaml, which must exist. None: there is none.
            given: settings from the command line.

        Raises:
            ConfigError: the file cannot be read, or a setting on the command line is not valid.
        """
        self._given = {name: value for name, value in given.items() if value is not None}
        check(WorkerConfig, self._given, "command line")
        self._file: Document | None = read(path) if path else None
        self._variables = read_variables()

    def config(self) -> WorkerConfig:
        """Return the settings.

        Raises:
            ConfigError: they are not valid; it lists every mistake with its line or variable.
        """
        data = with_new_names(self._file.data if self._file else {})
        data = {**_merged(data, with_new_names(self._variables)), **self._given}
        source = self._file.path if self._file else _ENVIRONMENT
        try:
            return check(WorkerConfig, data, source, self._line_of)
        except ConfigError as error:
            raise self._attributed(error) from None

    def origins(self) -> Iterator[Origin]:
        """Yield every setting, in the order of the model.

        Raises:
            ConfigError: as for `config`.
        """
        for place, value in _leaves(self.config(), ()):
            # A null that the model replaces, as that of data_dir, sets nothing.
            unset = (_ABSENT, _ABSENT if value is None else None)
            yield Origin(".".join(place), value, self._origin(place, unset))

    def _origin(self, place: Sequence[str], unset: Sequence[object]) -> str:
        if place[0] in self._given:
            return "command line"
        if _at(self._variables, place := _as_given(self._variables, place)) not in unset:
            return variable(place)
        if self._file and _at(self._file.data, _as_given(self._file.data, place)) not in unset:
            return f"{self._file.path.name}, line {self._line_of(place)}"
        return "default"

    def _line_of(self, place: Sequence[int | str]) -> int:
        return self._file.line_of(_as_given(self._file.data, place)) if self._file else 0

    def _attributed(self, error: ConfigError) -> ConfigError:
        """Name the variables that are wrong instead of places in the file that are not."""
        in_file, in_variables = [], []
        for fault in error.faults:
            place = _as_given(self._variables, fault.field.split("."))
            if self._is_from_variables(place):
                in_variables.append(Fault(variable(place), fault.text))
            else:
                in_file.append(fault)
        errors = [
            ConfigError(source, faults)
            for source, faults in ((error.source, in_file), (_ENVIRONMENT, in_variables))
            if faults
        ]
        return errors[0] if len(errors) == 1 else ConfigErrors(errors)

    def _is_from_variables(self, place: Sequence[str]) -> bool:
        """Whether a variable set it, or set part of it while the file says nothing about it."""
        if place[0] in self._given or not _has(self._variables, place):
            return False
        is_whole = not isinstance(_at(self._variables, place), dict)
        return is_whole or not (self._file and _has(self._file.data, place))


def _merged(lower: Mapping[Any, Any], upper: Mapping[str, Any]) -> dict[Any, Any]:
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[name] = _merged(below, value)
        else:
            merged[name] = value
    return merged


def _leaves(model: BaseModel, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*place, name))
        else:
            yield (*place, name), value


def _as_given(data: Mapping[Any, Any], place: Sequence[Any]) -> Sequence[Any]:
    """Return the place of a setting under its old name, if the data has that."""
    given = [[old] for old, new in OLD_NAMES.items() if [*place] == [new] and old in data]
    return given[0] if given else place


def _has(data: object, place: Sequence[str]) -> bool:
    return _at(data, place) is not _ABSENT


def _at(data: object, place: Sequence[str]) -> object:
    for step in place:
        if not isinstance(data, Mapping) or step not in data:
            return _ABSENT
        data = data[step]
    return data


_ABSENT = object()
