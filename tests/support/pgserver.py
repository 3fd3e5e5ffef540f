"""PostgreSQL for tests: an empty schema on a server that runs, and a private cluster that may be broken.

The server is named by POKAYOKE_TEST_POSTGRES (a URL whose user may create databases); without it,
`postgresql://postgres@127.0.0.1:5432/test` is tried. The private cluster needs PostgreSQL's own programs.
"""

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from urllib.parse import urlsplit

SERVER = os.environ.get("POKAYOKE_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
HOW = "start PostgreSQL (docs/guides/postgres.md) and name it in POKAYOKE_TEST_POSTGRES"


class Missing(Exception):  # noqa: N818 - says what is the matter
    """This machine has no such thing; the text says how to get it."""


def joined(url, *parameters):
    """A URL with more parameters."""
    return url + ("&" if "?" in url else "?") + "&".join(parameters)


@functools.cache
def own_database():
    """Return the URL of a database that this process alone uses; it is dropped when the process ends.

    Locks of the ledger hold for a database, so no test of another process takes one of them.

    Raises:
        Missing: no server answers, or psycopg is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra, which a user may lack
    except ImportError:
        raise Missing("psycopg is not installed: pip install 'pokayoke[postgres]'") from None
    name = f"pokayoke_test_{uuid.uuid4().hex[:12]}"

    def act(statement):
        with psycopg.connect(SERVER, autocommit=True, connect_timeout=5) as conn:
            conn.execute(f"{statement} {name}" + (" WITH (FORCE)" if statement == "DROP DATABASE" else ""))

    try:
        act("CREATE DATABASE")
    except psycopg.OperationalError as error:
        raise Missing(f"no PostgreSQL at {SERVER} ({' '.join(str(error).split())}): {HOW}") from None
    creator = os.getpid()
    atexit.register(lambda: os.getpid() == creator and act("DROP DATABASE"))
    return urlsplit(SERVER)._replace(path=f"/{name}").geturl()


@contextlib.contextmanager
def empty_schema():
    """Yield the URL of an empty schema of its own; it is dropped at the end.

    Raises:
        Missing: no server answers, or psycopg is not installed.
    """
    server = own_database()
    import psycopg  # noqa: PLC0415 - an extra, which a user may lack

    name = f"pokayoke_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {name}")
    try:
        yield joined(server, f"options=-csearch_path%3D{name}")
    finally:
        with psycopg.connect(server, autocommit=True) as conn:
            # Only who holds something of this schema: other tests use the server at the same time.
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%%' AND pid IN "
                "(SELECT pid FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE relnamespace = %s::regnamespace)",
                [name],
            )
            conn.execute(f"DROP SCHEMA {name} CASCADE")


class Cluster:
    """A PostgreSQL of one's own: own folder, own port of 127.0.0.1, run by a user who is not root.

    Args:
        settings: of postgresql.conf, such as `fsync="off"`.

    Raises:
        Missing: initdb and pg_ctl are not there, or root finds nobody to run them as.
    """

    def __init__(self, **settings):
        self._bin = _programs()
        self._as = _somebody()
        self.folder = Path(tempfile.mkdtemp(prefix="pokayoke-pg-"))
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self.port = _free_port()
        self.url = self.url_of("postgres")
        self._settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": self.port, **settings}
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def url_of(self, database):
        """The URL of a database in it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Start it and wait until it answers."""
        options = " ".join(f"-c {name}={str(value) or chr(39) * 2}" for name, value in self._settings.items())
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-t", "30", "-o", options, "start")

    def stop(self, mode="fast"):
        """Stop it: smart, fast, or immediate (as a crash does)."""
        self._run("pg_ctl", "-D", "data", "-w", "-t", "30", "-m", mode, "stop")

    def restart(self, mode="immediate"):
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def signal(self, pid, which):
        """Send a signal to one of its processes; 0 is the postmaster."""
        os.kill(pid or int((self.folder / "data/postmaster.pid").read_text().split()[0]), which)

    def stall(self, pid):
        """Stop a backend where it is."""
        self.signal(pid, signal.SIGSTOP)

    def go_on(self, pid):
        """Let a stopped backend run."""
        self.signal(pid, signal.SIGCONT)

    def _run(self, program, *arguments):
        # pg_ctl's child keeps inherited pipes open, so what it says goes to a file.
        with (self.folder / "said").open("w") as said:
            done = subprocess.run(
                [self._bin / program, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                check=False,
                timeout=60,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
                **(self._as or {}),
            )
        if done.returncode:
            log = self.folder / "log"
            raise subprocess.CalledProcessError(
                done.returncode, program, (self.folder / "said").read_text(), log.read_text() if log.exists() else ""
            )


def _programs():
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise Missing("PostgreSQL's programs initdb and pg_ctl are not installed (Debian: apt install postgresql)")


def _somebody():
    """Whom root runs it as; nothing for anybody else."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            who = pwd.getpwnam(name)
            return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    raise Missing("root cannot run PostgreSQL, and there is no user postgres or nobody")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
