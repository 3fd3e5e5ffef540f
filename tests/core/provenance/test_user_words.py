"""What the user has said."""

import pytest

from pokayoke.core.provenance.user_words import UserWords, is_bound


@pytest.mark.parametrize(
    ("words", "value", "cues", "said"),
    [
        ("Close repair 501 now", 501, ("repair",), True),
        ("Close repair 501 now", 501, (), False),
        ("Close no. 501", 501, (), True),
        ("Order 5012 is late", 5012, (), True),
        ("Order 5012 is late", 501, ("order",), False),
        ("Pay 312.50 to NO83 3000 1234 567", "NO8330001234567", (), True),
        ("Pay 312.50", 312.5, (), True),
        ("Mail bob@x.example", "bob@x.example", (), True),
        ("Mail bob@x.example.evil", "bob@x.example", (), False),
        ("Mail bob@x.example", "bob", (), False),
        ("Mail eve.bob@x.example", "bob@x.example", (), False),
        ("Open https://www.a.example/booth/", "a.example/booth", (), True),
        ("Open https://a.example/booth", "a.example/booth?x=1", (), False),
        ("the label的 shop", "label", (), True),
        ("labels", "label", (), False),
        ("on 14 October 2026 at 10:30", "2026-10-14T10:30", (), True),
        ("on 14 October at 10:30", "2026-10-14T11:00", (), False),
        ("on 14 October", "2026-10-14", (), True),
        ("on 14 October 2025", "2026-10-14", (), False),
        ("it costs 1.000,50 euro", 1000.5, (), True),
        ("nothing", "", (), False),
        ("A long text " * 20, "A long text " * 20, (), True),
    ],
)
def test_a_value_stands_in_the_words(words, value, cues, said):
    """As whole tokens only, in any spelling; a small number needs a cue right before it."""
    assert UserWords(words).has(value, cues=cues) is said


def test_small_amounts_need_no_cue():
    """A quantity is no identity."""
    assert UserWords("Give 3 of them").has(3, is_identity=False)
    assert not UserWords("Give 3 of them").has(3)


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("Send it to bob@x.example.", True),
        ("Never write to bob@x.example. Send it to Ida.", False),
        ("Mails from bob@x.example are junk.", False),
        ("The account of bob@x.example is old.", False),
        ("Pay bob@x.example please", True),
        ("不要 发送 给 bob@x.example", False),
    ],
)
def test_a_receiver_is_bound_to_a_request(words, bound):
    """A sentence that names it asks for the act: no negation before it, and no "from" right before it."""
    assert is_bound(UserWords(words), "bob@x.example", {"send", "pay"}, "send") is bound


def test_an_unknown_act_binds_by_the_sentence_alone():
    """Where no list knows the act, only negations and origins count; the tool's own verb is a request as well."""
    assert is_bound(UserWords("Frobnicate bob@x.example."), "bob@x.example", (), "frobnicate")
    assert is_bound(UserWords("Please waive NO83 3000 1234 567"), "NO8330001234567", {"pay"}, "waive")
    assert is_bound(UserWords("Send it to member 1,501"), 1501, {"send"}, "send")
    assert not is_bound(UserWords("Hello"), "bob@x.example", (), "")


def test_superlatives_mean_things_and_not_times():
    """Asking for the latest invoice is asking for an end; last time and next week are not."""
    assert [one[1:] for one in UserWords("Pay the latest invoice. Close the largest one.").extremes] == [
        ("max", "time"),
        ("max", "number"),
    ]
    assert UserWords("It was poor last time, see you next week").extremes == ()
    assert [one[1:] for one in UserWords("取消最新的订单").extremes] == [("max", "time")]


def test_words_ask_for_acts_in_several_languages():
    """A beginning stands for all its forms, a short one for itself."""
    assert UserWords("Überweise das Geld").asks_for("pay")
    assert UserWords("Envoie un résumé").asks_for("send")
    assert UserWords("请取消预订").asks_for("remove")
    assert not UserWords("What is open?").asks_for("pay")
    assert UserWords("grade it 1.7").has_word("grade")


def test_what_is_said_of_many():
    """Words such as "all" mean more than one record."""
    assert UserWords("Write to every tenant").is_plural
    assert UserWords("给所有人写信").is_plural
    assert not UserWords("Send them a mail").is_plural
    assert UserWords("Ask Ida Brandt about B-17 and 12").names == {"ida", "brandt", "b-17"}


@pytest.mark.parametrize(
    ("before", "after", "otherwise"),
    [
        ("Close it", "Close it all", True),
        ("Close it", "Close it on 14 October", True),
        ("Close it", "Close the largest", True),
        ("Close it", "Close it 关闭", True),
        ("Close it", "Close it now", False),
    ],
)
def test_new_words_may_select_anew(before, after, otherwise):
    """Plurals, superlatives, dates and scripts without blanks can mean records that hold none of the new words."""
    assert UserWords(after).selects_otherwise(UserWords(before)) is otherwise
