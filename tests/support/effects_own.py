"""A business table beside the ledger: the effect is a row, written in one transaction with its completion."""

import threading

_opened = threading.local()
_TABLE = "CREATE TABLE charges (n BIGINT NOT NULL, receipt VARCHAR(64) NOT NULL, memo VARCHAR(64) NOT NULL)"
_ROWS = "SELECT n, receipt, memo FROM charges"


def connect(url):
    """Open a connection of one's own, with autocommit: transactions are begun by hand."""
    if url.startswith("sqlite"):
        import apsw  # noqa: PLC0415 - one of the two is needed

        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(10_000)
        return connection
    import psycopg  # noqa: PLC0415 - as above

    return psycopg.connect(url, autocommit=True)


def prepare(url):
    """Create the table."""
    connection = connect(url)
    connection.execute(_TABLE)
    connection.close()


def act(url, effect, row):
    """Write the row and complete the effect, or neither."""
    connection = getattr(_opened, "connection", None) or connect(url)
    _opened.connection = None
    connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "BEGIN")
    try:
        mark = "(?, ?, ?)" if url.startswith("sqlite") else "(%s, %s, %s)"
        connection.execute(f"INSERT INTO charges VALUES {mark}", row)
        effect.complete(connection, reference=row[1])
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    _opened.connection = connection


def rows(url):
    """Return all rows: (n, receipt, memo)."""
    connection = connect(url)
    found = list(connection.execute(_ROWS))
    connection.close()
    return found
