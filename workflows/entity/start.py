"""How a workflow was started: under which id, and with which arguments.

Whoever may start workflows may start one of ours under any id, with anything. What is raised of that must be a failure of the workflow: any
other error fails its first task again and again, and the id is held for ever by a run that answers nothing.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow

from api_types.errors import InvalidInput
from api_types.resources.kinds import BY_KIND
from scheduler import check_names
from workflows.entity.handles import problems_of

ModelT = TypeVar("ModelT", bound=BaseModel)


def check_id(kind: str) -> None:
    """Check that this workflow has the id of an object of its kind. Raises InvalidInput."""
    workflow_id, namespace = workflow.info().workflow_id, ["<namespace>"] if BY_KIND[kind].namespaced else []
    prefix, *parts = workflow_id.split("/")
    try:
        check_names(("id", part) for part in parts)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if prefix != kind.lower() or len(parts) != len(namespace) + 1:
        raise InvalidInput(f'id: must be {"/".join([kind.lower(), *namespace, "<name>"])} for a {kind}, got "{workflow_id}"')


def check_only_id(kind: str, only: str) -> None:
    """Check that this workflow has the one id that its kind has. Raises InvalidInput."""
    if (workflow_id := workflow.info().workflow_id) != only:
        raise InvalidInput(f'id: must be {only} for the {kind}, of which there is one, got "{workflow_id}"')


def read_start(arguments: Sequence[Any], model: type[ModelT], number: int = 0, most: int = 1) -> ModelT | None:
    """Read the start argument of that number, of at most so many; None if it is null or missing. Raises InvalidInput."""
    if len(arguments) > most:
        raise InvalidInput(f"start arguments: there are {len(arguments)}, and at most {most} are read")
    if number >= len(arguments) or arguments[number] is None:
        return None
    try:
        return model.model_validate(arguments[number])
    except ValidationError as error:
        raise InvalidInput(f"start argument {number + 1}: {problems_of(error)}") from error
