"""Distributed transactions on a real worker and broker (R81)."""

from __future__ import annotations

import pytest

from ringfaust.client import Admin, Refused, SettleRefused, TwoPhase, sync
from tests.client.harness import PARTITIONS, ClientHarness, ids, take

pytestmark = pytest.mark.kafka


async def test_an_ack_waits_for_the_decision(harness: ClientHarness) -> None:
    await harness.send("a", "b")
    async with (
        TwoPhase(harness.queue, **harness.where) as transaction,
        harness.consumer() as consumer,
    ):
        first, second = await take(consumer, 2)
        await transaction.begin()
        await first.ack(xid=transaction.xid, confirm=True)
        with pytest.raises(SettleRefused):
            await first.ack()
        with pytest.raises(Refused, match="not prepared"):
            await transaction.commit()
        await transaction.prepare()
        with pytest.raises(SettleRefused, match="prepared"):
            await second.ack(xid=transaction.xid, confirm=True)
        assert (await harness.listing())["counts"]["delivering"] == 2
        await transaction.commit()
        counts = await harness.counts(acked=1)
        assert counts["delivering"] == 1
        await second.ack(confirm=True)
        with pytest.raises(Refused):
            await transaction.commit()


async def test_a_rollback_returns_what_was_acked(harness: ClientHarness) -> None:
    await harness.send("a")
    async with (
        TwoPhase(harness.queue, **harness.where) as transaction,
        harness.consumer() as consumer,
    ):
        (message,) = await take(consumer, 1)
        await transaction.begin()
        with pytest.raises(Refused, match="of that xid is open"):
            await transaction.begin()
        await message.ack(xid=transaction.xid)
        await transaction.rollback()
        (again,) = await take(consumer, 1)
        assert (ids([again]), again.redelivered) == (["a"], True)


def test_two_phase_commit_without_asyncio(harness: ClientHarness) -> None:
    with sync.TwoPhase(harness.queue, partitions=[0], **harness.where) as transaction:
        transaction.begin()
        transaction.prepare()
        transaction.commit()
        transaction.begin()
        transaction.rollback()


async def test_an_operator_commits_it_everywhere_or_nowhere(harness: ClientHarness) -> None:
    """Its coordinator died while it prepared: the partition that was prepared committed alone."""
    xid = harness.queue
    async with (
        TwoPhase(xid, **harness.where) as everywhere,
        TwoPhase(xid, partitions=[0], **harness.where) as first,
        Admin(**harness.where) as admin,
    ):
        await everywhere.begin()
        await first.prepare()
        with pytest.raises(Refused, match="not all partitions have it prepared"):
            await admin.commit_xid(xid)
        (found,) = [each for each in await admin.xids() if each.xid == xid]
        assert len(found.partitions) == PARTITIONS
        await admin.rollback_xid(xid)
