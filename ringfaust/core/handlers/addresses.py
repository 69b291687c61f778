"""The commands of addresses: where a send goes, and what later queues get (R70, R71).

`transitions` decides what becomes of the message in each queue.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.address import Address, address_of, queue_name
from ringfaust.core.handlers.consumers import Consumers, check
from ringfaust.core.handlers.operator import DELETE, Operator
from ringfaust.core.model import AckMode, Refusal, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import CommandRefused, bad
from ringfaust.core.transitions import Transitions, addresses, queues, send_of, unsent
from ringfaust.errors import BadSetting

COPY, ATTACH = "copy", "attach"
"""Stages of commands (R114)."""


class Addresses:
    """Handles sends to addresses, and the commands about addresses and their queues."""

    def __init__(self, transitions: Transitions, consumers: Consumers, operator: Operator) -> None:
        self._transitions = transitions
        self._state = transitions.state
        self._consumers = consumers
        self._operator = operator

    # --- sending ---------------------------------------------------------------------------------

    def send(self, send: c.Send) -> None:
        """Send to the queue of that name, or to each queue of the address (R43, R70)."""
        address = self.find(send.queue)
        if address is not None:
            self._publish(address, send)
            return
        queue = self._transitions.queue(send.queue)
        if refusal := _turned_away(queue, send):
            raise refusal
        self._transitions.enter(queue, send)

    def _publish(self, address: Address, send: c.Send) -> None:
        self._state.use_address(address)
        message = unsent(send)
        is_routed = False
        for name in list(address.members):
            queue = self._transitions.queue(name)
            if queue.selector is not None and not queue.selector.matches(message):
                continue
            is_routed = True
            if refusal := _turned_away(queue, send):  # by this queue; the others may take it
                refused = e.Refused(name, refusal.reason, refusal.about, refusal.text)
                self._transitions.out.append(refused)
            else:
                self._transitions.enter(queue, send)
        if not is_routed:
            self._transitions.out.append(e.Unrouted(address.name, message))
        addresses.retain(address, message)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, name: str) -> Address | None:
        """The address of that name, or None. Queues that are declared with it are created."""
        address = self._state.address(name)
        if address is None:
            return None
        declared = self._state.catalog.subscriptions(name)
        names = [queue_name(name, each) for each in declared]
        missing = [each for each in names if each not in address.members]
        if missing:
            self._transitions.split_step()
        for each in missing:
            queue = self._state.create(each, {})
            queues.mark_checked(queue)
            self._consumers.fit_window(queue)
            self._join(address, queue)
            self._copy(address, queue, None)  # the command that found it follows at once
        return address

    def _known(self, name: str) -> Address:
        address = self.find(name)
        if address is None:
            raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, f"no address {name!r}")
        return address

    def _join(self, address: Address, queue: Queue) -> None:
        """Make a queue a member of the address (R70)."""
        self._state.use_address(address)
        self._state.use(queue)
        addresses.join(address, queue.name)

    def _copy(self, address: Address, queue: Queue, stage: Stage | None) -> None:
        """Send a queue what its address retains (R71).

        `stage`: stop when this transaction is full, and leave the rest to it (R114). None: copy
        all at once.
        """
        now = self._transitions.now
        after = stage.args[0] if stage is not None and stage.args else None
        for key, message in queue.policy.copy_order(address.retained_after(after)):
            is_full = self._transitions.stages or not self._transitions.has_room
            if stage is not None and is_full and not queue.policy.sorts_copies:
                self._transitions.stages.append(stage._replace(args=(after,)))
                return
            self._transitions.spend(message.size_bytes)
            after = key
            is_expired = 0 < message.expires_at_ms <= now
            if not is_expired and (queue.selector is None or queue.selector.matches(message)):
                self._transitions.enter(queue, send_of(message, queue.name, now))

    def copy_stage(self, stage: Stage) -> None:
        """Copy as much as fits into this transaction (R114)."""
        queue = self._transitions.queue(stage.queue)
        self._state.use(queue)
        address = self._state.address(address_of(queue.name))
        assert address is not None
        self._copy(address, queue, stage)

    # --- queues of an address --------------------------------------------------------------------

    def create_queue(self, create: c.CreateQueue) -> None:
        """Create a queue; one named `address::name` joins that address (R71, R90)."""
        address_name = address_of(create.queue)
        if self.find(create.queue) is not None:
            raise bad(create.queue, "an address has that name")
        if not address_name:
            self._operator.create_queue(create)
            return
        address = self._known(address_name)
        if create.queue == queue_name(address_name, ""):
            raise bad(create.queue, "a queue of an address is named address::name")
        if address.spec.routing == "anycast" and address.members:
            raise bad(create.queue, f"an anycast address has one queue, {address.members[0]!r}")
        queue = self._operator.create_queue(create)
        self._join(address, queue)
        self._transitions.perform(Stage(COPY, queue.name))

    def delete_queue(self, delete: c.DeleteQueue) -> None:
        """Delete a queue, and take it out of its address (R90)."""
        self._operator.delete_queue(delete)

    def delete_stage(self, stage: Stage) -> None:
        """Delete the queue as far as that fits into this transaction (R114)."""
        queue = self._transitions.queue(stage.queue)
        if self._operator.delete(queue):
            self._leave(queue.name)
        else:
            self._transitions.stages.append(stage)

    def auto_delete(self) -> None:
        """Delete the non-durable queues whose last consumer has left (R70)."""
        queues, self._consumers.to_auto_delete = self._consumers.to_auto_delete, []
        for queue in dict.fromkeys(queues):
            stage = Stage(DELETE, queue.name)
            is_there = self._state.queues.get(queue.name) is queue
            if is_there and stage not in self._transitions.stages:
                self._state.use(queue)
                self._transitions.expire(queue)
                self._transitions.perform(stage)

    def _leave(self, name: str) -> None:
        address = self._state.address(address_of(name))
        if address is not None and name in address.members:
            self._state.use_address(address)
            addresses.leave(address, name)

    def subscribe(self, subscribe: c.Subscribe) -> None:
        """Attach a consumer to the queue of its subscription, which is created if needed (R70)."""
        check(subscribe)
        address = self._known(subscribe.address)
        if address.spec.routing == "anycast":
            raise bad(address.name, "this is an anycast address; attach to its queue")
        name = subscription_queue(subscribe)
        queue = self._transitions.queue(name) if name in address.members else None
        if queue is None:
            settings = {
                "selector": subscribe.selector,
                "shared": subscribe.shared,
                "durable": bool(subscribe.subscription),
            }
            self.create_queue(c.CreateQueue(name, settings))
        elif not subscribe.subscription:
            raise bad(subscribe.consumer, f"queue {name!r} exists; use another consumer name")
        elif not queue.spec.durable:
            raise bad(name, "this queue is deleted with its last consumer; use another name")
        elif queue.spec.selector != subscribe.selector:
            raise bad(
                name,
                f"this subscription has the selector {queue.spec.selector!r}; delete "
                "its queue first to subscribe with another",
            )
        attach = (
            subscribe.consumer, subscribe.credit, subscribe.priority, subscribe.ack_mode,
            subscribe.session, "", subscribe.credit_bytes,
        )  # fmt: skip
        self._transitions.perform(Stage(ATTACH, name, attach))

    def attach_stage(self, stage: Stage) -> None:
        """Attach the consumer once its queue has its copies (R71)."""
        name, credit, priority, ack_mode, *rest = stage.args
        attach = c.Attach(stage.queue, name, credit, priority, AckMode(ack_mode), *rest)
        self._consumers.attach(attach)

    # --- settings --------------------------------------------------------------------------------

    def configure(self, configure: c.ConfigureAddress) -> None:
        """Change settings of an address (R71, R90)."""
        address = self._known(configure.address)
        settings = {**address.settings, **configure.settings}
        try:
            spec = self._state.catalog.address(address.name, settings)
        except BadSetting as error:
            raise bad(address.name, str(error)) from error
        assert spec is not None
        if spec.routing == "anycast" and len(address.members) > 1:
            raise bad(address.name, f"it has {len(address.members)} queues; anycast allows one")
        self._state.use_address(address)
        addresses.configure(address, settings, spec)
        self._transitions.out.append(e.ConfiguredAddress(address.name, configure.settings))


def _looping(queue: Queue, send: c.Send) -> CommandRefused | None:
    """The refusal of a message that was redriven too often, or None (R43)."""
    most = queue.spec.max_redrives
    if 0 <= most < send.redrives:
        return bad(send.id, f"it was redriven {send.redrives - 1} times; max_redrives is {most}")
    return None


def _repeated(queue: Queue, send: c.Send) -> CommandRefused | None:
    """The refusal of a message that the queue has received before, or None (R119)."""
    if not queue.dedups or send.redrives or not send.payload.is_named(send.id):
        return None
    window_ms = queue.spec.dedup_window
    first = queue.sent_ids().find(send.id)
    if first is None or send.sent_ms >= first.sent_ms + window_ms:
        return None
    text = (
        f"a message of this id came {max(send.sent_ms - first.sent_ms, 0)} ms before, with "
        f"sequence {first.sequence}; dedup_window is {window_ms} ms"
    )
    return CommandRefused(Refusal.DUPLICATE, send.id, text)


def _turned_away(queue: Queue, send: c.Send) -> CommandRefused | None:
    """Why the queue does not take the message, whatever room it has; None: it may."""
    return _looping(queue, send) or _repeated(queue, send)


def subscription_queue(subscribe: c.Subscribe) -> str:
    """The queue of a subscription (R70)."""
    name = subscribe.consumer
    if subscribe.subscription:
        name = ".".join(filter(None, (subscribe.client, subscribe.subscription)))
    return queue_name(subscribe.address, name)
