"""The stages of an operator's commands: settings, pauses, single messages (R34, R71, R90).

An operator names a message as it was listed. To remove or to move one does not expire or dispatch
anything: what has expired can still be taken out, and no credit is freed.
"""

from __future__ import annotations

from ringfaust.core import effects as e
from ringfaust.core.model import Stage
from ringfaust.core.queue import Queue
from ringfaust.core.transitions import queues
from ringfaust.core.transitions.attaching import fit_window
from ringfaust.core.transitions.delivering import dispatch
from ringfaust.core.transitions.entering import deliver_now, enter
from ringfaust.core.transitions.leaving import expire, move_out, remove
from ringfaust.core.work import Work

CREATE, CONFIGURE, CONFIGURE_ADDRESS = "create", "configure", "configure address"
PAUSE, RESUME = "pause", "resume"
TAKE_OUT, MOVE_OUT, MAKE_DUE = "take out", "move out", "make due"
"""Stages that are performed at once."""


# --- queues and addresses ------------------------------------------------------------------------


def create_stage(work: Work, stage: Stage) -> None:
    """Create a queue, as a member of its address if it has one (R71, R90)."""
    name, settings, address_name = stage.args
    queue = queues.create(work, name, dict(settings))
    work.state.use(queue)
    work.effects.append(e.Configured(name, settings, True))
    fit_window(work, queue)
    address = work.state.address(address_name) if address_name else None
    if address is not None:
        queues.join_address(work, address, queue)


def configure_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Change settings of a queue; the stages that follow do what they demand (R90)."""
    given, settings = stage.args
    spec = work.state.catalog.spec(queue.name, settings)
    queue.settings = settings
    queues.date_settings(work, queue, given)
    queue.use_spec(spec)
    work.effects.append(e.Configured(queue.name, given, False))


def configure_address_stage(work: Work, stage: Stage) -> None:
    """Change settings of an address (R71, R90)."""
    name, given, settings = stage.args
    state = work.state
    address, spec = state.address(name), state.catalog.address(name, settings)
    assert address is not None and spec is not None
    state.use_address(address)
    address.settings = settings
    address.use_spec(spec)
    work.effects.append(e.ConfiguredAddress(address.name, given))


def pause_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Pause pulling or dispatch. Nothing can be dispatched after it (R90)."""
    (what,) = stage.args
    work.state.use(queue)
    queues.pause(queue, what)
    work.effects.append(e.Paused(queue.name, what, True))


def resume_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Resume pulling or dispatch (R90)."""
    (what,) = stage.args
    work.state.use(queue)
    queue.paused = tuple([each for each in queue.paused if each != what])
    work.effects.append(e.Paused(queue.name, what, False))  # before anything expires
    expire(work, queue)
    dispatch(work, queue)


# --- single messages -----------------------------------------------------------------------------


def take_out_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Remove a ready or scheduled message (R34, R90)."""
    work.state.use(queue)
    remove(work, queue, stage.args[0])


def move_out_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Move a ready or scheduled message: it is sent to the other queue now, as new (R90)."""
    message, target, send = stage.args
    work.state.use(queue)
    move_out(work, queue, message, target)
    enter(work, target, send)


def make_due_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Make a scheduled message due now (R31, R34)."""
    work.state.use(queue)
    expire(work, queue)
    deliver_now(work, queue, stage.args[0])  # it dispatches, too
