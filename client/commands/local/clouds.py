"""`modelplane clouds`: what is at the fake clouds of the fleet on this machine."""

from typing import Annotated

import typer


def clouds(
    calls: Annotated[bool, typer.Option("--calls", help="Show the calls that changed something instead, the latest last.")] = False,
) -> None:
    """Show what was created at the fake clouds that `modelplane up --cloud fake` started, and is not deleted."""
    from client.local.clouds import fake_clouds  # noqa: PLC0415 - the testbed would slow the start of every other command

    for each in fake_clouds():
        lines = each.calls if calls else each.objects
        what = "calls that changed something" if calls else "objects"
        print(f"{each.title}, {each.place}: {f'{len(lines)} {what}' if lines else f'no {what}'}")
        for line in lines:
            print(f"  {line}")
