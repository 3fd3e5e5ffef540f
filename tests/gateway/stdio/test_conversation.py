"""The state of a conversation, with a server that the test plays: questions, tasks, and what passes as it came."""

import json
import threading
import time

import pytest
from mcp_lines import OUTCOME

from pokayoke import Guard
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.listing import ListingSettings
from pokayoke.gateway.stdio.conversation import Conversation, ConversationSettings

ACT = {"name": "act", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
LOOK = {"name": "look", "inputSchema": {"type": "object"}}
GOOD = {"content": [{"type": "text", "text": "done"}]}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


class Stage:
    """Both ends of a conversation, in this process."""

    def __init__(self, mode="enforce", approvals=(), capabilities=None, listed=True, deadline=300.0):
        fields = {"look": {"effect": "read"}, "act": {"approval": True} if approvals else {}}
        guard = Guard([], config={"mode": mode})
        self.door = Interceptor(guard, listing=ListingSettings(fields=fields), scope="s")
        self.client, self.server, self.restarts, self.notes = [], [], [], []
        self.is_there = True
        self.talk = Conversation(
            self.door, ConversationSettings(deadline=deadline), self.client.append, self.notes.append
        )
        self.talk.connect(self)
        self.changed = threading.Event()
        if capabilities is not None:
            self.say(id="i", method="initialize", params={"capabilities": capabilities})
            self.answer("i", {"capabilities": {}})
        if listed:
            self.say(id="l", method="tools/list", params={})
            self.answer("l", {"tools": [ACT, LOOK]})
        self.client.clear()
        self.server.clear()

    def send_line(self, line, exchange=None):
        if not self.is_there:
            return False
        if exchange is not None:
            exchange.sent_at = time.monotonic()
        self.server.append(line)
        return True

    def restart(self, reason):
        self.restarts.append(reason)

    def say(self, **message):
        self.talk.take_client_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def call(self, ident, name="act", arguments=None, **more):
        params = {"name": name, "arguments": {"n": 1} if arguments is None else arguments, **more}
        self.say(id=ident, method="tools/call", params=params)

    def answer(self, ident, result):
        self.talk.take_server_line(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode())

    def got(self):
        """Return the client's next message; some come from a worker."""
        return self._next(self.client)

    def sent(self):
        return self._next(self.server)

    def _next(self, lines):
        end = time.monotonic() + 10
        while not lines and time.monotonic() < end:
            time.sleep(0.005)
        return json.loads(lines.pop(0))

    def status(self):
        return self.got()["result"]["_meta"][OUTCOME]["status"]


@pytest.mark.parametrize(
    "line",
    [
        b'{ "jsonrpc": "2.0", "id": 1,  "method": "resources/read", "params": {"uri": "a", "x": 1.0e2} }',
        b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
        b'{"jsonrpc":"2.0","id":"x","method":"no/such/method","extra":[1,2.50]}',
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{ "name":"look", "arguments":{ "n": 1.50 } }}',
    ],
)
def test_what_the_guard_does_not_act_on_passes_byte_for_byte(line):
    """Spaces, the order of keys and the spelling of numbers stay; also those of a call that changes nothing."""
    stage = Stage()
    stage.talk.take_client_line(line)
    assert stage.server == [line]


def test_a_result_keeps_its_bytes_but_for_the_mark():
    """Only a `_meta` is added to a good result; what its server wrote stays as it wrote it."""
    stage = Stage()
    stage.call(1, "look")
    line = b'{"result":{ "content": [{"type":"text","text":"\\u0061"}], "n": 1.50e3 },"jsonrpc":"2.0","id":1}'
    stage.talk.take_server_line(line)
    assert b'{ "content": [{"type":"text","text":"\\u0061"}], "n": 1.50e3 ,"_meta":{' in stage.client[0]


def test_the_messages_of_a_server_pass_in_their_order():
    """Requests of the server, progress and its logs reach the client, and the answers reach the server."""
    stage = Stage()
    lines = [
        b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[]}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}',
    ]
    for line in lines:
        stage.talk.take_server_line(line)
    assert stage.client == lines
    said = b'{"jsonrpc":"2.0","id":7,"result":{"role":"assistant"}}'
    stage.talk.take_client_line(said)
    stage.talk.take_client_line(said)  # the second one answers nothing
    assert stage.server == [said]


@pytest.mark.parametrize("decision", ["yes", "no", "cancel"])
def test_a_person_is_asked_through_the_clients_window(decision):
    """In the legacy era the gateway sends its own request; the call runs only after a yes."""
    stage = Stage(approvals=["act"], capabilities={"elicitation": {}})
    stage.call(1)
    asked = stage.got()
    assert (asked["method"], "act" in asked["params"]["message"]) == ("elicitation/create", True)
    assert not stage.server
    said = (
        {"action": "cancel"} if decision == "cancel" else {"action": "accept", "content": {"allow": decision == "yes"}}
    )
    stage.say(id=asked["id"], result=said)
    if decision == "yes":
        assert stage.sent()["params"]["arguments"] == {"n": 1}
        stage.answer(1, GOOD)
        assert stage.status() == "ok"
    else:
        assert stage.status() == ("refused" if decision == "no" else "pending")
        assert not stage.server


def test_a_client_without_a_window_gets_a_pending_call():
    """Nobody is asked; the call is pending, with the id of the question for an operator."""
    stage = Stage(approvals=["act"], capabilities={})
    stage.call(1)
    facts = stage.got()["result"]["_meta"][OUTCOME]
    assert (facts["status"], bool(facts["approval"])) == ("pending", True)


def test_a_modern_client_gets_the_question_as_a_result():
    """It sends the same call again, with the answer; the server sees nothing of it."""
    stage = Stage(approvals=["act"])
    stage.call(1, _meta=MODERN)
    asks = stage.got()["result"]
    assert asks["resultType"] == "input_required"
    key, request = next(iter(asks["inputRequests"].items()))
    assert request["method"] == "elicitation/create"
    said = {key: {"action": "accept", "content": {"allow": True}}}
    stage.call(2, _meta=MODERN, requestState=asks["requestState"], inputResponses=said)
    params = stage.sent()["params"]
    assert (params["arguments"], "requestState" in params, "inputResponses" in params) == ({"n": 1}, False, False)
    stage.answer(2, {**GOOD, "resultType": "complete"})
    assert stage.status() == "ok"


def test_an_answer_to_another_question_runs_nothing():
    """A state that names a question about other arguments is no yes to these."""
    stage = Stage(approvals=["act"])
    stage.call(1, _meta=MODERN)
    state = stage.got()["result"]["requestState"]
    said = {"pokayoke": {"action": "accept", "content": {"allow": True}}}
    stage.call(2, arguments={"n": 2}, _meta=MODERN, requestState=state, inputResponses=said)
    assert stage.got()["result"]["resultType"] == "input_required"
    assert not stage.server


def test_a_call_before_any_listing_makes_the_gateway_list_itself():
    """The server is asked first, all pages of it; then the call goes on."""
    stage = Stage(listed=False)
    stage.call(1)
    for page, result in enumerate([{"tools": [LOOK], "nextCursor": "2"}, {"tools": [ACT]}]):
        asked = stage.sent()
        assert (asked["method"], asked["params"].get("cursor")) == ("tools/list", "2" if page else None)
        stage.answer(asked["id"], result)
    assert stage.sent()["method"] == "tools/call"
    assert not stage.client


def test_the_result_of_a_legacy_task_is_judged_where_it_is_delivered():
    """`tools/call` answers with a task; the result of `tasks/result` is checked, and its claim settled there."""
    stage = Stage()
    stage.call(1, task={"ttl": 1000})
    stage.answer(1, {"task": {"taskId": "t1", "status": "working"}})
    assert stage.got()["result"]["task"]["taskId"] == "t1"
    stage.say(id=2, method="tasks/result", params={"taskId": "t1"})
    stage.answer(2, {**GOOD, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}})
    result = stage.got()["result"]
    assert (result["_meta"][OUTCOME]["status"], len(result["_meta"])) == ("ok", 2)
    stage.call(3)
    assert stage.status() == "replayed"


def test_the_result_of_a_modern_task_is_judged_in_its_state():
    """It arrives inside `tasks/get`; a page there is withheld."""
    stage = Stage()
    stage.call(1, _meta=MODERN)
    stage.answer(1, {"resultType": "task", "taskId": "t1", "status": "working"})
    stage.got()
    page = {"content": [{"type": "text", "text": "<!doctype html><html><body>Sign in</body></html>"}]}
    for ident, state in ((2, {"status": "working"}), (3, {"status": "completed", "result": page})):
        stage.say(id=ident, method="tasks/get", params={"taskId": "t1", "_meta": MODERN})
        stage.answer(ident, {"taskId": "t1", "resultType": "complete", **state})
        got = stage.got()["result"]
    assert got["result"]["_meta"][OUTCOME]["status"] == "invalid_output"
    assert "Sign in" not in str(got)


@pytest.mark.parametrize(("mode", "is_shown"), [("enforce", False), ("monitor", True)])
def test_the_result_of_a_task_that_nobody_knows_is_withheld(mode, is_shown):
    """Its call is not known, so nothing can check it; `monitor` shows it."""
    stage = Stage(mode)
    stage.say(id=2, method="tasks/result", params={"taskId": "stranger"})
    stage.answer(2, GOOD)
    assert (stage.got()["result"]["content"] == GOOD["content"]) is is_shown


def test_a_result_in_a_notification_is_judged():
    """`notifications/tasks` delivers results as well."""
    stage = Stage()
    stage.call(1, _meta=MODERN)
    stage.answer(1, {"resultType": "task", "taskId": "t1", "status": "working"})
    stage.got()
    params = {"taskId": "t1", "status": "completed", "result": GOOD}
    stage.talk.take_server_line(
        json.dumps({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params}).encode()
    )
    assert stage.got()["params"]["result"]["_meta"][OUTCOME]["status"] == "ok"


def test_progress_and_a_question_to_the_client_begin_the_deadline_anew():
    """A server that works, or waits for a person, is not cut off."""
    stage = Stage(deadline=10.0)
    stage.call(1, "look", _meta={"progressToken": "p"})
    now = time.monotonic()
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}}
    stage.talk._open[True, 1].deadline = now - 1
    stage.talk.take_server_line(json.dumps(progress).encode())
    stage.talk.expire(now + 1)
    assert (True, 1) in stage.talk._open
    stage.talk.take_server_line(b'{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{}}')
    stage.talk.expire(now + 100)
    assert (True, 1) in stage.talk._open
    stage.say(id=9, result={"action": "decline"})
    stage.talk.expire(now + 100)
    assert (True, 1) not in stage.talk._open


def test_a_server_that_is_not_there_is_said_to_have_run_nothing():
    """What never reached it may be sent again."""
    stage = Stage()
    stage.is_there = False
    stage.call(1)
    assert stage.status() == "failed"
    stage.is_there = True
    stage.call(2)
    assert stage.sent()["id"] == 2
