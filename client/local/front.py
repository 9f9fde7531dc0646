"""The front of the fleet on this machine: its process, its address, its kubeconfig.

It listens on a loopback address and authenticates nobody, like the Temporal server of
this fleet. It is meant for evaluation only, which `modelplane up` prints. Another
front, with users and rights, may run at the same time.
"""

import sys
from pathlib import Path

from api_types.environment import CONFIG_VARIABLE, DELIMITER, PREFIX
from api_types.sections.front import FrontSettings
from api_types.settings import Settings
from testbed.documents import read_json, write_json
from testbed.testbed import Testbed

FRONT = "front"
_HOST = "127.0.0.1"
_VARIABLE = f"{PREFIX}FRONT"
_NAME = "modelplane"


def front_kubeconfig(home: Path) -> Path:
    """Return the kubeconfig of the front that `modelplane up` starts in `home`."""
    return home / "front.kubeconfig"


def front_port(home: Path) -> int:
    """Return the port of that front, running or not; 0 before its first start."""
    known = read_json(_port_file(home))
    return int(known["port"]) if known else 0


def front_url(port: int) -> str:
    return f"http://{_HOST}:{port}"


def keep_port(home: Path, port: int) -> None:
    """Store the port for the next start, and write a kubeconfig if necessary.

    A kubeconfig for the same port is kept, because users and kubectl may have changed
    it. Nothing is read from it.
    """
    if port == front_port(home) and front_kubeconfig(home).exists():
        return
    # JSON is YAML too.
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": front_url(port)}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [
            {
                "name": _NAME,
                "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"},
            }
        ],
        "current-context": _NAME,
    }
    write_json(front_kubeconfig(home), kubeconfig)
    write_json(_port_file(home), {"port": port})


def start_front(
    testbed: Testbed, settings: Settings, home: Path, config: Path, port: int
) -> None:
    """Store the port, and start the front under the testbed's supervisor.

    `config` is the settings file of the fleet. Environment variables of a front are
    removed, because they are meant for a front that the user starts. With an access
    file, for example, this front would require tokens that its kubeconfig does not
    have. Raise `StartFailed`.
    """
    keep_port(home, port)
    unset = [
        _VARIABLE,
        *(
            f"{_VARIABLE}{DELIMITER}{name.upper()}"
            for name in FrontSettings.model_fields
        ),
    ]
    own = {
        "LISTEN": f"{_HOST}:{port}",
        "AUDIT_FILE": str(home / "logs" / "front-audit.log"),
    }
    command = ["env", *(word for variable in unset for word in ("-u", variable))]
    command += [f"{_VARIABLE}{DELIMITER}{name}={value}" for name, value in own.items()]
    environment = {
        CONFIG_VARIABLE: str(config),
        "MODELPLANE_TEMPORAL__ADDRESS": settings.temporal.address,
    }
    testbed.start_process(
        FRONT, [*command, sys.executable, "-m", "front.main"], environment
    )


def _port_file(home: Path) -> Path:
    return home / "front.json"
