"""Lexical path rules: what they refuse, what they leave alone."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Finding
from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.core.gate.paths import _RULES, _examine_path, check_path, display_path, normalise_path

ROOT = "/srv/ws"

GOOD = [
    ("a.txt", "a.txt"),
    ("src/app/main.py", "src/app/main.py"),
    (".", "."),
    ("./a", "a"),
    ("a/./b", "a/b"),
    ("a//b", "a/b"),
    ("a/", "a"),
    ("a/../b", "b"),
    ("a/..", "."),
    ("a/b/../../c", "c"),
    (".env", ".env"),
    ("..a", "..a"),
    ("a..", "a.."),
    ("-rf", "-rf"),
    ("my file.txt", "my file.txt"),
    ("Acme Inc./x", "Acme Inc./x"),
    ("10:30.log", "10:30.log"),
    ("notes~", "notes~"),
    ("routes/$id.tsx", "routes/$id.tsx"),
    ("$id.tsx", "$id.tsx"),
    ("100%.txt", "100%.txt"),
    ("a%20b.txt", "a%20b.txt"),
    ("https%3A%2F%2Fexample.org", "https%3A%2F%2Fexample.org"),
    ("console.log", "console.log"),
    ("null/x", "null/x"),
    ("com10", "com10"),
    ("日本語/メモ.txt", "日本語/メモ.txt"),
    ("½ Liter….txt", "½ Liter….txt"),
    ("می\u200cخواهم.txt", "می\u200cخواهم.txt"),
    ("x" * 255, "x" * 255),
    ("é" * 127, "é" * 127),
    ("é" * 127 + "x", "é" * 127 + "x"),
    ("a/" * 2047 + "b", "a/" * 2047 + "b"),
    ("a/" * 2000 + "b", "a/" * 2000 + "b"),
    (ROOT, "."),
    (f"{ROOT}/", "."),
    (f"{ROOT}/a/b", "a/b"),
    (f"{ROOT}/a/../b", "b"),
    (f"{ROOT}/100%25.txt", "100%25.txt"),
    ("/srv/./ws/a", "a"),
]

BAD = [
    ("type", 3),
    ("type", None),
    ("type", b"a"),
    ("empty", ""),
    ("empty", "   "),
    ("empty", "\n"),
    ("control", "\0"),
    ("control", "a\0b"),
    ("control", "a\nb"),
    ("control", "a\x1b[2Jb"),
    ("control", "a\x7f"),
    ("control", "a\x85é"),
    ("control", "a\u202eb"),
    ("control", "a\u200bb"),
    ("control", "a\u200cb"),
    ("control", "\ufeffa"),
    ("control", "a\u2028b"),
    ("surrogate", "\ud800"),
    ("surrogate", "a/\udcff/b"),
    ("too_long", "x" * 256),
    ("too_long", "é" * 128),
    ("too_long", "a/" * 2048),
    ("drive", "C:\\x"),
    ("drive", "C:x"),
    ("drive", "C:/x"),
    ("drive", "c:"),
    ("drive", "a/C:x"),
    ("drive", "./C:x"),
    ("backslash", "..\\..\\x"),
    ("backslash", "a\\b"),
    ("backslash", "\\x"),
    ("unc", "\\\\server\\share"),
    ("unc", "//server/share"),
    ("unc", "\\\\?\\C:\\x"),
    ("unc", "\\\\.\\pipe\\x"),
    ("unc", "/\\server"),
    ("unc", "//srv/ws/a"),
    ("home", "~"),
    ("home", "~/x"),
    ("home", "~root/x"),
    ("home", "./~/x"),
    ("home", "~/../x"),
    ("variable", "$HOME/x"),
    ("variable", "${HOME}/x"),
    ("variable", "$(id)/x"),
    ("variable", "%APPDATA%/x"),
    ("variable", "a/../$HOME/x"),
    ("url", "file:///etc/passwd"),
    ("url", "FILE:/etc/passwd"),
    ("url", "https://example.org/a"),
    ("device", "CON"),
    ("device", "nul.txt"),
    ("device", "a/Com1.log"),
    ("device", "aux/x"),
    ("device", "con .txt"),
    ("device", "lpt9."),
    ("device", "COM¹"),
    ("device", "ＮＵＬ"),
    ("device", "CONIN$"),
    ("device", "PRN:x"),
    ("dots", "..."),
    ("dots", "a/.. /b"),
    ("dots", "a/ /b"),
    ("dots", ".. "),
    ("space", "a "),
    ("space", "a /b"),
    ("space", " a"),
    ("space", "a\u3000/b"),
    ("look_alike", "..／x"),
    ("look_alike", "a＼b"),
    ("look_alike", "a∕b"),
    ("look_alike", "‥/x"),
    ("look_alike", "a/․․/b"),
    ("look_alike", "℀"),
    ("look_alike", "a﹨b"),
    ("encoded", "%2e%2e/x"),
    ("encoded", "..%2f..%2fetc"),
    ("encoded", "a/%2e%2e/%2e%2e/x"),
    ("encoded", "%252e%252e%252fx"),
    ("encoded", "%2fetc%2fpasswd"),
    ("encoded", "..%5c..%5cx"),
    ("encoded", "%5c%5cserver"),
    ("encoded", "a%00.txt"),
    ("encoded", "%7e/x"),
    ("encoded", "c%3a/x"),
    ("encoded", "..%c0%af..%C0%AFx"),
    ("encoded", "%2525252525252e"),
    ("climbs", ".."),
    ("climbs", "../x"),
    ("climbs", "a/../../x"),
    ("climbs", "a/../../srv/ws/x"),
    ("climbs", "/srv/ws/.."),
    ("climbs", "/srv/ws/../ws/a"),
    ("climbs", "/srv/ws/../../etc/passwd"),
    ("outside", "/"),
    ("outside", "/etc/passwd"),
    ("outside", "/srv/ws-evil/x"),
    ("outside", "/srv"),
    ("outside", "/srv/../srv/ws/a"),
    ("outside", "/proc/self/root/srv/ws/a"),
    ("outside", "/dev/null"),
]


@pytest.mark.parametrize(("path", "relative"), GOOD)
def test_ordinary_paths_pass(path, relative):
    """A path inside the root passes unchanged but for `.`, `..` and doubled slashes."""
    assert normalise_path(path, (ROOT,)) == (ROOT, relative)
    assert check_path(path, (ROOT,)) is None


@pytest.mark.parametrize(("rule", "path"), BAD)
def test_everything_else_is_refused_with_its_rule(rule, path):
    """A malformed or escaping path is a finding that names the rule, and says what to send."""
    finding = check_path(path, (ROOT,), at="/path")
    assert isinstance(finding, Finding)
    assert finding.data == {"rule": rule}
    assert (finding.at, finding.blame) == ("/path", "model")
    assert finding.code in CODES_BY_ROOM["gate"]
    assert finding.message.isascii()
    assert 0 < len(finding.hint) < 600
    assert ROOT not in finding.hint


def test_every_rule_is_reached():
    """No rule in the table is dead."""
    assert {rule for rule, _ in BAD} == set(_RULES)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", ("/one", "a")),
        ("/one/a", ("/one", "a")),
        ("/two/a", ("/two", "a")),
        ("/one/inner/a", ("/one/inner", "a")),
        ("/one/inner", ("/one/inner", ".")),
        ("/one/inner2/a", ("/one", "inner2/a")),
    ],
)
def test_several_roots(path, expected):
    """A relative path belongs to the first root, an absolute one to the longest it lies under."""
    assert normalise_path(path, ("/one", "/two", "/one/inner")) == expected


@pytest.mark.parametrize("path", ["/three/a", "/one/../two/a", "/onetwo"])
def test_several_roots_do_not_join(path):
    """No way leads from one root into another, or into a name that merely starts alike."""
    assert isinstance(normalise_path(path, ("/one", "/two")), Finding)


def test_a_trailing_slash_of_the_root_changes_nothing():
    """A root written with a slash at its end confines the same paths."""
    assert normalise_path("/one/a", ("/one/",)) == ("/one/", "a")
    assert isinstance(normalise_path("/onea", ("/one/",)), Finding)


def test_long_paths_are_shown_short():
    """An operator's message stays short and one line, whatever was sent."""
    assert len(display_path("é\n" * 100_000)) < 1_200
    assert display_path("a\nb") == "'a\\nb'"


NAMES = st.sampled_from(
    ["a", "b.txt", ".", "..", "", " ", "...", "~", "CON", "C:", "\\", "%2e%2e", "é", "\0", "／", "$HOME", "x y", "-"]
)


@given(st.lists(NAMES, max_size=8), st.booleans())
def test_what_passes_never_leaves(names, absolute):
    """Whatever is accepted lies under the root for a plain join, and has no `.` or `..` left."""
    path = ("/srv/ws/" if absolute else "") + "/".join(names)
    located = normalise_path(path, (ROOT,))
    if isinstance(located, Finding):
        return
    root, relative = located
    assert root == ROOT
    joined = posixpath.normpath(posixpath.join(root, relative))
    assert joined == root or joined.startswith(root + "/")
    assert relative == "." or not {"", ".", ".."} & set(relative.split("/"))


@given(st.text(max_size=40))
def test_normalising_twice_is_normalising_once(path):
    """A relative path that came out goes in unchanged; no text makes the check fail."""
    located = normalise_path(path, (ROOT,))
    if not isinstance(located, Finding):
        assert normalise_path(located[1], (ROOT,)) == located


@given(st.text(alphabet="ab./ -_1~$%:cCoOnN", max_size=30))
def test_the_short_way_agrees_with_the_rules(path):
    """The fast acceptance accepts nothing the rules refuse and changes nothing they do not."""
    rule, slow = _examine_path(path, (ROOT,))
    fast = normalise_path(path, (ROOT,))
    assert (fast == slow) if not rule else (isinstance(fast, Finding) and fast.data["rule"] == rule)
