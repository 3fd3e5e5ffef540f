"""Every scenario of the demo, in the order of the table. To add one, write a function and list it."""

from __future__ import annotations

from collections.abc import Callable

from pokayoke.demo.scenario import Scenario
from pokayoke.demo.scenarios import arguments, bounds, effects, good, names, outputs, untrusted

SCENARIOS: tuple[Callable[[], Scenario], ...] = (
    outputs.crm_incident,
    outputs.html_field,
    outputs.truncated_output,
    outputs.drifted_schema,
    outputs.error_inside_success,
    outputs.stale_profile,
    outputs.unserialisable_output,
    outputs.oversized_output,
    arguments.cut_in_number,
    arguments.cut_but_parses,
    arguments.malformed_json,
    arguments.misspelt_field,
    arguments.wrong_unit,
    arguments.half_a_piece,
    arguments.number_word,
    arguments.two_amounts,
    arguments.placeholder_argument,
    arguments.not_a_number,
    arguments.out_of_range,
    arguments.low_confidence,
    names.invented_name,
    names.phantom_tool,
    effects.charged_twice,
    effects.parallel_duplicate,
    effects.duplicate_order,
    effects.hanging_tool,
    effects.exiting_tool,
    bounds.path_escape,
    bounds.path_prefix,
    bounds.context_overflow,
    bounds.ticket_breaks_out,
    bounds.ticket_gives_orders,
    untrusted.ticket_names_receiver,
    untrusted.invented_order,
    effects.failing_before,
    good.plain_order,
    good.two_orders,
    good.wanted_repetition,
    good.counting_word,
    good.other_spelling,
    good.read_then_write,
    good.note_in_workspace,
    good.same_read_twice,
    untrusted.refund_as_asked,
)
