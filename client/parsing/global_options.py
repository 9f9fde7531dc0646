"""The options before a command, which stand for environment variables."""

import os
from collections.abc import Mapping

_OF_FRONT = ("server", "token_file", "ca_file", "client_cert", "client_key")


def use_global_options(given: Mapping[str, object]) -> bool:
    """Set the variables of the given options.

    Return whether an option applies to a front.
    """
    named = {key: given.get(key) for key in ("config", *_OF_FRONT)}
    if all(value is None for value in named.values()):
        return False
    from api_types import environment  # noqa: PLC0415 - pydantic is slow to import

    variables = {
        "config": environment.CONFIG_VARIABLE,
        "server": environment.SERVER_VARIABLE,
        "token_file": environment.TOKEN_FILE_VARIABLE,
        "ca_file": environment.CA_FILE_VARIABLE,
        "client_cert": environment.CLIENT_CERT_VARIABLE,
        "client_key": environment.CLIENT_KEY_VARIABLE,
    }
    for key, value in named.items():
        if value is not None:
            os.environ[variables[key]] = str(value)
    return any(named[key] is not None for key in _OF_FRONT)
