"""Validate every request to AWS with botocore's own model of the service.

Botocore's own validation of parameters is on, but it accepts invalid choices of a
field, and reports other errors as invalid input of the caller.
"""

from collections.abc import Callable
from typing import Any

from botocore.model import OperationModel
from botocore.validate import ParamValidator

from fakes.aws.direct import answered


class WrongRequest(AssertionError):
    """The service does not accept this request."""


def not_choices(value: Any, shape: Any) -> list[str]:
    """Yield texts that are not valid choices at their place.

    Botocore does not check them.
    """
    if shape.type_name == "structure":
        return [
            text
            for name, item in value.items()
            for text in not_choices(item, shape.members[name])
        ]
    if shape.type_name == "list":
        return [text for item in value for text in not_choices(item, shape.member)]
    if shape.type_name == "map":
        return [
            text for item in value.values() for text in not_choices(item, shape.value)
        ]
    choices = getattr(shape, "enum", None)
    return [value] if choices and value not in choices else []


def problems(parameters: dict[str, Any], model: OperationModel) -> list[str]:
    """Return the violations of an operation's model by its parameters."""
    shape = model.input_shape
    if shape is None:
        return [f"{name} is no parameter" for name in parameters]
    report = ParamValidator().validate(parameters, shape).generate_report()
    return (
        [report]
        if report
        else [f"{text} is no choice" for text in not_choices(parameters, shape)]
    )


def checking(core: Callable[[], Any]) -> Callable[[], Any]:
    """Return a factory of botocore sessions that raise WrongRequest for invalid
    requests.

    They reach fakes of `direct` without HTTP.
    """

    def check(params: dict[str, Any], model: OperationModel, **_: Any) -> None:
        if found := problems(params, model):
            raise WrongRequest(
                f"{model.service_model.service_name} {model.name}: {'; '.join(found)}"
            )

    def made() -> Any:
        session = core()
        session.register("provide-client-params", check)
        # botocore calls every handler. Without an id a session of two patches would
        # make each call twice.
        session.register("before-send", answered, unique_id="direct")
        return session

    return made
