"""The users of the front and their rights, from the settings."""

import structlog
from cryptography import x509

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.files import BadAccessFile
from front.access.id_tokens import Claims, IdTokens
from front.access.issuer import Issuer, is_issuer
from front.access.request_header import Proxies
from front.access.reviews import BadKubeconfig, Reviews, reviews_by
from front.access.signing import Callers
from front.configuration.authorities import client_tls, read_authorities
from front.configuration.listening import is_loopback

log = structlog.get_logger("modelplane.front")


def access_of(front: FrontSettings, host: str) -> AccessControl:
    """Build the access rules from the settings.

    Everybody may do everything if the settings configure neither users nor API servers.
    Raises `Refused`.
    """
    proxies = _proxies(front)
    reviews = _reviews(front)
    rules = None
    if front.access_file or not (proxies or reviews):
        rules = access_rules(front, host)
    authorities: list[x509.Certificate] = []
    if front.client_ca:
        authorities = read_authorities("front.clientCa", front.client_ca)
    proxy_keys = [each.public_key() for each in proxies.authorities] if proxies else []
    if any(each.public_key() in proxy_keys for each in authorities):
        raise Refused(
            "front.clientCa and front.requestHeaderCa have an authority in common: "
            "a user with a certificate for the name of an API server could "
            "impersonate every user",
            next_step="sign certificates of users and of API servers with "
            "different authorities",
        )
    return AccessControl(
        rules,
        proxies=proxies,
        reviews=reviews,
        authorities=authorities,
        id_tokens=_id_tokens(front),
    )


def access_rules(front: FrontSettings, host: str) -> AccessRules | None:
    """Read the access file; return None if everybody may do everything.

    Raises `Refused`.
    """
    if front.access_file is not None:
        try:
            return AccessRules(front.access_file)
        except BadAccessFile as error:
            raise Refused(
                f"front.accessFile: {error}",
                next_step="see the example in docs/how-to/front.md",
            ) from error
    if not is_loopback(host):
        raise Refused(
            f"front.listen is {front.listen}, which other machines can reach, and "
            "without front.accessFile everybody may do everything",
            next_step="set front.accessFile, or listen on 127.0.0.1",
        )
    log.warning(
        "no access file is set: everybody who reaches this address may do everything",
        listen=front.listen,
    )
    return None


def _proxies(front: FrontSettings) -> Proxies | None:
    if front.request_header_ca is None:
        return None
    if front.tls_cert is None or (
        front.access_file is None and not front.review_kubeconfig
    ):
        raise Refused(
            "front.requestHeaderCa needs TLS, because API servers authenticate with "
            "certificates, and a source of rights for their users",
            next_step="set front.tlsCert and front.tlsKey, and "
            "front.reviewKubeconfig or front.accessFile",
        )
    return Proxies(
        read_authorities("front.requestHeaderCa", front.request_header_ca),
        frozenset(front.request_header_names),
    )


def _id_tokens(front: FrontSettings) -> IdTokens | None:
    if not front.oidc_issuer_url:
        return None
    if not is_issuer(front.oidc_issuer_url):
        raise Refused(
            "front.oidcIssuerUrl is not a safe address: somebody on the network path "
            "could replace the issuer's keys",
            next_step="use an https:// address without user, password, query and "
            "fragment; http:// is allowed for loopback addresses only",
        )
    if not front.oidc_client_id or front.access_file is None:
        raise Refused(
            "front.oidcIssuerUrl needs an audience and an access file; "
            "front.reviewKubeconfig does not apply to bearers of ID tokens",
            next_step="set front.oidcClientId and front.accessFile",
        )
    tls = client_tls("front.oidcCaFile", front.oidc_ca_file)
    claims = Claims(
        front.oidc_username_claim,
        front.oidc_username_prefix,
        front.oidc_groups_claim,
        front.oidc_groups_prefix,
        tuple(front.oidc_required_claims.items()),
    )
    return IdTokens(
        Issuer(front.oidc_issuer_url, tls),
        front.oidc_client_id,
        claims,
        front.oidc_signing_algs,
    )


def _reviews(front: FrontSettings) -> Reviews | None:
    if not front.review_kubeconfig:
        return None
    try:
        return reviews_by(front.review_kubeconfig)
    except BadKubeconfig as error:
        raise Refused(
            f"front.reviewKubeconfig: {error}",
            next_step="set it to a kubeconfig file or to `in-cluster`",
        ) from error


def webhook_callers(front: FrontSettings) -> Callers | None:
    """Read the file of callers that sign requests.

    Returns None if the settings name no file. Raises `Refused`.
    """
    if front.webhook_keys is None:
        return None
    if not front.webhook_audience:
        raise Refused(
            "front.webhookKeys needs front.webhookAudience: without an audience, "
            "requests signed for another control plane would be accepted",
            next_step="set front.webhookAudience to the name of this control plane; "
            "docs/how-to/autoscaling.md shows how callers sign it",
        )
    try:
        return Callers(front.webhook_keys, front.webhook_audience)
    except BadAccessFile as error:
        raise Refused(
            f"front.webhookKeys: {error}",
            next_step="see the example in docs/how-to/autoscaling.md",
        ) from error
