"""Lists in small pages, as AWS may answer although a caller asks for large ones."""

from collections.abc import Callable
from typing import Any

from botocore.paginate import PaginatorModel
from botocore.session import get_session

from fakes.aws.cloud import AwsCloud
from fakes.aws.faults import FaultKind
from fakes.aws.wire import AwsRequest, AwsResponse, answered

_MARK = "page-"


def paged(
    cloud: AwsCloud, request: AwsRequest, answer: Callable[[AwsRequest], AwsResponse]
) -> AwsResponse:
    """Answer with one item if a fault says so, and with a token for the rest.

    A request with such a token gets the next item.
    """
    rules = _rules(request)
    if rules is None:
        return answer(request)
    token_in, token_out, items_at = rules
    given = request.text(token_in)
    if not given.startswith(_MARK) and not cloud.take(FaultKind.PAGES, request):
        return answer(request)
    start = int(given.removeprefix(_MARK) or 0) if given.startswith(_MARK) else 0
    if given.startswith(_MARK):
        request.parameters.pop(token_in)
    whole = answer(request)
    if whole.error:
        return whole
    items = list(whole.result.get(items_at) or ())
    body: dict[str, Any] = {
        key: value
        for key, value in whole.result.items()
        if key not in (token_out, "ResponseMetadata")
    }
    body[items_at] = items[start : start + 1]
    if start + 1 < len(items):
        body[token_out] = f"{_MARK}{start + 1}"
    return answered(request, body)


def _rules(request: AwsRequest) -> tuple[str, str, str] | None:
    """Return the parameter with the token, and the places of the next one and the items."""
    if request.service not in ("ec2", "eks"):
        return None
    found = _models(request.service).get(request.operation)
    if not found:
        return None
    items = found["result_key"]
    if not isinstance(items, str) or not isinstance(found["output_token"], str):
        return None
    return str(found["input_token"]), str(found["output_token"]), items


_LOADED: dict[str, dict[str, Any]] = {}


def _models(service: str) -> dict[str, Any]:
    if service not in _LOADED:
        loader = get_session().get_component("data_loader")
        model: Any = PaginatorModel(loader.load_service_model(service, "paginators-1"))
        _LOADED[service] = model._paginator_config  # noqa: SLF001
    return _LOADED[service]
