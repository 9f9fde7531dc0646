"""How a workflow was started: under which id, and with which arguments.

Whoever may start workflows may start one of ours under any id, with anything. What is raised of that must be a failure of the workflow: any
other error fails its first task again and again, and the id is held for ever by a run that answers nothing.

A state is believed only if the run before has carried it. In one that a Temporal client made up anything may stand: the
connection of another object, or a credential that is none of its namespace.
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
    """Check that this workflow has the id of an object of its kind. Raises InvalidInput."""
    workflow_id, namespace = workflow.info().workflow_id, ["<namespace>"] if BY_KIND[kind].namespaced else []
    prefix, *parts = workflow_id.split("/")
    try:
        check_names(("id", part) for part in parts)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if prefix != kind.lower() or len(parts) != len(namespace) + 1:
        raise InvalidInput(f'id: must be {"/".join([kind.lower(), *namespace, "<name>"])} for a {kind}, got "{workflow_id}"')
    # What runs already goes on, although a later release may reserve its namespace.
    if namespace and is_reserved_namespace(parts[0]) and not is_continued(workflow.info()):
        raise InvalidInput(f'id: namespace "{parts[0]}" belongs to the platform; use a namespace of your own')


def check_only_id(kind: str, only: str) -> None:
    """Check that this workflow has the one id that its kind has. Raises InvalidInput."""
    if (workflow_id := workflow.info().workflow_id) != only:
        raise InvalidInput(f'id: must be {only} for the {kind}, of which there is one, got "{workflow_id}"')


def is_continued(info: workflow.Info) -> bool:
    """Tell whether the run before has made the arguments of this one.

    A retry and a run of a cron schedule name the run before it too, but get the arguments of whoever started that one.
    """
    return bool(info.continued_run_id) and info.attempt == 1 and not info.cron_schedule


def read_carried(arguments: Sequence[Any], model: type[ModelT], number: int = 0, most: int = 1) -> ModelT | None:
    """Read what the run before carried as the argument of that number, of at most so many; None if nothing. Raises InvalidInput.

    A first run has nothing that was carried: its arguments are null or missing.
    """
    argument = _argument(arguments, number, most)
    if argument is not None and not is_continued(workflow.info()):
        raise InvalidInput(
            f"start argument {number + 1}: must be null; only a run that continues another one has a state. "
            "Start it without, and send its spec or its messages by signal"
        )
    return _read(argument, model, number)


def read_first(arguments: Sequence[Any], model: type[ModelT]) -> ModelT | None:
    """Read the only argument with which a kind is started that needs one; None if it is null or missing. Raises InvalidInput."""
    return _read(_argument(arguments, 0, most=1), model, 0)


def _argument(arguments: Sequence[Any], number: int, most: int) -> Any:
    if len(arguments) > most:
        raise InvalidInput(f"start arguments: there are {len(arguments)}, and at most {most} are read")
    return arguments[number] if number < len(arguments) else None


def _read(argument: Any, model: type[ModelT], number: int) -> ModelT | None:
    if argument is None:
        return None
    try:
        return model.model_validate(argument)
    except ValidationError as error:
        raise InvalidInput(f"start argument {number + 1}: {problems_of(error)}") from error
