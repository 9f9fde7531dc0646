"""Service Quotas: limits of the account, and AWS's own where it has none. They are only told: nothing here is refused because of them."""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.wire import Refusal, Request

_DEFAULT = 10_000.0


def _own(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    code = request.text("QuotaCode")
    if code not in cloud.quotas:
        raise Refusal("NoSuchResourceException", "The specified resource does not exist.")
    return _quota(request, cloud.quotas[code])


def _default(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    del cloud
    return _quota(request, _DEFAULT)


def _quota(request: Request, value: float) -> Mapping[str, Any]:
    return {"Quota": {"ServiceCode": request.text("ServiceCode"), "QuotaCode": request.text("QuotaCode"), "Value": value}}


OWN: Mapping[str, Callable[[Cloud, Request], Mapping[str, Any]]] = {"GetServiceQuota": _own, "GetAWSDefaultServiceQuota": _default}
