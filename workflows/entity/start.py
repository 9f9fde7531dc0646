"""Checks of the id and the arguments with which a workflow was started.

A client that may start workflows can start these workflows under any id, with any
arguments. An error about these must fail the workflow. Any other error would fail its
first task again and again, and a run that answers nothing would hold the id
indefinitely.

A state is trusted only if the previous run has carried it. A Temporal client may send a
state with the connection of another object, or with a credential of another namespace.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow

from api_types.errors import InvalidInput
from api_types.names import is_reserved_namespace
from api_types.resources.kinds import BY_KIND
from scheduler import check_names
from workflows.entity.arguments import problems_of

ModelT = TypeVar("ModelT", bound=BaseModel)


def check_id(kind: str) -> None:
    """Check that this workflow has a valid id for its kind. Raises InvalidInput."""
    workflow_id, namespace = (
        workflow.info().workflow_id,
        ["<namespace>"] if BY_KIND[kind].namespaced else [],
    )
    prefix, *parts = workflow_id.split("/")
    try:
        check_names(("id", part) for part in parts)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if prefix != kind.lower() or len(parts) != len(namespace) + 1:
        pattern = "/".join([kind.lower(), *namespace, "<name>"])
        raise InvalidInput(f'id: must be {pattern} for a {kind}, got "{workflow_id}"')
    # A running object continues, although a later release may reserve its namespace.
    if (
        namespace
        and is_reserved_namespace(parts[0])
        and not is_continued(workflow.info())
    ):
        raise InvalidInput(
            f'id: namespace "{parts[0]}" belongs to the platform; '
            "use a namespace of your own"
        )


def check_only_id(kind: str, only: str) -> None:
    """Check that this workflow has the only id of its kind. Raises InvalidInput."""
    if (workflow_id := workflow.info().workflow_id) != only:
        raise InvalidInput(
            f'id: must be {only}, the id of the only {kind}, got "{workflow_id}"'
        )


def is_continued(info: workflow.Info) -> bool:
    """Return whether the previous run has made the arguments of this run.

    A retry and a run of a cron schedule have a previous run too, but receive the
    arguments of the original start.
    """
    return bool(info.continued_run_id) and info.attempt == 1 and not info.cron_schedule


def read_carried(
    arguments: Sequence[Any], model: type[ModelT], number: int = 0, most: int = 1
) -> ModelT | None:
    """Read the carried state at an argument position; return None without one.

    There may be at most `most` arguments. Raises InvalidInput.

    A first run carries nothing: its arguments are null or missing.
    """
    argument = _argument(arguments, number, most)
    if argument is not None and not is_continued(workflow.info()):
        raise InvalidInput(
            f"start argument {number + 1}: must be null; only a continued run has a state. "
            "Start the workflow without arguments, and send its spec or messages by signal"
        )
    return _read(argument, model, number)


def read_first(arguments: Sequence[Any], model: type[ModelT]) -> ModelT | None:
    """Read the only argument of a workflow whose start requires one.

    Return None if it is null or missing. Raises InvalidInput.
    """
    return _read(_argument(arguments, 0, most=1), model, 0)


def _argument(arguments: Sequence[Any], number: int, most: int) -> Any:
    if len(arguments) > most:
        raise InvalidInput(
            f"start arguments: expected at most {most}, got {len(arguments)}"
        )
    return arguments[number] if number < len(arguments) else None


def _read(argument: Any, model: type[ModelT], number: int) -> ModelT | None:
    if argument is None:
        return None
    try:
        return model.model_validate(argument)
    except ValidationError as error:
        raise InvalidInput(
            f"start argument {number + 1}: {problems_of(error)}"
        ) from error
