"""What a guard has only if its policy asks for it: a webhook for questions, and what looks at calls beside their path.

Each function prepares it for a policy, loading its module when it is wanted first. What is returned takes it into
use, and cannot fail: a policy is taken over as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pokayoke.core.policy import Policy
    from pokayoke.runtime.guard.guard import Guard


def prepare_webhook(guard: Guard, policy: Policy) -> Callable[[], None]:
    """Make the webhook of a policy, or let the one there is follow it.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if guard.announcer is not None:
        return guard.announcer.prepare_swap(policy.approvals.webhook)
    if policy.approvals.webhook.url is None:
        return lambda: None
    from pokayoke.runtime.approvals.webhook import ConfiguredWebhook  # noqa: PLC0415 - for those who have a webhook

    return partial(setattr, guard, "announcer", ConfiguredWebhook(policy.approvals.webhook, guard.trace, guard.clock))


def prepare_background(guard: Guard, policy: Policy) -> Callable[[], None]:
    """Open what looks on, if there are shadows to come or a sample to write.

    Raises:
        ConfigurationError: the sample cannot be written.
    """
    if guard.beside is None and guard.rollout is None and policy.trace.sample_path is None:
        return lambda: None
    from pokayoke.runtime.trace.background import BackgroundObserver  # noqa: PLC0415 - for those who have a sample or a rollout

    beside = guard.beside or BackgroundObserver(guard)
    swap = beside.prepare_swap(policy)

    def put_in_force() -> None:
        swap()
        guard.beside = beside

    return put_in_force
