"""How the API server of an EKS cluster is reached: its address, and tokens that it accepts for a quarter of an hour."""

import base64
import binascii
from urllib.parse import urlencode

from botocore.credentials import Credentials
from botocore.hooks import HierarchicalEmitter
from botocore.model import ServiceId
from botocore.signers import RequestSigner

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.wanted.partitions import dns_suffix_of
from activities.clouds.provider import BearerToken, Endpoint
from api_types.errors import NotYet, ServerError

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 - every token begins so
TOKEN_SECONDS = 600.0
"""How long after it was signed a token is used; the API server accepts it for 15 minutes."""

_CLUSTER_HEADER = "x-k8s-aws-id"
_URL_SECONDS = 60


def endpoint_of(clients: AwsClients, cluster: str, arn: str = "") -> Endpoint:
    """Ask EKS for the endpoint, of the cluster with an ARN where one is given. Raises NotYet while there is none."""
    found = clients.read("eks", "describe_cluster", name=cluster).get("cluster") or {}
    if arn and found.get("arn") != arn:
        raise NotYet(f"cluster {arn} has no endpoint yet")
    server, data = str(found.get("endpoint") or ""), str(found.get("certificateAuthority", {}).get("data") or "")
    if not server or not data:
        raise NotYet(f"cluster {cluster} has no endpoint yet")
    try:
        return Endpoint(server, base64.b64decode(data, validate=True).decode("ascii"))
    except (binascii.Error, UnicodeDecodeError):
        raise ServerError(f"the certificate authority of cluster {cluster} cannot be read") from None


def token_of(clients: AwsClients, cluster: str) -> BearerToken:
    """Sign a token: the address of a question to STS, who is it, that the API server asks for us. No call is made."""
    signed = clients.seconds()
    credential = clients.credential
    keys = Credentials(credential.key, credential.secret, credential.session)
    # The signer does not keep it alive.
    events = HierarchicalEmitter()
    signer = RequestSigner(ServiceId("STS"), clients.region, "sts", "v4", keys, events)
    query = urlencode({"Action": "GetCallerIdentity", "Version": "2011-06-15"})
    request = {
        "method": "GET",
        # Of the region: the API server asks only there.
        "url": f"https://sts.{clients.region}.{dns_suffix_of(clients.region)}/?{query}",
        "body": {},
        "headers": {_CLUSTER_HEADER: cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=clients.region, expires_in=_URL_SECONDS, operation_name="")
    text = base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode()
    return BearerToken(TOKEN_PREFIX + text, signed + TOKEN_SECONDS)
