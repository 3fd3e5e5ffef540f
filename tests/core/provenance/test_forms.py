"""Values in one spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.provenance.forms import (
    close_up,
    find_contacts,
    fold,
    normal_form,
    read_days,
    read_numbers,
    read_times,
)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (501, "501"),
        (850.0, "850"),
        (312.50, "312.5"),
        (1e300, "1e+300"),
        ("312.50", "312.5"),
        ("0049", "0049"),
        ("2026-77", "2026-77"),
        ("  Leaking   Kitchen TAP ", "leaking kitchen tap"),
        ("NO83 3000 1234 567", "no8330001234567"),
        ("+49 30 5550101", "+49305550101"),
        ("2026-10-14T10:30:00", "2026-10-14 10:30"),
        ("2026-10-14T10:30:00.123Z", "2026-10-14 10:30"),
        ("2026-10-14", "2026-10-14"),
        ("2026-05-08-report.docx", "2026-05-08-report.docx"),
        ("https://www.openday.example/booth/", "openday.example/booth"),
        ("https://", "https://"),
        ("ada@example.org", "ada@example.org"),
        ("Straße", "straße"),
        (True, None),
        (None, None),
        ("", None),
        ("   ", None),
        ("x" * 161, None),
        ([1], None),
    ],
)
def test_a_value_has_one_spelling(value, form):
    """Numbers, dates, accounts and addresses are the same however they are written; prose is no value."""
    assert normal_form(value) == form


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,000.5", {"1000.5"}),
        ("1.000,5", {"1000.5"}),
        ("1,000", {"1000", "1"}),
        ("12", {"12"}),
        ("1'000", {"1000"}),
        ("1.2.3", set()),
    ],
)
def test_a_number_is_read_in_every_spelling(text, numbers):
    """A point and a comma may group or divide; both readings count where both are possible."""
    assert set(read_numbers(text)) == numbers


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("on 2026-10-14", {(2026, 10, 14)}),
        ("am 14. Oktober 2026", {(2026, 10, 14)}),
        ("on the 14th of October", {(None, 10, 14)}),
        ("October 14th, 2026", {(2026, 10, 14)}),
        ("le 3 février", {(None, 2, 3)}),
        ("14.10. und 15.10.2026", {(None, 10, 14), (2026, 10, 15)}),
        ("10月14日", {(None, 10, 14)}),
        ("2026年10月14日", {(2026, 10, 14)}),
        ("in 14 days", set()),
    ],
)
def test_days_are_read_in_five_languages(text, days):
    """A day may come with its year or without."""
    assert set(read_days(fold(text))) == days


def test_times_are_read():
    """Hours with minutes, with am and pm, and with the words of other languages."""
    assert set(read_times(fold("at 9:00, 10.30, 3:15 pm, 8 am, 12 pm, 15 Uhr"))) == {
        "09:00",
        "10:30",
        "15:15",
        "08:00",
        "12:00",
        "15:00",
    }


def test_addresses_are_found_as_a_reader_would_put_them_together():
    """Written out, grouped and behind a scheme."""
    text = "Write to payee dot desk at quickmove dot example or +370 600 11122, LV97 HABA 0012 3456 7891 0, https://a.example/x."
    found = set(find_contacts(text))
    assert {"payee.desk@quickmove.example", "+37060011122", "lv97haba0012345678910", "a.example/x"} <= found
    assert set(find_contacts("The water is off on 12 October at 10:30, room 12-14, 2026-10-14, v1.2")) <= {"v1.2"}


@given(st.text(max_size=60))
def test_a_form_is_its_own_form(text):
    """Spelling a value twice changes nothing, so that equal values stay equal."""
    form = normal_form(text)
    if form is not None:
        assert normal_form(form) in (form, None) or close_up(form) == close_up(normal_form(form))
