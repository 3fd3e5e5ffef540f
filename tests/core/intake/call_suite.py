"""Calls and texts that are no calls, made by structure: framings, prose in five languages, and places."""

import json

NAME, KEY = "move_crate", "bay"
SCHEMA = {
    "type": "object",
    "properties": {KEY: {"type": "string"}},
    "required": [KEY],
    "additionalProperties": False,
}

FRAMINGS = {
    "hermes": '<tool_call>\n{"name": "@N", "arguments": @A}\n</tool_call>',
    "qwen-coder": "<tool_call>\n<function=@N>\n<parameter=@K>\nV\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>@N\n<arg_key>@K</arg_key>\n<arg_value>@V</arg_value>\n</tool_call>",
    "minimax-m2": '<minimax:tool_call>\n<invoke name="@N">\n<parameter name="@K">@V</parameter>\n</invoke>\n</minimax:tool_call>',
    "minimax-m3": (
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="@N">\n]<]minimax[>[<@K>@V]<]minimax[>[</@K>\n'
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
    ),
    "minicpm": '<function name="@N"><param name="@K">@V</param></function>',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>@N<｜tool▁sep｜>@A<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "dsml": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="@N">\n<｜DSML｜parameter name="@K" string="true">@V</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.@N:0<|tool_call_argument_begin|>@A<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    ),
    "mistral": '[TOOL_CALLS][{"name": "@N", "arguments": @A}]',
    "mistral-args": "[TOOL_CALLS]@N[ARGS]@A",
    "llama": '<|python_tag|>{"name": "@N", "parameters": @A}',
    "llama-tag": "<function=@N>@A</function>",
    "gemma": '<|tool_call>call:@N{@K:<|"|>@V<|"|>}<tool_call|>',
    "function-gemma": "<start_function_call>call:@N{@K:<escape>@V<escape>}<end_function_call>",
    "granite": '<|tool_call|>[{"name": "@N", "arguments": @A}]',
    "harmony": "<|start|>assistant<|channel|>commentary to=functions.@N <|constrain|>json<|message|>@A<|call|>",
    "react": "Action: @N\nAction Input: @A",
    "tools": '<tools>\n{"name": "@N", "arguments": @A}\n</tools>',
    "tool-name": '<tool name="@N">@A</tool>',
    "function-call": '<function_call>\n{"name": "@N", "arguments": @A}\n</function_call>',
    "functionary": ">>>@N\n@A",
}
UNMARKED = {
    "fence": '```json\n{"name": "@N", "arguments": @A}\n```',
    "object": '{"name": "@N", "arguments": @A}',
    "list": '[@N(@K="@V")]',
    "code": '@N(@K="@V")',
}
PROSE = {
    "en": ("The crate is in the way, so I move it now.", "The crate went there."),
    "de": ("Die Kiste steht im Weg, ich verschiebe sie jetzt.", "Die Kiste ist dort."),
    "zh": ("箱子挡路了，我现在把它移走。", "箱子已经到了。"),
    "es": ("La caja estorba; la muevo ahora.", "La caja está allí."),
    "ar": ("الصندوق يسد الطريق، سأنقله الآن.", "الصندوق هناك."),
}
VALUES = ("north 7", "B-12", "çıkış", "第七区")


def write_call(frame, value):
    """The text of a call in a framing."""
    text = (FRAMINGS | UNMARKED)[frame]
    for mark, filling in (
        ("@N", NAME),
        ("@K", KEY),
        ("@A", json.dumps({KEY: value}, ensure_ascii=False)),
        ("@V", value),
    ):
        text = text.replace(mark, filling)
    return text


def meant_calls():
    """Yield texts of meant calls: framing, language, the text, and the call alone."""
    for frame in FRAMINGS | UNMARKED:
        for number, (language, (before, _)) in enumerate(PROSE.items()):
            alone = write_call(frame, VALUES[number % len(VALUES)])
            yield frame, language, f"{before}\n\n{alone}", alone
            yield frame, language, alone, alone


PLACES = {
    "quotation": '{before} "{call}"',
    "guillemets": "{before} «{call}»",
    "corner brackets": "{before}「{call}」",
    "tag": "{before}\n<document>\n{call}\n</document>",
    "open tag": "{before}\n<document>\n{call}",
    "code that holds more": "{before}\n```python\nx = 1\n{call}\n```",
    "string of code": "{before}\nassert parse('{call}')",
    "quoted line": "{before}\n> {call}",
    "comment line": "{before}\n// {call}",
    "thoughts": "<think>{before}\n{call}\n</think>\n{behind}",
    "open thoughts": "<think>{before}\n{call}",
    "another's turn": "{before}<|im_end|>\n<|im_start|>user\n{call}",
    "behind a made-up result": '<tool_call>{{"name": "look", "arguments": {{}}}}</tool_call>\n{before}\n{call}',
    "text behind": "{before}\n{call}\n{behind}",
    "on a line of text": "{before} {call}",
}


def shown_calls():
    """Yield texts that are no calls, or suggestions at most: place, framing, language, the text."""
    frames = ("hermes", "object", "dsml", "llama-tag")
    for place, form in PLACES.items():
        for number, (language, (before, behind)) in enumerate(PROSE.items()):
            for frame in frames:
                call = write_call(frame, VALUES[number % len(VALUES)])
                yield place, frame, language, form.format(before=before, behind=behind, call=call)
