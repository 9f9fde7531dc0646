"""The environment variables that are settings, such as `MODELPLANE_LOG__LEVEL`.

Every other variable with this prefix is rejected, because its author probably meant a
setting and it would have no effect. The exceptions are the few variables in `OTHERS`,
which have another purpose. Variables with another prefix are never read: `KUBECONFIG`
does not set `kubeconfig`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from api_types.hints import nearest

PREFIX = "MODELPLANE_"
DELIMITER = "__"
_CAPITAL = re.compile(r"([A-Z])")

# The variables of this project that are not settings.
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
HOME_VARIABLE = f"{PREFIX}HOME"
SERVER_VARIABLE = f"{PREFIX}SERVER"
TOKEN_VARIABLE = f"{PREFIX}TOKEN"
TOKEN_FILE_VARIABLE = f"{PREFIX}TOKEN_FILE"
CA_FILE_VARIABLE = f"{PREFIX}CA_FILE"
CLIENT_CERT_VARIABLE = f"{PREFIX}CLIENT_CERT"
CLIENT_KEY_VARIABLE = f"{PREFIX}CLIENT_KEY"
OTHERS = {
    CONFIG_VARIABLE: "path of the settings file",
    HOME_VARIABLE: "folder of the fleet that `modelplane up` starts",
    SERVER_VARIABLE: "URL of the front, which commands use instead of Temporal",
    TOKEN_VARIABLE: "token for the front",
    TOKEN_FILE_VARIABLE: "file with the token for the front",
    CA_FILE_VARIABLE: "certificate authorities of the front, in PEM",
    CLIENT_CERT_VARIABLE: "client certificate for the front, in PEM",
    CLIENT_KEY_VARIABLE: "private key of the client certificate, in PEM",
    f"{PREFIX}PROGRAMS": "folder of the testbed's programs",
    f"{PREFIX}TESTBED_HOME": "folder of a testbed that tests use and leave running",
    f"{PREFIX}TESTBED_OWNER": "id of a process whose end ends a testbed; tests set their own",
    f"{PREFIX}TEST_CASES": "multiplier of the number of random test cases",
    f"{PREFIX}TEST_SEED": "seed of every random draw in tests",
}


class EnvironmentSource(EnvSettingsSource):
    """A settings source that reads environment variables.

    Values have the form of the settings file, so that a variable replaces the same
    setting of the file. Invalid input is passed on, so that the model rejects it
    together with all other problems: each unknown variable under its own name, and each
    value that should be JSON and is not.
    """

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        # A lower-case variable is probably meant as a setting too.
        ours = {
            name: value
            for name, value in os.environ.items()
            if name.upper().startswith(PREFIX) and name not in OTHERS
        }
        self._unknown = sorted(
            name for name in ours if not is_setting(settings_cls, name)
        )
        # The base class puts no prefix before an alias and ignores case, so it may see
        # only variables that are settings.
        self.env_vars = {
            _looked_for(settings_cls, name): value
            for name, value in ours.items()
            if name not in self._unknown
        }

    def decode_complex_value(
        self, field_name: str, field: FieldInfo, value: Any
    ) -> Any:
        """See the base class."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value

    def __call__(self) -> dict[str, Any]:
        """See the base class."""
        # Omit the values of unknown variables, which may be secret.
        return {
            **_with_aliases(self.settings_cls, super().__call__()),
            **dict.fromkeys(self._unknown, ""),
        }


def _looked_for(settings: type[BaseModel], variable: str) -> str:
    """Return the name that the base class looks up.

    It is in lower case, except for the name of a mapping entry, which users choose.
    """
    for name, mapping in setting_variables(settings):
        start = f"{name}{DELIMITER}"
        if mapping and variable.startswith(start):
            entry = variable.removeprefix(start)
            # An entry in capitals, as is usual for variables, means lower case:
            # `…__CPU`.
            return start.lower() + (entry.lower() if entry == entry.upper() else entry)
    return variable.lower()


def _with_aliases(model: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    written = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        group = _group(field) if field and isinstance(value, dict) else None
        written[(field and field.alias) or name] = (
            _with_aliases(group, value) if group else value
        )
    return written


def _group(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a group of settings, or None for a single setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def is_setting(settings: type[BaseModel], variable: str) -> bool:
    """Return whether a variable is a setting.

    A variable sets a group of settings as JSON, one setting, or one entry of a mapping.
    """
    return any(
        variable == name or (mapping and variable.startswith(f"{name}{DELIMITER}"))
        for name, mapping in setting_variables(settings)
    )


def setting_variables(settings: type[BaseModel]) -> Iterator[tuple[str, bool]]:
    """Yield the variable of each group and setting.

    The flag is true for a mapping, whose entries have their own variables.
    """
    for name, field in settings.model_fields.items():
        variable = f"{PREFIX}{name.upper()}"
        yield variable, False
        group = _group(field)
        for inner, setting in group.model_fields.items() if group else ():
            yield (
                f"{variable}{DELIMITER}{inner.upper()}",
                get_origin(setting.annotation) is dict,
            )


def unknown_variable(
    settings: type[BaseModel], variable: str, no_settings: Mapping[str, str]
) -> str:
    """Return the message that a variable does not exist, with the nearest name.

    `no_settings` maps the dotted keys of common mistakes to an alternative.
    """
    instead = {variable_of(key): text for key, text in no_settings.items()}
    if variable in instead:
        return f"{variable}: there is no such setting: {instead[variable]}"
    known = [
        name.removeprefix(PREFIX)
        for name in (*(name for name, _ in setting_variables(settings)), *OTHERS)
    ]
    meant = nearest(variable.upper().removeprefix(PREFIX), known)
    return f"{variable}: there is no such setting" + (
        f"; did you mean {PREFIX}{meant}?" if meant else ""
    )


def variable_of(key: str) -> str:
    """Return the variable of a setting by its dotted key."""
    return PREFIX + DELIMITER.join(
        _CAPITAL.sub(r"_\1", part).upper() for part in key.split(".")
    )
