"""Prints objects as `get` shows them: tables by kind, or a machine-readable form; in a watch only what changed."""

import sys
from collections.abc import Sequence

from api_types.clock import utc_now
from api_types.resources.kinds import KindInfo
from client.errors import CommandFailed
from client.output.columns import MARK, Layout, header, row
from client.output.formats import Format, render
from client.output.tables import columns, measure
from client.refs.tree import at_path
from client.temporal.control_plane import ANSWER_WAIT, ListedObject


class ResourcePrinter:
    """Prints objects in one form, and on later calls only those that changed."""

    def __init__(self, output: Format, layout: Layout, *, single: bool) -> None:
        self._output = output
        self._layout = layout
        self._single = single
        self._versions: dict[str, str] = {}
        self._widths: dict[str, list[int]] = {}

    def print_all(self, found: Sequence[ListedObject]) -> None:
        """Print all objects, kind by kind."""
        self._versions = {one.target.workflow_id: _version(one) for one in found}
        if self._output not in {Format.TABLE, Format.WIDE}:
            print(render([one.tree for one in found], self._output, single=self._single), flush=True)
            return
        for at, kind in enumerate(dict.fromkeys(one.target.kind for one in found)):
            if at:
                print()
            self._print_table(kind, [one for one in found if one.target.kind == kind], titled=True)
        sys.stdout.flush()

    def print_changes(self, found: Sequence[ListedObject]) -> None:
        """Print what is new or different, and on standard error what is gone."""
        for one in found:
            if self._versions.get(one.target.workflow_id) == _version(one):
                continue
            if self._output in {Format.TABLE, Format.WIDE}:
                self._print_table(one.target.kind, [one], titled=one.target.kind.kind not in self._widths)
            else:
                print(render([one.tree], self._output, single=True), flush=True)
        present = {one.target.workflow_id: _version(one) for one in found}
        for gone in sorted(set(self._versions) - set(present)):
            print(f"{gone} is gone", file=sys.stderr, flush=True)
        self._versions = present
        sys.stdout.flush()

    def _print_table(self, kind: KindInfo, found: Sequence[ListedObject], *, titled: bool) -> None:
        titles = header(kind, self._layout)
        rows = [row(kind, one, self._layout, utc_now()) for one in found]
        self._widths[kind.kind] = measure([titles, *rows], self._widths.get(kind.kind, ()))
        for line in columns(titles if titled else (), rows, self._widths[kind.kind]):
            print(line)


def warn_unanswered(found: Sequence[ListedObject]) -> None:
    """Warn on standard error of objects that are shown from their search attributes, because no worker answered."""
    unanswered = sum(not one.answered for one in found)
    if unanswered:
        within = f"{ANSWER_WAIT.total_seconds():g} s"
        what = f"{unanswered} of {len(found)} objects did not answer within {within}: values marked {MARK} are the last known ones"
        print(f"warning: {what}; is a worker running?", file=sys.stderr)


def warn_hidden(hidden: Sequence[CommandFailed]) -> None:
    """Warn on standard error of kinds that this user may not list."""
    for failure in hidden:
        print(f"warning: {failure.message}", file=sys.stderr)


def _version(one: ListedObject) -> str:
    return f"{at_path(one.tree, '.metadata.uid')}/{at_path(one.tree, '.metadata.resourceVersion')}"
