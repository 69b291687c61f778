"""`address-setting` of broker.xml: which setting is which field here, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ringfaust.core import limits
from ringfaust.importers.artemis_values import (
    OF_THE_BROKER,
    Reader,
    UnknownValue,
    Wildcards,
    note_unknown,
)
from ringfaust.importers.imported import (
    BACKUPS,
    Fields,
    Imported,
    ImportFinding,
    Verdict,
    covers,
)
from ringfaust.importers.xml_file import Element

_PAGES = "not needed: messages that do not fit stay in their Kafka topic"
_DEAD = "not needed: one dead topic serves all queues, and names the queue in a header"
_DELETED = "a queue that is empty and unused stays; delete it with `ringfaust queue delete`"
_CONFIG = "a queue that leaves queues.yaml stays until `ringfaust queue delete`"
_GROUPS = "a group stays with its consumer until that consumer detaches"
_LAST = "a ring of one for each key keeps last values: a route with {key}, and ring_size: 1"
_SLOW = "a slow consumer holds at most its credit; a silent one is detached (consumer_timeout_ms)"
_TTL = "the producer sets ringfaust-ttl-ms or ringfaust-expires-at-ms"
_WAIT = "pause the queue until its consumers are there: `ringfaust queue pause`"

NO_EQUIVALENT = {
    "auto-create-dead-letter-resources": _DEAD,
    "dead-letter-queue-prefix": _DEAD,
    "dead-letter-queue-suffix": _DEAD,
    "auto-create-expiry-resources": _DEAD,
    "expiry-queue-prefix": _DEAD,
    "expiry-queue-suffix": _DEAD,
    "no-expiry": _TTL,
    "expiry-delay": _TTL,
    "min-expiry-delay": _TTL,
    "max-expiry-delay": _TTL,
    "max-size-bytes-reject-threshold": "choose `when_full: reject_newest` to refuse messages",
    "page-limit-bytes": "the retention of the Kafka topic limits what waits in it",
    "page-limit-messages": "the retention of the Kafka topic limits what waits in it",
    "page-full-policy": "the retention of the Kafka topic limits what waits in it",
    "page-size-bytes": _PAGES,
    "page-max-cache-size": _PAGES,
    "max-read-page-messages": _PAGES,
    "max-read-page-bytes": _PAGES,
    "prefetch-page-messages": _PAGES,
    "prefetch-page-bytes": _PAGES,
    "message-counter-history-day-limit": "counts of each queue are metrics for Prometheus",
    "last-value-queue": _LAST,
    "default-last-value-queue": _LAST,
    "default-last-value-key": _LAST,
    "default-non-destructive": "a message leaves its queue when it is acked",
    "default-group-rebalance": _GROUPS,
    "default-group-rebalance-pause-dispatch": _GROUPS,
    "default-group-buckets": "groups are not hashed; max_groups bounds what is remembered",
    "default-group-first-key": "a delivery does not say that it is the first of its group",
    "default-consumers-before-dispatch": _WAIT,
    "default-delay-before-dispatch": _WAIT,
    "redistribution-delay": "not needed: all workers serve all queues",
    "send-to-dla-on-no-route": "such a message is reported as the event `unrouted`",
    "slow-consumer-threshold": _SLOW,
    "slow-consumer-threshold-measurement-unit": _SLOW,
    "slow-consumer-policy": _SLOW,
    "slow-consumer-check-period": _SLOW,
    "auto-delete-queues": _DELETED,
    "auto-delete-created-queues": _DELETED,
    "auto-delete-queues-delay": _DELETED,
    "auto-delete-queues-message-count": _DELETED,
    "auto-delete-queues-skip-usage-check": _DELETED,
    "auto-delete-jms-queues": _DELETED,
    "auto-delete-jms-topics": _DELETED,
    "auto-delete-addresses": _DELETED,
    "auto-delete-addresses-delay": _DELETED,
    "auto-delete-addresses-skip-usage-check": _DELETED,
    "config-delete-queues": _CONFIG,
    "config-delete-addresses": _CONFIG,
    "config-delete-diverts": _CONFIG,
    "management-browse-page-size": "`ringfaust message browse --limit` sets it for each call",
    "management-message-attribute-size-limit": "`ringfaust message browse` shortens bodies",
    "default-purge-on-no-consumers": "messages stay when the last consumer leaves",
    "default-consumer-window-size": "a consumer chooses its credit and credit_bytes",
    "enable-metrics": "metrics cover all queues if `web` is enabled in worker.yaml",
    "id-cache-size": "dedup_window_ms refuses repeated ids for a time instead of a number of ids",
    "initial-queue-buffer-size": "not needed",
}
"""Settings without an equivalent: what to do instead, or why nothing is needed."""

_OFF = {
    "no-expiry": "false", "expiry-delay": "-1", "min-expiry-delay": "-1", "max-expiry-delay": "-1",
    "max-size-bytes-reject-threshold": "-1", "page-limit-bytes": "-1", "page-limit-messages": "-1",
    "last-value-queue": "false", "default-last-value-queue": "false", "default-last-value-key": "",
    "default-non-destructive": "false", "default-group-rebalance": "false",
    "default-group-rebalance-pause-dispatch": "false", "default-group-buckets": "-1",
    "default-group-first-key": "", "default-consumers-before-dispatch": "0",
    "default-delay-before-dispatch": "-1", "redistribution-delay": "-1",
    "send-to-dla-on-no-route": "false", "slow-consumer-threshold": "-1",
    "auto-delete-queues": "false", "auto-delete-created-queues": "false",
    "auto-delete-addresses": "false", "auto-delete-jms-queues": "false",
    "auto-delete-jms-topics": "false", "config-delete-queues": "OFF",
    "config-delete-addresses": "OFF", "config-delete-diverts": "OFF",
    "default-purge-on-no-consumers": "false",
}  # fmt: skip
"""Values that switch a setting off, which leaves the same behaviour as here."""

_POLICIES = {"PAGE": "block", "BLOCK": "block", "FAIL": "reject_newest", "DROP": "drop_newest"}
_CREATED = ("auto-create-queues", "auto-create-addresses", "auto-create-jms-queues",
            "auto-create-jms-topics")  # fmt: skip
_ROUTING = ("default-queue-routing-type", "default-address-routing-type")


@dataclass(slots=True)
class AddressSetting:
    """One `address-setting`: what is no field of a queue."""

    pattern: str
    line: int
    creates: bool = True
    """Whether sending to a new name creates a queue, which is Artemis' default."""
    is_multicast: bool = False
    retroactive: int = 0
    fields: Fields = field(default_factory=dict)


class _Setting:
    """Reads the children of one `address-setting`."""

    def __init__(self, reader: Reader, imported: Imported, target: AddressSetting) -> None:
        self._reader = reader
        self._imported = imported
        self._target = target

    def read(self, child: Element) -> None:
        """Read one child, and record what becomes of it."""
        reader = self._reader
        about = f"address-setting {self._target.pattern}, {child.tag} = {child.text}"
        try:
            text = reader.value(child)
        except UnknownValue as unknown:
            why = f"the broker's property {unknown} is not known here: set it by hand"
            self._imported.note(Verdict.NONE, child.line, about, why)
            return
        note_unknown(child, f"address-setting {self._target.pattern}, {child.tag}", self._imported)
        if special := _SPECIAL.get(child.tag):
            special(self, child, about, text)
        elif child.tag in _OFF and text.lower() == _OFF[child.tag].lower():
            self._imported.note(Verdict.TAKEN, child.line, about, "nothing to do")
        elif child.tag in NO_EQUIVALENT:
            self._imported.note(Verdict.NONE, child.line, about, NO_EQUIVALENT[child.tag])
        else:
            self._imported.note(Verdict.NONE, child.line, about, "not a setting that is known here")

    def _field(
        self, child: Element, about: str, name: str, value: object, change: str = ""
    ) -> None:
        verdict = Verdict.CHANGED if change else Verdict.TAKEN
        text = f"{name}: {value}" + (f", {change}" if change else "")
        finding = ImportFinding(verdict, child.line, about, text)
        self._imported.set(self._target.fields, name, value, finding)

    def ring_size(self, child: Element, about: str, text: str) -> None:
        """Read default-ring-size."""
        set_ring_size(
            self._imported, self._target.fields, self._reader.whole(child, child.tag, text),
            child.line, about,
        )  # fmt: skip

    def attempts(self, child: Element, about: str, text: str) -> None:
        """Read max-delivery-attempts."""
        number = self._reader.whole(child, child.tag, text)
        if number < 1:
            change = "" if number == -1 else "Artemis treats 0 and less as no limit"
            self._field(child, about, "max_attempts", -1, change)
        else:
            self._field(child, about, "max_attempts", number)

    def delay(self, child: Element, about: str, text: str) -> None:
        """Read redelivery-delay."""
        self._field(
            child, about, "redelivery_delay_ms", max(self._reader.whole(child, child.tag, text), 0)
        )

    def multiplier(self, child: Element, about: str, text: str) -> None:
        """Read redelivery-delay-multiplier."""
        number = self._reader.number(child, child.tag, text)
        change = "delays do not shrink" if number < 1 else ""
        self._field(child, about, "redelivery_multiplier", max(number, 1.0), change)

    def jitter(self, child: Element, about: str, text: str) -> None:
        """Read redelivery-collision-avoidance-factor."""
        self._field(child, about, "redelivery_jitter", self._reader.number(child, child.tag, text))

    def longest_delay(self, child: Element, about: str, text: str) -> None:
        """Read max-redelivery-delay."""
        number = self._reader.whole(child, child.tag, text)
        self._field(child, about, "redelivery_delay_max_ms", max(number, -1))

    def bytes(self, child: Element, about: str, text: str) -> None:
        """Read max-size-bytes."""
        self._limit(child, about, "max_bytes", self._reader.size(child, child.tag, text))

    def messages(self, child: Element, about: str, text: str) -> None:
        """Read max-size-messages."""
        self._limit(child, about, "max_messages", self._reader.whole(child, child.tag, text))

    def _limit(self, child: Element, about: str, name: str, number: int) -> None:
        if number == 0:
            text = "there is no limit of 0; messages that are not read yet wait in their topic"
            self._imported.note(Verdict.NONE, child.line, about, text)
        else:
            change = "for each queue, not for the address" if number > 0 else ""
            self._field(child, about, name, max(number, -1), change)

    def policy(self, child: Element, about: str, text: str) -> None:
        """Read address-full-policy."""
        when_full = _POLICIES.get(text.upper())
        if when_full is None:
            known = "one of " + ", ".join(_POLICIES)
            self._imported.note(Verdict.NONE, child.line, about, f"address-full-policy is {known}")
        else:
            how = {
                "block": "what does not fit stays in its Kafka topic",
                "reject_newest": "the message goes to the dead topic, and its sender can read why",
                "drop_newest": "the message goes to the evicted topic",
            }[when_full]
            self._field(child, about, "when_full", when_full, how)

    def exclusive(self, child: Element, about: str, text: str) -> None:
        """Read default-exclusive-queue."""
        if self._reader.switch(child, child.tag, text):
            self._field(child, about, "max_active_consumers", 1, "the others wait as backups")
            self._target.fields["max_backup_consumers"] = BACKUPS
        else:
            self._imported.note(Verdict.TAKEN, child.line, about, "nothing to do")

    def consumers(self, child: Element, about: str, text: str) -> None:
        """Read default-max-consumers."""
        number = self._reader.whole(child, child.tag, text)
        self._field(child, about, "max_active_consumers", number)

    def retroactive(self, child: Element, about: str, text: str) -> None:
        """Read retroactive-message-count."""
        number = self._reader.whole(child, child.tag, text)
        if not 0 <= number <= limits.RETAINED:
            why = f"retroactive_count is from 0 to {limits.RETAINED}"
            self._imported.note(Verdict.NONE, child.line, about, why)
            return
        self._target.retroactive = number
        why = f"retroactive_count: {number} of the address"
        self._imported.note(Verdict.TAKEN, child.line, about, why)

    def routing(self, child: Element, about: str, text: str) -> None:
        """Read default-…-routing-type."""
        self._target.is_multicast |= text.upper() == "MULTICAST"
        kind = "an address" if text.upper() == "MULTICAST" else "a queue"
        why = f"a new name becomes {kind}"
        self._imported.note(Verdict.TAKEN, child.line, about, why)

    def creates(self, child: Element, about: str, text: str) -> None:
        """Read auto-create-…."""
        creates = self._reader.switch(child, child.tag, text)
        self._target.creates &= creates
        why = "new names are refused"
        if creates:
            why = f"declared as the pattern {self._target.pattern}"
        self._imported.note(Verdict.TAKEN, child.line, about, why)

    def dead(self, child: Element, about: str, text: str) -> None:
        """Read dead-letter-address and expiry-address."""
        what = "dead messages" if child.tag.startswith("dead") else "expired messages"
        why = f"{what} of all queues go to the topic ringfaust.dead, with reason and queue"
        self._imported.note(Verdict.CHANGED, child.line, about, why)

    def time_of_arrival(self, child: Element, about: str, text: str) -> None:
        """Read enable-ingress-timestamp."""
        why = "every delivery has the header ringfaust-enqueued-ms"
        self._imported.note(Verdict.TAKEN, child.line, about, why)


_Special = Callable[[_Setting, Element, str, str], None]
_SPECIAL: dict[str, _Special] = {
    "default-ring-size": _Setting.ring_size,
    "max-delivery-attempts": _Setting.attempts,
    "redelivery-delay": _Setting.delay,
    "redelivery-delay-multiplier": _Setting.multiplier,
    "redelivery-collision-avoidance-factor": _Setting.jitter,
    "max-redelivery-delay": _Setting.longest_delay,
    "max-size-bytes": _Setting.bytes,
    "max-size-messages": _Setting.messages,
    "address-full-policy": _Setting.policy,
    "default-exclusive-queue": _Setting.exclusive,
    "default-max-consumers": _Setting.consumers,
    "retroactive-message-count": _Setting.retroactive,
    "dead-letter-address": _Setting.dead,
    "expiry-address": _Setting.dead,
    "enable-ingress-timestamp": _Setting.time_of_arrival,
    **dict.fromkeys(_CREATED, _Setting.creates),
    **dict.fromkeys(_ROUTING, _Setting.routing),
}


def set_ring_size(imported: Imported, fields: Fields, number: int, line: int, about: str) -> None:
    """Take over a ring size; 0 and less need Artemis' rules (C10)."""
    if number == -1 or number > 0:
        finding = ImportFinding(Verdict.TAKEN, line, about, f"ring_size: {number}")
        imported.set(fields, "ring_size", number, finding)
        return
    fields |= {"ring_size": number, "compat": "artemis"}
    why = f"ring_size: {number} with compat: artemis, which evicts every send that nobody takes"
    imported.note(Verdict.CHANGED, line, about, why)


def read_address_settings(
    section: Element, reader: Reader, wildcards: Wildcards, imported: Imported
) -> list[AddressSetting]:
    """Read `address-settings`; of two with one match the first counts, as in Artemis."""
    found: dict[str, AddressSetting] = {}
    note_unknown(section, "address-settings", imported, children=("address-setting",))
    for element in section.all("address-setting"):
        match = element.attributes.get("match", "")
        pattern = wildcards.translate(match)
        why = ""
        if match.startswith(OF_THE_BROKER):
            why = "an address of the broker itself; `ringfaust queue` and `message` operate queues"
        elif pattern in found:
            first = found[pattern].line
            why = f"repeated: the address-setting of line {first} has this match, and counts alone"
        elif pattern is None or not imported.is_name(
            pattern, element.line, f"address-setting {match}"
        ):
            why = "patterns here are words between dots, where * and # stand for whole words"
        if why or pattern is None:
            for child in element.children:
                about = f"address-setting {match}, {child.tag} = {child.text}"
                imported.note(Verdict.NONE, child.line, about, why)
            if not element.children:
                imported.note(Verdict.NONE, element.line, f"address-setting {match}", why)
            continue
        note_unknown(
            element, f"address-setting {match}", imported,
            children={child.tag for child in element.children}, attributes=("match",),
        )  # fmt: skip
        if not element.children:
            why = f"it sets nothing; new names become queues, by the pattern {pattern}"
            imported.note(Verdict.TAKEN, element.line, f"address-setting {match}", why)
        target = found[pattern] = AddressSetting(pattern, element.line)
        setting = _Setting(reader, imported, target)
        for child in element.children:
            setting.read(child)
    every = list(found.values())
    for target in every:
        _set_policy(target, every, imported)
    for target, cap in [(each, _cap(each, every, imported)) for each in every]:
        target.fields |= {"redelivery_delay_max_ms": cap} if cap else {}
    return every


def _set_policy(
    target: AddressSetting, every: Sequence[AddressSetting], imported: Imported
) -> None:
    """What happens at a limit: Artemis pages, unless this or a wider match says otherwise."""
    fields = target.fields
    limited = [name for name in ("max_messages", "max_bytes") if fields.get(name, -1) != -1]
    if not limited or "when_full" in fields:
        return
    if any("when_full" in each.fields and covers(each.pattern, target.pattern) for each in every):
        return
    fields["when_full"] = "block"
    about = f"address-setting {target.pattern}, no address-full-policy"
    why = "when_full: block, as Artemis pages by default: what does not fit stays in its topic"
    imported.note(Verdict.CHANGED, target.line, about, why)


def _cap(target: AddressSetting, every: Sequence[AddressSetting], imported: Imported) -> int:
    """Artemis caps a growing delay at ten times its beginning, unless a match says otherwise."""
    names = "redelivery_delay_ms", "redelivery_multiplier", "redelivery_delay_max_ms"
    delay, multiplier, longest = (_inherited(target, every, name) for name in names)
    is_own = target.fields.keys() & {*names}
    if not is_own or not delay or multiplier is None or longest is not None:
        return 0
    assert isinstance(delay, int)
    about = f"address-setting {target.pattern}, no max-redelivery-delay"
    why = f"redelivery_delay_max_ms: {10 * delay}, which is Artemis' default"
    imported.note(Verdict.CHANGED, target.line, about, why)
    return 10 * delay


def _inherited(target: AddressSetting, every: Sequence[AddressSetting], name: str) -> object:
    """The field of the most specific match that has it and covers the target; None: none has it."""
    having = [
        each for each in every if name in each.fields and covers(each.pattern, target.pattern)
    ]
    for each in having:
        if all(covers(other.pattern, each.pattern) for other in having):
            return each.fields[name]
    return None
