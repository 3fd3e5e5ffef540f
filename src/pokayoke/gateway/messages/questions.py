"""The gateway's own question to a client's user, as the modern era carries it: in a result, and in the next request.

In: a question, or the parameters of a request.
Out: a result that asks, or the answer.
Never: a server's own question taken for ours, or an answer to another question than the one it names.
"""

from __future__ import annotations

from typing import Any, Final

from pokayoke.core.json.values import is_object

_KEY: Final = "pokayoke"
_STATE: Final = "pokayoke:"


def asking_result(question: dict[str, Any], approval: str) -> dict[str, Any]:
    """Return the result that asks a person; the client then sends the same call with the answer.

    Args:
        question: parameters of `elicitation/create`.
        approval: id of the question.
    """
    request = {"method": "elicitation/create", "params": {**question, "mode": "form"}}
    return {"resultType": "input_required", "inputRequests": {_KEY: request}, "requestState": f"{_STATE}{approval}"}


def split_answer(params: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, Any] | None]:
    """Return parameters without the part of our own question; and that: the question's id, and its answer."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(_STATE):
        return params, None
    answers = params.get("inputResponses")
    said = answers.get(_KEY) if is_object(answers) else None
    left = {key: value for key, value in params.items() if key not in ("requestState", "inputResponses")}
    return left, (state.removeprefix(_STATE), said)
