"""`queues.yaml`: the queues, their settings, and the topics that feed them.

All workers of an application need the same file, because any worker may own any queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from ringfaust.config.documents import ConfigModel, refuse, refuse_all, shown, without
from ringfaust.config.routes import RouteConfig
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog, catalog_of
from ringfaust.core.selector import check_selector
from ringfaust.core.settings import (
    FIELD_NAMES,
    STORED_NAMES,
    WRITTEN_NAMES,
    QueueSpec,
    stored_names,
    written_name,
)
from ringfaust.errors import BadSelector, BadSetting, suggestion
from ringfaust.protocol.document_checks import faults_among, name_fault, subscription_fault
from ringfaust.protocol.routes import Route


def _queue_fields(given: dict[str, object]) -> dict[str, object]:
    refuse_all(_wrong_fields(given))
    return stored_names(given)


def _wrong_fields(given: dict[str, object]) -> Iterator[PydanticCustomError]:
    compat = {"compat": "artemis"} if given.get("compat") == "artemis" else {}
    for name, value in given.items():
        stored = STORED_NAMES.get(name, name)
        if stored not in FIELD_NAMES:
            yield refuse(f"unknown setting; {suggestion(name, WRITTEN_NAMES)}", name)
            continue
        if name != stored and stored in given:
            yield refuse(f"is also given as {stored}: remove one of them", name)
            continue
        try:
            spec = QueueSpec().with_fields({stored: value, **compat})
            if spec.selector:
                check_selector(spec.selector)
        except (BadSetting, BadSelector) as error:
            yield refuse(f"{shown(value)} is not allowed: {error.advice}", name)


def _null_is_empty(value: object) -> object:
    """Read null, which YAML makes of a bare `orders:`, as an entry without fields."""
    return {} if value is None else value


def _fields_schema() -> dict[str, Any]:
    """Return the JSON Schema of a queue's fields: their names, types and defaults."""
    properties: dict[str, dict[str, Any]] = {}
    for field in fields(QueueSpec):
        schema = {"type": _JSON_TYPES[type(field.default)], "default": field.default}
        properties[written_name(field.name)] = schema
        properties.setdefault(field.name, {**schema, "deprecated": True})
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_Pattern = Annotated[str, without(name_fault)]
_Fields = Annotated[
    dict[str, object],
    BeforeValidator(_null_is_empty),
    AfterValidator(_queue_fields),
    WithJsonSchema(_fields_schema()),
]
_FieldsByPattern = dict[_Pattern, _Fields]
_Table = Annotated[
    _FieldsByPattern,
    BeforeValidator(_null_is_empty, json_schema_input_type=_FieldsByPattern | None),
]
_FieldsBySubscription = dict[Annotated[str, without(subscription_fault)], _Fields]
_Subscriptions = Annotated[
    _FieldsBySubscription,
    BeforeValidator(_null_is_empty, json_schema_input_type=_FieldsBySubscription | None),
]


class AddressConfig(ConfigModel):
    """One of `addresses`. A message sent to it is copied to each of its queues (R70)."""

    routing: Literal["multicast", "anycast"] = "multicast"
    """multicast: each of its queues gets a copy; anycast: it has one queue (R70)."""
    compat: Literal["default", "artemis"] = "default"
    """Which rules apply to retained messages (C11)."""
    retroactive_count: Annotated[int, Field(ge=0, le=limits.RETAINED)] = 0
    """How many messages it keeps for queues that are created later (R71)."""
    subscriptions: _Subscriptions = {}
    """Its predeclared queues: fields by name."""


_Address = Annotated[
    AddressConfig, BeforeValidator(_null_is_empty, json_schema_input_type=AddressConfig | None)
]
_AddressesByPattern = dict[_Pattern, _Address]
_Addresses = Annotated[
    _AddressesByPattern,
    BeforeValidator(_null_is_empty, json_schema_input_type=_AddressesByPattern | None),
]


class QueuesConfig(ConfigModel):
    """`queues.yaml`: the queues, their settings, and the topics that feed them."""

    routes: Annotated[tuple[RouteConfig, ...], Field(strict=False)] = ()
    """Which queue the records of each producer's topic go to."""
    queues: _Table = {}
    """Fields by queue name. A pattern declares every queue that matches."""
    addresses: _Addresses = {}
    """Addresses by name. A pattern declares every address that matches."""
    settings: _Table = {}
    """Fields by pattern, for queues that are declared elsewhere (R72)."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse_all(refuse(each.text, *each.path) for each in faults_among(self.document()))
        return self

    def split_routes(self, partitions: int) -> tuple[list[Route], list[Route]]:
        """Return the routes that workers read directly, and those whose records take the hop.

        Args:
            partitions: number of partitions of the application's topics.
        """
        direct: list[Route] = []
        repartitioned: list[Route] = []
        for route in self.routes:
            group = repartitioned if route.needs_hop(partitions) else direct
            group.append(Route(route.topic, route.queue))
        return direct, repartitioned

    def document(self) -> dict[str, Any]:
        """Return the whole content as plain values, as the log has it (R128)."""
        return {
            "routes": [route.model_dump() for route in self.routes],
            "queues": self.queues,
            "addresses": {
                name: given.model_dump(exclude_unset=True) for name, given in self.addresses.items()
            },
            "settings": self.settings,
        }

    def catalog(self) -> Catalog:
        """Return the declared queues and addresses with their settings, for the engine."""
        return catalog_of(self.document())
