"""Shorthand for acts on a store, and fixtures around PostgreSQL."""

import time

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.stores.values import AuditEntry


def wish(key, claim_id="c1", *, args="h1", run="r", lease=30.0, now=None, **more):
    """A request to execute a write."""
    now = time.time() if now is None else now
    claim = Claim(key, args, claim_id, "pay", "pay@1", run, now=now, lease=lease)
    return AdmissionRequest(run, "pay", "write", None, now, claim, **more)


def done(key, claim_id="c1", output=b'{"ok":true}', **more):
    """A report that it was done."""
    return Settlement(key, claim_id, "completed", time.time(), output, **more)


def line(subject="s", reason=""):
    """A line for the audit: the one act that cannot recognise itself."""
    return AuditEntry(time.time(), "decided", subject, "me", reason)
