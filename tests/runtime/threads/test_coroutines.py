"""Coroutines that end in one go, without an event loop."""

import asyncio

import pytest

from pokayoke.runtime.threads.coroutines import run_in_thread


async def give(value):
    return value


async def give_twice(value):
    return await give(value), await give(value)


def test_a_coroutine_that_never_waits_returns_its_value():
    """What the coroutine returns comes back, and None is a value like any other."""
    assert run_in_thread(give_twice(1)) == (1, 1)
    assert run_in_thread(give(None)) is None


def test_an_exception_comes_through_unchanged():
    """What the coroutine raises is raised, also what ends the host."""

    async def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_thread(interrupt())


def test_a_coroutine_that_waits_after_all_is_a_mistake():
    """Without a loop nothing would ever wake it up."""
    with pytest.raises(AssertionError, match="blocks the thread"):
        run_in_thread(asyncio.sleep(0))
