"""Answers that only say that nothing was found, which are no evidence for anything."""

import re
from typing import Final

from wellkept.core.text import UNSPACED, WORD
from wellkept.sessions.search.query import is_asking

_MOST_CHARACTERS: Final = 400
"""A longer answer tells something."""
_NOTED: Final = "information|infos?|records?|mention|memory|memories|details?|entry|entries|idea|trace"
_NOT_DE: Final = "nicht|nichts|keine?[nr]?"
_KNOWN_DE: Final = (
    r"(?:ge)?funden|finden?|fand|bekannt|weiß|weiss|wissen|wusste|erinner\w*|information(?:en)?|angaben?|hinweise?"
    r"|eintr(?:ag|äge)|aufzeichnung(?:en)?|notiz(?:en)?|ahnung"
)
_EMPTY: Final = re.compile(
    r"\b(?:i|we)\b(?: \w+){0,2}(?: not|n['’]t| unable| never)\b[^,]*"
    r"\b(?:find|found|locate|know|recall|remember|aware|have (?:that|this|any))\b"
    r"|\bnot sure (?:which|what|where|when|who|how|if|whether|about)\b|\bcannot (?:find|recall|remember)\b"
    rf"|\b(?:no|any|nothing)(?: \w+)? (?:{_NOTED})\b"
    r"|\bno (?:results?|match(?:es)?|notes?|data)\b.*\b(?:found|available)\b"
    r"|\b(?:found|find|know) nothing(?: (?:on|about)\b|\W*$)|\bnothing (?:on|about) (?:that|this|it)\b"
    rf"|\b(?:{_NOT_DE})\b.*\b(?:{_KNOWN_DE})\b|\b(?:{_KNOWN_DE})\b.*\b(?:{_NOT_DE})\b"
    r"|\bno (?:(?:lo|la|he|hemos|pude|puedo|pudimos|se) )*(?:encontr\w+|sé|sabemos|recuerdo"
    r"|(?:tengo|hay|tenemos) (?:\w+ )?(?:información|registros?|datos|constancia|idea|nada))\b"
    r"|\bn(?:['’]|e ).*\b(?:trouv\w+|sais|savons|souviens|informations?|trace|mention)\b"
    r"|[找查]不到|(?:没有?|未能?)(?:在[^，。]*)?(?:找到|查到|发现)|不知道|不清楚|不记得"
    r"|没有(?:关于|任何|相关|有关)?[^，。]{0,16}(?:信息|记录|资料)|一无所知",
    re.IGNORECASE,
)
"""Sentences of somebody who looked and found nothing, in the languages of the assistant."""
_GOES_ON: Final = re.compile(
    r"\b(?:but|however|though|although|instead|except|only|aber|jedoch|sondern|allerdings|obwohl|nur|außer"
    r"|pero|sino|aunque|solo|salvo|mais|cependant|sauf|seulement)\b|但|不过|可是|只|[;:；：]",
    re.IGNORECASE,
)
_OFFERS: Final = re.compile(
    r"\W*(?:sorry|please|let me know|tell me|if you|i can|leider|bitte|entschuldigung|sag mir|wenn du|ich kann"
    r"|lo siento|perdón|dime|si (?:me|tu|vous)|puedo|désolé\w*|dis-moi|je peux|抱歉|对不起|请|如果|我可以|告诉我)",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[^.!?\n？。！]+[.!?？。！]*")


def tells_nothing(text: str) -> bool:
    """Return whether an answer only says that nothing was found; asking back and offering help tell no more."""
    if len(text) > _MOST_CHARACTERS or _EMPTY.search(text) is None or _GOES_ON.search(text) is not None:
        return False
    sentences = [one for one in _SENTENCE.findall(text) if WORD.search(one) or UNSPACED.search(one)]
    empty = [one for one in sentences if _EMPTY.search(one) and not any(map(str.isdigit, one))]
    return bool(empty) and all(one in empty or is_asking(one) or _OFFERS.match(one) for one in sentences)
