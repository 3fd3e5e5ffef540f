"""A conversation of the framework in this environment with a scripted model, as the shared tests have it."""

import gc
import json
import os
import warnings
from dataclasses import dataclass

import pytest
from framework_shop import Shop
from job import Job
from judge import Facts
from model_server import ModelServer, Turn
from runner import load

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of frameworks that are imported
    HOST = load(os.environ["POKAYOKE_HOST"])
modes = pytest.mark.parametrize("mode", HOST.MODES)


@dataclass
class Conversation:
    """What became of a conversation: the requests to the model, what the tools did, and the last text."""

    requests: list
    happened: list
    text: str

    @property
    def bodies(self):
        """The body of each request."""
        return [body for _, body in self.requests]

    @property
    def offered(self):
        """The names of the tools in each request."""
        tools = [body.get("tools") or () for body in self.bodies]
        return [[(one.get("function") or one)["name"] for one in request] for request in tools]

    @property
    def answers(self):
        """What the model reads of each call, in the last request."""
        return Facts(self.requests).answers


def calls(*wanted):
    """A turn of the model that calls tools."""
    return Turn(calls=tuple((ident, name, _written(given)) for ident, name, given in wanted))


def _written(given):
    return given if isinstance(given, str) else json.dumps(given)


@pytest.fixture(autouse=True)
def possible(request):
    """Skip what this framework makes impossible."""
    name, params = request.function.__name__, getattr(request.node, "callspec", None)
    wire = params.params.get("wire") if params else None
    unlike = getattr(HOST, "UNLIKE", {})
    if why := unlike.get(name) or unlike.get(f"{name} @{wire}") or unlike.get(request.node.name):
        pytest.skip(why)


@pytest.fixture
def play(tmp_path):
    """Play a conversation with the first wire of the host; `turns` are the model's."""

    def conversation(*turns, shop=Shop, mode=HOST.MODES[0], wire=HOST.WIRES[0], **options):
        with ModelServer([*turns]) as server, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frameworks leave clients and loops open
            tools = shop(tmp_path / "log")
            text = HOST.play(Job(server.url, tools, wire, mode, **options))
            gc.collect()
            assert server.refused == []
        return Conversation(server.requests, tools.happened(), text)

    return conversation
