"""Clusters of two workers, one of each engine: the report of one process, workers killed, mistakes told at once.

Ray is too large for the ordinary environment; where it is installed, its cluster takes every test here too.
"""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from recorded_calls import report, score_local, score_planned, shop, shop_rows, two_sets, write_rows, write_trace

from bench.cluster_engines import start_ray
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ConfigurationError, PokayokeError
from pokayoke.replay import engines
from pokayoke.replay import job as jobs
from pokayoke.replay.engines import open_cluster, run
from pokayoke.replay.job import import_contracts, pack_job
from pokayoke.replay.parts import Merger, plan, score_part
from pokayoke.replay.score.counts import Score
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.summary import ContractSet

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("clusters")]

TOOLS = """
import os, signal
from pathlib import Path
from pokayoke import Contract

def judge(output, arguments):
    if arguments.get("sku") == "poison":
        with Path(__file__).with_name("deaths").open("a") as deaths:
            print(os.getpid(), file=deaths)
        os.kill(os.getpid(), signal.SIGKILL)
    return True

schema = {"type": "object", "properties": {"sku": {"type": "string"}, "amount": {}}, "required": ["sku"]}
tools = [Contract.from_schema("create_order", schema, output_schema={"type": "object"}, invariants=(judge,))]
"""


@contextlib.contextmanager
def dask_cluster():
    """A Dask cluster on this machine: its address, and how to find the processes of its workers."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0, silence_logs=60
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        address = cluster.scheduler_address.replace("tcp:", "dask:")
        yield address, lambda: list(client.run(os.getpid).values())


@contextlib.contextmanager
def ray_cluster():
    """A Ray cluster on this machine, as above."""
    ray = pytest.importorskip("ray", reason="Ray has an environment of its own: make ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)  # where `ray` is for other processes
        try:
            yield "ray", find_ray_workers
        finally:
            ray.shutdown()


@contextlib.contextmanager
def ray_client_cluster():
    """A Ray cluster that is reached from outside, by the port for clients."""
    pytest.importorskip("ray", reason="Ray has an environment of its own: make ray")
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, start_ray(2, folder, client_port=True) as started:
        yield started.on, find_ray_workers


def find_ray_workers():
    """The processes below this one that work on a part: their titles say so."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if file.read_bytes().startswith(b"ray::score_part") and is_below(int(file.parent.name), os.getpid()):
                found.append(int(file.parent.name))
    return found


def is_below(pid, parent):
    while pid > 1 and pid != parent:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == parent


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster, "ray-client": ray_client_cluster}


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request, tmp_path_factory):
    """The address of a cluster with two workers, and a function that returns their processes."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "poisoned_tools.py").write_text(TOOLS)
    (folder / "lacking_tools.py").write_text(TOOLS)
    for name in ("poisoned_tools", "lacking_tools"):
        sys.modules.pop(name, None)  # that of the cluster before
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))  # of the workers
        patch.syspath_prepend(folder)
        with CLUSTERS[request.param]() as found:
            yield found


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A plain recording, the same compressed, and a trace."""
    folder = tmp_path_factory.mktemp("recordings")
    plain = write_rows(folder / "r.jsonl", shop_rows(1_500))
    (folder / "r.gz").write_bytes(gzip.compress((folder / "r.jsonl").read_bytes()))
    return [plain, str(folder / "r.gz"), write_trace(folder / "t.jsonl", 200)]


@pytest.fixture(scope="module")
def expected(recordings):
    """The report of one process."""
    return report(score_local(recordings, two_sets()), recordings, two_sets())


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_report_is_that_of_one_process(cluster, recordings, expected, parts):
    """With 1, 2 and 7 parts a file the report is byte for byte that of one process."""
    size = -(-os.path.getsize(recordings[0]) // parts)
    with open_cluster(cluster[0], pack_job(two_sets())) as engine:
        score, lost = score_planned(engine, recordings, two_sets(), size)
    assert lost == []
    assert report(score, recordings, two_sets()) == expected


def test_a_killed_worker_changes_nothing(cluster, recordings, expected):
    """A worker that is killed in the middle is replaced; its parts are scored again, and counted once."""
    killed = []

    def kill(read, calls):
        if not killed and (found := cluster[1]()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])

    with open_cluster(cluster[0], pack_job(two_sets())) as engine:
        score, lost = score_planned(engine, recordings, two_sets(), 9_000, kill)
    assert killed
    assert lost == []
    assert report(score, recordings, two_sets()) == expected


def set_of(module):
    """A set of contracts that stand in a module."""
    return [ContractSet(module, Judge(import_contracts(f"{module}:tools")), (f"{module}:tools",))]


def test_what_a_worker_lacks_is_named(cluster, tmp_path, monkeypatch):
    """A module, a file or a version that a worker has not ends the work at once, with a sentence."""
    name = write_rows(tmp_path / "r.jsonl", shop_rows(20))
    (part,) = plan([name])

    def fail(job, text):
        with open_cluster(cluster[0], job) as engine, pytest.raises(ConfigurationError, match=text):
            run(engine, score_part, [part], Merger(Score()))

    job = pack_job(set_of("lacking_tools"))
    os.unlink(sys.modules["lacking_tools"].__file__)
    fail(job, r"on a worker: lacking_tools:tools cannot be imported: ModuleNotFoundError")
    os.unlink(name)
    fail(pack_job(two_sets()), r"on a worker: .*r.jsonl: cannot be read")
    monkeypatch.setattr(jobs, "_versions", lambda: ("0.0.1", "3.11"))
    fail(pack_job(two_sets()), "Install the same versions on both")


def run_command(folder, *words):
    """Run the command line in a folder."""
    command = [sys.executable, "-m", "pokayoke.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, text=True)


def test_the_commands_work_on_a_cluster(cluster, tmp_path):
    """`replay --on` and `learn --on` print what they print without it."""
    write_rows(tmp_path / "r.jsonl", shop_rows(100))
    (tmp_path / "c.json").write_text(json.dumps([one.to_mapping() for one in shop()]))
    name = str(tmp_path / "r.jsonl")
    for words in (["replay", name, "--contracts", "c.json", "--json"], ["learn", name]):
        here, there = (run_command(tmp_path, *words, *more) for more in ((), ("--on", cluster[0])))
        assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
        assert here.stdout


def test_a_lost_part_is_exit_code_1(cluster, tmp_path):
    """A line that kills its workers is told with its file and bytes; the other file is scored, and the code is 1."""
    row = {"tool": "create_order", "arguments": {"sku": "S", "amount": 1}, "output": {}}
    good = write_rows(tmp_path / "good.jsonl", [row] * 50)
    bad = write_rows(tmp_path / "bad.jsonl", [{**row, "arguments": {"sku": "poison"}}])
    words = ["--contracts", "poisoned_tools:tools", "--on", cluster[0], "--json"]
    clean, lossy = run_command(tmp_path, "replay", good, *words), run_command(tmp_path, "replay", good, bad, *words)
    assert (clean.returncode, lossy.returncode) == (0, 1), (clean.stderr, lossy.stderr)
    assert json.loads(lossy.stdout)["calls"] == 50
    assert f"{bad}: left out bytes 0 to {os.path.getsize(bad)}: every worker that had this part died" in lossy.stderr


def test_a_part_that_kills_its_workers_is_left_out(cluster, tmp_path):
    """A line that kills three workers costs its part; the rest is scored, and later lines keep their numbers."""
    rows = [{"tool": "create_order", "arguments": {"sku": "S", "amount": 1}, "output": {}} for _ in range(400)]
    rows[150]["arguments"]["sku"] = "poison"
    rows[399] = "{cut"
    name = write_rows(tmp_path / "p.jsonl", rows)
    size = os.path.getsize(name) // 8
    sets = set_of("poisoned_tools")
    deaths = Path(sys.modules["poisoned_tools"].__file__).with_name("deaths")
    deaths.unlink(missing_ok=True)
    with open_cluster(cluster[0], pack_job(sets)) as engine:
        score, lost = score_planned(engine, [name], sets, size)
    died = len(deaths.read_text().splitlines())
    assert died == 3 if cluster[0] == "ray" else died >= 3  # on Dask again, when nothing else is under way
    assert [(part.start, part.end) for part in lost] == [(3 * size, 4 * size)]
    assert 340 < score.calls < 360
    assert score.first_unread == [(0, 400, "not JSON: the line is cut, or damaged")]


# -- before anything is sent -----------------------------------------------------------------------


def test_functions_of_no_module_are_refused():
    """A contract with a function that workers could not import is refused by name."""
    made_here = Contract.from_schema(
        "f", {"type": "object"}, output_schema={}, invariants=(lambda output, given: True,)
    )
    with pytest.raises(ConfigurationError, match="f@1: holds functions, which cannot be sent"):
        pack_job([ContractSet("", Judge([made_here]))])


@pytest.mark.parametrize("on", ["spark", "ray://", "dask", "http://h:1"])
def test_an_unknown_engine_is_refused(on):
    """What names no engine is told the forms that do."""
    with pytest.raises(ConfigurationError, match="expected ray"):
        open_cluster(on, b"")


def test_nobody_answers(monkeypatch):
    """An address where nothing listens is an error that names it."""
    monkeypatch.setattr(engines, "_CONNECT_SECONDS", 1)
    with pytest.raises(ConfigurationError, match="no Dask scheduler answers"):
        open_cluster("dask://127.0.0.1:9", pack_job()).__enter__()


def test_stdin_cannot_be_sent():
    """Only this process can read its stdin."""
    with pytest.raises(ConfigurationError, match="stdin"):
        plan(["-"])


def test_a_missing_bucket_is_an_error():
    """A URL that nothing is behind, or that no installed package opens, is named with the reason."""
    with pytest.raises(ConfigurationError, match=r"memory://gone.jsonl: cannot be read: FileNotFoundError"):
        plan(["memory://gone.jsonl"])
    with pytest.raises(ConfigurationError, match="nowhere://b/x: cannot be opened: ValueError: Protocol not known"):
        plan(["nowhere://b/x"])


def test_a_missing_package_is_named(monkeypatch):
    """An engine that is not installed is told with the command that installs it."""
    for module, on in (("ray", "ray"), ("distributed", "dask://h:1")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(PokayokeError, match=rf"pip install 'pokayoke\[{on[:4].strip(':')}\]'"):
            open_cluster(on, b"").__enter__()
