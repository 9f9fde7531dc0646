"""Every request to AWS, by botocore's own model of its service: what none of the tests of clouds may send.

The check of parameters that botocore makes itself is on, but it passes over texts that are none of the choices of their field, and what it
refuses is an error of the input to whoever made the call.
"""

from collections.abc import Callable
from typing import Any

from botocore.model import OperationModel
from botocore.validate import ParamValidator

from testbed.clouds.aws.direct import answered


class WrongRequest(AssertionError):
    """A request that the service does not know."""


def not_choices(value: Any, shape: Any) -> list[str]:
    """Texts that are not among those that the service knows at their place, which the validator does not look at."""
    if shape.type_name == "structure":
        return [text for name, item in value.items() for text in not_choices(item, shape.members[name])]
    if shape.type_name == "list":
        return [text for item in value for text in not_choices(item, shape.member)]
    if shape.type_name == "map":
        return [text for item in value.values() for text in not_choices(item, shape.value)]
    choices = getattr(shape, "enum", None)
    return [value] if choices and value not in choices else []


def problems(parameters: dict[str, Any], model: OperationModel) -> list[str]:
    """What the model of an operation says against its parameters."""
    shape = model.input_shape
    if shape is None:
        return [f"{name} is no parameter" for name in parameters]
    report = ParamValidator().validate(parameters, shape).generate_report()
    return [report] if report else [f"{text} is no choice" for text in not_choices(parameters, shape)]


def checking(core: Callable[[], Any]) -> Callable[[], Any]:
    """Return a factory of botocore sessions that raise WrongRequest for a wrong request, and reach fakes of `direct` without HTTP."""

    def check(params: dict[str, Any], model: OperationModel, **_: Any) -> None:
        if found := problems(params, model):
            raise WrongRequest(f"{model.service_model.service_name} {model.name}: {'; '.join(found)}")

    def made() -> Any:
        session = core()
        session.register("provide-client-params", check)
        # botocore calls every handler: without an id a session of two patches would make each call twice.
        session.register("before-send", answered, unique_id="direct")
        return session

    return made
