"""Which variables of the environment are settings: those that begin with `MODELPLANE_` and name one.

Every other name that begins so is refused: it was meant as a setting and would have no effect. Only the few that are for something else
may be there. Names that begin otherwise are not read, whatever they look like: `KUBECONFIG` does not set `kubeconfig`.
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

# The variables of this project that are no settings.
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
HOME_VARIABLE = f"{PREFIX}HOME"
SERVER_VARIABLE = f"{PREFIX}SERVER"
TOKEN_VARIABLE = f"{PREFIX}TOKEN"
TOKEN_FILE_VARIABLE = f"{PREFIX}TOKEN_FILE"
CA_FILE_VARIABLE = f"{PREFIX}CA_FILE"
CLIENT_CERT_VARIABLE = f"{PREFIX}CLIENT_CERT"
CLIENT_KEY_VARIABLE = f"{PREFIX}CLIENT_KEY"
OTHERS = {
    CONFIG_VARIABLE: "names the file with the settings",
    HOME_VARIABLE: "folder of the fleet that `modelplane up` starts",
    SERVER_VARIABLE: "address of the front that commands go through instead of Temporal",
    TOKEN_VARIABLE: "token for the front",
    TOKEN_FILE_VARIABLE: "file with the token for the front",
    CA_FILE_VARIABLE: "authorities that the certificate of the front is checked with, in PEM",
    CLIENT_CERT_VARIABLE: "certificate of the user for the front, in PEM",
    CLIENT_KEY_VARIABLE: "key of that certificate, in PEM",
    f"{PREFIX}PROGRAMS": "folder of the testbed's programs",
    f"{PREFIX}TESTBED_HOME": "folder of a testbed that tests use and leave running",
    f"{PREFIX}TEST_CASES": "multiplies the counts of random test cases",
    f"{PREFIX}TEST_SEED": "start of every random draw of tests",
}


class EnvironmentSource(EnvSettingsSource):
    """The variables that are settings, as the settings file would write them, so that one replaces the same setting of the file.

    What is wrong is passed on, so that the model refuses it with every other problem: each unknown variable under its own name, and a value
    that should be JSON and is not.
    """

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        # One in small letters was meant too.
        ours = {name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX) and name not in OTHERS}
        self._unknown = sorted(name for name in ours if not is_setting(settings_cls, name))
        # The base class puts no prefix before an alias and ignores case, so nothing but what counts may be among what it reads.
        self.env_vars = {_looked_for(settings_cls, name): value for name, value in ours.items() if name not in self._unknown}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """See the base class."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value

    def __call__(self) -> dict[str, Any]:
        """See the base class."""
        # Without the values of the unknown ones, which may be secret.
        return {**_with_aliases(self.settings_cls, super().__call__()), **dict.fromkeys(self._unknown, "")}


def _looked_for(settings: type[BaseModel], variable: str) -> str:
    """Give the name that the base class looks for: in small letters, apart from the name of an entry, which users choose."""
    for name, mapping in setting_variables(settings):
        start = f"{name}{DELIMITER}"
        if mapping and variable.startswith(start):
            entry = variable.removeprefix(start)
            # All in capitals, as variables are, it stands for small letters: `…__CPU`.
            return start.lower() + (entry.lower() if entry == entry.upper() else entry)
    return variable.lower()


def _with_aliases(model: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    written = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        group = _group(field) if field and isinstance(value, dict) else None
        written[(field and field.alias) or name] = _with_aliases(group, value) if group else value
    return written


def _group(field: FieldInfo) -> type[BaseModel] | None:
    """Give the model of a group of settings; None for a single one."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def is_setting(settings: type[BaseModel], variable: str) -> bool:
    """Whether a variable sets a group of settings as JSON, one setting, or one entry of a setting that is a mapping."""
    return any(variable == name or (mapping and variable.startswith(f"{name}{DELIMITER}")) for name, mapping in setting_variables(settings))


def setting_variables(settings: type[BaseModel]) -> Iterator[tuple[str, bool]]:
    """Give the variable of each group and of each setting, and whether it is a mapping whose entries have variables of their own."""
    for name, field in settings.model_fields.items():
        variable = f"{PREFIX}{name.upper()}"
        yield variable, False
        group = _group(field)
        for inner, setting in group.model_fields.items() if group else ():
            yield f"{variable}{DELIMITER}{inner.upper()}", get_origin(setting.annotation) is dict


def unknown_variable(settings: type[BaseModel], variable: str, no_settings: Mapping[str, str]) -> str:
    """Say that there is no such variable, with the one that was probably meant; `no_settings` says of dotted keys what to do instead."""
    instead = {variable_of(key): text for key, text in no_settings.items()}
    if variable in instead:
        return f"{variable}: there is no such setting: {instead[variable]}"
    known = [name.removeprefix(PREFIX) for name in (*(name for name, _ in setting_variables(settings)), *OTHERS)]
    meant = nearest(variable.upper().removeprefix(PREFIX), known)
    return f"{variable}: there is no such setting" + (f"; did you mean {PREFIX}{meant}?" if meant else "")


def variable_of(key: str) -> str:
    """Give the variable of a setting by its dotted key."""
    return PREFIX + DELIMITER.join(_CAPITAL.sub(r"_\1", part).upper() for part in key.split("."))
