"""The result of correcting a call's arguments."""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.call import Correction, Finding


class CorrectionResult(msgspec.Struct, frozen=True, gc=False):
    """The arguments after checks and corrections.

    Attributes:
        value: the arguments to use; the original object if nothing was changed.
        corrections: the changes, in the order they were made.
        findings: the problems that are left; with any, `value` is the original and must not be used.
        changed: True if `value` is another value than the original.
    """

    value: dict[str, Any]
    corrections: tuple[Correction, ...] = ()
    findings: tuple[Finding, ...] = ()
    changed: bool = False
