"""A client that misbehaves: what it gets, and that its server sees none of it."""

import json
import sys
from pathlib import Path

import pytest
from mcp_lines import LineClient, gateway, status, text

SERVER = str(Path(__file__).parents[2] / "support" / "hostile_mcp_server.py")
CALL = '{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"act","arguments":{"n":1}}%s}'

# A line, and the id and the code of the error that answers it.
TABLE = [
    ("garbage", None, -32700),
    ('{"jsonrpc":"2.0","id":5,"method":"ping"', 5, -32700),
    ('{"jsonrpc":"2.0","id":"five","method":"ping",,}', "five", -32700),
    ("[]", None, -32600),
    ('[{"jsonrpc":"2.0","id":5,"method":"ping"}]', 5, -32600),
    ('{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}', 5, -32700),
    (CALL % (5, ',"method":"ping"'), 5, -32700),
    (CALL % (5, ',"params":{"name":"look"}'), 5, -32700),
    ('{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act","arguments":{"n":1,"n":2}}}', 5, -32700),
    ('{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act","arguments":{"n":NaN}}}', 5, -32700),
    ('{"id":5,"method":"ping"}', 5, -32600),
    ('{"jsonrpc":"1.0","id":5,"method":"ping"}', 5, -32600),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
    ('{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
    ('{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
    ('{"jsonrpc":"2.0","id":5,"method":7}', 5, -32600),
    ('{"jsonrpc":"2.0","id":5}', 5, -32600),
    ('{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}', 5, -32600),
    ('{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}', 5, -32600),
    ('"text"', None, -32600),
    ("[" * 100_000, None, -32700),
    ("\x00\x01\x02", None, -32700),
    ('{"jsonrpc":"2.0","id":5,"method":"\ud800"}', 5, -32700),
]


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


def test_every_bad_line_is_answered_and_nothing_of_it_reaches_the_server(effects):
    """Each row gets one error with its id as far as that can be told; the conversation goes on after all of them."""
    with LineClient(*gateway(server=[sys.executable, SERVER, "twice", str(effects)])) as client:
        client.initialize()
        for line, ident, code in TABLE:
            client.write(line.encode(errors="surrogatepass") + b"\n")
            error = client.wait(lambda one: "error" in one)
            assert (error["id"], error["error"]["code"]) == (ident, code), line[:100]
        assert text(client.call("look", {"n": 0}, ident="last")) == "done"
    assert effects.read_text() == "look 0\n"


def test_a_line_of_200_mb_is_answered_and_not_held(effects):
    """The request in it gets an error with its id; the process never holds more than the limit."""
    with LineClient(*gateway("--longest-line", "8", server=[sys.executable, SERVER, "twice", str(effects)])) as client:
        client.initialize()
        client.write(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"act","arguments":{"s":"')
        for _ in range(200):
            client.write(b"x" * 1_000_000)
        client.write(b'"}}}\n')
        error = client.answer(77)["error"]
        assert "longer than" in error["message"]
        peak = next(
            int(line.split()[1]) // 1024
            for line in Path(f"/proc/{client.process.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        assert peak < 150
        assert text(client.call("look", {"n": 0})) == "done"


@pytest.mark.parametrize("arguments", [None, [], "n", 5, True, {"n": "x"}, {"n": {"n": 1}}])
def test_arguments_of_any_kind_get_a_result_that_a_model_reads(effects, arguments):
    """What does not fit the schema is refused as a result, not as an error, which clients hide."""
    with LineClient(*gateway(server=[sys.executable, SERVER, "twice", str(effects)])) as client:
        client.initialize()
        message = client.request("tools/call", {"name": "act", "arguments": arguments})
        assert status(message["result"]) in ("ok", "refused")


def test_an_id_that_is_in_use_is_refused(effects):
    """Two open requests of one id would make their answers one's."""
    with LineClient(*gateway("--deadline", "3", server=[sys.executable, SERVER, "forgets", str(effects)])) as client:
        client.initialize()
        client.send(id=9, method="tools/call", params={"name": "act", "arguments": {"n": 1}})
        client.send(id=9, method="ping", params={})
        answers = [client.answer(9), client.answer(9)]
        assert [next(iter(one.keys() & {"error", "result"})) for one in answers] == ["error", "result"]
        assert status(answers[1]["result"]) == "in_doubt"


def test_a_cancelled_write_is_in_doubt_and_its_late_answer_settles_it(effects):
    """The client says that it no longer waits; the equal call under a new id is not run again."""
    with LineClient(*gateway("--deadline", "5", server=[sys.executable, SERVER, "slow", str(effects)])) as client:
        client.initialize()
        client.call("look", {"n": 0})
        client.send(id=50, method="tools/call", params={"name": "act", "arguments": {"n": 1}})
        client.send(method="notifications/cancelled", params={"requestId": 50})
        first = client.call("act", {"n": 1}, ident=51)
        assert status(first) == "in_doubt"
        client.call("look", {"n": 0}, ident=52)  # the server answers in order, so the late answer is there by now
        assert status(client.call("act", {"n": 1}, ident=53)) == "replayed"
        assert not [one for one in client.seen if one.get("id") == 50]
    assert effects.read_text().count("act 1") == 1


def test_many_open_requests_are_answered_within_a_bound(effects):
    """Of 12,000 requests that nobody answers, those beyond the limit are refused at once, and the others in time."""
    with LineClient(
        *gateway("--deadline", "8", server=[sys.executable, SERVER, "forgets_all", str(effects)])
    ) as client:
        client.initialize()
        lines = [json.dumps({"jsonrpc": "2.0", "id": f"n{number}", "method": "ping"}) for number in range(12_000)]
        client.write(("\n".join(lines) + "\n").encode())
        said = [client.wait(lambda one: "error" in one, 40)["error"]["message"] for _ in range(12_000)]
        refused = [one for one in said if "are open" in one]
        assert len(refused) >= 1_900
        assert len(refused) < 12_000


def test_an_answer_that_nobody_has_asked_for_goes_nowhere(effects):
    """A client cannot answer in another's name, and a stale answer does not reach a new server."""
    with LineClient(*gateway(server=[sys.executable, SERVER, "twice", str(effects)])) as client:
        client.initialize()
        for ident in ("x", 1, None, "pokayoke-0-0"):
            client.send(id=ident, result={"action": "accept", "content": {"allow": True}})
        assert text(client.call("look", {"n": 0})) == "done"
    assert b"nobody has made" in b"".join(client.notes)
