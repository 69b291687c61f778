"""`ringfaust xid …`: distributed transactions that are not decided yet."""

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.cli.operate import AsJson, Target, Yes, changed, confirm, print_list, with_admin
from ringfaust.cli.parts import group
from ringfaust.times import time_text

xid = group("Look at undecided distributed transactions and decide them.")

Name = Annotated[str, typer.Argument(metavar="XID", help="Name of the transaction.")]


@xid.command("ls")
def list_xids(*, target: Target, as_json: AsJson = False) -> None:
    """List undecided distributed transactions.

    Example: ringfaust xid ls
    """
    found = with_admin(target, lambda admin: admin.xids())
    print_list(
        found, ("xid", "prepared", "operations", "began", "partitions"),
        lambda each: (
            each.xid, each.prepared, each.operations, time_text(each.began_ms),
            ", ".join(map(str, each.partitions)),
        ),
        as_json=as_json, nothing="no transaction is undecided",
    )  # fmt: skip


@xid.command("commit")
def commit(*, target: Target, name: Name, yes: Yes = False) -> None:
    """Commit a prepared transaction that its coordinator has left behind.

    Example: ringfaust xid commit transfer-7 --yes
    """
    confirm(f"This commits the transaction {name}.", target.where(), yes=yes)
    with_admin(target, lambda admin: admin.commit_xid(name))
    changed(target, f"{name}: committed")


@xid.command("rollback")
def rollback(*, target: Target, name: Name, yes: Yes = False) -> None:
    """Roll back a transaction: its sends are dropped, and what it acked returns.

    Example: ringfaust xid rollback transfer-8 --yes
    """
    confirm(f"This rolls back the transaction {name}.", target.where(), yes=yes)
    with_admin(target, lambda admin: admin.rollback_xid(name))
    changed(target, f"{name}: rolled back")
