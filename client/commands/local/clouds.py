"""`modelplane clouds`: the objects at the fake clouds of the fleet on this machine."""

from typing import Annotated

import typer


def clouds(
    calls: Annotated[
        bool,
        typer.Option(
            "--calls",
            help="Show the calls that changed something instead, the latest last.",
        ),
    ] = False,
) -> None:
    """Show the objects that exist at the fake clouds of `modelplane up --cloud fake`.

    For example:
      modelplane clouds
      modelplane clouds --calls
    """
    from client.local.clouds import fake_clouds  # noqa: PLC0415 - the testbed is slow to import

    for each in fake_clouds():
        lines = each.calls if calls else each.objects
        noun = "calls that changed something" if calls else "objects"
        count = str(len(lines)) if lines else "no"
        print(f"{each.title}, {each.place}: {count} {noun}")
        for line in lines:
            print(f"  {line}")
