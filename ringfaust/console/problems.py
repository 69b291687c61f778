"""What went wrong, as the HTTP API says it: problem details (RFC 9457)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from aiohttp import web
from aiokafka.errors import KafkaError
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from ringfaust.client.configuring import NotApplied
from ringfaust.client.errors import BadArgument, NoAnswer, OutcomeUnknown, Refused
from ringfaust.config import ConfigError
from ringfaust.console.backend import reason_of
from ringfaust.core.model import Refusal
from ringfaust.errors import RingfaustError, suggestion
from ringfaust.visible import plain

_TYPE = "urn:ringfaust:problem:"
_SHOWN_CHARS = 200
_MOST_ERRORS = 20
"""Fields that one answer explains."""
_TITLES: Mapping[str, str] = {
    "not_valid": "The request is not valid",
    "not_allowed": "This needs permission",
    "not_found": "There is none",
    "not_applied": "The configuration was not applied",
    "no_answer": "No worker answered",
    "outcome_unknown": "It is not known whether it took effect",
    "unreachable": "The brokers or workers cannot be reached",
    "internal": "The server failed",
    **{str(each): "A worker refused it" for each in Refusal},
}
"""By name of a problem: what every problem of the name has in common."""
_NOT_FOUND = (Refusal.UNKNOWN_QUEUE,)
_CONFLICTS = (
    Refusal.UNKNOWN_DELIVERY, Refusal.STALE_DELIVERY, Refusal.EVICTED, Refusal.CONSUMER_LIMIT,
    Refusal.QUEUE_FULL, Refusal.DUPLICATE,
)  # fmt: skip


class FieldProblem(TypedDict):
    """What is wrong with a field."""

    field: str
    """Its name; empty: the whole request."""
    value: Any
    """What was given, shortened if it is long."""
    valid: str
    """What is wrong, and what would be valid."""


class ProblemDetails(TypedDict):
    """Why a request failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[FieldProblem]]


class Problem(Exception):  # noqa: N818 - as the RFC calls it
    """A request that failed, and what its answer says."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`name`: of its kind, one of the titles."""
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}
        self.details = ProblemDetails(
            type=_TYPE + name, title=_TITLES[name], status=status, detail=detail
        )
        if errors:
            self.details["errors"] = list(errors)

    def response(self) -> web.Response:
        """The answer."""
        return web.Response(
            status=self.status, text=json.dumps(self.details) + "\n", headers=self.headers,
            content_type="application/problem+json",
        )  # fmt: skip


def not_valid(error: ValidationError, known: Sequence[str]) -> Problem:
    """The problem of parameters that are not valid. `known`: the names of all."""
    found = error.errors(include_url=False)[:_MOST_ERRORS]
    errors = [_field_problem(each, known) for each in found]
    first = errors[0]
    where = f"{first['field']} = {first['value']!r}: " if first["field"] else ""
    return Problem(400, "not_valid", where + first["valid"], errors)


def _field_problem(detail: ErrorDetails, known: Sequence[str]) -> FieldProblem:
    field = ".".join(map(str, detail["loc"]))
    valid = detail["msg"].replace("Input should", "it must")
    value = _shortened(detail["input"])
    if detail["type"] == "extra_forbidden":
        valid = f"there is no such parameter; {suggestion(field, known) or 'there are none'}"
    elif detail["type"] == "missing":
        value, valid = None, "it is missing"
    return FieldProblem(field=field, value=value, valid=valid)


def _shortened(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(plain(value))
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def problem_of(error: BaseException, given: Mapping[str, Any]) -> Problem:
    """The problem of an error of `Admin`. `given`: the parameters."""
    match error:
        case Refused():
            field = next((name for name, value in given.items() if value == error.about), "")
            if not field and error.about in (given.get("settings") or ()):
                field = f"settings.{error.about}"
            valid = FieldProblem(field=field, value=error.about, valid=error.text)
            return Problem(_status(error.reason), error.reason, str(error), [valid])
        case NotApplied():
            return Problem(409, "not_applied", str(error))
        case ConfigError():
            faults = [
                FieldProblem(field=f"{error.source}.{each.field}", value=None, valid=each.text)
                for each in error.faults
            ]
            return Problem(400, "not_valid", str(error), faults)
        case BadArgument():
            return Problem(400, "not_valid", str(error))
        case NoAnswer():
            return Problem(504, "no_answer", str(error))
        case OutcomeUnknown():
            return Problem(502, "outcome_unknown", str(error))
        case RingfaustError() | KafkaError() | OSError():
            return Problem(502, "unreachable", reason_of(error))
        case _:
            return Problem(500, "internal", "The server failed; its log says why.")


def _status(reason: str) -> int:
    if reason in _NOT_FOUND:
        return 404
    return 409 if reason in _CONFLICTS else 400
