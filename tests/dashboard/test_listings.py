"""Listings that wait for an approval: the whole difference on the page, the approval, and forms that came too late."""

import json
import re

import pytest
from dashboard_site import Dashboard, check_page
from test_evidence import text_of

from pokayoke.runtime.versions.approved_listings import ApprovedFile, read_approved, read_waiting

PAGE = "/tools/shop__refund"
OLD = {"name": "shop__refund", "description": "Refund.", "inputSchema": {"type": "object"}}
NEW = {
    **OLD,
    "description": "Refund <b>all</b> \u202e" + "y" * 3_000 + " at last.",
    "annotations": {"readOnlyHint": True},
}


@pytest.fixture
def file(tmp_path):
    """A gateway has seen an approved tool listed otherwise."""
    path = tmp_path / "approved.json"
    path.write_text(json.dumps({"tools": [OLD]}))
    note(path, NEW)
    return path


def note(path, entry):
    """What a gateway does with an entry that is listed otherwise."""
    ApprovedFile(path).note_listed({entry["name"]: entry}, 1.0)


@pytest.fixture
async def ann(store, clock, file):
    """Somebody who may decide."""
    return await Dashboard(store, clock, approved=file).sign_in("ann")


async def seen(visit):
    """The hash that the form of the page is bound to."""
    return re.search(r'name="hash" value="([0-9a-f]{64})"', (await visit.get(PAGE)).text)[1]


async def test_the_page_shows_the_whole_difference_as_text(ann):
    """Nothing is cut, markup stays text, marks that reorder text are escapes; the list of tools leads there."""
    answer = await ann.get(PAGE)
    check_page(answer)
    assert "<b>all" not in answer.text
    shown = text_of(answer)
    assert "description Refund. Refund <b>all</b> \\u202e" + "y" * 3_000 + " at last." in shown
    assert 'annotations nothing {"readOnlyHint":true}' in shown
    assert "To stay with what is approved, do nothing" in shown
    assert f'href="{PAGE}"' in (await ann.get("/tools")).text


async def test_a_person_approves_what_the_page_has_shown(ann, file, clock):
    """The very entry is approved, with name, reason and time; the page then shows that, and nothing waits."""
    done = await ann.submit(PAGE, step="approve", hash=await seen(ann), reason="its authors say so")
    assert done.status_code == 303
    found = read_approved(file)
    assert found.tools == {"shop__refund": NEW}
    (step,) = found.history
    assert (step.by, step.reason) == ("ann", "its authors say so")
    shown = text_of(await ann.get(done.headers["location"]))
    assert "is approved as it is listed now" in shown
    assert "ann its authors say so" in shown
    assert "Approve this listing" not in shown
    assert "listed otherwise" not in text_of(await ann.get("/tools"))


async def test_a_form_of_another_entry_changes_nothing_and_shows_the_present_one(ann, file):
    """The server changed it once more while somebody read the page: the answer says so, and has the new difference."""
    old = await seen(ann)
    note(file, {**NEW, "title": "Refund everything"})
    late = await ann.submit(PAGE, step="approve", hash=old, reason="looks good")
    assert late.status_code == 422
    assert "Nothing was changed: shop__refund is listed otherwise than what was looked at" in late.text
    assert "<td>title</td>" in late.text
    assert "Refund everything" in late.text
    assert read_approved(file).history == ()
    assert (await ann.submit(PAGE, step="approve", hash=await seen(ann), reason="now")).status_code == 303
    again = await ann.submit(PAGE, "/switches?scope=x", step="approve", hash=old, reason="now")
    assert (again.status_code, "nothing waits for" in again.text) == (422, True)


async def test_an_approval_needs_a_reason_a_token_and_the_right(ann, store, clock, file):
    """Without one of them nothing is approved, and who may only look sees no form."""
    fields = {"step": "approve", "hash": await seen(ann)}
    assert (await ann.submit(PAGE, **fields, reason=" ")).status_code == 422
    assert (await ann.post(PAGE, {**fields, "reason": "r"})).status_code == 403
    eve = await Dashboard(store, clock, role="look", approved=file).sign_in("eve")
    assert "Approve this listing" not in (await eve.get(PAGE)).text
    assert (await eve.post(PAGE, {**fields, "reason": "r", "csrf": await eve.csrf(PAGE)})).status_code == 403
    bare = await Dashboard(store, clock).sign_in("bob")
    assert (await bare.submit(PAGE, "/switches?scope=x", **fields, reason="r")).status_code == 422
    assert len(read_waiting(file)) == 1


async def test_a_difference_that_is_too_long_for_a_page_is_approved_by_command(ann, file):
    """What is not shown whole has no form; the page stays small and names the command."""
    note(file, {**NEW, "description": "<" * 20_000})
    answer = await ann.get(PAGE)
    check_page(answer)
    assert "too long for a page" in answer.text
    assert "Approve this listing" not in answer.text


async def test_a_damaged_file_is_named_on_both_pages(ann, file):
    """The pages answer, and say what to do."""
    file.write_text("{")
    for page in ("/tools", PAGE):
        answer = await ann.get(page)
        assert answer.status_code == 200
        assert "damaged" in text_of(answer)
