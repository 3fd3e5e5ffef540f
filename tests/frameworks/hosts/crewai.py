"""CrewAI: a crew of one agent with one task, over its OpenAI client."""

import asyncio
import itertools
import os
import tempfile

# Before the import: it reports what it is used for, and asks whether it may.
os.environ.update(
    OTEL_SDK_DISABLED="true",
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_DISABLE_TRACKING="true",
    CREWAI_TRACING_ENABLED="false",
    CREWAI_DISABLE_VERSION_CHECK="true",
    CREWAI_TESTING="true",
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(prefix="crewai-"),
)

from crewai import LLM, Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from job import Job

import pokayoke
from pokayoke.adapters.crewai import contracts, guarded

TITLE = "CrewAI"
PACKAGE = "crewai"
MODULES = ("crewai",)
MODES = ("sync", "async", "stream")
WIRES = ("chat", "responses")
IMPOSSIBLE: dict[str, str] = {}
UNLIKE = {
    "test_a_sync_tool_without_a_deadline_is_cut_in_an_asynchronous_run": (
        "CrewAI calls its tools synchronously, in asynchronous crews too; the guide says so"
    ),
    "test_a_stream_that_breaks_off_runs_nothing @responses": "the guarded model requests a whole reply on this wire",
    "test_a_cut_that_a_stream_has_told_is_not_taken_back": (
        "CrewAI's own class keeps the last reason of a stream and drops the first before any hook; the guide says so"
    ),
}


def crew_of(job: Job, **options) -> tuple[Crew, pokayoke.Guard | None]:
    """The crew a user would build, and its guard."""
    api = {"api": "responses"} if job.wire == "responses" else {}
    llm = LLM(
        model="openai/gpt-4o",
        base_url=f"{job.url}/v1",
        api_key="k",
        max_retries=0,
        timeout=30,
        stream=job.mode == "stream",
        **api,
    )
    tools, guard = [tool(one) for one in job.functions], None
    if job.guarded:
        guard = pokayoke.Guard(contracts(tools, **job.declared), config=job.config, store=job.store)
        llm, tools = guarded(guard, llm, tools, run_id=job.run_id)
    agent = Agent(role="Clerk", goal="Help.", backstory="You work in a shop.", llm=llm, tools=tools, **options)
    task = Task(description=job.prompt, expected_output="An answer.", agent=agent)
    return Crew(agents=[agent], tasks=[task]), guard


def play(job: Job) -> str:
    """Have the conversation."""
    crew, _ = crew_of(job)
    if job.mode == "async":
        return asyncio.run(crew.akickoff()).raw
    return crew.kickoff().raw


# -- what a turn costs -------------------------------------------------------------------------------


class Scripted(BaseLLM):
    """A model in this process: it calls `look_up` as often as it is told, then ends."""

    calls: int = 1

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **kwargs):
        number = next(self.additional_params["asked"]) % (self.calls + 1)
        if number == self.calls:
            return "Done."
        function = {"name": "look_up", "arguments": f'{{"number": {number}}}'}
        return [{"id": f"call_{number}", "type": "function", "function": function}]

    def supports_function_calling(self):
        return True


class Empty(Scripted):
    """The point where the adapter looks at requests."""

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **kwargs):
        return super().call(messages, tools, callbacks, available_functions, **kwargs)


def measured(hooks: str, calls: int):
    """A run of `calls` tool turns."""

    @tool
    def look_up(number: int) -> dict:
        """Look up a number."""
        return {"found": number}

    kind = Empty if hooks == "empty" else Scripted
    llm, tools = kind(model="scripted", calls=calls, additional_params={"asked": itertools.count()}), [look_up]
    if hooks == "guarded":
        declared = {"look_up": {"output_schema": {"type": "object"}}}
        guard = pokayoke.Guard(contracts(tools, reads=("look_up",), fields=declared))
        llm, tools = guarded(guard, llm, tools)
    agent = Agent(role="Clerk", goal="Help.", backstory="None.", llm=llm, tools=tools, max_iter=calls + 2)
    crew = Crew(agents=[agent], tasks=[Task(description="Look up.", expected_output="An answer.", agent=agent)])

    def run():
        assert crew.kickoff().raw == "Done."

    return run
