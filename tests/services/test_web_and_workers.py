"""The guide to web servers and workers: uvicorn and real requests, a Celery worker and a broker of files."""

import re
import time

import httpx
import pytest

from pokayoke.testing import died

PAGE = "web-and-workers.md"
CALL = {"id": "call_1", "name": "charge", "arguments": '{"order_id": "O-7", "cents": 1250}'}
SERVE = "from uvicorn.main import main; main(['app:app', '--port', '0'])"
BROKER = """
from tasks import app, call_tool
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
app.conf.result_backend = "file://results"
"""
WORK = "app.worker_main(['worker', '--concurrency', '1', '--loglevel', 'info'])"
ORDER = """
task = call_tool.delay("job-1", "call_1", "charge", {"order_id": "O-7", "cents": 1250})
print(task.get(timeout=50)["status"])
"""


def wait_for(process, file, pattern):
    """Wait until a program has printed a line; returns its match."""
    until = time.monotonic() + 60
    while not (found := re.search(pattern, file.read_text())):
        assert process.poll() is None, file.read_text()
        assert time.monotonic() < until, file.read_text()
        time.sleep(0.05)
    return found


@pytest.fixture
def start(programs):
    """A function that starts a program of the guide and waits for its line; all of them end with the test."""
    started = []

    def start(guide, source, pattern, **how):
        process = guide.start(source, **how)
        started.append(process)
        return process, wait_for(process, guide.folder / "log.txt", pattern)

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def test_a_request_that_was_not_answered_is_sent_again(programs, start):
    """A server dies between the charge and its answer: the request sent again is replayed, as is each later one."""
    guide = programs(PAGE)
    server, port = start(guide, SERVE, r"running on http://127.0.0.1:(\d+)", end="kill")
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://127.0.0.1:{port[1]}/conversations/c-1/calls", json=CALL)
    assert died(server.wait(30))
    _, port = start(guide, SERVE, r"running on http://127.0.0.1:(\d+)")
    for _ in range(2):
        answer = httpx.post(f"http://127.0.0.1:{port[1]}/conversations/c-1/calls", json=CALL)
        assert (answer.status_code, answer.json()["status"]) == (200, "replayed")
    assert guide.lines("card.txt") == ["O-7 1250"]


def test_a_task_that_is_delivered_again_is_replayed(programs, start):
    """The process of a task is killed after the charge: the task is delivered again, and the card was charged once."""
    guide = programs(PAGE)
    for folder in ("queue", "control", "results"):
        (guide.folder / folder).mkdir()
    guide.environment["BROKER"] = "filesystem://"
    worker, _ = start(guide, BROKER + WORK, r"celery@\S+ ready", end="kill")
    asked = guide.run(BROKER + ORDER)
    assert asked.stdout.split() == ["replayed"], asked.stderr
    assert wait_for(worker, guide.folder / "log.txt", r"signal 9 \(SIGKILL\)")
    assert guide.lines("card.txt") == ["O-7 1250"]
