"""Both drivers behind one face, so that one suite tests them."""

import asyncio
import inspect

import pytest


class Driver:
    """Calls a run synchronously or asynchronously; the suite does not know which."""

    def __init__(self, kind):
        self.kind = kind

    def call(self, run, call, invoke=None):
        return self._do(run.call, run.acall, call, invoke=invoke)

    def batch(self, run, calls, **options):
        return self._do(run.call_batch, run.acall_batch, calls, **options)

    def begin(self, run, call):
        return self._do(run.begin, run.abegin, call)

    def finish(self, run, ticket, **answer):
        return self._do(run.finish, run.afinish, ticket, **answer)

    def _do(self, plain, asynchronous, *args, **kwargs):
        if self.kind == "sync":
            return plain(*args, **kwargs)

        async def main():
            answer = asynchronous(*args, **kwargs)
            assert inspect.isawaitable(answer)
            return await answer

        return asyncio.run(main())


@pytest.fixture(params=["sync", "async"])
def driver(request):
    """Each test that asks for it runs once per driver."""
    return Driver(request.param)
