"""References to secrets in the file of servers: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${keyring:SERVICE/USER}`.

In: texts of the file.
Out: the texts with what they refer to, and afterwards texts without those secrets.
Never: a secret in an error, a log or a `repr`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.errors import ConfigurationError, MissingExtraError

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.ASCII | re.DOTALL)
_BROKEN: Final = re.compile(r"[\x00\r\n]")


class References:
    """Resolves references, and hides what they stood for in later texts.

    Args:
        environment: the variables; those of the process by default.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._secrets = KnownSecrets()

    def resolve(self, text: str) -> str:
        """Return a text with the value of each reference in its place.

        Raises:
            ConfigurationError: a variable is not set, a keyring has no such entry, or a reference cannot be read.
            MissingExtraError: the text refers to a keyring, and `keyring` is not installed.
        """
        return _REFERENCE.sub(self._look_up, text)

    def resolve_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return a mapping with each value resolved, see `resolve`."""
        return {key: self.resolve(value) for key, value in texts.items()}

    def add_secret(self, value: str) -> None:
        """Hide a value from now on that was not found through a reference, such as a token."""
        self._secrets.add(value)

    def hide(self, text: str) -> str:
        """Return a text without any secret that was resolved, in whatever form a URL or JSON writes it."""
        return self._secrets.hide_values(text)

    def _look_up(self, found: re.Match[str]) -> str:
        inner = found[1]
        kind, _, rest = inner.partition(":")
        if kind == "keyring":
            value = _read_keyring(rest)
        elif (variable := _VARIABLE.fullmatch(inner)) is None:
            raise ConfigurationError(
                f"the reference {found[0]!r} cannot be read: write ${{VAR}}, ${{VAR:-default}} or "
                "${keyring:SERVICE/USER}"
            )
        else:
            value = self._environment.get(variable[1]) or variable[2]
            if value is None:
                raise ConfigurationError(
                    f"the environment variable {variable[1]} is not set: set it, or remove {found[0]}"
                )
        if _BROKEN.search(value):
            raise ConfigurationError(f"the value of {found[0]} holds a line break or a zero byte: store it without one")
        self._secrets.add(value)
        return value


def _read_keyring(place: str) -> str:
    service, slash, user = place.rpartition("/")
    if not slash or not service or not user:
        raise ConfigurationError(f"the reference ${{keyring:{place}}} cannot be read: write ${{keyring:SERVICE/USER}}")
    try:
        import keyring  # noqa: PLC0415 - optional, and slow to import
        from keyring.errors import KeyringError  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtraError("keyring", "gateway") from None
    try:
        value: str | None = keyring.get_password(service, user)
    except KeyringError as error:
        raise ConfigurationError(f"the keyring cannot be read for {place}: {type(error).__name__}") from None
    if value is None:
        raise ConfigurationError(f"the keyring has no entry {place}: run `keyring set {service} {user}`")
    return value
