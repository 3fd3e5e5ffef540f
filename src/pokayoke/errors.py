"""Every exception pokayoke raises, in one tree.

    PokayokeError
      ConfigurationError       a programmer's mistake, found while building; never during a call
        ContractError          a schema or contract that cannot be kept
        PolicyError            a configuration that contradicts itself, or an unknown key
        MissingExtraError      an optional dependency is absent or broken (also an ImportError)
      OutcomeError             only from `Outcome.unwrap()`: the caller asked for an exception
        CallRefused            pokayoke stopped the call before the tool ran
        ToolFailed             the tool ran and failed, or nobody can know whether it did
        ToolOutputInvalid      the tool answered with something that must not be used
      ToolError                raised by a tool's author: its text is meant for the model
      PathEscape               a path would leave its roots (also a ValueError)
      StoreError               a store cannot be opened or is not what it claims to be
      UsageError               the API was used in a way that cannot work

What a model or a tool does wrong is never an exception: it is a `Finding` inside a
`Verdict` or an `Outcome`.
"""

from __future__ import annotations

import sys
from typing import Any


class PokayokeError(Exception):
    """The root of every exception raised by pokayoke."""


class ConfigurationError(PokayokeError):
    """Something was declared in a way that cannot work; the message says what to change."""


class ContractError(ConfigurationError):
    """A contract or its schema cannot be kept: invalid, remote, exploding, or contradictory."""


class PolicyError(ConfigurationError):
    """A configuration value is unknown, duplicated, out of range, or contradicts another."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed, or cannot be imported as it is.

    Args:
        package: the distribution that is missing.
        extra: the extra of pokayoke that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        """Say what is wrong with the package, whose import error is being handled, and how to install it."""
        from importlib import metadata  # noqa: PLC0415 - slow to import, and hardly ever needed

        try:
            problem = f"{package} {metadata.version(package)} is installed, and cannot be imported: {sys.exception()}"
        except metadata.PackageNotFoundError:
            problem = f"{package!r} is not installed"
        super().__init__(f"{problem}. Run: pip install 'pokayoke[{extra}]'")


class OutcomeError(PokayokeError):
    """Raised by `Outcome.unwrap()` when there is no usable value.

    Attributes:
        outcome: the outcome that was unwrapped.
    """

    def __init__(self, message: str, outcome: Any = None) -> None:
        """Keep the outcome beside the message."""
        super().__init__(message)
        self.outcome = outcome


class CallRefused(OutcomeError):  # noqa: N818 - the name says what happened, as in the glossary
    """The call was refused (or waits for a decision); the tool did not run."""


class ToolFailed(OutcomeError):  # noqa: N818 - the name says what happened, as in the glossary
    """The tool ran and failed, or it cannot be known whether its effect happened."""


class ToolOutputInvalid(OutcomeError):  # noqa: N818 - the name that stands in traces
    """The tool's answer broke its contract and must not be used."""


class ToolError(PokayokeError):
    """Raise this inside a tool to tell the model, in its own words, why the tool cannot do it.

    The text reaches the model; the text of any other exception never does (it may hold secrets or
    somebody's instructions). List it in `no_effect_errors` if it proves that nothing happened.
    """


class PathEscape(PokayokeError, ValueError):  # noqa: N818 - the name says what happened
    """A path is malformed or would leave the roots it is confined to.

    Attributes:
        finding: the `Finding` that says which rule was broken and what to send instead.
    """

    def __init__(self, message: str, finding: Any = None) -> None:
        """Keep the finding beside the message."""
        super().__init__(message)
        self.finding = finding


class StoreError(PokayokeError):
    """A store cannot be opened, is not initialised, or holds something else."""


class UsageError(PokayokeError):
    """The API was called in an order or with values that cannot work."""
