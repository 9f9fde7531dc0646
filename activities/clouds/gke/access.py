"""How the API server of a GKE cluster is reached that was not created here: all addresses that Google gives it."""

import base64
import binascii
import re

from activities.clouds.gke.api import GoogleApi
from activities.clouds.provider import Endpoint
from api_types.errors import CredentialsInvalid, ServerError

_NAME = re.compile(r"gke_([a-z0-9.:-]{1,100})_([a-z0-9-]{1,40})_([a-z0-9-]{1,40})")


def cluster_path(name: str) -> str:
    """Give the path of a cluster by what `gcloud` calls it in a kubeconfig. Raises CredentialsInvalid for another name."""
    called = _NAME.fullmatch(name)
    if called is None:
        raise CredentialsInvalid(
            "tokens are sent to GKE clusters only, and the name in clusters of the kubeconfig says which one: call it "
            "gke_PROJECT_LOCATION_CLUSTER, as `gcloud container clusters get-credentials` does"
        )
    return f"projects/{called[1]}/locations/{called[2]}/clusters/{called[3]}"


def endpoints_of(api: GoogleApi, path: str) -> list[Endpoint]:
    """Ask Google for the addresses of a cluster: public, private, and by name, which has a public certificate and so no authority.

    Raises CredentialsInvalid for a cluster that is not there.
    """
    found = api.find("container", "get_cluster", {"name": path})
    if found is None:
        raise CredentialsInvalid(f"there is no cluster {path}")
    try:
        authority = base64.b64decode(found.master_auth.cluster_ca_certificate, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise ServerError(f"the certificate authority of cluster {path} cannot be read") from None
    addresses, of_name = found.control_plane_endpoints_config.ip_endpoints_config, found.control_plane_endpoints_config.dns_endpoint_config
    private = found.private_cluster_config
    hosts = (found.endpoint, addresses.public_endpoint, addresses.private_endpoint, private.public_endpoint, private.private_endpoint)
    # Without an authority any server with a public certificate would do, so an address never goes without one.
    given = [Endpoint(f"https://{host}", authority) for host in dict.fromkeys(hosts) if host and authority]
    return [*given, *([Endpoint(f"https://{of_name.endpoint}", "")] if of_name.endpoint else [])]
