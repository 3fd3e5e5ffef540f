"""Words around a call that deny it, and words that only seem to."""

import pytest
from intake_cases import TOOLS

from pokayoke.core.intake import read_calls

CALL = '{"name": "f", "arguments": {"a": "x"}}'


def made(text, tools=TOOLS):
    """The calls of a text that may run."""
    return [(call.name, call.reading.value) for call in read_calls(text, tools=tools).calls if call.reading.value]


MEANT = [
    "For example-based search I call\n{}",
    "This is not an example:\n{}",
    "I won't make you wait, here is the call:\n{}",
    "I must not make assumptions, so I check:\n{}",
    "I never make up data, so I'm calling the tool:\n{}",
    "We don't do manual lookups here, so:\n{}",
    "Don't call twice, once is enough: {}",
    "I will not call g; instead I call:\n{}",
    "I won't use g, I'll use f:\n{}",
    'The user said "do not call g", so:\n{}',
    "You told me never to use g, so let me check this:\n{}",
    "{}\nThis call retrieves the weather, for example the wind.",
    "{}\nFor example, it returns the wind.",
    "{}\nExpected output, for example: 20",
    "{}\n(This is not an example; it is a real call.)",
    "{}\nOnce I have the result, I will not make another call.",
    "{}\nI won't make any further calls until this returns.",
    "{}\nI will not call any other tool.",
    "{}\nI won't do anything else until it answers.",
    "{}\nDo not call me again.",
    "{}\nThis won't do any harm.",
    "{}\nSorry, this may take a moment.",
    "{}\nShould I use it for tomorrow too?",
    "The weather could change, so I check:\n{}",
    "After reading your message I call:\n{}",
    "If I understand correctly, you want x:\n{}",
    "Once more:\n{}",
    "Instead of guessing, I check:\n{}",
    "Without further ado:\n{}",
    "The user asked me to look it up:\n{}",
    "You should get the answer from this:\n{}",
    "I'd like to call the tool:\n{}",
    "The previous call lacked a. Corrected call:\n{}",
    "This does not need approval:\n{}",
    "{}\nIs there anything else you need?",
    "{}\nWould you like me to check y as well?",
    "{}\nI will wait for the tool's answer.",
    "{}\nOnce I have it, I'll answer.",
    "{}\nI will not make up a result.",
    "{}\nThe answer should be 20.",
    "{}\nHold on while I look.",
    "{}\nOkay.",
    "{}\nCan I help with anything else?",
    "{}\nLet me know if this helps.",
    "{}\nYou can use this to plan your day.",
    "{}\nThat would be all for now.",
    "{}\nLet me think about the rest.",
    "{}\nI'm not sure the forecast is exact.",
    "{}\nHowever, it may take a while.",
    "As you suggest:\n{}",
    "Now that I have your approval, I'll run:\n{}",
    "Hold on, let me check:\n{}",
    "I decided not to guess:\n{}",
    "If I'm not mistaken, you want x:\n{}",
    "As soon as possible, I'll get it:\n{}",
    "Until now I only had y, so I look again:\n{}",
    "I'm not sure what the price is, so I'll check:\n{}",
    # What is looked at or changed may itself be an example, or say something
    "Now let me see what the page says:\n{}",
    "Let me find out what it looks like:\n{}",
    "First, I'll update the README:\n{}",
    "To see how it works, I need to read the tutorial:\n{}",
    "We should fix the mock in the test:\n{}",
    "I'm going to look for malicious code:\n{}",
    "Let me look at your shell configuration:\n{}",
    "Let me try another option:\n{}",
]


@pytest.mark.parametrize("words", MEANT)
@pytest.mark.parametrize("call", [CALL, '```python\nf(a="x")\n```'])
def test_words_about_something_else_leave_a_call_alone(words, call):
    """What is denied is another thing than the call, or what the example is of is its answer."""
    assert made(words.format(call)) == [("f", {"a": "x"})]


NOT_MEANT = [
    "Earlier I called: {}",
    "I already called:\n{}",
    "The following call failed:\n{}",
    "This call was rejected: {}",
    "Should I call this? {}",
    "May I run the following?\n{}",
    "{}\nThis call failed.",
    "I won't call this, I'll send it later:\n{}",
    "I won't call this, I'd run:\n{}",
    "Until you agree I won't call it, so I'll use:\n{}",
    "For example, I call:\n{}",
    "I won't send this, I use it as a test of myself:\n{}",
    "I won't send this, I try g:\n{}",
    "{}\nI will not run this; it returns for example x.",
    "I won't send it, but show it:\n{}",
    "I won't run this, I will not run it either:\n{}",
    "{}\nI won't call this again until you say so.",
    "{}\nIt is, for example, a call.",
    "{}\nShall I send this?",
    "{}\nSorry, make it y",
    # Possible, or under a condition
    "I could call:\n{}",
    "If I had access, I would call:\n{}",
    "If it rains, call:\n{}",
    "When the first one is done, I will call:\n{}",
    "Suppose I call:\n{}",
    "You can call it like this:\n{}",
    "Later I will call:\n{}",
    "Another option is:\n{}",
    # Past, or somebody else's
    "Yesterday I sent:\n{}",
    "The last call was:\n{}",
    "My previous call:\n{}",
    "The documentation shows:\n{}",
    "The user wrote:\n{}",
    "The page told me to run:\n{}",
    "{}\nwas called yesterday.",
    "{}\n...is what the page told me to run.",
    # An example of its form
    "Such a call looks like:\n{}",
    "Here is how to call it:\n{}",
    "The format of a call is:\n{}",
    "Dry run:\n{}",
    "Mock call:\n{}",
    "Test case:\n{}",
    "{}\n(simulated)",
    "{}\nThe values are only placeholders.",
    "{}\nPlease replace x with your own value.",
    # Denied
    "It is forbidden to call\n{}",
    "There is no need to call:\n{}",
    "I decided against calling:\n{}",
    "Please ignore the following:\n{}",
    "{}\nBut this is not necessary.",
    "{}\nForget it.",
    "{}\nNo need to run this.",
    # Leave is asked for
    "Before I run this, please confirm:\n{}",
    "Would you like me to run this?\n{}",
    "{}\nDo you want me to run it?",
    "{}\nLet me know if I should send it.",
    "{}\nPlease confirm before I run it.",
    "{}\nIs this what you want?",
    "I was going to call:\n{}",
    "A naive agent would simply call:\n{}",
    "The tutorial has this line:\n{}",
    "The page tries to make me call:\n{}",
    "Provided that you agree, I will run:\n{}",
    "{}\nSay yes and I will run it.",
    "{}\nJust kidding.",
    # More of the above
    "I'm tempted to call:\n{}",
    "I was told to call:\n{}",
    "Here is what not to send:\n{}",
    "I propose the following call:\n{}",
    "Maybe I should call:\n{}",
    "Is it ok if I call:\n{}",
    "Do I have your permission to run:\n{}",
    "I can run this if you want:\n{}",
    "I can run this when you're ready:\n{}",
    "I'll run this after you confirm:\n{}",
    "I'll wait for your approval before running:\n{}",
    "Proposal:\n{}",
    "{}\nI decided not to call it.",
    "{}\nThis should not be executed.",
    "{}\nThis must not be called.",
    "{}\nIt would delete all, so I won't.",
    "{}\nI'd rather not.",
    "{}\nI am not able to run it.",
    "{}\nI have no permission to run this.",
    "{}\nI don't think we should do this.",
    "{}\nLet's not.",
    "{}\nLet me reconsider.",
    "{}\nI'm not sure about this call.",
    "{}\nI'll hold off on this.",
    "{}\nYou can run this.",
    "{}\nRun this yourself.",
    "{}\nThis would be the call.",
    "{}\nThis is not a real call.",
    "{}\nIt's a demo.",
    "{}\nFor illustration only.",
    # Taken back or changed, also after a word of hesitation
    "{}\nHold on.",
    "{}\nBut wait, that is y",
    "{}\nHmm, wait.\nIt is y.",
    "{}\nOh no, that's wrong.",
    "{}\nWhoops.",
    "{}\nMy mistake, y.",
    "{}\nLet me fix that.",
    "{}\nThe above call is wrong.",
    "{}\nI used the wrong letter.",
    "{}\nThere's a mistake in this call.",
    "{}\nPlease ignore this.",
    "{}\nSkip that.",
    "{}\nOr maybe y.",
    "{}\nUse y instead.",
    "{}\nThe a should be y.",
    "{}\n// wrong",
    # Leave is asked for, behind it
    "{}\nHowever, I need your approval first.",
    "{}\nI will only send it if you agree.",
    "{}\nDo you approve?",
    "{}\nAre you sure?",
    "{}\nCan I proceed?",
    "{}\nMay I?",
    "{}\nOK?\nI wait.",
    "{}\n[pending approval]",
    "{}\nReady to run when you are.",
    "{}\nLet me know if this is okay.",
    "{}\nLet me know whether to proceed.",
    "{}\nGive me the go-ahead.",
    # Looked at is the call itself, or it is not looked at now
    "Let me look at a sample:\n{}",
    "Let me look at the call in the README:\n{}",
    "Let me look: the page says:\n{}",
    "Let me see what the page says, which shows:\n{}",
    "If you agree, I'll read the README:\n{}",
    "I'll read the README later:\n{}",
    "I'd read the README:\n{}",
    "He said let me look at the README:\n{}",
    "I'm not sure about this, so I'll check:\n{}",
    "I'm not sure that I'll check:\n{}",
    "I will not make it up, I will not call it, this is made up as an example:\n{}",
]


@pytest.mark.parametrize("words", NOT_MEANT)
def test_a_call_that_is_told_asked_about_or_denied_is_not_made(words):
    """It is past, failed, waits for an answer, or is put off."""
    (call,) = read_calls(words.format(CALL), tools=TOOLS).calls
    assert (call.reading.value, call.reading.reason) == (None, "disowned")


@pytest.mark.parametrize(
    ("between", "first", "second"),
    [
        ("or", False, False),
        ("\n\nOR:\n\n", False, False),
        ("\nCorrected:\n", False, True),
        ("\n**Here is the corrected call:**\n", False, True),
        ("\nUpdated call:\n", False, True),
        ("\nThat should be:\n", False, True),
        ("\notherwise\n", True, False),
        ("\nThen, if that works: ", True, False),
        ("\nAnd once it is done:\n", True, False),
        ("\nThen ", True, True),
        ("\nThat should be enough.\n", True, True),
        ("\nUpdated.\n", True, True),
        ("\nSo if I understand you, also:\n", True, True),
    ],
)
def test_of_two_calls_the_words_between_them_say_which_is_meant(between, first, second):
    """Of alternatives none is chosen, what is corrected is taken back, and what depends on the first is not made yet."""
    calls = read_calls(f"{CALL} {between} {CALL}", tools=TOOLS).calls
    assert [call.reading.value is not None for call in calls] == [first, second]


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        ('He wrote "```json\n{}\n```" there', ["disowned"]),
        ('"```json\n{}\n```" was what I sent', ["disowned"]),
        ("<draft>{}</draft>", []),
    ],
)
def test_a_fenced_call_in_quotation_marks_and_a_draft_are_only_shown(words, reasons):
    """The signs and the tag stand around the call as they would without the fence."""
    assert [call.reading.reason for call in read_calls(words.format(CALL), tools=TOOLS).calls] == reasons


@pytest.mark.parametrize(
    "text",
    [
        '<function=f{"a": "x"}</function>',
        '<tool_call>f\n{"a": "x"}\n</tool_call>',
        '**Thought:** so\n**Action:** f\n**Action Input:** {"a": "x"}',
        'Thought: so\nAction: `f`\nAction Input: {"a": "x"}',
        'Action 1: f\nAction Input 1: {"a": "x"}',
        'Action: f(a="x")',
        '{"action": "f", "action_input": {"a": "x"}}',
        '{"toolName": "f", "args": {"a": "x"}}',
        '{"functionCall": {"name": "f", "args": {"a": "x"}}}',
        '{"tool_call": {"name": "f", "arguments": {"a": "x"}}}',
        '{"tool_uses": [{"recipient_name": "f", "parameters": {"a": "x"}}]}',
        'f\n{"a": "x"}',
        '<|assistant|>f\n{"a": "x"}<|observation|>',
        'print(f(a="x"))',
        'I check:\n```tool_code\nprint(f(a="x"))\n```',
        'x = f(a="x")',
        'y = await f(a="x");\nprint(y)',
        'await f(a="x")',
        '{"f": {"a": "x"}}',
        '```json\n{"f": {"a": "x"}}\n```',
    ],
)
def test_more_forms_of_a_call_are_found(text):
    """Each is a form in which a family of models or a framework writes calls."""
    assert made(text) == [("f", {"a": "x"})]


@pytest.mark.parametrize(
    "text",
    [
        'The tool f\n{"a": "x"}',
        'f {"a": "x"}',
        'f\n{"a": "x"}\nis an answer',
        'f\n{"other": "x"}',
        'f\n["x"]',
        "f\n{}",
        'g\n{"a": "x"}',
        '{"action": "f", "input": {"a": "x"}}',
        '{"f": {"other": "x"}}',
        '{"f": {"a": "x"}, "g": {}}',
        '{"f": {}}',
        '{"g": {"a": "x"}}',
        'The answer:\n{"f": {"a": "x"}}',
        'x = other(a="x")',
        'You could say `x = f(a="x")` instead.',
        'The code x = f(a="x") is one.',
        'x = f(a="x") + 1',
        'x = f(a="x"); y = g()',
        'print(f(a="x"), 1)',
        'print(f(a="x")["k"])',
        'print(f(a="x")',
        'if x:\n    y = f(a="x")',
    ],
)
def test_a_name_near_an_object_is_no_call(text):
    """Only a tool's name alone on its line, and nothing but declared arguments below it."""
    assert made(text) == []
