"""The output of `get`: tables or a machine-readable form, and changes in a watch."""

import sys
from collections.abc import Sequence

from api_types.clock import utc_now
from api_types.resources.kinds import KindInfo
from client.output.chosen import OutputChoice
from client.output.columns import MARK, TableLayout, header, row
from client.output.formats import shown
from client.output.tables import columns, measure
from fleet_client.errors import CommandFailed
from fleet_client.refs.seen import ANSWER_WAIT, ListedObject
from fleet_client.refs.tree import at_path, clean


class ResourcePrinter:
    """Prints objects in one form. Later calls print only changed objects."""

    def __init__(
        self, output: OutputChoice, layout: TableLayout, *, single: bool
    ) -> None:
        self._output = output
        self._layout = layout
        self._single = single
        self._versions: dict[str, str] = {}
        self._widths: dict[str, list[int]] = {}

    def print_all(self, found: Sequence[ListedObject]) -> None:
        self._versions = {one.target.workflow_id: _version(one) for one in found}
        if self._output.custom:
            self._print_custom(found, titled=self._layout.titles)
            return
        if not self._output.is_table:
            trees = [one.tree for one in found]
            print(self._output.render(trees, single=self._single), end="", flush=True)
            return
        for at, kind in enumerate(dict.fromkeys(one.target.kind for one in found)):
            if at:
                print()
            self._print_table(
                kind,
                [one for one in found if one.target.kind == kind],
                titled=self._layout.titles,
            )
        sys.stdout.flush()

    def print_changes(self, found: Sequence[ListedObject]) -> None:
        """Print new and changed objects. Report deleted ones on standard error."""
        for one in found:
            if self._versions.get(one.target.workflow_id) == _version(one):
                continue
            if self._output.custom:
                self._print_custom([one], titled=False)
            elif self._output.is_table:
                titled = (
                    self._layout.titles and one.target.kind.kind not in self._widths
                )
                self._print_table(one.target.kind, [one], titled=titled)
            else:
                print(self._output.render([one.tree], single=True), end="", flush=True)
        present = {one.target.workflow_id: _version(one) for one in found}
        for gone in sorted(set(self._versions) - set(present)):
            print(f"{gone} is gone", file=sys.stderr, flush=True)
        self._versions = present
        sys.stdout.flush()

    def _print_table(
        self, kind: KindInfo, found: Sequence[ListedObject], *, titled: bool
    ) -> None:
        titles = header(kind, self._layout)
        rows = [row(kind, one, self._layout, utc_now()) for one in found]
        self._widths[kind.kind] = measure(
            [titles, *rows], self._widths.get(kind.kind, ())
        )
        for line in columns(titles if titled else (), rows, self._widths[kind.kind]):
            print(line)

    def _print_custom(self, found: Sequence[ListedObject], *, titled: bool) -> None:
        titles = [column.title for column in self._output.custom] if titled else []
        rows = [
            [
                ",".join(shown(value) for value in column.find(clean(one.tree)))
                for column in self._output.custom
            ]
            for one in found
        ]
        for line in columns(titles, rows):
            print(line, flush=True)


def warn_unanswered(found: Sequence[ListedObject]) -> None:
    """Warn about objects whose values are old, because no worker answered."""
    unanswered = sum(not one.answered for one in found)
    if unanswered:
        within = f"{ANSWER_WAIT.total_seconds():g} s"
        print(
            f"warning: {unanswered} of {len(found)} objects did not answer within "
            f"{within}: values marked {MARK} are the last known ones; is a worker running?",
            file=sys.stderr,
        )


def warn_hidden(hidden: Sequence[CommandFailed]) -> None:
    """Warn about kinds that this user may not list."""
    for failure in hidden:
        print(f"warning: {failure.message}", file=sys.stderr)


def _version(one: ListedObject) -> str:
    return f"{at_path(one.tree, '.metadata.uid')}/{at_path(one.tree, '.metadata.resourceVersion')}"
