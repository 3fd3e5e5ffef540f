"""All exceptions of pokayoke, in one tree.

    PokayokeError
      ConfigurationError       a programmer's mistake, found at build time; never during a call
        ContractError          an unusable schema or contract
        PolicyError            a configuration that contradicts itself, or an unknown key
        MissingExtraError      an optional dependency is absent, too old or broken (also an ImportError)
      OutcomeError             raised only by `Outcome.unwrap()`
        CallRefused            pokayoke stopped the call before the tool ran
        ToolFailed             the tool ran and failed, or its effect is unknown
        ToolOutputInvalid      the tool's answer must not be used
      ToolError                raised by a tool's author: its text is for the model
      PathEscape               a path would leave its roots (also a ValueError)
      ArchiveRefused           an archive may not be unpacked (also a ValueError)
      UrlRefused               a URL, or what it leads to, may not be used (also a ValueError)
      StoreError               a store cannot be opened or has other content
      UsageError               the API was used in a way that cannot work

A mistake of a model or a tool is never an exception: it is a `Finding` inside a `Verdict` or an `Outcome`.
"""

from __future__ import annotations

import sys
from typing import Any, Literal


class PokayokeError(Exception):
    """The root of every exception raised by pokayoke."""


class ConfigurationError(PokayokeError):
    """A declaration cannot work; the message says what to change."""


class ContractError(ConfigurationError):
    """A contract or its schema is invalid, remote, exploding, or contradictory."""


class PolicyError(ConfigurationError):
    """A configuration value is unknown, duplicated, out of range, or contradicts another."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed, is too old, or its import fails.

    Args:
        package: the distribution that is missing.
        extra: the extra of pokayoke that installs it.
        needed: the lowest version that the extra admits, if the installed one is below it.
    """

    def __init__(self, package: str, extra: str, *, needed: str = "") -> None:
        """Build the message from the import error that is being handled, and the command that installs the extra."""
        from importlib import metadata  # noqa: PLC0415 - slow to import, and rarely needed

        try:
            problem = f"{package} {metadata.version(package)} is installed, and " + (
                f"pokayoke needs {needed} or newer" if needed else f"cannot be imported: {sys.exception()}"
            )
        except metadata.PackageNotFoundError:
            problem = f"{package!r} is not installed"
        super().__init__(f"{problem}. Run: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for the way in which pokayoke itself was installed.

    Args:
        extra: one of the extras of pokayoke.
    """
    from importlib import metadata  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    wanted, home = f"'pokayoke[{extra}]'", Path(sys.prefix)
    if (home / "uv-receipt.toml").exists():
        return f"uv tool install {wanted}"
    if (home / "pipx_metadata.json").exists():
        return f"pipx install --force {wanted}"
    if any(part.startswith(("archive-v", "environments-v")) for part in home.parts):  # uv's cache
        return f"uvx --from {wanted} pokayoke"
    try:
        installer = metadata.distribution("pokayoke").read_text("INSTALLER")
    except metadata.PackageNotFoundError:
        installer = None
    return f"uv pip install {wanted}" if (installer or "").strip() == "uv" else f"pip install {wanted}"


class UnknownAdapterError(ConfigurationError, ImportError):
    """An adapter is imported that does not exist; the text says which do, and what to do instead."""


class OutcomeError(PokayokeError):
    """Raised by `Outcome.unwrap()` when there is no usable value.

    Attributes:
        outcome: the outcome that was unwrapped.
    """

    def __init__(self, message: str, outcome: Any = None) -> None:
        """Store the message and the outcome."""
        super().__init__(message)
        self.outcome = outcome


class CallRefused(OutcomeError):  # noqa: N818 - the name says what happened, as in the glossary
    """The call was refused, or waits for a decision; the tool did not run."""


class ToolFailed(OutcomeError):  # noqa: N818 - the name says what happened, as in the glossary
    """The tool ran and failed, or it is unknown whether its effect happened."""


class ToolOutputInvalid(OutcomeError):  # noqa: N818 - the name that stands in traces
    """The tool's answer broke its contract and must not be used."""


class ToolError(PokayokeError):
    """Raise this inside a tool to say no: to tell the model why the tool cannot do it.

    Its text reaches the model. The text of any other exception never does, because it may hold secrets or injected
    instructions. One that is raised by itself says that nothing happened. One that follows another exception (its
    cause or its context, `from None` included) leaves that open, because the other one may have come too late.

    Args:
        text: why not, for the model.
        effect: `none` (nothing happened) or `unknown`, if it is not as above.

    Raises:
        UsageError: the effect is another one.
    """

    _effect: Literal["none", "unknown"] | None = None

    def __init__(self, text: object = "", *, effect: Literal["none", "unknown"] | None = None) -> None:
        """Keep the text, and what is known of the effect."""
        super().__init__(text)
        if effect not in (None, "none", "unknown"):
            raise UsageError(f"effect is 'none', 'unknown' or None, not {effect!r}")
        self._effect = effect

    @property
    def effect(self) -> Literal["none", "unknown"]:
        """What it says of the effect of its tool."""
        if self._effect is not None:
            return self._effect
        return "none" if self.__cause__ is None and self.__context__ is None else "unknown"


class PathEscape(PokayokeError, ValueError):  # noqa: N818 - the name says what happened
    """A path is malformed or would leave the roots it is confined to.

    Attributes:
        finding: the `Finding` with the broken rule and what to send instead.
    """

    def __init__(self, message: str, finding: Any = None) -> None:
        """Store the message and the finding."""
        super().__init__(message)
        self.finding = finding


class UrlRefused(PokayokeError, ValueError):  # noqa: N818 - the name says what happened
    """A URL, the address behind its host or the answer it gets may not be used.

    Attributes:
        finding: the `Finding` with the broken rule and what to send instead.
    """

    def __init__(self, message: str, finding: Any = None) -> None:
        """Store the message and the finding."""
        super().__init__(message)
        self.finding = finding


class ArchiveRefused(PokayokeError, ValueError):  # noqa: N818 - the name says what happened
    """An archive is damaged, holds what may not be unpacked, or too much of it; nothing of it was kept.

    Attributes:
        finding: the `Finding` with the broken rule.
    """

    def __init__(self, message: str, finding: Any = None) -> None:
        """Store the message and the finding."""
        super().__init__(message)
        self.finding = finding


class StoreError(PokayokeError):
    """A store cannot be opened, is not initialised, or has other content."""


class UsageError(PokayokeError):
    """The API was called in an order or with values that cannot work."""
