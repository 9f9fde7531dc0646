"""Service Quotas: limits of the account, and AWS's defaults.

They are only reported: no call is refused because of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.wire import AwsRequest, Refusal

_DEFAULT = 10_000.0


def _own(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    code = request.text("QuotaCode")
    if code not in cloud.quotas:
        raise Refusal(
            "NoSuchResourceException",
            "The request failed because the specified service does not exist.",
        )
    return _quota(request, cloud.quotas[code])


def _default(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    del cloud
    return _quota(request, _DEFAULT)


def _quota(request: AwsRequest, value: float) -> Mapping[str, Any]:
    return {
        "Quota": {
            "ServiceCode": request.text("ServiceCode"),
            "QuotaCode": request.text("QuotaCode"),
            "Value": value,
        }
    }


OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "GetServiceQuota": _own,
    "GetAWSDefaultServiceQuota": _default,
}
