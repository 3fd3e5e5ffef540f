"""The guard's questions, as an adapter finds them."""

import pokayoke
from pokayoke import ToolCall
from pokayoke.adapters._host.approvals import find_question, may_repeat
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun

ORDER = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "note": {"type": "string"}},
    "required": ["order"],
}


def paid_run(store):
    """A run that has paid A in its first turn, and whose user has spoken again."""
    tools = [ToolDescription(name, "", ORDER) for name in ("pay", "find")]
    fields = {"pay": {"identity": ("order",)}}
    guard = pokayoke.Guard(build_contracts(tools, reads=["find"], fields=fields), store=store)
    adapter_run = AdapterRun(guard.run("r", prompt="Pay A."))
    paid = adapter_run.call(ToolCall("c1", "pay", {"order": "A"}), lambda given: given)
    function = {"name": "Pay", "arguments": '{"order": "A"}'}
    adapter_run.run.user("Once more.")
    adapter_run.run.set_history([
        {"role": "user", "content": "Pay A."},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": paid.text},
        {"role": "assistant", "content": "Paid."},
        {"role": "user", "content": "Once more."},
    ])  # fmt: skip
    return adapter_run


def test_a_question_about_a_repetition_is_found(tmp_path):
    """The verdict allows the call, because only the ledger knows; one that waits comes before one that is answered."""
    store = pokayoke.open_store(f"sqlite:///{tmp_path}/l.db", create=True)
    adapter_run, again = paid_run(store), ToolCall("c2", "pay", {"order": "A"})
    approvals = adapter_run.run.guard.approvals
    assert find_question(adapter_run, again) is None
    first = adapter_run.call(again, lambda given: given)
    assert (first.status, find_question(adapter_run, again).id) == ("pending", first.approval)
    approvals.approve(first.approval, by="ann")
    assert find_question(adapter_run, again, waiting=True) is None
    assert find_question(adapter_run, again).status == "approved"
    assert find_question(adapter_run, ToolCall("c3", "pay", {"order": 7})) is None
    adapter_run.run.guard.close()


def test_a_call_may_repeat_only_an_effect_that_its_caller_has_seen():
    """Equal is what the contract says is equal, under whatever spelling of the name; a read repeats nothing."""
    adapter_run = paid_run(None)

    def repeats(name, **arguments):
        call = ToolCall("c2", name, arguments)
        return may_repeat(adapter_run, adapter_run.run.check(call), call)

    assert repeats("pay", order="A", note="please")
    assert not repeats("pay", order="B")
    assert not repeats("find", order="A")
    assert not repeats("pay", order=7)
    assert not repeats("refund", order="A")
