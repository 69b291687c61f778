"""Addresses: where a send goes, and what is kept for queues that are made later (R70, R71).

What becomes of the message in each queue is decided in `ring`.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.address import Address, address_of, queue_name
from ringfaust.core.commands.consumers import Consumers, check
from ringfaust.core.commands.operator import Operator
from ringfaust.core.model import Refusal
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import Refused, bad
from ringfaust.core.transitions import Transitions, send_of, unsent
from ringfaust.errors import BadSetting


class Addresses:
    """The addresses of one partition."""

    def __init__(self, ring: Transitions, consumers: Consumers, operator: Operator) -> None:
        self._ring = ring
        self._state = ring.state
        self._consumers = consumers
        self._operator = operator

    # --- sending ---------------------------------------------------------------------------------

    def send(self, send: c.Send) -> None:
        """To the queue of that name, or to each queue of the address (R43, R70)."""
        address = self.find(send.queue)
        if address is not None:
            self._publish(address, send)
            return
        queue = self._ring.queue(send.queue)
        if looping := _looping(queue, send):
            raise looping
        self._ring.enter(queue, send)

    def _publish(self, address: Address, send: c.Send) -> None:
        self._state.use_address(address)
        message = unsent(send)
        went = False
        for name in list(address.members):
            queue = self._ring.queue(name)
            if queue.wants is not None and not queue.wants.matches(message):
                continue
            went = True
            if looping := _looping(queue, send):  # of this queue's; the others have their own
                no = e.Refused(name, looping.reason, looping.about, looping.text)
                self._ring.out.append(no)
            else:
                self._ring.enter(queue, send)
        if not went:
            self._ring.out.append(e.Unrouted(address.name, message))
        if address.keeps():
            address.keep(message._replace(due_ms=0))

    # --- finding ---------------------------------------------------------------------------------

    def find(self, name: str) -> Address | None:
        """The address of that name with the queues that are declared with it, or None."""
        address = self._state.address(name)
        if address is None:
            return None
        declared = self._state.catalog.subscriptions(name)
        names = [queue_name(name, each) for each in declared]
        missing = [each for each in names if each not in address.members]
        if missing:
            self._ring.step_apart()
        for each in missing:
            queue = self._state.create(each, {})
            queue.applied = None
            self._consumers.fit_window(queue)
            self._join(address, queue)
        return address

    def _known(self, name: str) -> Address:
        address = self.find(name)
        if address is None:
            raise Refused(Refusal.UNKNOWN_QUEUE, name, f"no address {name!r}")
        return address

    def _join(self, address: Address, queue: Queue) -> None:
        """It is one of the address' queues; first it gets what the address has kept (R71)."""
        self._state.use_address(address)
        self._state.use(queue)
        address.members.append(queue.name)
        now = self._ring.now
        kept = address.kept()
        if queue.as_artemis:  # C11
            kept = iter(sorted(kept, key=lambda message: message.priority, reverse=True))
        for message in kept:
            is_expired = 0 < message.expires_at_ms <= now
            if not is_expired and (queue.wants is None or queue.wants.matches(message)):
                self._ring.enter(queue, send_of(message, queue.name, now))

    # --- queues of an address --------------------------------------------------------------------

    def create_queue(self, create: c.CreateQueue) -> None:
        """R71, R90: one whose name names an address joins that."""
        address_name = address_of(create.queue)
        if self.find(create.queue) is not None:
            raise bad(create.queue, "an address has that name")
        if not address_name:
            self._operator.create_queue(create)
            return
        address = self._known(address_name)
        if create.queue == queue_name(address_name, ""):
            raise bad(create.queue, "the queue of an address is named address::name")
        if address.spec.routing == "anycast" and address.members:
            raise bad(create.queue, f"an anycast address has one queue, {address.members[0]!r}")
        self._join(address, self._operator.create_queue(create))

    def delete_queue(self, delete: c.DeleteQueue) -> None:
        """R90."""
        self._operator.delete_queue(delete)
        self._leave(delete.queue)

    def auto_delete(self) -> None:
        """Queues that are not durable end with their last consumer (R70)."""
        queues, self._consumers.to_auto_delete = self._consumers.to_auto_delete, []
        for queue in dict.fromkeys(queues):
            if self._state.queues.get(queue.name) is queue:
                self._operator.delete(queue)
                self._leave(queue.name)

    def _leave(self, name: str) -> None:
        address = self._state.address(address_of(name))
        if address is not None and name in address.members:
            self._state.use_address(address)
            address.members.remove(name)

    def subscribe(self, subscribe: c.Subscribe) -> None:
        """R70."""
        check(subscribe)
        address = self._known(subscribe.address)
        if address.spec.routing == "anycast":
            raise bad(address.name, "this is an anycast address; attach to its queue")
        name = queue_name(address.name, _subscription_name(subscribe))
        queue = self._ring.queue(name) if name in address.members else None
        if queue is None:
            settings = {
                "selector": subscribe.selector,
                "shared": subscribe.shared,
                "durable": bool(subscribe.subscription),
            }
            self.create_queue(c.CreateQueue(name, settings))
        elif not subscribe.subscription:
            raise bad(subscribe.consumer, f"queue {name!r} is there; use another consumer's name")
        elif not queue.spec.durable:
            raise bad(name, "this queue ends with its last consumer; use another name")
        elif queue.spec.selector != subscribe.selector:
            raise bad(
                name,
                f"this subscription has the selector {queue.spec.selector!r}; delete "
                "its queue first to subscribe with another",
            )
        self._consumers.attach(
            c.Attach(
                name, subscribe.consumer, subscribe.credit, subscribe.priority,
                subscribe.ack_mode, subscribe.session, "", subscribe.credit_bytes,
            )
        )  # fmt: skip

    # --- settings --------------------------------------------------------------------------------

    def configure(self, configure: c.ConfigureAddress) -> None:
        """R71, R90."""
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
        address.settings, address.spec = settings, spec
        address.fit()
        self._ring.out.append(e.ConfiguredAddress(address.name, configure.settings))


def _looping(queue: Queue, send: c.Send) -> Refused | None:
    """It was sent again too often (R43)."""
    most = queue.spec.max_redrives
    if 0 <= most < send.redrives:
        return bad(send.id, f"it was sent again {send.redrives - 1} times; max_redrives is {most}")
    return None


def _subscription_name(subscribe: c.Subscribe) -> str:
    if not subscribe.subscription:
        return subscribe.consumer
    return ".".join(filter(None, (subscribe.client, subscribe.subscription)))
