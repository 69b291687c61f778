"""`ringfaust xid …`: distributed transactions that are not decided yet."""

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.cli.operate import (
    Application,
    AsJson,
    Brokers,
    Folder,
    Target,
    Yes,
    confirm,
    print_json,
    print_table,
    with_admin,
)
from ringfaust.cli.parts import group

xid = group("Look at undecided distributed transactions and decide them.")

Name = Annotated[str, typer.Argument(metavar="XID", help="Name of the transaction.")]


@xid.command("ls")
def list_xids(
    *,
    as_json: AsJson = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """List undecided distributed transactions.

    Example: ringfaust xid ls
    """
    found = with_admin(Target(folder, bootstrap_servers, application), lambda admin: admin.xids())
    if as_json:
        print_json(found)
    elif not found:
        print("no transaction is undecided")
    else:
        rows = [
            (each.xid, each.prepared, each.operations, ", ".join(map(str, each.partitions)))
            for each in found
        ]
        print_table(("xid", "prepared", "operations", "partitions"), rows)


@xid.command("commit")
def commit(
    *,
    name: Name,
    yes: Yes = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """Commit a prepared transaction that its coordinator has left behind.

    Example: ringfaust xid commit transfer-7 --yes
    """
    confirm(f"This commits the transaction {name}.", yes=yes)
    target = Target(folder, bootstrap_servers, application)
    with_admin(target, lambda admin: admin.commit_xid(name))
    print(f"{name}: committed")


@xid.command("rollback")
def rollback(
    *,
    name: Name,
    yes: Yes = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """Roll back a transaction: its sends are dropped, and what it acked returns.

    Example: ringfaust xid rollback transfer-8 --yes
    """
    confirm(f"This rolls back the transaction {name}.", yes=yes)
    target = Target(folder, bootstrap_servers, application)
    with_admin(target, lambda admin: admin.rollback_xid(name))
    print(f"{name}: rolled back")
