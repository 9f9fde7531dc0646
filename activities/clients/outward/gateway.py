"""Ask the gateway of a cluster for an answer, to see whether requests still reach it."""

import asyncio

import aiohttp

from activities.clients.outward.addresses import api_server_rules
from activities.clients.outward.connections import connector, proxy_for

_SECONDS = 5.0
_SERVER_ERRORS = 500


async def gateway_answers(url: str) -> bool:
    """Return whether the gateway at a URL answers a GET request with a status below 500.

    A load balancer without a gateway behind it answers with 502 or 503. The request has
    no credential and its answer is not read, so any certificate is accepted. The
    cluster names the address: loopback, link-local and metadata addresses get no
    request.
    """
    proxy = proxy_for(url)
    rules = api_server_rules(allow_loopback=False)
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(
                connector=connector(rules, proxy, ssl=False, limit=1),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            session.get(url, proxy=proxy or None, allow_redirects=False) as answer,
        ):
            return answer.status < _SERVER_ERRORS
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return False
