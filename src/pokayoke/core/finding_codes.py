"""Every finding code, in one table: what it means, and what follows from it.

In: nothing. A new code is one row here, in the group of the room that makes it.
Out: `FINDING_CODES` by code, `CODES_BY_ROOM` for the reference page.
Never: a code that is renamed or removed. Programs compare codes, and ledgers and traces hold them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pokayoke.core.call import StopReason

Grade = Literal["edited", "ambiguous", "lossy"]


class FindingCode(msgspec.Struct, frozen=True):
    """What a code says, and what follows where its finding stops a call.

    Attributes:
        meaning: one line for people.
        stop_reason: the stop reason of a call that is refused with it.
        counts_as: the kind of failure that the loop guard counts; "" if status and blame decide.
        grade: the grade of a reading that names it as its reason; None for all other findings.
        is_lasting: True if the same call would be refused with it again.
        is_other_call: True if it is about another call than the one whose effect the ledger holds.
        is_free_once: True if its first refusal in a turn is no bad round.
    """

    meaning: str
    stop_reason: StopReason = "invalid_arguments"
    counts_as: str = ""
    grade: Grade | None = None
    is_lasting: bool = False
    is_other_call: bool = False
    leaves_effect_open: bool = False
    is_free_once: bool = False


CODES_BY_ROOM: dict[str, dict[str, FindingCode]] = {
    "catalogue": {
        "unknown_tool": FindingCode(
            "no tool has the called name, and no spelling rule leads to exactly one",
            stop_reason="unknown_tool",
            counts_as="unknown_tool",
        ),
    },
    "intake": {
        "after_text": FindingCode("the call is behind text that follows an earlier call", grade="lossy"),
        "bad_escape": FindingCode("a backslash has no meaning before its character", grade="ambiguous"),
        "bare_reference": FindingCode("there is a name or placeholder in place of a value", grade="lossy"),
        "beside_text": FindingCode("there is other text beside the call", grade="edited", is_free_once=True),
        "comment_holds_data": FindingCode("a comment may hold part of the arguments", grade="ambiguous"),
        "control_character": FindingCode("there is a raw control character", grade="lossy"),
        "cut_after_colon": FindingCode("the text ends between a key and its value", grade="lossy"),
        "cut_after_comma": FindingCode("the text ends after a comma", grade="lossy"),
        "cut_after_opener": FindingCode("the text ends right after an opening bracket", grade="lossy"),
        "cut_in_comment": FindingCode("the text ends inside a comment", grade="lossy"),
        "cut_in_escape": FindingCode("the text ends inside an escape", grade="lossy"),
        "cut_in_key": FindingCode("the text ends inside a key", grade="lossy"),
        "cut_in_number": FindingCode("the text ends inside a number", grade="lossy"),
        "cut_in_string": FindingCode("the text ends inside a string, or a closing quote is missing", grade="lossy"),
        "cut_in_word": FindingCode("the text ends inside a word", grade="lossy"),
        "cut_message": FindingCode("the message was cut off by its length limit", grade="lossy"),
        "doubled_brace": FindingCode("there is a second opening brace in place of a key", grade="lossy"),
        "duplicate_key": FindingCode("a key appears twice with different values", grade="lossy"),
        "edit_suggested": FindingCode("one missing character would make the text fit the schema", grade="edited"),
        "ellipsis": FindingCode("there are dots in place of values", grade="lossy"),
        "empty_arguments": FindingCode("there is no text", grade="lossy"),
        "expression": FindingCode("a value is an expression instead of a literal", grade="lossy"),
        "extra_closer": FindingCode("there is a surplus closing brace", grade="ambiguous"),
        "inner_quote": FindingCode("there is an unescaped quote inside a string", grade="ambiguous"),
        "invalid_utf8": FindingCode("the bytes are not UTF-8", grade="lossy"),
        "line_break_in_key": FindingCode("there is a line break inside a key", grade="lossy"),
        "lone_surrogate": FindingCode("there is half of a surrogate pair", grade="lossy"),
        "lost_member": FindingCode("a comma is misplaced and a required property is absent", grade="ambiguous"),
        "lost_value": FindingCode("a value is missing", grade="lossy"),
        "lost_quote": FindingCode("a quote is missing before this place", grade="lossy"),
        "mismatched_closer": FindingCode("a closing bracket does not match the one that is open", grade="lossy"),
        "misplaced_comma": FindingCode("a member may be missing next to a comma", grade="ambiguous"),
        "missing_closer": FindingCode("the text ends before its closing bracket", grade="ambiguous"),
        "missing_colon": FindingCode("there is no colon after a key", grade="lossy"),
        "lost_comma": FindingCode("there is no comma between two values", grade="ambiguous"),
        "missing_opener": FindingCode("the text begins inside an object", grade="ambiguous"),
        "no_object": FindingCode("there is no JSON object", grade="lossy"),
        "not_an_object": FindingCode("the text is a JSON value, but not an object", grade="lossy"),
        "odd_whitespace": FindingCode(
            "there are unusual spaces between the values and inside a string", grade="ambiguous"
        ),
        "not_finite": FindingCode("a number is NaN, infinite, or too large", grade="lossy"),
        "not_json": FindingCode("the arguments hold a value that is not JSON", grade="lossy"),
        "not_native": FindingCode(
            "the call is in the text, although the model makes native calls", grade="edited", is_free_once=True
        ),
        "not_read": FindingCode("the text has no known form of a call", grade="lossy"),
        "number_too_long": FindingCode("a number has too many digits", grade="lossy"),
        "odd_number": FindingCode("a number is not in JSON's format", grade="lossy"),
        "positional_arguments": FindingCode("arguments are given without their names", grade="lossy"),
        "disowned": FindingCode(
            "the call is inside quotation marks, another tag, code or a quoted line", grade="lossy"
        ),
        "quoted": FindingCode("the call is inside thoughts or a quotation without an end", grade="lossy"),
        "recited": FindingCode("the call is letter for letter in a text that was read before", grade="lossy"),
        "several_values": FindingCode("there is more than one value", grade="lossy"),
        "raw_line_break": FindingCode(
            "there is a raw line break or tab in a value that may not hold one", grade="edited"
        ),
        "tagged_value": FindingCode("a value between tags has no certain end, type or layout", grade="lossy"),
        "too_deep": FindingCode("the brackets are nested too deep", grade="lossy"),
        "too_many_calls": FindingCode("there are too many calls in the text", grade="lossy"),
        "too_long": FindingCode("the text is too long", grade="lossy"),
        "trailing_comma_in_list": FindingCode(
            "an item may be missing after a comma at the end of a list", grade="ambiguous"
        ),
        "trailing_text": FindingCode("there is text around the object that may belong to it", grade="lossy"),
        "uneven_commas": FindingCode(
            "a comma is missing or surplus at a line break, and a property of the schema is absent", grade="edited"
        ),
        "unexpected": FindingCode("there is a character that belongs to no value", grade="lossy"),
        "unread_call": FindingCode("there is markup of a call that cannot be read", grade="lossy"),
        "unknown_envelope": FindingCode("the call has members besides its name and arguments", grade="lossy"),
    },
    "json": {
        "output_too_large": FindingCode("the output is larger than the contract allows"),
        "not_serialisable": FindingCode(
            "the output holds something that has no JSON form, such as a function, a generator or a handle"
        ),
        "cyclic": FindingCode("the output contains itself"),
        "key_collision": FindingCode("two different keys of the output become one key in JSON"),
        "byte_order_mark": FindingCode("the text begins with a byte order mark"),
        "equal_duplicate": FindingCode("an object holds a key twice, with equal values, where that is not accepted"),
        "invalid_json": FindingCode("the text is not JSON", leaves_effect_open=True),
    },
    "check": {
        "missing_field": FindingCode("a required field is absent"),
        "unknown_field": FindingCode("a field the schema does not know"),
        "wrong_type": FindingCode("the value has another JSON type than the schema asks for"),
        "not_in_enum": FindingCode("the value is not one of the allowed ones"),
        "out_of_range": FindingCode("the number is outside its bounds or no multiple of its step"),
        "bad_format": FindingCode("the text is not in the asserted format"),
        "bad_pattern": FindingCode("the text does not fit its pattern"),
        "too_short": FindingCode("the text is shorter than allowed"),
        "too_few_items": FindingCode("the list has fewer items than allowed"),
        "too_many_items": FindingCode("the list has more items than allowed"),
        "duplicate_items": FindingCode("the list has equal items where all must differ"),
        "too_few_fields": FindingCode("the object has fewer fields than allowed"),
        "too_many_fields": FindingCode("the object has more fields than allowed"),
        "schema_mismatch": FindingCode(
            "the value breaks the schema in another way, such as fitting no branch of a union"
        ),
        "lost_backslash": FindingCode(
            "a control character stands in a text where a backslash was meant, such as in \\\\frac"
        ),
        "placeholder": FindingCode("a text stands where a value should be, such as <user_id> or TODO"),
        "leaked_markup": FindingCode("a value holds markup of a call, such as </arg_value>"),
        "unseen_text": FindingCode("a required text looks empty: it holds only invisible characters"),
    },
    "correct": {
        "corrector_failed": FindingCode(
            "a corrector or input model of the contract raised, or returned what cannot be used"
        ),
        "correction_not_allowed": FindingCode(
            "the input model would change the value, and policy does not allow that class"
        ),
    },
    "contract": {
        "model_rejected": FindingCode("a validator of the argument model refuses the value"),
    },
    "gate": {
        "path_escape": FindingCode("a path would leave the workspace it is confined to"),
        "bad_path": FindingCode("a path is malformed, or means different things on different systems"),
        "bad_url": FindingCode("a URL is malformed, or programs read it differently"),
        "url_refused": FindingCode("a URL leads where its argument may not lead"),
        "permission_denied": FindingCode(
            "the caller may not use this tool", stop_reason="permission_denied", is_lasting=True
        ),
        "untrusted_value": FindingCode(
            "a target, an amount or the act itself comes neither from the user nor from a trusted source",
            stop_reason="permission_denied",
        ),
        "invented_value": FindingCode("neither the user nor any tool has named this target (a note)"),
        "stale_value": FindingCode("the value stands only in an answer that a later one replaced (a note)"),
        "low_confidence": FindingCode(
            "the call is too uncertain to run; a clarification is needed", stop_reason="low_confidence"
        ),
    },
    "ledger": {
        "quota_exceeded": FindingCode("a limit on calls or amounts is used up", stop_reason="quota_exceeded"),
        "awaiting_approval": FindingCode("a person has to approve this call first", stop_reason="awaiting_approval"),
        "approval_denied": FindingCode("a person has denied this call", stop_reason="approval_denied", is_lasting=True),
        "approval_expired": FindingCode(
            "nobody decided, or used a yes, in time; the call needs a new approval", stop_reason="approval_denied"
        ),
        "in_progress": FindingCode("the same write is running in another call right now", stop_reason="in_doubt"),
        "conflict": FindingCode("an equal key was used before with other arguments", is_other_call=True),
        "in_doubt": FindingCode(
            "a write was started and nobody can know whether its effect happened", stop_reason="in_doubt"
        ),
        "failed_before": FindingCode(
            "the same write failed for good before and is not tried again", stop_reason="tool_failure", is_lasting=True
        ),
        "compensated": FindingCode(
            "the same write was done before, and its undoing has at least begun",
            stop_reason="loop_detected",
            counts_as="repeated_call",
            is_other_call=True,
        ),
        "no_scope": FindingCode(
            "a durable store needs a run, session or tenant id to tell repetitions apart", stop_reason="tool_failure"
        ),
        "store_unavailable": FindingCode(
            "the ledger could not be reached, so the write was not started (again)", stop_reason="tool_failure"
        ),
    },
    "flow": {
        "tool_error": FindingCode("the tool itself reports that it failed"),
        "tool_failed": FindingCode("the tool raised an exception"),
        "tool_timeout": FindingCode("the tool did not answer before its deadline"),
        "not_started": FindingCode("the host could not start the tool; nothing happened"),
        "not_recorded": FindingCode("the effect happened, but the ledger could not record it"),
        "no_output_contract": FindingCode("nothing is promised about this tool's output, so it is unchecked"),
        "invariant_cut": FindingCode("checking the output did not finish in time"),
        "already_done": FindingCode("the same write ran before; its recorded result answers the call"),
        "invalid_before": FindingCode("the same write ran before, and its output must not be used"),
        "correction_cut": FindingCode("a declared corrector or validator did not come back in time"),
        "monitored": FindingCode("monitor mode: the call was let through although it would have been refused"),
    },
    "output": {
        "error_in_success": FindingCode("the output reports success and holds an error", leaves_effect_open=True),
        "unlike_schema": FindingCode("the output holds other fields, and none that its schema names"),
        "envelope_broken": FindingCode("the output is not wrapped as its contract declares"),
        "invariant_failed": FindingCode("the output violates an invariant of its contract"),
        "invariant_raised": FindingCode(
            "an invariant of the contract could not be evaluated, so the output counts as invalid"
        ),
        "html_instead_of_data": FindingCode("the output is an HTML page instead of data", leaves_effect_open=True),
        "not_text": FindingCode("the contract requires text, and the tool returned something else"),
        "no_data": FindingCode(
            "the contract requires data, and the tool returned none, or several pieces", leaves_effect_open=True
        ),
        "halves_differ": FindingCode("the text of the result contradicts its structured content"),
        "extract_failed": FindingCode("the contract's extract function could not read the text"),
        "body_unread": FindingCode("the tool did not read the body of the response, so there is nothing to check"),
        "missing_content_type": FindingCode("a response declares no content type"),
        "wrong_content_type": FindingCode(
            "a response declares another content type than the contract expects", leaves_effect_open=True
        ),
        "http_error": FindingCode("a response has a status other than success"),
        "bad_encoding": FindingCode("the bytes of a text are not valid in its character set"),
        "output_changed": FindingCode("a callable of the contract changed the output while checking it"),
    },
    "state": {
        "kill_switch": FindingCode(
            "a tool's outputs are unusable at the moment, so writes that may build on them are refused",
            stop_reason="kill_switch",
            counts_as="held_back",
        ),
        "run_stopped": FindingCode("the run has stopped; no tool runs any more"),
        "tools_off": FindingCode("only a final answer is allowed in this turn; no tool runs"),
        "writes_off": FindingCode("the run is in safe mode: reads go on, writes are refused", counts_as="held_back"),
        "latched": FindingCode(
            "an earlier tool output must not be used, so writes are refused",
            stop_reason="invalid_tool_output",
            counts_as="held_back",
        ),
        "repeated_failure": FindingCode(
            "the same call failed several times in a row and is not run again",
            stop_reason="loop_detected",
            counts_as="repeated_call",
        ),
        "budget_exhausted": FindingCode(
            "a budget of the run (rounds, calls, seconds, tokens) is used up", stop_reason="budget_exhausted"
        ),
    },
    "versions": {
        "version_withdrawn": FindingCode(
            "the run began with a version of the tool that is no longer in force", stop_reason="permission_denied"
        ),
    },
    "context": {
        "context_overflow": FindingCode("the part of the history that must stay does not fit the window"),
        "orphan_result": FindingCode("a tool result without a call was left out of the history"),
        "duplicate_result": FindingCode("a call had two results; the later one was kept"),
        "displaced_result": FindingCode("a tool result did not follow its call and was moved there"),
        "unanswered_call": FindingCode("a tool call had no result; a result that says so was added"),
        "unusable_call": FindingCode(
            "a tool call had an id or a name that a provider refuses, and got another; or it was not a call"
        ),
        "system_in_between": FindingCode(
            "Anthropic accepts no system message between the others; it became part of a user message"
        ),
        "system_left_out": FindingCode(
            "a system message between the others no longer fits the window; a note quotes it"
        ),
        "user_left_out": FindingCode("the user's latest words no longer fit the window; at most a note quotes them"),
        "empty_message": FindingCode(
            "an empty message, or an empty part of one, was left out because a provider refuses it"
        ),
        "summariser_failed": FindingCode("the summariser failed or wrote too much; the built-in one replaced it"),
    },
    "files": {
        "special_file": FindingCode("a path names a device, FIFO or socket, not a file or folder"),
        "hard_link": FindingCode("a file has several names, one of which may lie outside the workspace"),
        "path_missing": FindingCode("a path that has to exist does not"),
        "path_ambiguous": FindingCode("a relative path exists in more than one root"),
        "path_unreachable": FindingCode("a path cannot be looked at, so nothing can be said about it"),
        "root_moved": FindingCode("a workspace root is not the folder it was when it was prepared"),
        "bad_archive": FindingCode("an archive is damaged, cut off or of an unknown kind"),
        "archive_member": FindingCode("a member of an archive is a link or device, or has a name that is refused"),
        "archive_too_large": FindingCode("an archive unpacks to more than its limits allow"),
    },
    "network": {
        "address_refused": FindingCode("a host name leads to an address that its rule does not allow"),
        "response_too_large": FindingCode("a response is larger than its limit, as sent or after decompression"),
        "response_encoding": FindingCode("a response is compressed in a way that was not asked for, or is damaged"),
    },
}

FINDING_CODES: dict[str, FindingCode] = {code: row for rows in CODES_BY_ROOM.values() for code, row in rows.items()}


def codes_counted_as(kind: str) -> tuple[str, ...]:
    """Return the codes that the loop guard counts as a kind of failure."""
    return tuple(code for code, row in FINDING_CODES.items() if row.counts_as == kind)
