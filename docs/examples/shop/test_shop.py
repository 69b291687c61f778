import pytest
import shop

pytestmark = pytest.mark.asyncio
EGGS = {"item": "eggs", "price": 3}


async def test_an_order_is_charged_and_has_an_invoice(ring_app):
    async with ring_app(shop.app, "config/queues.yaml") as running:
        await running.send("orders", EGGS)
        await running.settled()
        assert running.broker.counts("orders").acked == 1
        assert running.broker.counts("invoices").ready == 1


async def test_while_the_bank_is_away_an_order_waits_30_seconds(ring_app, monkeypatch):
    calls = []

    async def charge(order):
        calls.append(order.item)
        if len(calls) == 1:
            raise shop.BankIsAway

    monkeypatch.setattr(shop, "charge", charge)
    async with ring_app(shop.app, "config/queues.yaml") as running:
        await running.send("orders", EGGS)
        await running.settled()
        assert calls == ["eggs"]
        running.clock.advance(30)
        await running.settled()
        assert calls == ["eggs", "eggs"]


async def test_an_order_without_a_price_is_dead(ring_app):
    async with ring_app(shop.app, "config/queues.yaml") as running:
        await running.send("orders", {"item": "eggs"})
        await running.settled()
        (dead,) = running.broker.dead()
        assert dead.said("ringfaust-text") == "price: Field required"
