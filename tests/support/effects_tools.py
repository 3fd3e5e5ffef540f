"""The write that is raced and killed, once for every way in which a contract may settle a doubt."""

import contextvars
import random
import time

import effects_own
import msgspec
from effects_target import ask, receipt_of

from pokayoke import Contract, this_effect
from pokayoke.core.flow.resolve import NOT_FOUND, Found

TOKEN = contextvars.ContextVar("token", default="-")
"""Names the call that runs the tool, so that what it did can be told from what others did."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: what is run, how often it is disturbed.

    Args:
        folder: where its files lie.
        store: URL of its ledger, or a word: `sqlite`, `postgres` (an empty schema) or `cluster` (a server of its own).
        configuration: name in `CONFIGURATIONS` or `UNSAFE`.
        keys: different effects.
        workers: processes that all want all of them, in nearly equal order.
        wanted_by: workers that want each key; 0 for all of them.
        block: keys that each of them takes in an order of its own.
        kills: SIGKILLs to random workers, each at a random moment.
        every: mean seconds between two of them.
        stops: times a random worker is suspended for longer than its lease, and then goes on.
        hang: share of executions that act after their deadline.
        timeout: of the tool in seconds; None runs it without a deadline.
        margin: seconds a claim outlives that.
        pace: longest time in seconds the tool spends before and after its effect, each.
        slow: longest time in seconds a remote target needs.
        restarts: immediate restarts of the server; for `cluster`.
        asynchronous: True lets the workers await their calls.
        seed: of all that is random but the moments.
        limit: seconds after which it has failed.
    """

    folder: str
    store: str
    configuration: str = "human"
    keys: int = 1_000
    workers: int = 8
    wanted_by: int = 0
    block: int = 4
    kills: int = 0
    every: float = 0.04
    stops: int = 0
    hang: float = 0.0
    timeout: float | None = None
    margin: float = 0.5
    pace: float = 0.0
    slow: float = 0.05
    restarts: int = 0
    asynchronous: bool = False
    seed: int = 1
    limit: float = 600.0


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A way to settle doubts.

    Args:
        fields: of the contract, made from the trial and its ground.
        remote: True lets a target act, in a process of its own.
        dedupes: True if that target drops repeats.
        own: True makes the effect a row beside the ledger, written in one transaction with the completion.
        careless: True takes the transactions away from the store's admissions.
    """

    fields: object
    remote: bool = False
    dedupes: bool = False
    own: bool = False
    careless: bool = False


def _lookup_here(trial, ground):
    def lookup(key, arguments):
        receipt = ground.found(arguments["n"])
        return NOT_FOUND if receipt is None else Found({"receipt": receipt})

    return lookup


def _lookup_there(trial, ground):
    def lookup(key, arguments):
        receipt = ask(ground, "ask", key)
        return NOT_FOUND if receipt == "-" else Found({"receipt": receipt})

    return lookup


def _asked(safe, lookup, settle_after=None):
    return lambda trial, ground: {
        "on_ambiguous": "lookup",
        "lookup": lookup(trial, ground),
        "lookup_safe": safe,
        "settle_after": settle_after and settle_after(trial),
        "forwards_key": safe == "downstream_key",
    }


CONFIGURATIONS = {
    "human": Kind(fields=lambda trial, ground: {}),
    "own_transaction": Kind(
        fields=lambda trial, ground: {"on_ambiguous": "rerun_safe", "idempotent": True},
        own=True,
    ),
    "downstream_key": Kind(
        fields=lambda trial, ground: {"on_ambiguous": "downstream_key", "forwards_key": True},
        remote=True,
        dedupes=True,
    ),
    "lookup_downstream_key": Kind(fields=_asked("downstream_key", _lookup_there), remote=True, dedupes=True),
    "lookup_executor_dead": Kind(fields=_asked("executor_dead", _lookup_here)),
    # The target's longest time counts from the moment in which it has the request: a little is the way there.
    "lookup_settled": Kind(fields=_asked("settled", _lookup_there, lambda trial: trial.slow + 0.5), remote=True),
}
"""Those that claim to be safe."""
UNSAFE = {
    "check_then_act": Kind(fields=lambda trial, ground: {}, careless=True),
    "rerun_of_what_adds_up": Kind(
        fields=lambda trial, ground: {"on_ambiguous": "rerun_safe", "idempotent": True},
    ),
    "lookup_before_it_settled": Kind(fields=_asked("settled", _lookup_there, lambda trial: 0.001), remote=True),
    "dead_but_under_way": Kind(fields=_asked("executor_dead", _lookup_there), remote=True),
    "downstream_that_repeats": Kind(
        fields=lambda trial, ground: {"on_ambiguous": "downstream_key", "forwards_key": True}, remote=True
    ),
}
"""Each breaks one promise that safety needs: they have to show double effects, or nobody would see one."""
KINDS = {**CONFIGURATIONS, **UNSAFE}
_ARGUMENTS = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "memo": {"type": "string"}},
    "required": ["n", "memo"],
    "additionalProperties": False,
}
_RECEIPT = {"type": "object", "properties": {"receipt": {"type": "string"}}, "required": ["receipt"]}


def hangs(trial, n, attempt):
    """Whether this execution acts after its deadline; the same for everybody who asks."""
    return trial.hang > 0 and random.Random(f"{trial.seed}/{n}/{attempt}").random() < trial.hang


def contract(trial, ground, *, version="1"):
    """Return the write of a trial: it leaves a line before it may act, one per effect, and takes its time."""
    kind = KINDS[trial.configuration]

    def charge(n, memo):
        effect = this_effect()
        ground.note("starts", n, effect.key, effect.attempt, TOKEN.get())
        if trial.pace:
            time.sleep(random.uniform(0.0, trial.pace))
        if hangs(trial, n, effect.attempt):
            time.sleep((trial.timeout or 0.0) + random.uniform(0.05, 0.3))
        if kind.remote:
            receipt = ask(ground, "do", n, effect.key, memo, random.uniform(0.0, trial.slow))
        elif kind.own:
            receipt = receipt_of(n)
            effects_own.act(trial.store, effect, (n, receipt, memo))  # raises if the claim was lost
        else:
            receipt = receipt_of(n)
            ground.note("effects", n, receipt, memo)
        if trial.pace:
            time.sleep(random.uniform(0.0, trial.pace))
        return {"receipt": receipt}

    return Contract.from_schema(
        "charge",
        _ARGUMENTS,
        version=version,
        output_schema=_RECEIPT,
        effect="write",
        identity=("n",),
        timeout=trial.timeout,
        handler=charge,
        **kind.fields(trial, ground),
    )
