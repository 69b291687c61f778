"""Addresses, subscriptions, retroactive messages (R70, R71)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Refusal
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from tests.core.test_engine import refusals, refused

BODY = Payload(None, b"", (), "in/0/0")


def host(**address: object) -> MemoryHost:
    return MemoryHost(Catalog({}, {"#": {"consumer_timeout": 0}}, {"prices": address}))


def send(it: MemoryHost, message_id: str, now: int = 0, **fields: object) -> list[e.Effect]:
    return it.step(c.Send("prices", message_id, now, payload=BODY, **fields), now).all_effects  # type: ignore[arg-type]


def ready(it: MemoryHost, queue: str) -> list[str]:
    found = it.state.queue(queue)
    assert found is not None
    return [message.id for message in found.in_order()]


def subscribe(consumer: str, **fields: object) -> c.Subscribe:
    return c.Subscribe("prices", consumer, 9, **fields)  # type: ignore[arg-type]


def test_a_message_without_a_queue_is_unrouted() -> None:
    it = host()
    effects = send(it, "a")
    assert [type(effect) for effect in effects] == [e.Unrouted]


def test_an_address_is_not_a_queue() -> None:
    it = host(subscriptions={"ann": {}})
    assert refused(it, c.Attach("prices", "k", 1)) == [Refusal.UNKNOWN_QUEUE]
    assert refused(it, c.CreateQueue("prices", {})) == [Refusal.BAD_COMMAND]
    assert refused(it, c.CreateQueue("nowhere::q", {})) == [Refusal.UNKNOWN_QUEUE]
    assert refused(it, c.CreateQueue("prices::", {})) == [Refusal.BAD_COMMAND]
    assert refused(it, c.CreateQueue("prices::ann", {})) == [Refusal.BAD_COMMAND]


def test_a_selector_that_is_never_true_is_no_setting() -> None:
    it = host()
    never = {"selector": "JMSPriority > 9"}
    create = c.CreateQueue("prices::late", never)
    assert refused(it, create) == [Refusal.BAD_SELECTOR]
    it.step(c.CreateQueue("prices::late", {}), 0)
    configure = c.Configure("prices::late", never)
    assert refused(it, configure) == [Refusal.BAD_SELECTOR]


def test_a_durable_subscription_keeps_its_queue() -> None:
    it = host()
    it.step(subscribe("k1", subscription="all", client="ann"), 0)
    send(it, "a")
    it.step(c.Detach("prices::ann.all", "k1"), 0)
    send(it, "b")
    it.crash()
    it.step(subscribe("k2", subscription="all", client="ann"), 0)
    queue = it.state.queue("prices::ann.all")
    assert queue is not None
    assert [d.message.id for _, d in queue.deliveries] == ["a", "b"]


def test_one_client_at_a_time_unless_shared() -> None:
    it = host()
    it.step(subscribe("k1", subscription="one"), 0)
    taken = it.step(subscribe("k2", subscription="one"), 0).all_effects
    assert refusals(taken) == [Refusal.CONSUMER_LIMIT]
    it.step(subscribe("k3", subscription="many", shared=True), 0)
    assert refused(it, subscribe("k4", subscription="many", shared=True)) == []


def test_the_selector_of_a_subscription_cannot_change() -> None:
    it = host()
    it.step(subscribe("k1", subscription="one", selector="JMSPriority > 5"), 0)
    it.step(c.Detach("prices::one", "k1"), 0)
    assert refused(it, subscribe("k1", subscription="one")) == [Refusal.BAD_COMMAND]
    bad = it.step(subscribe("k1", subscription="two", selector="= ="), 0).all_effects
    assert refusals(bad) == [Refusal.BAD_SELECTOR]
    assert it.state.queue("prices::two") is None


def test_a_subscription_gets_what_its_selector_matches() -> None:
    it = host(subscriptions={"urgent": {"selector": "JMSPriority > 5"}})
    send(it, "a")
    send(it, "b", priority=9)
    assert ready(it, "prices::urgent") == ["b"]


def test_a_non_durable_subscription_ends_with_its_consumer() -> None:
    it = host()
    it.step(subscribe("k1"), 0)
    send(it, "a")
    send(it, "b")
    effects = it.step(c.Detach("prices::k1", "k1"), 0).all_effects
    gone = [effect.message.id for effect in effects if isinstance(effect, e.Evicted)]
    assert gone == ["a", "b"]
    assert isinstance(effects[-1], e.Deleted)
    assert it.state.queue("prices::k1") is None
    assert [type(effect) for effect in send(it, "c")] == [e.Unrouted]


def test_a_timeout_also_ends_a_non_durable_subscription() -> None:
    it = MemoryHost(Catalog({}, {"prices": {"consumer_timeout": 100}}, {"prices": {}}))
    it.step(subscribe("k1"), 0)
    assert isinstance(it.step(c.Sweep(), 100).all_effects[-1], e.Deleted)


def test_a_later_queue_gets_the_retained_messages_that_have_not_expired() -> None:
    it = host(retroactive_count=3)
    send(it, "a")
    send(it, "b", expires_at_ms=50)
    send(it, "c", due_ms=1_000)
    send(it, "d", priority=9)
    it.crash()
    it.step(c.CreateQueue("prices::late", {}), 60)
    assert ready(it, "prices::late") == ["d", "c"]
    it.step(c.CreateQueue("prices::picky", {"selector": "JMSPriority = 9"}), 60)
    assert ready(it, "prices::picky") == ["d"]


def test_a_deleted_queue_gets_no_more_messages_and_a_declared_one_is_recreated() -> None:
    it = host(subscriptions={"ann": {}})
    it.step(c.CreateQueue("prices::bob", {}), 0)
    send(it, "a")
    it.step(c.DeleteQueue("prices::bob"), 0)
    it.step(c.DeleteQueue("prices::ann"), 0)
    send(it, "b")
    assert it.state.queue("prices::bob") is None
    assert ready(it, "prices::ann") == ["b"]


def test_a_subscription_declared_later_gets_the_retained_messages() -> None:
    it = host(retroactive_count=5)
    send(it, "a")
    it._catalog = Catalog({}, {}, {"prices": {"retroactive_count": 5, "subscriptions": {"s": {}}}})
    it.crash()
    it.step(c.Attach("prices::s", "k", 0), 0)
    assert ready(it, "prices::s") == ["a"]


def test_anycast_has_one_queue() -> None:
    it = host(routing="anycast")
    it.step(c.CreateQueue("prices::one", {}), 0)
    assert refused(it, c.CreateQueue("prices::two", {})) == [Refusal.BAD_COMMAND]
    send(it, "a")
    assert ready(it, "prices::one") == ["a"]
    assert refused(it, subscribe("k")) == [Refusal.BAD_COMMAND]
    assert refused(it, c.Attach("prices::one", "k1", 0)) == []
    assert refused(it, c.Attach("prices::one", "k2", 0)) == []


def test_settings_of_an_address() -> None:
    it = host()
    it.step(c.CreateQueue("prices::one", {}), 0)
    it.step(c.CreateQueue("prices::two", {}), 0)
    for settings in ({"retroactive_count": -1}, {"nonsense": 1}, {"routing": "anycast"}):
        assert refused(it, c.ConfigureAddress("prices", settings)) == [Refusal.BAD_COMMAND]
    assert refused(it, c.ConfigureAddress("nowhere", {})) == [Refusal.UNKNOWN_QUEUE]


def test_a_message_redriven_too_often_is_refused_by_the_queue_with_that_limit() -> None:
    it = host(subscriptions={"ann": {"max_redrives": 1}, "bob": {}})
    effects = send(it, "a", redrives=2)
    assert [(r.queue, r.reason) for r in effects if isinstance(r, e.Refused)] == [
        ("prices::ann", Refusal.BAD_COMMAND)
    ]
    assert ready(it, "prices::bob") == ["a"]
