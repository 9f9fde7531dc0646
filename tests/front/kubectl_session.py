"""The kubectl session of docs/tutorials/kubectl.md: runs its commands and writes the page.

`python -m tests.front.kubectl_session` writes the page.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.front.front_under_test import a_front
from tests.workflows.environment.harness import a_deployment
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    simulated_plane,
)

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "kubectl.md"
NAMESPACE, NAME = "team-a", "qwen"
USER = "alice"
_HEAD = """# A kubectl session

This page shows `kubectl` commands of a user with permissions in one namespace, run against
[the front](front.md), and their output. `python -m tests.front.kubectl_session` writes the page, and
a test runs the commands again. Times, ages, UIDs and versions are replaced by fixed values. The
kubeconfig names the front, the token and the namespace `team-a`.

Another test runs the same commands at an API server that
[forwards requests to the front](front.md#behind-an-api-server). The output is the same, except for
`auth whoami`, `auth can-i --list` and the reason after the `no` of `auth can-i`, which come from that
cluster.
"""
_FIXED = (
    (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "01234567-89ab-cdef-0123-456789abcdef",
    ),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "2026-01-01T00:00:00Z"),
    (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}",
        "2026-01-01 00:00:00.000000000 +0000",
    ),
    (r"\b\d{16}\b", "1767225600000000"),
    (r"/\S*/(LIVE|MERGED)-\d+", r"\1"),
    (rf"\b{NAME}-[0-9a-f]{{8}}\b", f"{NAME}-0a1b2c3d"),
    (r"(?m)\b(\d+[dhms])+[ \t]*$", "5s"),
    (r"(?m)[ \t]+$", ""),
)


class Kubectl(Protocol):
    """Runs kubectl as a user; returns the output of both streams."""

    async def __call__(self, *arguments: str, user: str, fails: bool = False) -> str:
        """Run one command. Raises `AssertionError` for an unexpected exit code."""


@dataclass(frozen=True)
class Step:
    """One command of the session.

    `file` is the deployment that replaces `FILE` in the arguments. `varies` means that
    the output differs between runs. `beside` is a command that runs during this watch,
    and `lines` the number of lines that are shown. `of_users` marks commands about
    users and their rights, which an API server in front of the front answers for its
    own users.
    """

    arguments: tuple[str, ...]
    file: Mapping[str, object] | None = None
    fails: bool = False
    varies: bool = False
    beside: tuple[str, ...] = ()
    lines: int = 400
    of_users: bool = False


def _of(replicas: int) -> Mapping[str, object]:
    return a_deployment(NAME, NAMESPACE, replicas=replicas)


_OBJECT = f"md/{NAME}"
_MERGE = json.dumps({"metadata": {"annotations": {"owner": "ann"}}})
_OPERATIONS = json.dumps(
    [{"op": "replace", "path": "/metadata/labels/tier", "value": "silver"}]
)
_STRATEGIC = json.dumps(
    {"metadata": {"labels": {"tier": None}, "annotations": {"team": "ml"}}}
)
STEPS = (
    Step(("api-resources", "--api-group", "modelplane.ai")),
    Step(("explain", "modeldeployment.spec.replicas")),
    Step(("auth", "whoami"), of_users=True),
    Step(("auth", "can-i", "--list"), of_users=True),
    Step(("auth", "can-i", "create", "modeldeployments")),
    Step(
        ("auth", "can-i", "list", "modeldeployments", "--namespace", "team-b"),
        fails=True,
    ),
    Step(("apply", "-f", "FILE"), file=_of(1)),
    Step(("wait", "--for=condition=Ready", _OBJECT, "--timeout=240s")),
    Step(("get", "md")),
    Step(("get", _OBJECT, "-o", "wide")),
    Step(("diff", "-f", "FILE"), file=_of(2), fails=True, varies=True),
    Step(("apply", "-f", "FILE"), file=_of(2)),
    Step(("patch", _OBJECT, "--type=merge", "-p", _MERGE)),
    Step(("label", _OBJECT, "tier=gold")),
    Step(("patch", _OBJECT, "--type=json", "-p", _OPERATIONS)),
    Step(("get", "md", "-l", "tier=silver", "-o", "name")),
    # Without a type, kubectl sends a strategic merge patch, which custom resources also
    # reject.
    Step(("patch", _OBJECT, "-p", _STRATEGIC), fails=True),
    Step(
        ("get", _OBJECT, "-w", "--request-timeout=8s"),
        varies=True,
        beside=("scale", _OBJECT, "--replicas=3"),
    ),
    Step(
        ("wait", "--for=jsonpath={.status.replicas.ready}=3", _OBJECT, "--timeout=240s")
    ),
    Step(("edit", _OBJECT)),
    Step(
        ("wait", "--for=jsonpath={.status.replicas.ready}=4", _OBJECT, "--timeout=240s")
    ),
    Step(("get", _OBJECT, "-o", "yaml"), varies=True),
    Step(("get", _OBJECT, "-o", "json"), varies=True, lines=12),
    Step(("describe", _OBJECT), varies=True),
    Step(("apply", "--server-side", "-f", "FILE"), file=_of(2), fails=True),
    Step(("apply", "--server-side", "--force-conflicts", "-f", "FILE"), file=_of(2)),
    Step(
        ("wait", "--for=jsonpath={.status.replicas.ready}=2", _OBJECT, "--timeout=240s")
    ),
    Step(("delete", _OBJECT, "--wait", "--timeout=240s")),
    Step(("get", _OBJECT), fails=True),
)


async def recorded(kubectl: Kubectl, folder: Path) -> list[tuple[Step, str]]:
    """Run the session; return each command with its stable output.

    kubectl finds its editor in `folder`.
    """
    editor = folder / "editor"
    editor.write_text("#!/bin/sh\nexec sed -i 's/replicas: 3/replicas: 4/' \"$1\"\n")
    editor.chmod(0o755)
    return [(step, await _printed(kubectl, folder, step)) for step in STEPS]


async def _printed(kubectl: Kubectl, folder: Path, step: Step) -> str:
    file = folder / "deployment.yaml"
    if step.file is not None:
        file.write_text(json.dumps(step.file, indent=2))
    where = () if "--namespace" in step.arguments else ("--namespace", NAMESPACE)
    arguments = [str(file) if each == "FILE" else each for each in step.arguments]
    running = asyncio.create_task(
        kubectl(*arguments, *where, user=USER, fails=step.fails)
    )
    if step.beside:
        # The page shows the events of the change, no matter how early the watch began.
        await kubectl(*step.beside, *where, user=USER)
    printed = await running
    for pattern, fixed in _FIXED:
        printed = re.sub(pattern, fixed, printed)
    lines = printed.strip().splitlines()
    return "\n".join(lines[: step.lines] + (["..."] if len(lines) > step.lines else []))


def shown(step: Step) -> str:
    """Return the command as a user types it."""
    words = [
        f"'{word}'"
        if re.search(r"[{}\[ ]", word)
        else word.replace("FILE", "deployment.yaml")
        for word in step.arguments
    ]
    editor = (
        "EDITOR=\"sed -i 's/replicas: 3/replicas: 4/'\" "
        if step.arguments[0] == "edit"
        else ""
    )
    beside = f"   # beside it: kubectl {' '.join(step.beside)}" if step.beside else ""
    return f"$ {editor}kubectl {' '.join(words)}{beside}"


def written() -> list[tuple[str, str]]:
    found = re.findall(
        r"^```console\n(.*?)\n(.*?)\n?^```$",
        PAGE.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    return [(command, printed.strip()) for command, printed in found]


def page(run: list[tuple[Step, str]]) -> str:
    return _HEAD + "".join(
        f"\n```console\n{shown(step)}\n{printed}\n```\n" for step, printed in run
    )


async def _write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with simulated_plane() as plane:
            await plane.apply(a_class())
            await plane.apply(a_cluster("eu", nodes=100))
            await plane.ready("InferenceCluster", "eu")
            async with a_front(plane, Path(folder)) as front:
                PAGE.write_text(page(await recorded(front.kubectl, front.folder)))


if __name__ == "__main__":
    asyncio.run(_write())
