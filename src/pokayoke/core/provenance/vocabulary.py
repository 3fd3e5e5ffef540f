"""The words that provenance goes by: generic verbs and names of arguments. The one file that depends on a language.

Nothing here decides that a call is safe. A word opens a gate only for acts of its own kind, and a verb that no list
has makes an act unknown: it is then judged by its values alone, and `pokayoke doctor` names it.

In: nothing.
Out: tables of folded words.
"""

from __future__ import annotations

from typing import Final, Literal

Act = Literal["send", "pay", "remove", "share", "change", "account"]
"""What a tool does to the world, as far as a user would have to ask for it."""

VERBS: Final[dict[Act, frozenset[str]]] = {
    "send": frozenset(
        "send reply answer forward mail email message post publish notify invite write tell announce".split()
    ),
    "pay": frozenset("pay transfer refund charge wire payout reimburse donate purchase buy order".split()),
    "remove": frozenset("delete remove cancel close terminate drop end revoke archive purge clear erase kick".split()),
    "share": frozenset("share grant invite allow permit give open".split()),
    "change": frozenset(
        "set update change edit put modify assign move reschedule rename extend adjust correct amend waive mark".split()
    ),
    "account": frozenset("password register login signup enroll subscribe reset".split()),
}
"""By act, the verbs with which names of tools begin."""

READ_VERBS: Final = frozenset(
    (
        "get list read search find check fetch lookup query describe show view load count preview export "
        "compare inspect look see retrieve browse display tell calculate"
    ).split()
)
COMMON_NOUNS: Final = frozenset(
    "record order mail email message post file share book note report request answer list".split()
)
"""Words that are verbs only where they come first in a name."""

ASKS: Final[dict[Act, tuple[str, ...]]] = {
    "send": (
        "send", "sent", "mail", "email", "e-mail", "reply", "answer", "forward", "write", "tell", "message", "post",
        "publish", "notify", "inform", "invite", "announce", "remind", "let",
        "schick", "sende", "send", "antwort", "schreib", "mail", "informier", "benachrichtig", "sag", "teil", "lad",
        "envoie", "envoy", "répond", "écri", "transmet", "préven", "dis", "inform", "publi",
        "envía", "envia", "manda", "responde", "escribe", "avisa", "dile", "informa",
        "invia", "rispond", "scriv", "manda", "avvis", "发", "发送", "回复", "写", "通知", "告诉", "送", "返信",
    ),
    "pay": (
        "pay", "paid", "transfer", "refund", "wire", "reimburse", "settle", "buy", "order", "purchase", "charge", "send",
        "bezahl", "zahl", "überweis", "erstatt", "kauf", "bestell", "paie", "paye", "pay", "vire", "rembours", "achèt",
        "paga", "transfier", "reembols", "compra", "pag", "bonific", "rimbors", "付", "支付", "转账", "退款", "买", "払",
    ),
    "remove": (
        "delete", "remove", "cancel", "close", "terminate", "drop", "end", "revoke", "archive", "clear", "erase", "kick",
        "lösch", "entfern", "stornier", "storn", "schließ", "schliess", "kündig", "beend", "absag", "streich",
        "supprim", "annul", "ferm", "retir", "résili", "efface", "elimina", "borra", "cancela", "cierra", "quita",
        "cancell", "elimin", "chiud", "rimuov", "删除", "取消", "关闭", "移除", "削除",
    ),
    "share": (
        "share", "give", "grant", "allow", "access", "invite", "open", "add", "teil", "freigeb", "gib", "zugriff", "zugang",
        "einlad", "partag", "donne", "accès", "invit", "comparte", "acceso", "dale", "condivid", "accesso", "分享", "共享", "权限",
    ),
    "account": (
        "password", "account", "register", "login", "enrol", "enroll", "subscribe", "reset", "sign", "passwort", "konto",
        "anmeld", "einschreib", "registrier", "mot", "compte", "inscri", "contraseña", "cuenta", "registr", "密码", "账户", "注册",
    ),
    "change": (
        "set", "update", "change", "edit", "put", "modify", "assign", "move", "reschedule", "rename", "extend", "adjust",
        "correct", "waive", "replace", "raise", "lower", "increase", "make", "add", "enter", "give", "grade", "mark", "book",
        "setz", "setze", "trag", "änder", "aktualisier", "verschieb", "verläng", "weis", "korrigier", "mach", "stell",
        "mets", "met", "chang", "modifi", "attribu", "prolong", "déplac", "corrig",
        "pon", "cambia", "actualiza", "modifica", "asigna", "mueve", "metti", "aggiorna", "assegna",
        "改", "更新", "设置", "修改", "分配", "変更",
    ),
}  # fmt: skip
"""By act, the beginnings of the words with which a user asks for it; a beginning of three letters or fewer is a whole word."""

GATE_ORDER: Final[dict[Act, tuple[Act, ...]]] = {
    "send": ("send", "share", "pay"),
    "pay": ("pay",),
    "remove": ("remove",),
    "share": ("share",),
    "account": ("account",),
    "change": ("send", "pay", "remove", "share", "change", "account"),
}
"""By act, the kinds of words of which one must stand in the user's words."""

NEGATIONS: Final = frozenset(
    (
        "not never don't dont no without nicht nie kein keine keinen ohne pas jamais sans nunca jamás sin non "
        "mai senza 不要 不 别"
    ).split()
)
ORIGINS: Final = frozenset("from by von vom durch de du des da dal di par desde por".split())
"""Words right before a value that make it the sender, and not the receiver."""

PLURAL: Final = frozenset(
    (
        "all every everybody everyone each both any alle allen jede jeden jeder beide sämtliche tous toutes "
        "chaque todos todas cada ambos tutti tutte ogni entrambi 所有 全部 每 每个"
    ).split()
)
NOISE: Final = frozenset(
    (
        "the and for with that this from are was has have will please about who what when where which read "
        "mail open close new old yes der die das und für mit von ist les des une pour avec los las una para "
        "con"
    ).split()
)

EXTREMES: Final[dict[str, tuple[Literal["max", "min"], Literal["number", "time"]]]] = {
    "largest": ("max", "number"), "biggest": ("max", "number"), "highest": ("max", "number"), "best": ("max", "number"),
    "most": ("max", "number"), "longest": ("max", "number"), "top": ("max", "number"), "greatest": ("max", "number"),
    "smallest": ("min", "number"), "lowest": ("min", "number"), "cheapest": ("min", "number"),
    "least": ("min", "number"), "shortest": ("min", "number"), "worst": ("min", "number"),
    "latest": ("max", "time"), "newest": ("max", "time"), "last": ("max", "time"), "recent": ("max", "time"),
    "oldest": ("min", "time"), "earliest": ("min", "time"), "next": ("min", "time"),
    "größte": ("max", "number"), "höchste": ("max", "number"), "beste": ("max", "number"), "billigste": ("min", "number"),
    "günstigste": ("min", "number"), "kleinste": ("min", "number"), "neueste": ("max", "time"), "letzte": ("max", "time"),
    "älteste": ("min", "time"), "nächste": ("min", "time"), "dernier": ("max", "time"), "dernière": ("max", "time"),
    "prochain": ("min", "time"), "meilleur": ("max", "number"), "último": ("max", "time"), "última": ("max", "time"),
    "próximo": ("min", "time"), "mejor": ("max", "number"), "最新": ("max", "time"), "最大": ("max", "number"),
}  # fmt: skip
"""Superlatives: which end of a field of numbers or dates a word asks for."""
TIME_UNITS: Final = frozenset(
    (
        "time times week weeks month months year years day days night morning evening weekend monday tuesday "
        "wednesday thursday friday saturday sunday mal woche monat jahr tag nacht montag dienstag mittwoch "
        "donnerstag freitag samstag sonntag fois semaine mois année an jour nuit lundi mardi mercredi jeudi "
        "vendredi samedi dimanche vez semana mes año día noche"
    ).split()
)
"""Words after which "last" and "next" name a time, and no thing."""

WHO_NAMES: Final = frozenset(
    (
        "to cc bcc email emails mail recipient recipients receiver user users member members participant "
        "participants account iban phone url uri link href host hostname domain address channel owner payee "
        "beneficiary contact attendee attendees assignee invitee webhook endpoint"
    ).split()
)
TEXT_NAMES: Final = frozenset(
    (
        "body text note notes title subject reason content description message comment summary caption "
        "purpose remark remarks details abstract label greeting review"
    ).split()
)
WHEN_NAMES: Final = frozenset(
    "date time day start end until from since due deadline at when begin month year datetime timestamp valid".split()
)
HOST_NAMES: Final = frozenset("url uri link href host hostname domain endpoint webhook".split())
IDENTIFIER_NAMES: Final = frozenset("id no nr number num key ref code uuid".split())
PRIVATE_NAMES: Final = frozenset(
    "password passwd secret pin token card cvv iban account salary ssn passport birthdate dob tax".split()
)

MONTHS: Final[dict[str, int]] = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "jan feb mar apr may jun jul aug sep oct nov dec",
    )
    for number, name in enumerate(names.split(), 1)
}
"""Names of months in five languages, and the number of the month."""
