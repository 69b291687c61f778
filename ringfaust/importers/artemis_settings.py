"""`address-setting` of broker.xml: which setting is which field here, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations

from ringfaust.core import limits
from ringfaust.core.catalog import specificity
from ringfaust.core.patterns import is_pattern
from ringfaust.importers.artemis_matches import (
    CREATED,
    OF_JMS,
    ROUTING,
    AddressSetting,
    cap_of,
    note_order,
    set_policy,
    share_names,
)
from ringfaust.importers.artemis_values import (
    OF_THE_BROKER,
    Wildcards,
    note_unknown,
    number,
    placeholder,
    size,
    switch,
    whole,
)
from ringfaust.importers.imported import BACKUPS, Fields, Imported, Verdict, compiled, covers
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

_OTHERS = {
    "auto-create-dead-letter-resources": (None, _DEAD),
    "dead-letter-queue-prefix": (None, _DEAD),
    "dead-letter-queue-suffix": (None, _DEAD),
    "auto-create-expiry-resources": (None, _DEAD),
    "expiry-queue-prefix": (None, _DEAD),
    "expiry-queue-suffix": (None, _DEAD),
    "no-expiry": ("false", _TTL),
    "expiry-delay": ("-1", _TTL),
    "min-expiry-delay": ("-1", _TTL),
    "max-expiry-delay": ("-1", _TTL),
    "max-size-bytes-reject-threshold": (
        "-1",
        "choose `when_full: reject_newest` to refuse messages",
    ),
    "page-limit-bytes": ("-1", "the retention of the Kafka topic limits what waits in it"),
    "page-limit-messages": ("-1", "the retention of the Kafka topic limits what waits in it"),
    "page-full-policy": (None, "the retention of the Kafka topic limits what waits in it"),
    "page-size-bytes": (None, _PAGES),
    "page-max-cache-size": (None, _PAGES),
    "max-read-page-messages": (None, _PAGES),
    "max-read-page-bytes": (None, _PAGES),
    "prefetch-page-messages": (None, _PAGES),
    "prefetch-page-bytes": (None, _PAGES),
    "message-counter-history-day-limit": (None, "counts of each queue are metrics for Prometheus"),
    "last-value-queue": ("false", _LAST),
    "default-last-value-queue": ("false", _LAST),
    "default-last-value-key": ("", _LAST),
    "default-non-destructive": ("false", "a message leaves its queue when it is acked"),
    "default-group-rebalance": ("false", _GROUPS),
    "default-group-rebalance-pause-dispatch": ("false", _GROUPS),
    "default-group-buckets": ("-1", "groups are not hashed; max_groups bounds what is remembered"),
    "default-group-first-key": ("", "a delivery does not say that it is the first of its group"),
    "default-consumers-before-dispatch": ("0", _WAIT),
    "default-delay-before-dispatch": ("-1", _WAIT),
    "redistribution-delay": ("-1", "not needed: all workers serve all queues"),
    "send-to-dla-on-no-route": ("false", "such a message is reported as the event `unrouted`"),
    "slow-consumer-threshold": ("-1", _SLOW),
    "slow-consumer-threshold-measurement-unit": (None, _SLOW),
    "slow-consumer-policy": (None, _SLOW),
    "slow-consumer-check-period": (None, _SLOW),
    "auto-delete-queues": ("false", _DELETED),
    "auto-delete-created-queues": ("false", _DELETED),
    "auto-delete-queues-delay": (None, _DELETED),
    "auto-delete-queues-message-count": (None, _DELETED),
    "auto-delete-queues-skip-usage-check": (None, _DELETED),
    "auto-delete-jms-queues": ("false", _DELETED),
    "auto-delete-jms-topics": ("false", _DELETED),
    "auto-delete-addresses": ("false", _DELETED),
    "auto-delete-addresses-delay": (None, _DELETED),
    "auto-delete-addresses-skip-usage-check": (None, _DELETED),
    "config-delete-queues": ("OFF", _CONFIG),
    "config-delete-addresses": ("OFF", _CONFIG),
    "config-delete-diverts": ("OFF", _CONFIG),
    "management-browse-page-size": (
        None,
        "`ringfaust message browse --limit` sets it for each call",
    ),
    "management-message-attribute-size-limit": (None, "`ringfaust message browse` shortens bodies"),
    "default-purge-on-no-consumers": ("false", "messages stay when the last consumer leaves"),
    "default-consumer-window-size": (None, "a consumer chooses its credit and credit_bytes"),
    "enable-metrics": (None, "metrics cover all queues if `web` is enabled in worker.yaml"),
    "id-cache-size": (
        None,
        "dedup_window_ms refuses repeated ids for a time instead of a number of ids",
    ),
    "initial-queue-buffer-size": (None, "not needed"),
}
"""Settings without an equivalent: the value that switches one off, which leaves the same behaviour
as here (None: there is none); and what to do instead, or why nothing is needed."""


_POLICIES = {"PAGE": "block", "BLOCK": "block", "FAIL": "reject_newest", "DROP": "drop_newest"}
_BECOMES = {"MULTICAST": "an address", "ANYCAST": "a queue"}
_CONSUMERS = ("default-exclusive-queue", "default-max-consumers")


class _Setting:
    """Reads one child of an `address-setting`."""

    def __init__(
        self, child: Element, target: AddressSetting, every: Sequence[AddressSetting],
        imported: Imported,
    ) -> None:  # fmt: skip
        self._child = child
        self._target = target
        self._every = every
        self._imported = imported
        self._about = f"address-setting {target.pattern}, {child.tag} = {child.text}"
        self._given = imported, child.line, child.tag, child.text

    def read(self) -> None:
        """Record what becomes of it."""
        child = self._child
        if (unknown := placeholder(child.text)) is not None:
            self._note(
                Verdict.NONE, f"the broker's property {unknown} is not known here: set it by hand"
            )
            return
        note_unknown(child, f"address-setting {self._target.pattern}, {child.tag}", self._imported)
        if special := _SPECIAL.get(child.tag):
            special(self)
        else:
            self._imported.note_other(_OTHERS, child.tag, child.text, child.line, self._about)

    def _note(self, verdict: Verdict, why: str) -> None:
        self._imported.note(verdict, self._child.line, self._about, why)

    def _field(self, name: str, value: object, change: str = "") -> None:
        self._imported.set(
            self._target.fields, name, value, self._child.line, self._about,
            verdict=Verdict.CHANGED if change else Verdict.TAKEN, more=change and f", {change}",
        )  # fmt: skip

    def ring_size(self) -> None:
        size = whole(*self._given)
        set_ring_size(self._imported, self._target.fields, size, self._child.line, self._about)

    def attempts(self) -> None:
        attempts = whole(*self._given)
        change = "Artemis treats 0 and less as no limit" if attempts < 1 and attempts != -1 else ""
        self._field("max_attempts", attempts if attempts >= 1 else -1, change)

    def delay(self) -> None:
        self._field("redelivery_delay_ms", max(whole(*self._given), 0))

    def multiplier(self) -> None:
        factor = number(*self._given)
        change = "delays do not shrink" if factor < 1 else ""
        self._field("redelivery_multiplier", max(factor, 1.0), change)

    def jitter(self) -> None:
        self._field("redelivery_jitter", number(*self._given))

    def longest_delay(self) -> None:
        longest = whole(*self._given)
        change = "as in Artemis, where less than 0 is no delay" if longest < 0 else ""
        self._field("redelivery_delay_max_ms", max(longest, 0), change)

    def bytes(self) -> None:
        self._limit("max_bytes", size(*self._given))

    def messages(self) -> None:
        self._limit("max_messages", whole(*self._given))

    def _limit(self, name: str, most: int) -> None:
        if most == 0:
            text = "there is no limit of 0; messages that are not read yet wait in their topic"
            self._note(Verdict.NONE, text)
        else:
            change = "for each queue, not for the address" if most > 0 else ""
            self._field(name, max(most, -1), change)

    def policy(self) -> None:
        when_full = _POLICIES.get(self._child.text.upper())
        if when_full is None:
            known = "one of " + ", ".join(_POLICIES)
            self._note(Verdict.NONE, f"address-full-policy is {known}")
        else:
            how = {
                "block": "what does not fit stays in its Kafka topic",
                "reject_newest": "the message goes to the dead topic, and its sender can read why",
                "drop_newest": "the message goes to the evicted topic",
            }[when_full]
            self._field("when_full", when_full, how)

    def consumers(self) -> None:
        """Whether the queue is exclusive, and how many consumers it has: each needs the other."""
        target, (exclusive, most) = self._target, _CONSUMERS
        if self._child.tag == exclusive:
            switch(*self._given)
        said = target.inherited(most) or "-1"
        set_consumers(
            self._imported, target.fields, self._child.line, self._about,
            is_exclusive=(target.inherited(exclusive) or "").lower() == "true",
            most=whole(self._imported, self._child.line, most, said),
            replaces=any(exclusive in each.given for each in target.wider),
        )  # fmt: skip

    def retroactive(self) -> None:
        count = whole(*self._given)
        if 0 <= count <= limits.RETAINED:
            self._target.retroactive = count
            self._note(Verdict.TAKEN, f"retroactive_count: {count} of the address")
        else:
            self._note(Verdict.NONE, f"retroactive_count is from 0 to {limits.RETAINED}")

    def routing(self) -> None:
        kind = "MULTICAST" if self._target.is_multicast else "ANYCAST"
        verdict = Verdict.TAKEN if kind == self._child.text.upper() else Verdict.CHANGED
        self._note(verdict, f"a new name becomes {_BECOMES[kind]}")

    def creates(self) -> None:
        switch(*self._given)
        target = self._target
        if self._child.tag not in target.given:
            self._note(Verdict.TAKEN, "nothing to do: Artemis 2 ignores it")
            return
        after = self._every[self._every.index(target) + 1 :]
        others = [each for each in after if each.creates and share_names(each, target)]
        if target.creates:
            self._note(Verdict.TAKEN, f"declared as the pattern {target.pattern}")
        elif others:
            why = f"new names are created, for the pattern {others[0].pattern} covers them, too"
            self._note(Verdict.NONE, why)
        else:
            self._note(Verdict.TAKEN, "new names are refused")

    def dead(self) -> None:
        what = "dead messages" if self._child.tag.startswith("dead") else "expired messages"
        why = f"{what} of all queues go to the topic ringfaust.dead, with reason and queue"
        self._note(Verdict.CHANGED, why)

    def time_of_arrival(self) -> None:
        self._note(Verdict.TAKEN, "every delivery has the header ringfaust-enqueued-ms")


_SPECIAL: dict[str, Callable[[_Setting], None]] = {
    "default-ring-size": _Setting.ring_size,
    "max-delivery-attempts": _Setting.attempts,
    "redelivery-delay": _Setting.delay,
    "redelivery-delay-multiplier": _Setting.multiplier,
    "redelivery-collision-avoidance-factor": _Setting.jitter,
    "max-redelivery-delay": _Setting.longest_delay,
    "max-size-bytes": _Setting.bytes,
    "max-size-messages": _Setting.messages,
    "address-full-policy": _Setting.policy,
    "retroactive-message-count": _Setting.retroactive,
    "dead-letter-address": _Setting.dead,
    "expiry-address": _Setting.dead,
    "enable-ingress-timestamp": _Setting.time_of_arrival,
    **dict.fromkeys(_CONSUMERS, _Setting.consumers),
    **dict.fromkeys(CREATED, _Setting.creates),
    **dict.fromkeys(ROUTING, _Setting.routing),
}


def set_ring_size(imported: Imported, fields: Fields, number: int, line: int, about: str) -> None:
    """Take over a ring size; 0 and less need Artemis' rules (C10)."""
    if number == -1 or number > 0:
        imported.set(fields, "ring_size", number, line, about)
        return
    fields |= {"ring_size": number, "compat": "artemis"}
    why = f"ring_size: {number} with compat: artemis, which evicts every send that nobody takes"
    imported.note(Verdict.CHANGED, line, about, why)


def set_consumers(
    imported: Imported, fields: Fields, line: int, about: str, *, is_exclusive: bool, most: int,
    replaces: bool,
) -> None:  # fmt: skip
    """Take over `exclusive` and `max-consumers`, which is `most`.

    `replaces`: a wider match may make the queue exclusive.
    """
    if is_exclusive and (most > 1 or most == -1):
        backups = BACKUPS if most == -1 else most - 1
        fields |= {"max_active_consumers": 1, "max_backup_consumers": backups}
        why = f"max_active_consumers: 1, max_backup_consumers: {backups}: the others wait"
        imported.note(Verdict.CHANGED, line, about, why)
        return
    imported.set(fields, "max_active_consumers", most, line, about)
    if replaces:
        fields["max_backup_consumers"] = 0


def read_address_settings(
    section: Element, wildcards: Wildcards, imported: Imported, *, is_old: bool
) -> list[AddressSetting]:
    """Read `address-settings`; of two with one match the first counts, as in Artemis.

    `is_old`: the file is one of Artemis 1.

    Returns:
        Them, in Artemis' order: of those that match a name, the first that has a setting decides.
    """
    note_unknown(section, "address-settings", imported, children=("address-setting",))
    every = sorted(
        _placed(section, wildcards, imported, () if is_old else OF_JMS),
        key=lambda each: (each.rank, specificity(compiled(each.pattern))),
    )
    patterns = [each for each in every if is_pattern(each.pattern)]
    for target in every:
        target.wider = [each for each in patterns if covers(each.pattern, target.pattern)]
        if not is_pattern(target.pattern):
            target.wider.insert(0, target)
    for target in sorted(every, key=lambda each: each.element.line):
        for child in target.element.children:
            _Setting(child, target, every, imported).read()
    for target in every:
        set_policy(target, imported)
    for target, cap in [(each, cap_of(each, imported)) for each in every]:
        target.fields |= {"redelivery_delay_max_ms": cap} if cap else {}
    for first, second in combinations(patterns, 2):
        note_order(first, second, imported)
    return every


def _placed(
    section: Element, wildcards: Wildcards, imported: Imported, ignored: Collection[str]
) -> Iterator[AddressSetting]:
    """Yield those that have a pattern here; each of the others gets a line for what it sets."""
    lines: dict[str, int] = {}
    for element in section.all("address-setting"):
        match = element.attributes.get("match", "")
        pattern = wildcards.translate(match)
        why = ""
        if match.startswith(OF_THE_BROKER):
            why = "an address of the broker itself; `ringfaust queue` and `message` operate queues"
        elif pattern in lines:
            first = lines[pattern]
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
        lines[pattern] = element.line
        known = {
            each.tag: each.text
            for each in element.children
            if placeholder(each.text) is None and each.tag not in ignored
        }
        yield AddressSetting(element, pattern, known)
