"""The reference is what the code says."""

import pytest

from tools import reference


@pytest.mark.parametrize("page", sorted(reference.PAGES))
def test_a_reference_page_is_up_to_date(page):
    """A page of docs/reference is what `make reference` would write now."""
    written = (reference.TARGET / page).read_text(encoding="utf-8")
    stale = written != reference.rendered(page)  # the pages are long; their difference would drown the sentence
    assert not stale, f"docs/reference/{page} is out of date: run `make reference`"


def test_the_schema_for_editors_is_up_to_date():
    """config.schema.json is what `make reference` would write now."""
    assert reference.SCHEMA_FILE.read_text(encoding="utf-8") == reference.schema_text()


@pytest.mark.parametrize("key", [row[0] for row in reference.option_rows(reference.policy.Policy)])
def test_every_option_says_what_it_means(key):
    """Each configuration key has a sentence under its field."""
    meanings = {row[0]: row[3] for row in reference.option_rows(reference.policy.Policy)}
    assert meanings[key]


@pytest.mark.parametrize("name", ["list", "get", "approve", "deny", "answer", "wait", "await_"])
def test_what_a_guard_holds_for_its_host_is_described(name):
    """The approvals are reached through a guard and cannot be imported; the page has each of their methods."""
    page = reference.rendered("api.md")
    assert "\n## Guard.approvals\n" in page
    assert f"\n### Guard.approvals.{name}\n" in page
