"""The mutants: each is one change of the source that breaks one promise of the contract.

A snippet must stand exactly once in its file. One that no longer does is an error, never a mutant
that is left out: change it here together with the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ringfaust.errors import RingfaustError


class Stale(RingfaustError):
    """A mutant's snippet is not, or not once, in the source.

    What to do: bring its entry in tests/mutants/mutants.py up to date.
    """


class Mutant(NamedTuple):
    """One fault."""

    name: str
    breaks: str
    """The promise, with its rule."""
    file: str
    """Under `ringfaust/`."""
    snippet: str
    instead: str

    def apply(self, package: Path) -> None:
        """Put it into a copy of the package.

        Raises:
            Stale: the snippet does not stand there once.
        """
        path = package / self.file
        text = path.read_text() if path.is_file() else ""
        if (count := text.count(self.snippet)) != 1:
            raise Stale(f"{self.name}: its snippet stands {count} times in {self.file}, not once")
        path.write_text(text.replace(self.snippet, self.instead))


QUEUE, CONSUMERS = "core/queue.py", "core/handlers/consumers.py"
ENTERING, DELIVERING = "core/transitions/entering.py", "core/transitions/delivering.py"
RETURNING, LEAVING = "core/transitions/returning.py", "core/transitions/leaving.py"
DELIVERIES, ROSTER = "core/transitions/deliveries.py", "core/transitions/roster.py"
POLICY, ENGINE = "core/policy/default.py", "core/engine.py"
GROUPS, OPERATOR = "core/transitions/groups.py", "core/handlers/operator.py"
_OVERFLOW = "                self.evict(queue, queue.victim(), EvictReason.OVERFLOW, message.id)\n"

MUTANTS = [
    # --- the ring
    Mutant("evict two", "R2: one send evicts one", ENTERING, _OVERFLOW,
           _OVERFLOW + "                if queue.counts.ready:\n    " + _OVERFLOW),
    Mutant("one more than N", "R1: at most N are ready", ENTERING,
           "if not was_taken and 0 <= ring_size < queue.counts.ready:",
           "if not was_taken and 0 <= ring_size + 1 < queue.counts.ready:"),
    Mutant("one less than N", "R1: up to N may be ready", ENTERING,
           "if not was_taken and 0 <= ring_size < queue.counts.ready:",
           "if not was_taken and 0 <= ring_size <= queue.counts.ready:"),
    Mutant("evict before dispatch", "R2: first, ready messages go to consumers", ENTERING,
           "            was_taken = queue.consumers and self._offer(queue, message)\n"
           "            if not was_taken and 0 <= ring_size < queue.counts.ready:\n" + _OVERFLOW,
           "            if 0 <= ring_size < queue.counts.ready:\n" + _OVERFLOW +
           "            if queue.is_ready(message):\n"
           "                self._offer(queue, message)\n"),
    Mutant("evict though taken", "R2: who is taken at once evicts nobody", ENTERING,
           "            if not was_taken and 0 <= ring_size", "            if 0 <= ring_size"),
    Mutant("wrong victim", "R3: the oldest leaves", QUEUE,
           'if self.spec.evict == "oldest":', 'if self.spec.evict == "nobody":'),
    Mutant("victim by its priority", "R3: oldest is the lowest position, whatever the priority",
           QUEUE, "return min(found, key=lambda message: (message.position, message.sequence))",
           "return found[0]"),
    Mutant("head for the least", "R3: lowest_priority", QUEUE,
           "level = max(i for i, count in enumerate(self.level_counts) if count)",
           "level = min(i for i, count in enumerate(self.level_counts) if count)"),
    Mutant("evict a held one", "R4: what a consumer holds is no victim", DELIVERING,
           "        unplace(queue, message)\n        if message.group and queue.owner",
           "        if message.group and queue.owner"),
    Mutant("lazy is eager", "R5: lowering N evicts nothing by itself", "core/handlers/operator.py",
           'if spec.shrink != "eager" or spec.ring_size < 0:', "if spec.ring_size < 0:"),
    Mutant("no cause", "R6: the record names who needed the place", LEAVING,
           "queue.name, message, reason, cause, spec.ring_size,",
           'queue.name, message, reason, "", spec.ring_size,'),
    # --- delivering
    Mutant("refund no credit", "R10: the end of a delivery gives its credit back", DELIVERIES,
           "        consumer.in_flight -= 1\n", ""),
    Mutant("cursor stands still", "R11: round robin", QUEUE,
           "if consumer.order > last:", "if consumer.order >= 0:"),
    Mutant("backup stays", "R11: a backup takes over", ROSTER,
           "    consumer.active = True\n", ""),
    Mutant("silence is no end", "R13: a silent consumer is detached", CONSUMERS,
           "if not timeout_ms or not heard.covers(consumer.seen_ms, timeout_ms):",
           "if consumer.name:"),
    Mutant("heartbeat unheard", "R13: a heartbeat is a sign of life", ROSTER,
           "    consumer.seen_ms = now_ms\n", ""),
    Mutant("group ownership lost", "R14: a group goes to one consumer", DELIVERING,
           "            groups.set_owner(queue, message.group, consumer)\n", "            pass\n"),
    Mutant("groups never forgotten", "R116: the owners of max_groups idle groups are remembered",
           GROUPS, "queue.idle <= queue.spec.max_groups", "True"),
    Mutant("a group with a message is forgotten", "R116: its owner is remembered", GROUPS,
           "    messages = row.messages - (message.sequence >= queue.counted_from)\n",
           "    messages = 0\n"),
    Mutant("a used group stays idle", "R116: the last groups that lost their messages count",
           GROUPS, "        queue.idle_groups.delete(row.idle)\n        queue.idle -= 1\n"
           "    queue.groups.put(message.group, Group(row.owner, row.messages + 1))\n",
           "        pass\n"
           "    queue.groups.put(message.group, row._replace(messages=row.messages + 1))\n"),
    Mutant("purge of nothing", "R103: a queue that was never used is unknown",
           OPERATOR, "and state.catalog.declares(name) and not", "and False and not"),
    Mutant("owner takes all", "R14, R15: the owner's selector counts", QUEUE,
           "return owner if owner.takes(message) else None",
           "return owner if owner.is_open() else None"),
    Mutant("double an ack", "R16: an ack is reported once", DELIVERING,
           "self.out.append(new.acked(queue.name, delivery))",
           "self.out += [e.Acked(queue.name, delivery)] * 2"),
    Mutant("ack of one only", "R16: in mode client an ack covers all before it", CONSUMERS,
           "            if number <= last\n", "            if number == last\n"),
    Mutant("dispatch no more", "R10: an ack lets the next be handed over", CONSUMERS,
           "dispatches = not consumer.is_open() or queue.policy.expires_when_met\n"
           "        self._transitions.run(queue, self._transitions.acked",
           "dispatches = consumer.is_open()\n"
           "        self._transitions.run(queue, self._transitions.acked"),
    Mutant("funnel without expiry", "R50: what has expired leaves before a command does its work",
           DELIVERING, "        if not is_first:\n            self.expire(queue)\n", ""),
    Mutant("funnel without dispatch", "R14: what can go is dispatched after each command",
           DELIVERING, "        if dispatches:\n", "        if False:\n"),
    # --- returning
    Mutant("forget a return", "R20: all that is held returns", CONSUMERS,
           "Stage(RETURN, queue.name, (consumer.name,))", "Stage(RETURN, queue.name, ())"),
    Mutant("lose the position", "R20: what returns keeps its position", RETURNING,
           "queue.policy.returned_position(message, queue.level_of(message))",
           "(1 << 104) + queue.sequence + 1"),
    Mutant("no ring test on return", "R21: a return obeys the ring", RETURNING,
           "if tested and 0 <= queue.spec.ring_size <= queue.counts.ready:", "if False:"),
    Mutant("oldest first", "R21, R22: the returning set is handled newest first", QUEUE,
           "key=lambda item: (-item[1], item[0])", "key=lambda item: (item[1], item[0])"),
    Mutant("dispatch too soon", "R21: nothing is dispatched until the whole set is placed",
           RETURNING,
           "            self._return(queue, delivery, wait_ms, tested=not wait_ms)\n",
           "            self._return(queue, delivery, wait_ms, tested=not wait_ms)\n"
           "            self.dispatch(queue)\n"),
    Mutant("redelivered flag missing", "R24: the second hand-over says so", "protocol/outputs.py",
           "if message.handovers > 1:", "if message.handovers > 2:"),
    # --- time
    Mutant("skip a due one", "R32: each that is due becomes ready", "core/engine.py",
           "(queue.expiry, queue.scheduled) if is_timed", "(queue.expiry,) if is_timed"),
    Mutant("due at the tail", "R31: what is due stands before the plainly sent", POLICY,
           "return message.position or due_position(message.due_ms, message.sequence)",
           "return message.position or 1 << 104 | message.sequence"),
    Mutant("due into a full ring", "R31: the ring test of what is due", ENTERING,
           "if 0 <= queue.spec.ring_size <= queue.counts.ready:", "if False:"),
    Mutant("clean detach counts", "R40: a clean detach takes the attempt back", RETURNING,
           "        if not was_tried:", "        if False:"),
    Mutant("one more try", "R40: max_attempts", RETURNING,
           "elif 0 <= queue.spec.max_attempts <= message.attempts:",
           "elif 0 <= queue.spec.max_attempts < message.attempts:"),
    Mutant("no delay", "R40: the redelivery delay", RETURNING,
           "if not spec.redelivery_delay:", "if True:"),
    Mutant("expire late", "R50: at its time a message has expired", QUEUE,
           "if row is None or time_of(row[0]) > now_ms:",
           "if row is None or time_of(row[0]) >= now_ms:"),
    # --- limits, addresses, transactions
    Mutant("limits ignored", "R60: max_messages and max_bytes", QUEUE,
           "return 0 <= spec.max_messages < messages or 0 <= spec.max_bytes < size_bytes",
           "return False"),
    Mutant("block does not", "R60: a queue that blocks is not pulled", "core/engine.py",
           "return not is_full and", "return"),
    Mutant("bytes that stay", "R60: what is gone weighs nothing", "core/transitions/placement.py",
           "    queue.size_bytes -= message.size_bytes\n", ""),
    Mutant("a copy twice", "R71: a later queue gets each kept message once",
           "core/handlers/addresses.py",
           "                self._transitions.enter(queue, send_of(message, queue.name, now))\n",
           "                self._transitions.enter(queue, send_of(message, queue.name, now))\n"
           * 2),
    Mutant("prepared is undone", "R81: a prepared transaction survives a restart",
           "core/handlers/transactions.py", "if not row.prepared]", "]"),
    Mutant("pending ack returns", "R81: what is acked in a transaction is protected",
           "core/transitions/deliveries.py",
           "    queue.consumers[delivery.consumer].positions.pop(delivery.number, None)\n", ""),
    Mutant("repeats come in", "R119: a message is refused if its id was sent within the window",
           "core/handlers/addresses.py",
           "if first is None or send.sent_ms >= first.sent_ms + window_ms:",
           "if first is None or window_ms:"),
    Mutant("the window never ends", "R119: after the window an id may come again",
           "core/handlers/addresses.py",
           "if first is None or send.sent_ms >= first.sent_ms + window_ms:", "if first is None:"),
    Mutant("redriven messages are repeats", "R119: what is redriven is not refused",
           "core/handlers/addresses.py",
           "if not queue.dedups or send.redrives or", "if not queue.dedups or"),
    Mutant("sent long ago", "R119, R101: the window survives a crash",
           "protocol/stored_rows/values.py",
           "lambda row: SentId(*row)", "lambda row: SentId(row[0], row[1] - 10**9, row[2])"),
    # --- what does not fit into one transaction
    Mutant("rest forgotten", "R114: what is left of a command follows",
           "core/transitions/step.py",
           "state, stages = self.state, tuple(self.stages)\n", "state, stages = self.state, ()\n"),
    Mutant("dispatch from the tail", "R114: a dispatch resumes where it was cut", QUEUE,
           "if count and number >= first:", "if count and number > first:"),
    Mutant("half a return", "R114: nothing follows before the whole set has returned", CONSUMERS,
           "        if self._transitions.requeue_held(queue, consumers, delayed=True):\n",
           "        if self._transitions.requeue_held(queue, consumers, delayed=True) or True:\n"),
    Mutant("body kept", "R82: the changelog has no body of a non-persistent message",
           "protocol/stored_rows/messages.py",
           "    if not raw[_FLAGS_AT] & _NON_PERSISTENT:\n", "    if raw:\n"),
    Mutant("refusal changes state", "R103: a refused command changes nothing",
           "core/transitions/step.py",
           "        self.state.now_ms = self.before_ms\n", ""),
    Mutant("late settle is stale", "R103: a settle after an eviction is refused as evicted",
           "core/transitions/history.py",
           "known.pages[page][message_id] = True", "known.pages[page][message_id] = False"),
    # --- what a crash must not change
    Mutant("holders forgotten", "R101: what is stored is read again",
           "protocol/stored_rows/messages.py",
           "tuple(holders.decode().split(\"\\0\")) if holders else ()", "()"),
    Mutant("edge of the window", "R102: how much is decoded changes nothing", "core/table.py",
           "return self._whole or (self._edge is not None and key <= self._edge)",
           "return self._whole or self._edge is None or key <= self._edge"),
    Mutant("repeats take effect", "R101: a record that was read is not read again",
           "processor/processor.py", "if offset < positions.get(topic, 0):", "if offset < 0:"),
    Mutant("positions left behind", "R101: where to go on is stored with the state",
           "processor/processor.py",
           "        writes.append((POSITIONS_KEY, write_positions(self.positions)))\n", ""),
    Mutant("replay skips one", "R101: the whole changelog comes back", "worker/changelog.py",
           "consumer.seek(tp, start)", "consumer.seek(tp, start + 1)"),
    Mutant("forward again", "R101: a forwarder goes on behind what was committed",
           "worker/repartition.py",
           "stored = {topic: self._committed} if self._committed >= 0 else {}",
           "stored: dict[str, int] = {}"),
    Mutant("passed over is lost", "R90: what stood behind a paused queue comes when it is resumed",
           "worker/pausing.py",
           "            await self._context.reader().seek(TP(topic, self._number), offset)\n",
           "            pass\n"),
    Mutant("store before the commit", "R101: the store never runs ahead of the changelog",
           "worker/task.py",
           "        end = await self._producer.commit(outputs, writes.changelog, offsets, note)\n",
           "        if self._store is not None:\n"
           "            self._store.apply(writes.store, self._store.applied[0], wall_ms)\n"
           "        end = await self._producer.commit(outputs, writes.changelog, offsets, note)\n"),
    Mutant("one protocol for all settings", "R113: workers with other settings are refused",
           "kafka/names.py",
           "    return f\"ringfaust-{fingerprint}\"\n", "    return \"ringfaust\"\n"),
    Mutant("queues are not compared", "R113: workers with other queue settings are refused",
           "config/agreement.py", "        \"queues\": queues.queues,\n", ""),
    Mutant("a scan ends silently", "R102: what cannot be read is not left out",
           "worker/store.py", "            cursor.status()\n", "            pass\n"),
    Mutant("a manifest without its end is used", "R102: a store without some changes is not used",
           "worker/store.py", "        if noted > found:\n", "        if False:\n"),
    Mutant("leases never end", "R12: what is not settled in time returns", ENGINE,
           "done += self._consumers.end_silent(queue, consumer, heard, budget - done)",
           "consumer.name > \"@x\" and self._consumers.end_silent(queue, consumer, heard, 1)"),
    Mutant("no lease at hand-over", "R12: a lease begins with its delivery", DELIVERING,
           "if consumer.name == WINDOW and queue.spec.window_lease:", "if False:"),
    Mutant("a lease is delayed", "R12: a lease ends as a timeout does", CONSUMERS,
           "requeue_held(queue, window, delayed=False, last=last)",
           "requeue_held(queue, window, delayed=True, last=last)"),
    Mutant("unheard silence", "R110: silence counts only as far as the log was read",
           ENGINE, "heard_ms = now if sweep.heard_ms is None else min(sweep.heard_ms, now)",
           "heard_ms = now"),
    Mutant("acks free no credit", "R16: several acks offer what one would", CONSUMERS,
           "self._transitions.run(queue, self._acked, found.values(), dispatches=dispatches)",
           "self._acked(queue, found.values())"),
    Mutant("one refused, all refused", "R103: of several acks each ended one is refused alone",
           CONSUMERS, "            if reason is Refusal.BAD_COMMAND:\n",
           "            if reason:\n"),
    Mutant("several acks cover none", "R16: in mode client the last covers all before it",
           CONSUMERS, "            self._ack_all(queue, found[max(found)])\n",
           "            self._ack_all(queue, found[min(found)])\n"),
    Mutant("a short pause is trusted", "R111: a topic recreated during a pause is noticed",
           "worker/pausing.py", "_SURELY_SAME_S = 0.05\n", "_SURELY_SAME_S = 5\n"),
    Mutant("commit again", "R117: a transaction is not ended twice with one epoch",
           "kafka/vendor.py", "NOT_REPEATED = (EndTxnRequest, TxnOffsetCommitRequest)",
           "NOT_REPEATED = (TxnOffsetCommitRequest,)"),
    Mutant("a wrong clock ticks", "R115: time does not act by a clock that is wrong",
           "worker/partition.py",
           "        if not self._context.clock.is_right:  # R115\n            return\n", ""),
    Mutant("time before the log", "architecture 4: no tick before the old log was read",
           "worker/partition.py",
           "if self._ends is not None or self._context.processor_config.log_is_clock:",
           "if self._context.processor_config.log_is_clock:"),
    # --- the surroundings of a queue
    Mutant("another's state is served", "R111: another application's folder is refused",
           "worker/store_identity.py",
           "if found.application != mine.application:", "if False:"),
    Mutant("another cluster's state is served", "R111: state of another cluster is set aside",
           "worker/store_identity.py", "if found.cluster != mine.cluster:", "if False:"),
    Mutant("a recreated topic looks the same", "R111: its records are not skipped as repeats",
           "worker/input_positions.py",
           "if known_id and topic_id and known_id != topic_id:", "if False:"),
    Mutant("a silent gap", "R112: a gap event for what can no longer be read",
           "processor/processor.py",
           "            self.out.lines.append(gap_line(gap, known.gaps + 1, self.state.step, "
           "self.state.now_ms))\n", ""),
    Mutant("a new changelog is written on", "R111: a changelog created again is noticed",
           "worker/assignment.py",
           "watched = {*self.topics, self._context.topics[Role.CHANGELOG]}",
           "watched = {*self.topics}"),
    Mutant("a cut changelog is written on", "R111: a commit notices that the changelog lost rows",
           "worker/task.py", "        if begin < applied:\n", "        if False:\n"),
    Mutant("the only copy is set aside", "R111: a store is kept if only the changelog is new",
           "worker/changelog.py", "            if found.changelog != mine.changelog:\n",
           "            if False:\n"),
    Mutant("a moved queue stays", "R113: a queue with messages does not get a second partition",
           "worker/route_changes.py", "            if partition != number:\n",
           "            if partition is None:\n"),
    Mutant("a repeat is handed out", "R118: a client hands out each delivery once",
           "client/deliveries.py",
           "if number <= self._forgotten or number in self._numbers:",
           "if number <= self._forgotten:"),
    Mutant("a stopped client looks cancelled", "a partition is never closed without a word",
           "kafka/vendor.py", "        if task is None or task.cancelling():\n",
           "        if True:\n"),
    Mutant("a cancellation is swallowed", "a client that stops can be cancelled",
           "kafka/vendor.py", "        if task is None or task.cancelling():\n",
           "        if task is None:\n"),
    Mutant("a lost task is not missed", "a cancellation that nobody asked for stops the worker",
           "worker/task.py", "            if not runner.cancelling():\n",
           "            if False:\n"),
]  # fmt: skip
