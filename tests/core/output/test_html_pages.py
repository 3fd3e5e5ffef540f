"""Web pages in place of data are found; text about pages is none."""

import json
import time

import pytest
from output_cases import PAGE, code, judge


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"page": {"contentMediaType": "text/html"}}}, {"page": PAGE}),
        ({"properties": {"body_html": {"type": "string"}}}, {"body_html": PAGE}),
        ({"items": {"$ref": "#/$defs/p"}, "$defs": {"p": {"type": "string", "contentMediaType": "text/html"}}}, [PAGE]),
        ({"items": {"$ref": "#p"}, "$defs": {"p": {"$anchor": "p", "contentMediaType": "text/html"}}}, [PAGE]),
        ({"items": {"$ref": "#/$defs/a%20b"}, "$defs": {"a b": {"contentMediaType": "text/html"}}}, [PAGE]),
        ({"patternProperties": {"^page": {"contentMediaType": "text/html"}}}, {"page1": PAGE}),
        ({"prefixItems": [{}, {"contentMediaType": "text/html; charset=utf-8"}]}, [1, PAGE]),
        ({"additionalProperties": {"anyOf": [{"type": "null"}, {"contentMediaType": "text/html"}]}}, {"x": PAGE}),
        ({"allOf": [{"properties": {"p": {"contentMediaType": "text/html"}}}]}, {"p": PAGE}),
        ({"type": "string", "contentMediaType": "text/html"}, PAGE),
    ],
)
def test_a_field_that_says_it_holds_a_page_may(schema, value):
    """`contentMediaType: text/html`, or a declared name with the word html, makes a page data."""
    assert code(judge(value, schema)) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, {"html": PAGE}),
        ({"properties": {"page": {"type": "string"}}}, {"page": PAGE}),
        ({"items": {"contentMediaType": "application/json"}}, [PAGE]),
        ({"$ref": "#/$defs/p", "$defs": {"p": {"type": ["array", "object"]}}}, [PAGE]),
        ({"prefixItems": [{"contentMediaType": "text/html"}]}, [1, PAGE]),
        ({"properties": {"a": {"properties": {"b": {}}}}}, {"a": {"b": {"c": PAGE}}}),
    ],
)
def test_a_page_nobody_declared_is_found(schema, value):
    """Without such a declaration a page is found wherever it stands."""
    assert code(judge(value, schema)) == "html_instead_of_data"


@pytest.mark.parametrize(
    "page",
    [
        "<html>",
        "<HTML lang=en>",
        "\ufeff<!DOCTYPE html PUBLIC '-'>",
        "<!-- a --> <!-- b -->\n<html",
        "<?xml version='1.0'?><html xmlns='x'>",
        "<head><title>",
        "<body/>",
        "<!doctype\nhtml>",
        "\u200b<!doctype html>",
        "\0\0 <!doctype html>",
        " \u2060<!-- a -->\u200d\x85<?XML version='1.0'?>\0<body>",
        "<!--><html>",
        " " * 5_000 + "<!doctype html>",
        f"<!-- {'x' * 5_000} --><!doctype html>",
        "<!-- - -- -->" * 500 + "<html>",
    ],
)
def test_a_page_is_known_by_its_first_tag(page):
    """However many comments, blanks and invisible signs, a declaration of XML, any case and a cut end hide no page."""
    assert code(judge(page)) == "html_instead_of_data"
    assert code(judge({"user_id": page})) == "html_instead_of_data"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- <html>",
        "<!-- a --> b <html>",
        "\u200bx",
        "\0x<html>",
        "<?xml <html>",
        "<p><html>",
        "<htmlx>",
        "<!doctype x>",
    ],
)
def test_a_page_within_a_text_is_no_page(text):
    """Where a text begins with words, another tag or a comment without an end, no page stands for data."""
    assert code(judge({"user_id": text + "<html>"})) is None


def test_a_row_of_comments_is_looked_at_once():
    """Thousands of comments before nothing take no more than a moment."""
    began = time.monotonic()
    for row in ("<!-- x -->" * 15_000, " \u200b" * 90_000, "<!--" + "-" * 150_000, "<?xml ?>" * 20_000):
        assert code(judge({"user_id": row + "x<body"})) is None
    assert code(judge({"user_id": "<!-- x -->" * 15_000 + "<body"})) == "html_instead_of_data"
    assert code(judge({"user_id": "<!--" * 40_000 + "<html"})) is None
    assert time.monotonic() - began < 20


WRAPPER = {"ok": True, "profile": PAGE, "note": "upstream returned HTML inside JSON wrapper"}


@pytest.mark.parametrize("body", [WRAPPER, {"content": PAGE}, [PAGE], {"data": [{"profile": PAGE}], "code": 200}])
@pytest.mark.parametrize("form", [lambda body: body, json.dumps, lambda body: json.dumps(body).replace("<", r"\u003C")])
def test_a_body_that_holds_nothing_but_a_page_is_one(body, form):
    """Where nothing describes the data, a wrapper that tells no more than success hides no page."""
    for output in (None, "text") if isinstance(form(body), str) else (None,):
        assert code(judge(form(body), output)) == "html_instead_of_data"


@pytest.mark.parametrize(
    "body",
    [{"subject": "Offer", "body": PAGE}, {"html": PAGE}, {"bodyHtml": PAGE, "ok": True}, [PAGE, "text"], {"n": 1}],
)
def test_a_page_beside_data_is_data_where_nothing_is_promised(body):
    """A mail has a page for a body; only a contract can say that a field holds none."""
    assert judge(body, None).ok
    assert judge(json.dumps(body), "text").ok


def test_a_failure_does_not_quote_a_page():
    """A report whose words are a page, at any depth, is told as one."""
    for body in ({"error": PAGE}, {"ok": False, "error": {"body": [PAGE]}, "code": 502}, {"error": {"message": PAGE}}):
        for output in ({"type": "object"}, None):
            assert judge(body, output).failure == "an HTML page"
        assert judge(json.dumps(body), "text").failure == "an HTML page"
