"""The program `modelplane-front`: serves the Kubernetes API of this control plane until a signal stops it."""

import asyncio
import ipaddress
import signal
import socket
import ssl
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import structlog
from aiohttp import web
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from activities.log import configure_logging
from api_types.sections.front import FrontSettings
from api_types.settings import Settings
from client.configuration import load_settings
from client.errors import CommandFailed, ExitCode, Refused
from client.temporal.connection import connect
from client.temporal.control_plane import ControlPlane
from client.temporal.shutdown import exit_process
from front.access.access import Access
from front.access.access_file import AccessRules
from front.access.files import BadAccessFile, WatchedFile
from front.access.id_tokens import Claims, IdTokens
from front.access.issuer import Issuer, is_issuer
from front.access.limits import Allowance, Limits
from front.access.request_header import Proxies
from front.access.reviews import BadKubeconfig, Reviews, reviews_by
from front.access.signing import Callers
from front.audit.log import AuditLog, Unwritable
from front.commands.routes import Commands
from front.scaling.external_scaler import server_of
from front.scaling.numbers import Told
from front.scaling.routes import Scaling
from front.scaling.scraping import ScrapeFile, Scraper
from front.serving.app import RUNNER_OPTIONS, Front
from front.serving.lobby import Lobby, LobbyListener
from front.store.feed import Feed
from front.store.projection import Projection

# It is often started together with Temporal.
CONNECT_SECONDS = 30.0
# How long a write waits for the object that it changes. A query that is not answered in a third of it is sent again, which is no help to a
# worker that is behind.
_READ_WAIT = timedelta(seconds=15)
_SHUTDOWN_SECONDS = 5.0
_KEEPALIVE_SECONDS = 75.0

log = structlog.get_logger("modelplane.front")


def main() -> None:
    """Start the front. Exit codes: 0 stopped, 2 bad settings, 6 Temporal does not answer."""
    try:
        settings = load_settings()
        configure_logging(settings.log)
        asyncio.run(_run(settings))
    except CommandFailed as error:
        sys.stderr.write("\n".join(filter(None, (error.message, *error.details, error.next_step))) + "\n")
        exit_process(error.code)
    exit_process(ExitCode.DONE)


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await serve(settings, stop)


async def serve(settings: Settings, stop: asyncio.Event, listener: socket.socket | None = None) -> None:
    """Serve until `stop` is set, on a socket that is open already or the address of the settings.

    Raises `Refused` for settings that do not go together, `Unreachable`.
    """
    host, port = _address(settings.front)
    access, tls = access_of(settings.front, host), _tls(settings.front)
    callers, credentials = webhook_callers(settings.front), scaler_credentials(settings.front)
    told, projection = Told(timedelta(seconds=settings.front.metrics_max_age)), Projection()
    scraper = scraper_of(settings.front, told, projection)
    audit_log = _audit_log(settings.front)
    listener = listener or _listener(settings.front, host, port)
    client = await connect(settings, within_seconds=CONNECT_SECONDS)
    # Each has its own limit of queries at once: objects that do not answer the one do not hold up the other.
    plane, feed = ControlPlane(client, settings, _READ_WAIT), Feed(ControlPlane(client, settings), projection)
    tasks = [asyncio.create_task(feed.run()), *([asyncio.create_task(scraper.run())] if scraper else [])]
    links = {"temporalUi": settings.temporal.ui, "temporalNamespace": settings.temporal.namespace}
    allowance = _allowance(settings.front)
    lobby = Lobby()
    tasks.append(asyncio.create_task(lobby.sweep()))
    limits = Limits(allowance)
    front = Front(plane, projection, access, links, limits=limits, audit_log=audit_log, lobby=lobby)
    app = front.app([*Scaling(front, told, callers).routes(), *Commands(front).routes()])
    options = {**RUNNER_OPTIONS, "shutdown_timeout": _SHUTDOWN_SECONDS, "keepalive_timeout": _KEEPALIVE_SECONDS}
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    scaler: Any = None
    try:
        if settings.front.scaler_listen:
            scaler = _listening(settings.front, server_of(front, told, allowance), credentials)
            await scaler.start()
        await web.SockSite(runner, LobbyListener(listener, lobby), ssl_context=tls).start()
        log.info("serving", listen=settings.front.listen, temporal=settings.temporal.address, tls=tls is not None)
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if scaler:
            await scaler.stop(_SHUTDOWN_SECONDS)
        await runner.cleanup()
        access.close()


def access_of(front: FrontSettings, host: str) -> Access:
    """Read who may come in; it is open where no setting says who. Raises `Refused`."""
    proxies, reviews = _proxies(front), _reviews(front)
    rules = access_rules(front, host) if front.access_file or not (proxies or reviews) else None
    authorities = _authorities("front.clientCa", front.client_ca) if front.client_ca else ()
    if proxies and any(each.public_key() == other.public_key() for each in authorities for other in proxies.authorities):
        raise Refused(
            "front.clientCa and front.requestHeaderCa have an authority in common: a user whom it gives the name of an API server would be "
            "trusted whatever they say they are",
            next_step="have users and API servers sign by different authorities",
        )
    return Access(rules, proxies=proxies, reviews=reviews, authorities=authorities, id_tokens=_id_tokens(front))


def access_rules(front: FrontSettings, host: str) -> AccessRules | None:
    """Read the access file; None where everybody may do everything. Raises `Refused`."""
    if front.access_file is not None:
        try:
            return AccessRules(front.access_file)
        except BadAccessFile as error:
            raise Refused(f"front.accessFile: {error}", next_step="docs/front.md shows one") from error
    if not _is_loopback(host):
        raise Refused(
            f"front.listen is {front.listen}, where others can reach it, and without front.accessFile everybody may do everything",
            next_step="set front.accessFile, or listen on 127.0.0.1",
        )
    log.warning("there is no access file: whoever reaches this address may do everything", listen=front.listen)
    return None


def _proxies(front: FrontSettings) -> Proxies | None:
    if front.request_header_ca is None:
        return None
    if front.tls_cert is None or (front.access_file is None and not front.review_kubeconfig):
        raise Refused(
            "front.requestHeaderCa: API servers are known by a certificate, which needs TLS, and their users need rules",
            next_step="set front.tlsCert and front.tlsKey, and front.reviewKubeconfig or front.accessFile",
        )
    return Proxies(_authorities("front.requestHeaderCa", front.request_header_ca), frozenset(front.request_header_names))


def _authorities(setting: str, file: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(file.expanduser().read_bytes())
        for each in found:
            each.public_key()
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise Refused(f"{setting}: {error}", next_step="name a file with the certificates of authorities, in PEM") from error
    return found


def _id_tokens(front: FrontSettings) -> IdTokens | None:
    if not front.oidc_issuer_url:
        return None
    if not is_issuer(front.oidc_issuer_url):
        raise Refused(
            "front.oidcIssuerUrl: whoever is on the way to it could say whose tokens are good",
            next_step="name an address that begins with https://; http:// is for a loopback address alone",
        )
    if not front.oidc_client_id or front.access_file is None:
        raise Refused(
            "front.oidcIssuerUrl: tokens need an audience, and rules of what their bearers may do: front.reviewKubeconfig is not for them",
            next_step="set front.oidcClientId and front.accessFile",
        )
    try:
        tls = ssl.create_default_context(cafile=str(front.oidc_ca_file.expanduser())) if front.oidc_ca_file else None
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"front.oidcCaFile: {error}", next_step="name a file with the certificates of authorities, in PEM") from error
    claims = Claims(
        front.oidc_username_claim,
        front.oidc_username_prefix,
        front.oidc_groups_claim,
        front.oidc_groups_prefix,
        tuple(front.oidc_required_claims.items()),
    )
    return IdTokens(Issuer(front.oidc_issuer_url, tls), front.oidc_client_id, claims, front.oidc_signing_algs)


def _reviews(front: FrontSettings) -> Reviews | None:
    if not front.review_kubeconfig:
        return None
    try:
        return reviews_by(front.review_kubeconfig)
    except BadKubeconfig as error:
        raise Refused(f"front.reviewKubeconfig: {error}", next_step="name a kubeconfig, or `in-cluster`") from error


def webhook_callers(front: FrontSettings) -> Callers | None:
    """Read the file of those who sign; None where no request is signed. Raises `Refused`."""
    if front.webhook_keys is None:
        return None
    if not front.webhook_audience:
        raise Refused(
            "front.webhookKeys without front.webhookAudience: a request that is signed for another control plane would be taken here",
            next_step="set front.webhookAudience to the name of this control plane; docs/scaling.md shows how callers sign it",
        )
    try:
        return Callers(front.webhook_keys, front.webhook_audience)
    except BadAccessFile as error:
        raise Refused(f"front.webhookKeys: {error}", next_step="docs/scaling.md shows one") from error


def scraper_of(front: FrontSettings, told: Told, projection: Projection) -> Scraper | None:
    """Read the file of what is scraped; None where nothing is. Raises `Refused`."""
    if front.scrape_file is None:
        return None
    if front.scrape_interval >= front.metrics_max_age:
        raise Refused(
            f"front.scrapeInterval is {front.scrape_interval}, and numbers are old after front.metricsMaxAge, {front.metrics_max_age}",
            next_step="set front.scrapeInterval to less than half of front.metricsMaxAge",
        )
    try:
        tls = ssl.create_default_context(cafile=str(front.scrape_ca_file.expanduser())) if front.scrape_ca_file else None
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"front.scrapeCaFile: {error}", next_step="name a file with the certificates of authorities, in PEM") from error
    try:
        return Scraper(WatchedFile(front.scrape_file, ScrapeFile), told, projection, front.scrape_interval, tls)
    except BadAccessFile as error:
        raise Refused(f"front.scrapeFile: {error}", next_step="docs/scaling.md shows one") from error


def scaler_credentials(front: FrontSettings) -> Any:
    """Give the certificates of the external scaler; None without TLS, or without a scaler. Raises `Refused`."""
    if not front.scaler_listen:
        return None
    if front.access_file is None and (front.review_kubeconfig or front.request_header_ca):
        raise Refused(
            "front.scalerListen needs front.accessFile and front.scalerClientCa where users have rights: KEDA is known by its certificate, "
            "and front.reviewKubeconfig is not for whom certificates name",
            next_step="set both, or leave front.scalerListen empty",
        )
    if front.access_file is None:
        if not _is_loopback(front.scaler_listen.rpartition(":")[0].strip("[]")):
            raise Refused(
                f"front.scalerListen is {front.scaler_listen}, where others can reach it, and there is no front.accessFile",
                next_step="set front.accessFile and front.scalerClientCa, or listen on 127.0.0.1",
            )
    elif front.scaler_client_ca is None or front.tls_cert is None:
        raise Refused(
            "front.scalerListen with an access file needs front.scalerClientCa and front.tlsCert: KEDA is known by its certificate",
            next_step="set both, or leave front.scalerListen empty",
        )
    if front.tls_cert is None or front.tls_key is None:
        return None
    try:
        pair = (front.tls_key.expanduser().read_bytes(), front.tls_cert.expanduser().read_bytes())
        authorities = front.scaler_client_ca.expanduser().read_bytes() if front.scaler_client_ca else None
        if authorities is not None:
            x509.load_pem_x509_certificates(authorities)
    except (OSError, ValueError) as error:
        raise Refused(f"front.scalerClientCa, front.tlsCert, front.tlsKey: {error}", next_step="name files in PEM") from error
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)


def _listening(front: FrontSettings, server: Any, credentials: Any) -> Any:
    """Have the external scaler listen; gives it. Raises `Refused`."""
    try:
        if credentials is None:
            server.add_insecure_port(front.scaler_listen)
        else:
            server.add_secure_port(front.scaler_listen, credentials)
    except RuntimeError as error:
        raise Refused(f"cannot listen on {front.scaler_listen}", next_step="set front.scalerListen to a free address") from error
    return server


def _allowance(front: FrontSettings) -> Allowance:
    return Allowance(front.requests_per_second, front.burst, front.max_concurrent_requests, front.max_watches)


def _audit_log(front: FrontSettings) -> AuditLog:
    try:
        return AuditLog(front.audit_file)
    except Unwritable as problem:
        raise Refused(f"front.auditFile: {problem}", next_step="name a file that can be written, or `-` for standard output") from problem


def _address(front: FrontSettings) -> tuple[str, int]:
    host, _, port = front.listen.rpartition(":")
    return host.strip("[]"), int(port)


def _listener(front: FrontSettings, host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise Refused(f"cannot listen on {front.listen}: {error.strerror}", next_step="set front.listen to a free address") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(front: FrontSettings) -> ssl.SSLContext | None:
    if (front.tls_cert is None) is not (front.tls_key is None):
        raise Refused("a certificate needs its key, and a key its certificate", next_step="set both front.tlsCert and front.tlsKey")
    if front.client_ca is not None and (front.tls_cert is None or front.access_file is None):
        raise Refused(
            "front.clientCa: certificates of clients need TLS, and rules of what their users may do: "
            "front.reviewKubeconfig is not for whom certificates name",
            next_step="set front.tlsCert and front.tlsKey, and front.accessFile",
        )
    if front.tls_cert is None or front.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(front.tls_cert.expanduser(), front.tls_key.expanduser())
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"front.tlsCert, front.tlsKey: {error}", next_step="name a certificate and its key, both in PEM") from error
    for setting, file in (("front.clientCa", front.client_ca), ("front.requestHeaderCa", front.request_header_ca)):
        if file is None:
            continue
        try:
            context.load_verify_locations(file.expanduser())
        except (OSError, ssl.SSLError) as error:
            raise Refused(f"{setting}: {error}", next_step="name a file with the certificates of authorities, in PEM") from error
        # Whoever has none may have a token.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


if __name__ == "__main__":
    main()
