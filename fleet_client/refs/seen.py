"""Objects and workflows as a fleet shows them, through Temporal or through a front."""

from dataclasses import dataclass
from datetime import timedelta

from fleet_client.errors import NotFound
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree

# How long a query may take before the search attributes of its object are shown
# instead.
ANSWER_WAIT = timedelta(seconds=3)


@dataclass(frozen=True)
class ListedObject:
    """One object of a list.

    If its workflow did not answer, the tree contains only the search attributes.
    """

    target: Target
    tree: Tree
    answered: bool = True


@dataclass(frozen=True)
class Execution:
    """The workflow of an object.

    `failing` has a line for each failing step that Temporal retries. `link` is the
    workflow's page in the Temporal UI; it is empty without access to Temporal.
    """

    link: str = ""
    failing: tuple[str, ...] = ()


def not_found(target: Target) -> NotFound:
    """Return the error for an object that does not exist."""
    scope = f" -n {target.namespace}" if target.namespace else ""
    return NotFound(
        f"{target.title} does not exist",
        next_step=f"`modelplane get {target.kind.short}{scope}` lists the existing objects",
    )
