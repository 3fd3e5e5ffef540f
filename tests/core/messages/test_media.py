"""Images and files in the answer to a call, as each provider accepts them."""

from types import SimpleNamespace

import pytest

from pokayoke import Outcome, Raw
from pokayoke.core.messages.answers import result_message
from pokayoke.core.messages.media import media_block_for

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
FILE = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
AT = "https://x/y"
DATA = "data:image/png;base64,aGk="
PDF = "data:application/pdf;base64,aGk="


@pytest.mark.parametrize(
    ("block", "anthropic", "responses"),
    [
        (PICTURE, PICTURE, {"type": "input_image", "image_url": DATA}),
        (
            {"type": "image", "source": {"type": "url", "url": AT}},
            {"type": "image", "source": {"type": "url", "url": AT}},
            {"type": "input_image", "image_url": AT},
        ),
        (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            PICTURE,
            {"type": "input_image", "image_url": DATA},
        ),
        (
            SimpleNamespace(type="image", data="aGk=", mimeType="image/png"),
            PICTURE,
            {"type": "input_image", "image_url": DATA},
        ),
        (
            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
            PICTURE,
            {"type": "input_image", "image_url": DATA},
        ),
        ({"type": "image_url", "image_url": {"url": DATA}}, PICTURE, {"type": "input_image", "image_url": DATA}),
        ({"type": "image_url", "image_url": DATA}, PICTURE, {"type": "input_image", "image_url": DATA}),
        (
            {"type": "input_image", "image_url": DATA, "detail": "low"},
            PICTURE,
            {"type": "input_image", "image_url": DATA, "detail": "low"},
        ),
        ({"type": "input_image", "file_id": "f"}, None, {"type": "input_image", "file_id": "f"}),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}},) * 2 + (None,),
        (
            {"type": "image", "url": AT},
            {"type": "image", "source": {"type": "url", "url": AT}},
            {"type": "input_image", "image_url": AT},
        ),
        (Raw(b"hi", "image/png; x=y"), PICTURE, {"type": "input_image", "image_url": DATA}),
        (FILE, FILE, {"type": "input_file", "filename": "file.pdf", "file_data": PDF}),
        (
            {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
            FILE,
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        ),
        (
            {"type": "file", "url": AT, "mime_type": "application/pdf"},
            {"type": "document", "source": {"type": "url", "url": AT}},
            {"type": "input_file", "file_url": AT},
        ),
        (Raw(b"hi"), None, None),
        (Raw("hi", "image/svg+xml"), None, None),
        ({"type": "image", "data": "aGk=", "mimeType": "image/svg+xml"}, None, None),
        ({"type": "image", "data": "A" * 6_000_000, "mimeType": "image/png"}, None, None),
        ({"type": "image", "data": "aGk="}, None, None),
        ({"type": "image", "url": "file:///etc/passwd"}, None, None),
        ({"type": "file", "url": AT}, None, None),
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, None, None),
        ({"type": "resource", "resource": {"uri": "x", "blob": "aGk="}}, None, None),
    ],
)
def test_what_a_provider_takes_of_a_block(block, anthropic, responses):
    """In whatever shape a picture or PDF came, the model sees it; what would be refused stays out."""
    assert media_block_for(block, "anthropic") == anthropic
    assert media_block_for(block, "responses") == responses


@pytest.mark.parametrize("status", ["ok", "failed"])
@pytest.mark.parametrize("custom", [False, True])
def test_pictures_stand_behind_the_text_of_an_answer(status, custom):
    """Where the wire has a place for them; the text stays a text where there are none, or none that it takes."""
    known = Outcome(status=status, call_id="c", tool="shot", text="a cat", content=(PICTURE, Raw(b"x")))
    claude = result_message(known, "anthropic")
    assert claude["content"] == [{"type": "text", "text": "a cat"}, PICTURE]
    assert claude.get("is_error", False) == (status == "failed")
    gpt = result_message(known, "responses", custom=custom)["output"]
    assert gpt == [{"type": "input_text", "text": "a cat"}, {"type": "input_image", "image_url": DATA}]
    assert result_message(known, "openai")["content"] == "a cat"
    assert "a cat" in result_message(known, "text")["content"]
    for wire, place in (("anthropic", "content"), ("responses", "output")):
        strange = Outcome(status="ok", call_id="c", tool="shot", text="a cat", content=(Raw(b"x"),))
        assert result_message(strange, wire)[place] == "a cat"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (Raw(b"hi", "image/png"), {"type": "image", "base64": "aGk=", "mime_type": "image/png"}),
        (FILE, {"type": "file", "base64": "aGk=", "mime_type": "application/pdf"}),
        (SimpleNamespace(type="image", url=AT), {"type": "image", "url": AT}),
        (SimpleNamespace(type="audio", data="aGk=", mimeType="audio/wav"), None),
    ],
)
def test_langchain_has_a_shape_of_its_own(block, shown):
    """Its models translate that one for their providers."""
    assert media_block_for(block, "langchain") == shown
