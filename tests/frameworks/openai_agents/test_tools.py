"""Guardrails, final outputs, media, contracts and MCP servers of the SDK."""

import asyncio
import json
from dataclasses import replace

import pytest
from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelSettings,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    tool_input_guardrail,
    tool_namespace,
    tool_output_guardrail,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message
from mcp.types import CallToolResult, ImageContent, TextContent
from mcp.types import Tool as Listed
from openai_agents_support import ASKING, QUIET, REFUND, SCRIPT, agent_of, ask, guard_of, made
from pydantic import BaseModel

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, contracts


async def test_a_tripwire_ends_the_run():
    """A guardrail of the SDK's goes through."""

    async def no(context, agent, given):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    tools = made([])
    agent = agent_of(SCRIPT, tools, input_guardrails=[InputGuardrail(no)])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)


async def test_a_guardrail_of_a_tools_output_judges_what_the_tool_returned():
    """It sees the value, not the text that the model reads, and its no stands; of a refused call it sees the reason."""
    seen = []

    @tool_output_guardrail
    def no_secrets(data):
        seen.append(data.output)
        secret = isinstance(data.output, dict) and "ssn" in data.output
        return ToolGuardrailFunctionOutput.reject_content("hidden") if secret else ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_output_guardrails=[no_secrets])
    def find(order: str) -> dict:
        """Find an order."""
        return {"ssn": "123"}

    replies = [[ask("find", '{"order": "A1"}')], [ask("find", '{"order": }', "call_2")], [assistant_message("Done.")]]
    model = ScriptedModel(replies)
    guard = pokayoke.Guard(contracts([find], reads=["find"]))
    result = await GuardedRunner(guard).run(agent_of(model, [find]), "Find A1.", run_config=QUIET)
    assert model.calls[1].input[-1]["output"] == "hidden"
    assert seen[0] == {"ssn": "123"}
    assert "arguments" in seen[1]
    assert [one.guardrail.get_name() for one in result.tool_output_guardrail_results] == ["no_secrets"] * 2


@pytest.mark.parametrize("config", [None, ASKING])
@pytest.mark.parametrize("early", [False, True])
async def test_what_a_guardrail_of_a_tools_input_turns_away_is_known_to_the_run(config, early):
    """The model reads the guardrail's words, the user that it was not done, and no question is left behind."""

    @tool_input_guardrail
    def never(data):
        return ToolGuardrailFunctionOutput.reject_content("not today")

    log = []
    tools = made(log, tool_input_guardrails=[never])
    guard, model = guard_of(tools, config), ScriptedModel(SCRIPT)
    runner, agent = GuardedRunner(guard), agent_of(model, tools)
    options = replace(QUIET, tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=early))
    result = await runner.run(agent, "Refund A1.", run_config=options)
    if result.interruptions:
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        result = await runner.run(agent, state, run_config=options)
    assert result.final_output.startswith("Done.\n\n[Not done: refund (")
    assert model.calls[1].input[-1]["output"] == "not today"
    assert not log
    assert [known.status for known in guard.approvals.list(waiting=False)] == (["denied"] if config else [])


PICTURE = "data:image/png;base64,aGk="


NAMED = {"file_data": "aGk=", "filename": "a.pdf"}


@pytest.mark.parametrize(
    ("result", "sent"),
    [
        (ToolOutputImage(image_url=PICTURE, detail="low"), {"image_url": PICTURE, "detail": "low"}),
        ([ToolOutputText(text="see"), ToolOutputImage(file_id="f1")], {"file_id": "f1"}),
        ({"type": "file", **NAMED}, NAMED),
        (ToolOutputFileContent(**NAMED), NAMED),
        (ImageContent(type="image", data="aGk=", mimeType="image/png"), {"image_url": PICTURE}),
    ],
)
async def test_pictures_and_files_of_a_tool_reach_the_model_as_such(result, sent):
    """What the SDK would send as a picture or a file, it still does, beside the text of the guard."""

    @function_tool
    def show() -> object:
        """Show it."""
        return [result] if isinstance(result, ImageContent) else result

    model = ScriptedModel([[ask("show")], [assistant_message("Done.")]])
    await GuardedRunner(pokayoke.Guard(contracts([show], reads=["show"]))).run(
        agent_of(model, [show]), "Go.", run_config=QUIET
    )
    text, block = model.calls[1].input[-1]["output"]
    assert ("see" in text["text"], text["type"]) == (isinstance(result, list), "input_text")
    assert {key: value for key, value in block.items() if key != "type"} == sent
    assert block["type"] == ("input_file" if sent is NAMED else "input_image")


async def test_what_looks_like_a_picture_is_data_where_a_schema_says_so():
    """A tool with an output schema returns data, whatever its fields are called."""

    @function_tool
    def show() -> dict:
        """Show it."""
        return {"type": "image", "image_url": PICTURE}

    shape = {"type": "object", "properties": {"image_url": {"type": "string"}}, "required": ["image_url"]}
    guard = pokayoke.Guard(contracts([show], reads=["show"], fields={"show": {"output_schema": shape}}))
    model = ScriptedModel([[ask("show")], [assistant_message("Done.")]])
    await GuardedRunner(guard).run(agent_of(model, [show]), "Go.", run_config=QUIET)
    assert PICTURE in model.calls[1].input[-1]["output"]


async def test_the_limit_of_turns_ends_the_run():
    """MaxTurnsExceeded goes through."""
    tools = made([])
    replies = [[ask("find", json.dumps({"order": str(number)}), f"c{number}")] for number in range(9)]
    with pytest.raises(MaxTurnsExceeded):
        await GuardedRunner(guard_of(tools)).run(agent_of(replies, tools), "Find.", max_turns=3, run_config=QUIET)


async def test_a_tool_that_is_switched_off_is_answered_with_what_there_is():
    """A disabled tool is not run, and no reason to crash."""
    log = []
    tools = made(log, is_enabled=False)
    model = ScriptedModel(SCRIPT)
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools), "Refund A1.", run_config=QUIET)
    assert result.final_output.startswith("Done.")
    assert not log
    assert "not among your tools now. There are: find." in model.calls[1].input[-1]["output"]


async def test_a_typed_answer_is_left_alone():
    """A note beside the JSON of an `output_type` would break it."""

    class Answer(BaseModel):
        done: bool

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("no")

    model = [[ask(*REFUND)], [assistant_message('{"done": false}')]]
    agent = agent_of(model, [refund], output_type=Answer)
    result = await GuardedRunner(guard_of([refund])).run(agent, "Refund A1.", run_config=QUIET)
    assert result.final_output == Answer(done=False)


async def test_a_first_result_that_ends_the_run_is_the_plain_value_and_a_failure_ends_nothing():
    """`stop_on_first_tool`: the user gets the value, not what the model would read; after a refusal it goes on."""
    log = []
    tools = made(log)
    replies = [[ask("refund", '{"order": }')], [ask(*REFUND, "call_2")]]
    agent = agent_of(replies, tools, tool_use_behavior="stop_on_first_tool")
    result = await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("refunded A1", ["A1"])


async def test_a_first_result_that_was_not_kept_is_no_null():
    """A repeated write with a secret result ends the run with that sentence, not with nothing."""

    @function_tool
    async def issue(order: str) -> dict:
        """Issue a code."""
        return {"code": 42}

    guard = pokayoke.Guard(contracts([issue], fields={"issue": {"secret": True}}))
    runner, ended = GuardedRunner(guard), []
    for _ in range(2):
        agent = agent_of([[ask("issue", '{"order": "A1"}')]], [issue], tool_use_behavior="stop_on_first_tool")
        ended.append((await runner.run(agent, "Go.", run_config=QUIET, run_id="r")).final_output)
    assert ended[0] == str({"code": 42})
    assert ended[1] == "Not run a second time: issue."


async def test_a_demand_for_a_tool_that_is_denied_is_dropped():
    """Providers refuse a request that demands a tool it does not offer; monitor mode offers it."""
    tools = made([])
    settings = ModelSettings(tool_choice="refund")
    for mode, choice in (("enforce", None), ("monitor", "refund")):
        model = ScriptedModel([[assistant_message("Done.")]])
        guard = guard_of(tools, config={"mode": mode, "access": {"deny": ["refund"]}})
        await GuardedRunner(guard).run(agent_of(model, tools, model_settings=settings), "Refund.", run_config=QUIET)
        assert model.calls[0].model_settings.tool_choice == choice


async def test_an_agent_whose_tools_are_all_denied_asks_without_any():
    """The request then names neither tools nor a choice among them: providers refuse an empty list."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        return "refunded"

    model = ScriptedModel([[assistant_message("Done.")]])
    guard = guard_of([refund], config={"access": {"deny": ["refund"]}})
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)
    await GuardedRunner(guard).run(agent_of(model, [refund], model_settings=settings), "Refund.", run_config=QUIET)
    [asked] = model.calls
    assert (asked.tools, asked.model_settings.tool_choice, asked.model_settings.parallel_tool_calls) == ([], None, None)


async def test_a_tools_time_limit_is_the_contracts():
    """`timeout_seconds` of a tool becomes its contract's timeout, and a write that is over time is in doubt."""

    @function_tool(timeout=0.1)
    async def refund(order: str) -> str:
        """Refund an order."""
        await asyncio.sleep(5)

    assert contracts([refund])[0].timeout == 0.1
    model = ScriptedModel(SCRIPT)
    result = await GuardedRunner(guard_of([refund])).run(agent_of(model, [refund]), "Refund A1.", run_config=QUIET)
    assert "It is not known whether refund took effect" in result.final_output


def lookup(described, name="order"):
    """A tool called lookup, for one thing or another."""

    async def look(context, text):
        return f"{described} {json.loads(text)[name]}"

    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return FunctionTool("lookup", described, schema, look, strict_json_schema=False)


def test_tools_that_share_a_name_have_one_contract_only_if_they_are_alike():
    """Of two that differ, one would be judged by the terms of the other."""
    assert [one.name for one in contracts([lookup("crm"), lookup("crm")])] == ["lookup"]
    for other in (lookup("billing"), lookup("crm", "invoice"), replace(lookup("crm"), timeout_seconds=5)):
        with pytest.raises(pokayoke.errors.UsageError, match="two tools are called lookup"):
            contracts([lookup("crm"), other])


async def test_tools_of_namespaces_are_told_apart():
    """Each has a contract of its own, in whatever state its calls are, and a person is asked about the right one."""
    crm, billing = lookup("crm"), lookup("billing", "invoice")
    tools = [
        *tool_namespace(name="crm", description="Customers.", tools=[crm]),
        *tool_namespace(name="billing", description="Invoices.", tools=[billing]),
    ]

    def asked(space, name, arguments, ident):
        return ask(name, arguments, ident).model_copy(update={"namespace": space})

    model = ScriptedModel(
        [
            [
                asked("crm", "lookup", '{"order": "A",}', "c1"),
                asked("billing", "lookup", '{"invoice": "B"}', "c2"),
                asked("crm", "lookup", '{"order": }', "c3"),
                asked("crm", "invent", "{}", "c4"),
            ],
            [assistant_message("Done.")],
        ]
    )
    guard = pokayoke.Guard(contracts(tools, reads=["crm.lookup"]), config={"approvals": {"tools": ["billing.lookup"]}})
    runner, agent = GuardedRunner(guard), agent_of(model, tools)
    result = await runner.run(agent, "Look.", run_config=QUIET)
    assert [item.qualified_name for item in result.interruptions] == ["billing.lookup"]
    state = result.to_state()
    assert not runner.decide(state)
    state.approve(state.get_interruptions()[0])
    assert (await runner.run(agent, state, run_config=QUIET)).final_output == "Done."
    answers = {item["call_id"]: item["output"] for item in model.calls[1].input if "output" in item}
    assert "crm A" in answers["c1"]
    assert "billing B" in answers["c2"]
    assert "were not used" in answers["c3"]
    assert "crm.lookup" in answers["c4"]


async def test_a_parameter_with_a_default_may_be_left_out():
    """Strict mode requires it of the provider, and drops a default of None; the function does neither."""
    log = []

    @function_tool
    def send(order: str, note: str | None, page: int = 1, tags: list[str] | None = None) -> str:
        """Send an order."""
        log.append((order, note, page, tags))
        return "sent"

    assert contracts([send])[0].input_schema["required"] == ["order", "note"]
    short = {"order": "A1", "note": None}
    asked = [ask("send", json.dumps(short)), ask("send", json.dumps({**short, "tags": None, "page": 1}), "call_2")]
    agent = agent_of([asked, [assistant_message("Done.")]], [send])
    await GuardedRunner(guard_of([send])).run(agent, "Send A1.", run_config=QUIET)
    assert log == [("A1", None, 1, None)], "spelt out or not, it is one write"


def test_a_tool_of_a_schema_alone_requires_what_its_schema_says():
    """Nothing is known of the function behind it, so what may be null may not be left out."""

    async def invoke(context, text):
        """Runs it."""

    shown = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}, "required": ["note"]}
    tool = FunctionTool("send", "Send.", {**shown, "additionalProperties": False}, invoke)
    assert contracts([tool])[0].input_schema["required"] == ["note"]


async def test_tools_of_mcp_servers_are_guarded_and_their_failures_are_failures():
    """An MCP tool that says `isError` has failed, although the SDK hands on a text like any other."""

    class Shop(MCPServer):
        name = "shop"

        async def connect(self):
            pass

        async def cleanup(self):
            pass

        async def list_tools(self, *args, **kwargs):
            schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
            return [Listed(name="find", description="Find.", **{schema_field: schema})]

        async def call_tool(self, name, arguments, *args, **kwargs):
            text = TextContent(type="text", text=f"no {arguments['order']}: secret")
            return CallToolResult(content=[text], **{error_field: arguments["order"] == "B2"})

        async def list_prompts(self):
            raise NotImplementedError

        async def get_prompt(self, name, arguments=None):
            raise NotImplementedError

    schema_field = "input_schema" if "input_schema" in Listed.model_fields else "inputSchema"
    error_field = "is_error" if "is_error" in CallToolResult.model_fields else "isError"
    server = Shop()
    find = made([])[1]
    guard = guard_of([find])
    replies = [
        [ask("find", "{'order': 'A1'}", "c1"), ask("find", '{"order": "B2"}', "c2")],
        [assistant_message("Done.")],
    ]
    model = ScriptedModel(replies)
    agent = Agent(name="shop", model=model, mcp_servers=[server])
    await GuardedRunner(guard).run(agent, "Find.", run_config=QUIET)
    first, second = [item["output"] for item in model.calls[1].input if "output" in item]
    assert "no A1" in str(first)
    assert "reports a failure" in str(second)
    guard.replace([])
    with pytest.raises(pokayoke.errors.UsageError, match="find has no contract"):
        await GuardedRunner(guard).run(Agent(name="a", model=ScriptedModel(replies), mcp_servers=[server]), "Find.")
