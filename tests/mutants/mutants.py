"""The mutants: each is one change of the source that breaks one promise of the contract.

A snippet must stand exactly once in its file. One that no longer does is an error, never a mutant
that is left out: change it here together with the source.
"""

from __future__ import annotations

from collections.abc import Mapping
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


QUEUE, SETTLING = "core/queue.py", "core/transitions/settling.py"
ENTERING, DELIVERING = "core/transitions/entering.py", "core/transitions/delivering.py"
RETURNING, LEAVING = "core/transitions/returning.py", "core/transitions/leaving.py"
PLACING, ATTACHING = "core/transitions/placing.py", "core/transitions/attaching.py"
POLICY, ENGINE = "core/policy/default.py", "core/engine.py"
CHECKS, SETTLES = "core/checks/queues.py", "core/checks/settles.py"
ADMISSION, WORK = "core/admission.py", "core/work.py"
_OVERFLOW = "            evict(work, queue, queue.victim(), _OVERFLOW, message.id)\n"

MUTANTS = [
    # --- the ring
    Mutant("evict two", "R2: one send evicts one", ENTERING, _OVERFLOW,
           _OVERFLOW + "            if queue.counts.ready:\n    " + _OVERFLOW),
    Mutant("one more than N", "R1: at most N are ready", ENTERING,
           "if not was_taken and 0 <= ring_size < queue.counts.ready:",
           "if not was_taken and 0 <= ring_size + 1 < queue.counts.ready:"),
    Mutant("one less than N", "R1: up to N may be ready", ENTERING,
           "if not was_taken and 0 <= ring_size < queue.counts.ready:",
           "if not was_taken and 0 <= ring_size <= queue.counts.ready:"),
    Mutant("evict before dispatch", "R2: first, ready messages go to consumers", ENTERING,
           "        was_taken = queue.consumers and offer(work, queue, message)\n"
           "        if not was_taken and 0 <= ring_size < queue.counts.ready:\n" + _OVERFLOW,
           "        if 0 <= ring_size < queue.counts.ready:\n" + _OVERFLOW +
           "        if queue.is_ready(message):\n"
           "            offer(work, queue, message)\n"),
    Mutant("evict though taken", "R2: who is taken at once evicts nobody", ENTERING,
           "        if not was_taken and 0 <= ring_size", "        if 0 <= ring_size"),
    Mutant("wrong victim", "R3: the oldest leaves", QUEUE,
           'if self.spec.evict == "oldest":', 'if self.spec.evict == "nobody":'),
    Mutant("victim by its priority", "R3: oldest is the lowest position, whatever the priority",
           QUEUE, "return min(found, key=lambda message: (message.position, message.sequence))",
           "return found[0]"),
    Mutant("head for the least", "R3: lowest_priority", QUEUE,
           "level = max(i for i, count in enumerate(self.level_counts) if count)",
           "level = min(i for i, count in enumerate(self.level_counts) if count)"),
    Mutant("evict a held one", "R4: what a consumer holds is no victim", DELIVERING,
           "    unplace(queue, message)\n    if message.group and queue.owner",
           "    if message.group and queue.owner"),
    Mutant("lazy is eager", "R5: lowering N evicts nothing by itself",
           "core/transitions/queues.py",
           'if spec.shrink != "eager" or spec.ring_size < 0:', "if spec.ring_size < 0:"),
    Mutant("no cause", "R6: the record names who needed the place", LEAVING,
           "queue.name, message, reason, cause, spec.ring_size,",
           'queue.name, message, reason, "", spec.ring_size,'),
    # --- delivering
    Mutant("refund no credit", "R10: the end of a delivery gives its credit back",
           "core/model.py", "        self.in_flight -= 1\n", ""),
    Mutant("cursor stands still", "R11: round robin", QUEUE,
           "if consumer.order > last:", "if consumer.order >= 0:"),
    Mutant("cursors of the departed", "R120: only priorities with a consumer have a cursor",
           QUEUE, "for each in attached if each in self.cursors}", "for each in self.cursors}"),
    Mutant("a cursor for everybody", "R120: the queue's row has room for so many cursors",
           "core/checks/consumers.py", "len(priorities) >= limits.CONSUMER_PRIORITIES:",
           "len(priorities) > limits.CONSUMER_PRIORITIES:"),
    Mutant("backup stays", "R11: a backup takes over", ATTACHING,
           "            consumer.active = True\n", ""),
    Mutant("silence is no end", "R13: a silent consumer is detached", ATTACHING,
           "if not timeout_ms or not heard.covers(consumer.seen_ms, timeout_ms):",
           "if consumer.name:"),
    Mutant("heartbeat unheard", "R13: a heartbeat is a sign of life", ATTACHING,
           "        consumer.seen_ms = work.now\n", ""),
    Mutant("group ownership lost", "R14: a group goes to one consumer", DELIVERING,
           "        set_group_owner(queue, message.group, consumer)\n", "        pass\n"),
    Mutant("groups never forgotten", "R116: the owners of max_groups idle groups are remembered",
           PLACING, "queue.idle <= queue.spec.max_groups", "True"),
    Mutant("a group with a message is forgotten", "R116: its owner is remembered", PLACING,
           "    messages = row.messages - (message.sequence >= queue.counted_from)\n",
           "    messages = 0\n"),
    Mutant("a used group stays idle", "R116: the last groups that lost their messages count",
           PLACING, "        queue.idle_groups.delete(row.idle)\n        queue.idle -= 1\n"
           "    queue.groups.put(message.group, Group(row.owner, row.messages + 1))\n",
           "        pass\n"
           "    queue.groups.put(message.group, row._replace(messages=row.messages + 1))\n"),
    Mutant("purge of nothing", "R103: a queue that was never used is unknown",
           CHECKS, "and state.catalog.declares(name) and not", "and False and not"),
    Mutant("owner takes all", "R14, R15: the owner's selector counts", QUEUE,
           "return owner if owner.takes(message) else None",
           "return owner if owner.is_open() else None"),
    Mutant("forgets what returns", "R14, R15: a returned message goes to who wants it", PLACING,
           "    if message.position <= queue.scanned[level]:\n", "    if False:\n"),
    Mutant("passes what waits for its owner", "R14: once the owner has left, others get it",
           DELIVERING, "scans = [scan for scan in scans if not scan.matches(message)]", "pass"),
    Mutant("passes the expired", "R50: dispatch does not leave out what has expired", DELIVERING,
           "skips = not (queue.expiring and queue.may_meet_expired(work.now))", "skips = True"),
    Mutant("as far as the furthest", "R15: each selector has its own place", QUEUE,
           "upto = min(ends)",
           "upto = max(ends)"),
    Mutant("double an ack", "R16: an ack is reported once", DELIVERING,
           "    work.effects.append(new.acked(queue.name, delivery))\n",
           "    work.effects.append(new.acked(queue.name, delivery))\n" * 2),
    Mutant("ack of one only", "R16: in mode client an ack covers all before it",
           "core/transitions/opening.py",
           "if each <= number]", "if each == number]"),
    Mutant("dispatch no more", "R10: an ack lets the next be handed over", SETTLING,
           "    return not consumer.is_open() or queue.policy.expires_when_met\n",
           "    return consumer.is_open()\n"),
    Mutant("ack without expiry", "R50: what has expired leaves before a command does its work",
           SETTLING, "    expire(work, queue)\n    acked(work", "    acked(work"),
    Mutant("stages without expiry", "R50: what has expired leaves before a command does its work",
           SETTLING, "    work.state.use(queue)\n    expire(work, queue)\n\n\ndef join_stage",
           "    work.state.use(queue)\n\n\ndef join_stage"),
    Mutant("release without dispatch", "R14: what can go is dispatched after each command",
           SETTLING, "delay_ms=delay_ms)\n    dispatch(work, queue)\n",
           "delay_ms=delay_ms)\n"),
    Mutant("attach without dispatch", "R14: what can go is dispatched after each command",
           SETTLING, "    expire(work, queue)\n    dispatch(work, queue)\n\n\ndef grant",
           "    expire(work, queue)\n\n\ndef grant"),
    Mutant("credit without dispatch", "R14: what can go is dispatched after each command",
           SETTLING, "    set_credit(queue, consumer, credit)\n    dispatch(work, queue)\n",
           "    set_credit(queue, consumer, credit)\n"),
    # --- returning
    Mutant("forget a return", "R20: all that is held returns", "core/checks/consumers.py",
           "Stage(RETURN, queue.name, (consumer.name,))", "Stage(RETURN, queue.name, ())"),
    Mutant("lose the position", "R20: what returns keeps its position", RETURNING,
           "queue.policy.returned_position(message, queue.level_of(message))",
           "((1 << 104) + queue.sequence + 1, 0)"),
    Mutant("no ring test on return", "R21: a return obeys the ring", RETURNING,
           "if tested and 0 <= queue.spec.ring_size <= queue.counts.ready:", "if False:"),
    Mutant("oldest first", "R21, R22: the returning set is handled newest first", QUEUE,
           "key=lambda item: (-item[1], item[0])", "key=lambda item: (item[1], item[0])"),
    Mutant("dispatch too soon", "R21: nothing is dispatched until the whole set is placed",
           RETURNING,
           "    _return(work, queue, delivery, wait_ms, tested=is_tested, rank=rank or 1)\n",
           "    _return(work, queue, delivery, wait_ms, tested=is_tested, rank=rank or 1)\n"
           "    from ringfaust.core.transitions.delivering import dispatch\n"
           "    dispatch(work, queue)\n"),
    Mutant("redelivered flag missing", "R24: the second hand-over says so", "protocol/outputs.py",
           "if message.handovers > 1:", "if message.handovers > 2:"),
    # --- time
    Mutant("skip a due one", "R32: each that is due becomes ready",
           "core/transitions/sweeping.py",
           "(queue.expiry, queue.scheduled) if is_timed", "(queue.expiry,) if is_timed"),
    Mutant("due at the tail", "R31: what is due stands before the plainly sent", POLICY,
           "return message.position or due_position(message.due_ms, message.sequence)",
           "return message.position or 1 << 104 | message.sequence"),
    Mutant("due into a full ring", "R31: the ring test of what is due", ENTERING,
           "if 0 <= queue.spec.ring_size <= queue.counts.ready:", "if False:"),
    Mutant("clean detach counts", "R40: a clean detach takes the attempt back", RETURNING,
           "return message if was_tried else", "return message if True else"),
    Mutant("one more try", "R40: max_attempts", RETURNING,
           "is_dead = 0 <= queue.spec.max_attempts <= message.attempts",
           "is_dead = 0 <= queue.spec.max_attempts < message.attempts"),
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
    Mutant("bytes that stay", "R60: what is gone weighs nothing", PLACING,
           "    queue.size_bytes -= message.size_bytes\n", ""),
    Mutant("a copy twice", "R71: a later queue gets each kept message once",
           "core/transitions/queues.py",
           "            enter(work, queue, send_of(message, queue.name, now))\n",
           "            enter(work, queue, send_of(message, queue.name, now))\n" * 2),
    Mutant("prepared is undone", "R81: a prepared transaction survives a restart",
           "core/transitions/xids.py", "        if row.prepared:\n            continue\n", ""),
    Mutant("anybody takes part", "R81: only the owner takes part in a transaction",
           "core/checks/xids.py", "    if owner != row.owner:\n", "    if owner is None:\n"),
    Mutant("records without an owner", "R81: without an owner no send takes part",
           "core/checks/xids.py", "    if not row.owner:\n", "    if row is None:\n"),
    Mutant("one owner takes all", "R81: an owner leaves room for others",
           "core/checks/xids.py",
           "    if sum([row.owner == begin.owner for row in rows]) >= limits.XIDS_OF_OWNER:\n",
           "    if len(rows) >= limits.XIDS:\n"),
    Mutant("prepared times out", "R81: a prepared transaction has no timeout", "core/model.py",
           "return 0 if self.prepared or not self.timeout_ms else",
           "return 0 if not self.timeout_ms else"),
    Mutant("unheard transactions", "R110: only time that was heard counts",
           "core/transitions/xids.py", "if heard.covers(row.began_ms, row.timeout_ms):",
           "if heard is not None:"),
    Mutant("acks beyond the bound", "R81, R120: a transaction has 10,000 operations at most",
           "core/checks/settles.py", "> limits.XID_OPERATIONS\n", "> 10 * limits.XID_OPERATIONS\n"),
    Mutant("pending ack returns", "R81: what is acked in a transaction is protected",
           DELIVERING,
           "    queue.consumers[delivery.consumer].positions.pop(delivery.number, None)\n", ""),
    Mutant("repeats come in", "R119: a message is refused if its id was sent within the window",
           ADMISSION,
           "if first is None or send.sent_ms >= first.sent_ms + window_ms:",
           "if first is None or window_ms:"),
    Mutant("the window never ends", "R119: after the window an id may come again",
           ADMISSION,
           "if first is None or send.sent_ms >= first.sent_ms + window_ms:", "if first is None:"),
    Mutant("redriven messages are repeats", "R119: what is redriven is not refused",
           ADMISSION,
           'if send.redrive_of == f"{queue.name}/{first.sequence}":', "if not first:"),
    Mutant("whoever says so is redriven", "R119: a redrive proves itself",
           ADMISSION,
           'if send.redrive_of == f"{queue.name}/{first.sequence}":', "if send.redrives:"),
    Mutant("sent long ago", "R119, R101: the window survives a crash",
           "protocol/stored_rows/values.py",
           "lambda row: SentId(*row)", "lambda row: SentId(row[0], row[1] - 10**9, row[2])"),
    # --- what does not fit into one transaction
    Mutant("rest forgotten", "R114: what is left of a command follows",
           WORK, "stages = self.state, tuple(self.stages)\n", "stages = self.state, ()\n"),
    Mutant("dispatch from the tail", "R114: a dispatch resumes where it was cut", QUEUE,
           "if count and number >= first:", "if count and number > first:"),
    Mutant("half a return", "R114: nothing follows before the whole set has returned", SETTLING,
           "    if not requeue_held(work, queue, consumers, delayed=True):\n        return False\n",
           "    requeue_held(work, queue, consumers, delayed=True)\n"),
    Mutant("body kept", "R82: the changelog has no body of a non-persistent message",
           "protocol/stored_rows/messages.py",
           "    if not raw[_FLAGS_AT] & NON_PERSISTENT:\n", "    if raw:\n"),
    Mutant("refusal changes state", "R103: a refused command changes nothing", ENGINE,
           "            stages = _CHECKS[type(command)](work, command)\n",
           "            work.accept()\n"
           "            stages = _CHECKS[type(command)](work, command)\n"),
    Mutant("a vain search takes time", "R103: a refused command changes nothing", WORK,
           "        self.state.now_ms = self._before_ms\n", ""),
    Mutant("late settle is stale", "R103: a settle after an eviction is refused as evicted",
           "core/settlement_history.py",
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
    Mutant("replay skips one", "R101: the whole changelog comes back", "worker/store/changelog.py",
           "consumer.seek(tp, start)", "consumer.seek(tp, start + 1)"),
    Mutant("forward again", "R101: a forwarder goes on behind what was committed",
           "worker/partition/repartition.py",
           "stored = {topic: self._committed} if self._committed >= 0 else {}",
           "stored: dict[str, int] = {}"),
    Mutant("passed over is lost", "R90: what stood behind a paused queue comes when it is resumed",
           "worker/partition/pausing.py",
           "            await self._context.reader().seek(TP(topic, self._number), offset)\n",
           "            pass\n"),
    Mutant("store before the commit", "R101: the store never runs ahead of the changelog",
           "worker/partition/task.py",
           "        # 2. Write changelog, outputs and offsets, in one transaction.\n",
           "        if self._store is not None:\n"
           "            self._store.apply(writes.store, self._store.applied[0], wall_ms)\n"),
    Mutant("one protocol for all settings", "R113: workers with other settings are refused",
           "kafka/names.py",
           "    return f\"ringfaust-{fingerprint}\"\n", "    return \"ringfaust\"\n"),
    Mutant("queues are not compared", "R113: workers with other queue settings are refused",
           "config/agreement.py", "        \"queues\": queues.queues,\n", ""),
    Mutant("a scan ends silently", "R102: what cannot be read is not left out",
           "worker/store/rocks.py", "            cursor.status()\n", "            pass\n"),
    Mutant("a manifest without its end is used", "R102: a store without some changes is not used",
           "worker/store/rocks.py", "        if noted > found:\n", "        if False:\n"),
    Mutant("leases never end", "R12: what is not settled in time returns",
           "core/transitions/sweeping.py",
           "done += end_silent(work, queue, consumer, heard, budget - done)",
           "consumer.name > \"@x\" and end_silent(work, queue, consumer, heard, 1)"),
    Mutant("no lease at hand-over", "R12: a lease begins with its delivery", DELIVERING,
           "if consumer.name == WINDOW and queue.spec.window_lease:", "if False:"),
    Mutant("a lease is delayed", "R12: a lease ends as a timeout does", ATTACHING,
           "[queue.consumers[WINDOW]], delayed=False, last=last)",
           "[queue.consumers[WINDOW]], delayed=True, last=last)"),
    Mutant("unheard silence", "R110: silence counts only as far as the log was read",
           CHECKS,
           "heard_ms = work.now if sweep.heard_ms is None else min(sweep.heard_ms, work.now)",
           "heard_ms = work.now"),
    Mutant("acks free no credit", "R16: several acks offer what one would", SETTLING,
           "        acked(work, queue, delivery)\n    if dispatches:\n",
           "        acked(work, queue, delivery)\n    if dispatches and len(numbers) == 1:\n"),
    Mutant("one refused, all refused", "R103: of several acks each ended one is refused alone",
           SETTLES, "        if reason is Refusal.BAD_COMMAND:\n", "        if reason:\n"),
    Mutant("several acks cover none", "R16: in mode client the last covers all before it",
           SETTLES, "(consumer, max(found))", "(consumer, min(found))"),
    Mutant("a short pause is trusted", "R111: a topic recreated during a pause is noticed",
           "worker/partition/pausing.py", "_SURELY_SAME_S = 0.05\n", "_SURELY_SAME_S = 5\n"),
    Mutant("commit again", "R117: a transaction is not ended twice with one epoch",
           "transactional/vendor.py", "NOT_REPEATED = (EndTxnRequest, TxnOffsetCommitRequest)",
           "NOT_REPEATED = (TxnOffsetCommitRequest,)"),
    Mutant("a wrong clock ticks", "R115: time does not act by a clock that is wrong",
           "worker/partition/work.py",
           "        if not self._context.clock.is_right:  # R115\n            return\n", ""),
    Mutant("time before the log", "no tick before the old log was read",
           "worker/partition/work.py",
           "if self._ends is not None or self._context.processor_config.log_is_clock:",
           "if self._context.processor_config.log_is_clock:"),
    Mutant("a sweep expires all at once", "R121: a step is bounded in bytes",
           "core/transitions/leaving.py",
           "while done < most and work.has_room and _expire_next",
           "while done < most and _expire_next"),
    Mutant("a command expires all first", "R121: at most so many bytes",
           "core/transitions/leaving.py",
           "while left and work.left_bytes > last_bytes and _expire_next",
           "while left and _expire_next"),
    Mutant("searches are one batch", "R121: a batch ends when what it looks at reaches the bound",
           "processor/processor.py",
           "spent_transitions\n        self._out.emit(step, by",
           "spent_transitions * 0\n        self._out.emit(step, by"),
    Mutant("orphans are made at once", "R121: a consumer that leaves is bounded in bytes",
           DELIVERING,
           "        if not work.has_room:\n            return False\n        delivery: Delivery",
           "        delivery: Delivery"),
    Mutant("questions in one turn", "R122: the event loop runs after each question",
           "worker/partition/task.py",
           "            await asyncio.sleep(0)\n", "            pass\n"),
    Mutant("wildcards stay behind", "R72, R122: `#` takes any number of words, in one pass",
           "core/patterns.py",
           "state = state & self._stays | moves << 1", "state = moves << 1"),
    Mutant("what is due at one time is never cut", "R121: a step is bounded in bytes",
           "core/transitions/entering.py",
           "        if not work.has_room:\n            work.stages.append(Stage(DUE",
           "        if False:\n            work.stages.append(Stage(DUE"),
    Mutant("the look is never cut", "R82, R121: the look for lost bodies is bounded",
           "core/transitions/looking.py",
           "            if not work.has_room:\n                return place\n", ""),
    Mutant("a declared queue is filled at once", "R71, R121: it continues in the next transaction",
           "core/transitions/opening.py", "opened(work, name), after, cuts=True)",
           "opened(work, name), after, cuts=False)"),
    Mutant("a part of the queues is not filled", "R71: each declared queue gets what is retained",
           "core/transitions/opening.py", "(first + done, count - done, after)",
           "(first + done, 1, after)"),
    Mutant("an offer weighs nothing", "R121: each message is offered to all consumers",
           "core/queue.py", "limits.LOOK_COST_BYTES * len(self.consumers)", "0"),
    Mutant("rows weigh nothing", "R121: rows with long selectors count where they are stored",
           "core/state.py", "self.rows_cost += queue.row_cost", "self.rows_cost += 0"),
    Mutant("decoding weighs nothing", "R121: the rows of a queue that is decoded count",
           "core/state.py", "self.rows_cost += limits.ROW_COST_BYTES * rows", "pass"),
    Mutant("groups are erased at once", "R114: it continues in the next transaction",
           "core/transitions/placing.py",
           "            return False\n        work.spend(limits.NAME_COST_BYTES * len(group))\n",
           "            pass\n        work.spend(limits.NAME_COST_BYTES * len(group))\n"),
    Mutant("an address drops all at once", "R71, R121: it continues in the next transaction",
           "core/transitions/queues.py",
           "        work.spend(cost_bytes(oldest))\n        work.state.use_address",
           "        work.state.use_address"),
    Mutant("any number of patterns", "R122: what all selectors search is bounded",
           "core/checks/consumers.py", " limits.LIKES,\n", " 10**9,\n"),
    Mutant("any number of operations", "R122: what all selectors calculate is bounded",
           "core/checks/consumers.py", " limits.OPERATIONS, ", " 10**9, "),
    Mutant("a send to an address is never cut", "R121: it continues in the next transaction",
           "core/transitions/sending.py", "        if work.is_full:\n", "        if False:\n"),
    Mutant("evictions weigh nothing", "R121: a batch of sends is bounded in what it evicts",
           "processor/processor.py",
           "spent_bytes\n        self._room_messages -= self._engine.spent_transitions\n"
           "        self._out.emit(step, source",
           "spent_bytes * 0\n        self._out.emit(step, source"),
    Mutant("an address takes any number", "R120: its row fits into a record",
           "core/address.py", "> limits.SUBSCRIPTIONS_BYTES", "> 1 << 40"),
    Mutant("any number of patterns is applied", "R120: each is compared with every name",
           "core/checks/queues.py", "if text := beyond_patterns(catalog.patterns):",
           "if text := \"\":"),
    # --- the surroundings of a queue
    Mutant("another's state is served", "R111: another application's folder is refused",
           "worker/store/identity.py",
           "if found.application != mine.application:", "if False:"),
    Mutant("another cluster's state is served", "R111: state of another cluster is set aside",
           "worker/store/identity.py", "if found.cluster != mine.cluster:", "if False:"),
    Mutant("a recreated topic looks the same", "R111: its records are not skipped as repeats",
           "worker/partition/input_positions.py",
           "if known_id and topic_id and known_id != topic_id:", "if False:"),
    Mutant("a silent gap", "R112: a gap event for what can no longer be read",
           "processor/processor.py",
           "            self._out.lines.append(line)\n", ""),
    Mutant("a new changelog is written on", "R111: a changelog created again is noticed",
           "worker/assignment.py",
           "watched = {*self.topics, self._context.topics[Role.CHANGELOG]}",
           "watched = {*self.topics}"),
    Mutant("a cut changelog is written on", "R111: a commit notices that the changelog lost rows",
           "worker/store/changelog.py", "    if begin < applied:\n", "    if False:\n"),
    Mutant("a lasting error passes", "R123: a partition that cannot go on stops",
           "worker/partition/task.py",
           "if self.failure is not None or isinstance(error, StateLost):", "if False:"),
    Mutant("any record is skipped", "R123: only the record at which it has stopped is skipped",
           "worker/partition/standstill.py",
           "if isinstance(order, SkipRecord) and order.at != at:", "if False:"),
    Mutant("the one at fault is guessed", "R123: what stands before the record is done",
           "worker/partition/task.py", "        self._alone, *self._left = records\n",
           "        self._alone, self._left = records[-1], []\n"),
    Mutant("an old heartbeat counts", "R126: only a later heartbeat counts after a fence",
           "worker/faust/transport.py",
           "since_s = began_s if is_fenced else time.monotonic() - valid_s",
           "since_s = time.monotonic() - valid_s"),
    Mutant("the only copy is set aside", "R111: a store is kept if only the changelog is new",
           "worker/store/changelog.py", "            if found.changelog != mine.changelog:\n",
           "            if False:\n"),
    Mutant("a moved queue stays", "R113: a queue with messages does not get a second partition",
           "protocol/route_changes.py", "            if partition != number:\n",
           "            if partition is None:\n"),
    Mutant("a batch does not end at an apply", "R128: what follows has the routes of the new one",
           "processor/processor.py", "        if asked == APPLY:\n", "        if not asked:\n"),
    Mutant("the routes of the file count", "R128: a partition has the routes of its own row",
           "worker/partition/work.py",
           "            feeds = feeds_of(used.document, context.partitions)\n",
           "            feeds_of(used.document, context.partitions)\n"),
    Mutant("what is not read is waited for", "R110: time acts once the log has been read",
           "worker/partition/work.py",
           "        if self._ends is not None:  # what is not read is not waited for\n",
           "        if False:\n"),
    Mutant("a removed route is read on", "R128: a removed route's topic is read no more",
           "worker/partition/task.py",
           "                self._context.reader().stop_reading(gone)\n",
           "                pass\n"),
    Mutant("care never ends", "R123: a partition that has recovered commits whole batches",
           "worker/partition/task.py",
           "awaited = {tp.topic for tp in self.work.tps if tp.topic not in paused}",
           "awaited = {*self._suspects}"),
    Mutant("applied settings wait", "R128: changed settings take effect at once",
           "core/transitions/queues.py", "    fit(work, queue)\n\n\ndef apply_stage",
           "\n\ndef apply_stage"),
    Mutant("the file wins", "R128: the own settings of a queue win",
           "core/transitions/queues.py", "spec = state.catalog.spec_of_stored(name, settings)",
           "spec = state.catalog.spec_of_stored(name, {})"),
    Mutant("an old owner serves on", "R124: it looks whether it is shut out",
           "worker/partition/task.py",
           "        is_probe = self._is_leaving and self._until_probe_s() == 0\n",
           "        is_probe = False\n"),
    Mutant("a new identity at each start", "R125: a worker keeps its identity",
           "worker/store/data_dir.py", "        if not path.exists():\n", "        if True:\n"),
    Mutant("the slow are dead", "R126: a worker is gone after five signs of another",
           "worker/failover.py", "if count > SIGNS]", "if count > 1]"),
    Mutant("anybody serves", "R127: a partition goes to who is caught up",
           "worker/faust/shares.py", "return (is_caught_up, number in before, *held)",
           "return (number in before, *held)"),
    Mutant("a repeat is handed out", "R118: a client hands out each delivery once",
           "client/attachment.py",
           "if number <= self._forgotten or number in self._numbers:",
           "if number <= self._forgotten:"),
    Mutant("the old get their share", "R129: who is too old for the level in use touches nothing",
           "worker/faust/assignor.py", 'if each.get("newest_level", 1) >= level]',
           "if level > 0]"),
    Mutant("any level", "R129: a level that a worker does not support is refused",
           CHECKS, "if raised.level > levels.NEWEST:", "if not raised.level:"),
    Mutant("a stopped client looks cancelled", "a partition is never closed without a word",
           "transactional/vendor.py", "        if task is None or task.cancelling():\n",
           "        if True:\n"),
    Mutant("a cancellation is swallowed", "a client that stops can be cancelled",
           "transactional/vendor.py", "        if task is None or task.cancelling():\n",
           "        if task is None:\n"),
    Mutant("a lost task is not missed", "a cancellation that nobody asked for stops the worker",
           "worker/partition/task.py", "            if not runner.cancelling():\n",
           "            if False:\n"),
]  # fmt: skip

LIKELIEST: Mapping[str, str] = {
    "cursors of the departed":
        "core/test_bounds.py::"
        "test_consumers_that_have_left_leave_no_cursor_in_the_queues_row",
    "a cursor for everybody":
        "core/test_bounds.py::"
        "test_consumers_of_too_many_priorities_are_refused",
    "acks beyond the bound":
        "fuzz/test_bytes.py::"
        "test_an_ack_of_more_than_fit_into_a_transaction_is_refused",
    "a sweep expires all at once": "fuzz/test_bytes.py::test_messages_that_expire_together",
    "a command expires all first":
        "fuzz/test_bytes.py::"
        "test_messages_that_a_command_meets_after_they_expired",
    "searches are one batch":
        "fuzz/test_work.py::"
        "test_commands_that_look_at_many_messages_are_no_batch",
    "orphans are made at once":
        "fuzz/test_work.py::"
        "test_a_consumer_leaves_large_messages_to_a_transaction",
    "questions in one turn": "worker/partition/test_task.py::test_others_run_after_each_question",
    "what is due at one time is never cut":
        "fuzz/test_bytes.py::"
        "test_messages_that_come_due_together",
    "the look is never cut": "fuzz/test_retained.py::test_the_look_for_lost_bodies_is_bounded",
    "a declared queue is filled at once":
        "fuzz/test_retained.py::"
        "test_a_declared_queue_gets_what_its_address_retains",
    "a part of the queues is not filled":
        "fuzz/test_applied.py::test_declared_queues_that_are_filled_are_one_stage",
    "an offer weighs nothing":
        "fuzz/test_work.py::test_messages_beside_many_consumers_are_not_one_transaction",
    **dict.fromkeys(
        ("passes what waits for its owner", "passes the expired", "as far as the furthest"),
        "model/test_selecting.py::test_what_no_selector_wants_is_skipped_as_in_the_model",
    ),
    "rows weigh nothing":
        "fuzz/test_counted.py::test_a_sweep_of_many_queues_with_a_long_selector",
    "decoding weighs nothing":
        "fuzz/test_counted.py::test_queues_of_an_address_that_a_send_decodes",
    "groups are erased at once":
        "fuzz/test_counted.py::test_a_deleted_queue_with_many_groups",
    "an address drops all at once":
        "fuzz/test_retained.py::"
        "test_an_address_that_retains_less_drops_the_rest",
    "any number of patterns":
        "fuzz/test_work.py::"
        "test_the_consumers_of_a_queue_have_a_bounded_number_of_patterns",
    "a send to an address is never cut": "fuzz/test_bytes.py::test_a_send_to_many_subscriptions",
    "evictions weigh nothing": "fuzz/test_bytes.py::test_small_messages_that_evict_large_ones",
    "an address takes any number":
        "fuzz/test_bytes.py::"
        "test_an_address_takes_only_as_many_subscriptions_as_its_row_holds",
    "a lasting error passes":
        "worker/partition/test_task.py::"
        "test_a_lasting_error_stops_the_partition_after_one_retry",
    "any record is skipped": "worker/partition/test_task.py",
    "the one at fault is guessed": "worker/partition/test_task.py",
    "an old heartbeat counts": "worker/faust/test_membership.py",
}  # fmt: skip
"""By mutant: the test that is meant for it, which `--first` runs first."""
