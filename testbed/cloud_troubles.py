"""`python -m testbed trouble`: the troubles of the fake clouds of a running testbed."""

import argparse

import httpx

from testbed.cloud_addresses import CLOUDS, TROUBLES
from testbed.waiting import StartFailed

BEGIN, END, LIST = "begin", "end", "list"
_SECONDS = 30.0
_ACTIVE = "lasts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=(LIST, BEGIN, END), nargs="?", default=LIST)
    parser.add_argument(
        "cloud", choices=CLOUDS, nargs="?", help="default: both clouds, for `list`"
    )
    parser.add_argument("name", nargs="*", help="the trouble, as `list` shows it")


def trouble(control_url: str, options: argparse.Namespace) -> list[str]:
    """Begin or end a trouble, or list all. Return the lines to print.

    Raise StartFailed if the fakes do not answer, or have no such trouble.
    """
    name = " ".join(options.name)
    with httpx.Client(
        base_url=control_url, trust_env=False, timeout=_SECONDS
    ) as client:
        try:
            if options.action == LIST:
                answer = client.get(TROUBLES)
            else:
                lasts = options.action == BEGIN
                wanted = {"cloud": options.cloud, "name": name, "lasts": lasts}
                answer = client.post(TROUBLES, json=wanted)
        except httpx.TransportError as error:
            raise StartFailed(f"the fake clouds do not answer: {error}") from error
    if answer.is_error:
        raise StartFailed(
            f"the fake of {options.cloud or 'no cloud'} has no trouble {name!r}: "
            "`python -m testbed trouble` lists all"
        )
    return [
        f"{cloud}  {each}{f'  {_ACTIVE}' if lasts else ''}"
        for cloud, troubles in answer.json().items()
        for each, lasts in troubles.items()
        if options.cloud in (None, cloud) and (options.action == LIST or each == name)
    ]
