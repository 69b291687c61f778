"""The matches of Artemis' address settings: which of them decides, and what holds if none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from ringfaust.core.catalog import specificity
from ringfaust.importers.imported import Fields, Imported, Verdict, compiled
from ringfaust.importers.xml_file import Element

OF_JMS = ("auto-create-jms-queues", "auto-create-jms-topics")
"""What Artemis 1 had, and Artemis 2 reads and ignores."""
CREATED = ("auto-create-queues", "auto-create-addresses", *OF_JMS)
ROUTING = ("default-address-routing-type", "default-queue-routing-type")


@dataclass(slots=True)
class AddressSetting:
    """One `address-setting`."""

    element: Element
    pattern: str
    given: Mapping[str, str]
    """The texts of its children that are known here, by tag."""
    wider: list[AddressSetting] = field(default_factory=list)
    """Those that cover all its names, itself among them: the first that has a value decides."""
    fields: Fields = field(default_factory=dict)
    retroactive: int | None = None

    def inherited(self, tag: str) -> str | None:
        """What it or a wider match says; None: nothing."""
        return next((each.given[tag] for each in self.wider if tag in each.given), None)

    @property
    def creates(self) -> bool:
        """Whether sending to a new name creates a queue, which is Artemis' default."""
        return all((self.inherited(tag) or "true").lower() == "true" for tag in CREATED)

    @property
    def is_multicast(self) -> bool:
        """Whether a new name is an address."""
        kinds = (self.inherited(tag) for tag in ROUTING)
        return next((kind.upper() for kind in kinds if kind), "") == "MULTICAST"

    @property
    def rank(self) -> tuple[bool, list[bool], int]:
        """Of several matches of a name Artemis takes the lowest (MatchComparator)."""
        words = self.pattern.split(".")
        has_any = "#" in words
        return has_any, [] if has_any else [word == "*" for word in words], -len(self.pattern)


def share_names(one: AddressSetting, other: AddressSetting) -> bool:
    """Return whether a name can match both; # is the last word, as Artemis demands."""
    for mine, theirs in zip_longest(one.pattern.split("."), other.pattern.split(".")):
        if "#" in (mine, theirs):
            return True
        if None in (mine, theirs) or (mine != theirs and "*" not in (mine, theirs)):
            return False
    return True


def note_order(first: AddressSetting, second: AddressSetting, imported: Imported) -> None:
    """Say where the second of two matches decides, and in Artemis the first, or any of the two."""
    is_open = first.rank == second.rank
    ours, theirs = (specificity(compiled(each.pattern)) for each in (first, second))
    if not (is_open or theirs < ours) or not share_names(first, second):
        return
    for name in first.fields:
        value, other = first.fields[name], second.fields.get(name, first.fields[name])
        if value != other:
            about = f"address-setting {first.pattern}, {name} = {value}"
            winner, which = (first, "either") if is_open else (second, f"that of {first.pattern}")
            why = f"of a name that {second.pattern} matches, too, that of {winner.pattern} counts"
            imported.note(Verdict.NONE, first.element.line, about, f"{why}; Artemis takes {which}")


def set_policy(target: AddressSetting, imported: Imported) -> None:
    """What happens at a limit: Artemis pages, unless this or a wider match says otherwise."""
    fields = target.fields
    limited = [name for name in ("max_messages", "max_bytes") if fields.get(name, -1) != -1]
    if not limited or any("when_full" in each.fields for each in target.wider):
        return
    fields["when_full"] = "block"
    about = f"address-setting {target.pattern}, no address-full-policy"
    why = "when_full: block, as Artemis pages by default: what does not fit stays in its topic"
    imported.note(Verdict.CHANGED, target.element.line, about, why)


def cap_of(target: AddressSetting, imported: Imported) -> int:
    """Artemis caps a growing delay at ten times its beginning, unless a match says otherwise."""
    names = "redelivery_delay_ms", "redelivery_multiplier", "redelivery_delay_max_ms"
    delay, multiplier, longest = (
        next((each.fields[name] for each in target.wider if name in each.fields), None)
        for name in names
    )
    is_own = target.fields.keys() & {*names}
    if not is_own or not delay or multiplier is None or longest is not None:
        return 0
    assert isinstance(delay, int)
    about = f"address-setting {target.pattern}, no max-redelivery-delay"
    why = f"redelivery_delay_max_ms: {10 * delay}, which is Artemis' default"
    imported.note(Verdict.CHANGED, target.element.line, about, why)
    return 10 * delay
