"""What one conversation came to, from what others saw of it: the wire, the log of the shop, the clock."""

import json
from collections import Counter
from dataclasses import dataclass, field

from framework_shop import LEAK
from model_server import ENDS, TIRED
from scenarios import Scenario


@dataclass
class Facts:
    """What was seen.

    Attributes:
        requests: path and body of each request to the model.
        refused: what was wrong with those that were refused.
        at: when each came and was answered, in seconds.
        happened: what the tools did.
        text: what the user got to read; None if it never came to that.
        error: type and text of what was raised, or "".
        late: True if it was ended because it took too long.
    """

    requests: list[tuple[str, dict]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    at: list[list[float]] = field(default_factory=list)
    happened: list[dict] = field(default_factory=list)
    text: str | None = None
    error: str = ""
    late: bool = False

    @property
    def answers(self) -> list[str]:
        """The texts that answer calls in the last request."""
        if not self.requests:
            return []
        path, body = self.requests[-1]
        wire, history, _ = ENDS[path]
        return [text for message in body[history] for text in _results(wire, message)]

    @property
    def slowest(self) -> float:
        """The longest time between an answer of the model and the next request, in seconds."""
        gaps = [then[0] - now[1] for now, then in zip(self.at, self.at[1:], strict=False) if len(now) > 1]
        return max(gaps, default=0.0)


def _results(wire: str, message: dict) -> list[str]:
    if wire == "chat":
        return [_text(message["content"])] if message.get("role") == "tool" else []
    if wire == "responses":
        return [_text(message["output"])] if message.get("type") == "function_call_output" else []
    blocks = message["content"] if isinstance(message["content"], list) else []
    return [_text(block.get("content", "")) for block in blocks if block["type"] == "tool_result"]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, dict))


@dataclass
class Judgement:
    """What is wrong with a conversation, by kind; nothing is right."""

    wrong: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, what: str) -> None:
        """Note one thing."""
        self.wrong.append((kind, what))

    @property
    def kinds(self) -> set[str]:
        """What kinds of things are wrong."""
        return {kind for kind, _ in self.wrong}


def judge(scenario: Scenario, facts: Facts) -> Judgement:
    """Hold what was seen against what is right."""
    found = Judgement()
    if facts.late:
        found.add("late", "it had to be ended")
    if facts.error:
        found.add("crash", facts.error)
    for one in facts.refused:
        found.add("history", f"the provider refuses the history: {one}")
    _effects(scenario, facts, found)
    _answers(scenario, facts, found)
    _requests(scenario, facts, found)
    if not facts.error and not facts.late and scenario.says not in (facts.text or ""):
        found.add("text", f"the user reads {(facts.text or '')[:120]!r}")
    return found


def _effects(scenario: Scenario, facts: Facts, found: Judgement) -> None:
    def key(tool: str, arguments: dict) -> str:
        return f"{tool}({json.dumps(arguments, sort_keys=True)})"

    wanted = Counter(key(tool, arguments) for tool, arguments in scenario.happens)
    seen = Counter(
        key(one["tool"], {name: one[name] for name in one if name not in ("tool", "types")}) for one in facts.happened
    )
    for one in sorted((seen - wanted).elements()):
        found.add("ran", f"{one} ran")
    for one in sorted((wanted - seen).elements()):
        found.add("missing", f"{one} did not run")


def _answers(scenario: Scenario, facts: Facts, found: Judgement) -> None:
    answers = facts.answers
    asked = sum(len(turn.calls) for turn in scenario.turns[: max(len(facts.requests) - 1, 0)])
    if not facts.error and not facts.late and len(answers) != asked:
        found.add("lost", f"{asked} calls, {len(answers)} answers")
    said = "\n".join(answers).lower()
    for one in scenario.told:
        if one.lower() not in said:
            found.add("untold", f"the model is not told {one!r} but {said[:160]!r}")


def _requests(scenario: Scenario, facts: Facts, found: Judgement) -> None:
    least, most = scenario.requests
    count = len(facts.requests)
    if count > most:
        found.add("loop", f"{count} requests instead of {most}")
    elif count < least:
        found.add("short", f"{count} requests instead of {least}")
    texts = [json.dumps(body, ensure_ascii=False) for _, body in facts.requests]
    for one in (*scenario.untold, LEAK):
        if any(one in text for text in texts):
            found.add("leak", f"a request holds {one!r}")
    if (size := max(map(len, texts), default=0)) > scenario.largest:
        found.add("size", f"a request has {size:,} characters")
    if facts.slowest > scenario.hangs_for - 0.5:
        found.add("waits", f"the model waited {facts.slowest:.1f} s")
    if scenario.toolless and facts.requests:
        body = facts.requests[-1][1]
        if body.get("tools") and body.get("tool_choice") not in ("none", {"type": "none"}):
            found.add("tools", "the last request offers tools")


def alone(scenario: Scenario, facts: Facts) -> str:
    """Say what a framework does by itself, in the letters of the table.

    C: the run crashes. S: something wrong happened, or something was lost, without a word. M: nothing wrong
    happened and the model was told. L(n): the model was asked n times. waits: as long as the tool did.
    """
    found = judge(scenario, facts)
    leaks = ", leaks" if any(LEAK in json.dumps(body) for _, body in facts.requests) else ""
    if facts.late:
        return "hangs"
    if facts.error:
        return f"C {facts.error.partition(':')[0]}"
    if facts.text == TIRED or "loop" in found.kinds:
        over = ">" if facts.text == TIRED else ""
        return f"L({over}{len(facts.requests) - bool(over)}){leaks}"
    if "history" in found.kinds:
        return "C refused history"
    if "waits" in found.kinds:
        return "waits"
    if found.kinds <= {"tools"}:  # a framework that takes no tools away is none the worse for it
        return "ok"
    if found.kinds & {"ran", "lost", "text", "size", "short"} or ("leak" in found.kinds and not leaks):
        return "S"
    return f"M{leaks}"
