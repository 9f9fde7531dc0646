"""The endpoint of an EKS cluster's API server, and tokens for it."""

import base64
import binascii
from urllib.parse import urlencode

from botocore.credentials import Credentials
from botocore.hooks import HierarchicalEmitter
from botocore.model import ServiceId
from botocore.signers import RequestSigner

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.wanted.partitions import dns_suffix_of
from activities.clouds.provider import ApiServerEndpoint, BearerToken
from api_types.errors import NotYet, ServerError

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 - every token begins so
TOKEN_SECONDS = 600.0
"""Seconds for which a token is used after it was signed.

The API server accepts it for 15 minutes.
"""

_CLUSTER_HEADER = "x-k8s-aws-id"
_URL_SECONDS = 60


def endpoint_of(clients: AwsClients, cluster: str, arn: str = "") -> ApiServerEndpoint:
    """Return the endpoint of a cluster.

    Raises NotYet while there is none, and with an ARN also for another cluster of that
    name.
    """
    found = clients.read("eks", "describe_cluster", name=cluster).get("cluster") or {}
    if arn and found.get("arn") != arn:
        raise NotYet(f"cluster {arn} has no endpoint yet")
    server, data = (
        str(found.get("endpoint") or ""),
        str(found.get("certificateAuthority", {}).get("data") or ""),
    )
    if not server or not data:
        raise NotYet(f"cluster {cluster} has no endpoint yet")
    try:
        return ApiServerEndpoint(
            server, base64.b64decode(data, validate=True).decode("ascii")
        )
    except (binascii.Error, UnicodeDecodeError):
        raise ServerError(
            f"EKS returned a malformed certificate authority for cluster {cluster}"
        ) from None


def token_of(clients: AwsClients, cluster: str) -> BearerToken:
    """Sign a token for the API server, without a call.

    The token is a presigned URL of STS GetCallerIdentity. The API server requests it to
    get the caller's identity.
    """
    signed = clients.seconds()
    current = clients.keys()
    keys = Credentials(current.access_key, current.secret_key, current.token)
    # The signer does not keep a reference to the emitter.
    events = HierarchicalEmitter()
    signer = RequestSigner(ServiceId("STS"), clients.region, "sts", "v4", keys, events)
    query = urlencode({"Action": "GetCallerIdentity", "Version": "2011-06-15"})
    request = {
        "method": "GET",
        # The API server accepts only the STS host of its own region.
        "url": f"https://sts.{clients.region}.{dns_suffix_of(clients.region)}/?{query}",
        "body": {},
        "headers": {_CLUSTER_HEADER: cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(
        request, region_name=clients.region, expires_in=_URL_SECONDS, operation_name=""
    )
    text = base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode()
    return BearerToken(TOKEN_PREFIX + text, signed + TOKEN_SECONDS)
