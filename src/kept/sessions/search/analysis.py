"""Text analysis for the index and for queries: words, scripts without spaces, identifiers, speakers."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kept.core.messages import SUMMARY_MARKER, Origin
from kept.core.text import STOP_WORDS, WORD
from kept.core.values import dataclass

if TYPE_CHECKING:
    from threading import Lock

    from Stemmer import Stemmer

WHOLE: Final = "\ue0c1"
"""Joins the parts of a compound that is indexed as a whole; a private-use character, which no cleaned text contains."""
SPEAKER: Final = "\ue0c2"
"""Marks the name in front of "Name: …", so that messages by a person differ from messages about them."""
RECALLS: Final = frozenset({"session_search", "context_grep", "context_expand", "context_describe"})
"""Tools whose answers repeat other messages; indexed, the copies would rank above the originals."""
TOOL_CHARACTERS: Final = 2_000
TALK_CHARACTERS: Final = 200_000
"""What is indexed as it is; of the rest of a longer message, each word is indexed once."""

LONGEST_WORD: Final = 64
"""Characters of a word that are indexed; a longer one is found by its beginning."""
_ACCENTED: Final = (range(0xC0, 0x250), range(0x370, 0x400), range(0x1E00, 0x2000))
"""Latin and Greek letters with accents."""
_COMBINING: Final = range(0x300, 0x370)

_PRIVATE = re.compile("[\ue000-\uf8ff\x00]+")
_NOISE = re.compile(r"data:[\w/+.-]+;base64,\S*|[A-Za-z0-9+/_-]{100,}={0,2}|\b[0-9a-fA-F]{32,}\b")
_JSON_MARKS = re.compile(r"[{}\[\]\"\\,:]+")
_SPEAKER = re.compile(r"\s{0,3}([^\W\d_][\w'’.-]{0,24}(?: [^\W\d_][\w'’.-]{0,24}){0,2}): (?=\S)")
_COMPOUND = re.compile(r"\w+(?:[._/\\:@#+-]+\w+)+")
_CAMEL = re.compile(r"[A-Za-z]+[0-9]*(?<=[a-z0-9])[A-Z][A-Za-z0-9]*")
_JOINT = re.compile(r"[._/\\:@#+-](?=\w)")
_HUMP = re.compile("[a-z0-9][A-Z]")
_CAMEL_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COMPOUND_CHARACTERS = 80

_UNSPACED_SCRIPTS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u2600-\u27bf\U0001f300-\U0001faff"  # emoji
)
UNSPACED = re.compile(f"[{_UNSPACED_SCRIPTS}]+")
_CLUSTER = re.compile(r"[^\u0e31\u0e34-\u0e3a\u0e47-\u0e4e][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*")


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The searchable text of one message: its own words, and those of its tools."""

    message_id: int
    text: str
    tool_text: str = ""
    """Tool names, arguments and output; capped, noise removed."""


def indexed_text(
    message_id: int, role: str, *, content: str, origin: str | None, tool_name: str | None, tool_calls: str | None
) -> IndexedText:
    """Return the searchable text of a row; copies of other messages are left out."""
    if origin == Origin.SYNTHETIC and content.startswith(SUMMARY_MARKER):
        return IndexedText(message_id, "", "")
    if role == "tool" and tool_name in RECALLS:
        return IndexedText(message_id, "", tool_name)
    if role == "tool":
        return IndexedText(message_id, "", f"{tool_name or ''} {content}")
    return IndexedText(message_id, content, _call_text(tool_calls) if tool_calls else "")


def _call_text(tool_calls: str) -> str:
    try:
        calls = json.loads(tool_calls)
        return " ".join(f"{call['name']} {call['arguments']}" for call in calls)
    except (ValueError, KeyError, TypeError):
        return tool_calls  # the format of another program: index its words anyway


def clean(text: str) -> str:
    """Return `text` in NFKC, without lone surrogates, NULs and private-use characters."""
    if text.isascii():
        return text.replace("\x00", " ") if "\x00" in text else text
    whole = unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode())
    return _PRIVATE.sub(" ", whole)


def remove_noise(text: str) -> str:
    """Return `text` without base64 and long hexadecimal runs, which nobody types into a search box."""
    return _NOISE.sub(" ", text) if len(text) >= 32 else text


def split_speaker(text: str) -> tuple[str, str]:
    """Return the name in front of "Name: …" and the rest; the name is empty when there is none."""
    found = _SPEAKER.match(text)
    if found is None or found[1][0].islower() or found[1].lower() in STOP_WORDS:
        return "", text
    return found[1], text[found.end() :]


def pieces(run: str) -> tuple[list[str], list[str]]:
    """Return the single characters and the character pairs by which a run without spaces is indexed."""
    characters = _CLUSTER.findall(run)
    return characters, [left + right for left, right in pairwise(characters)]


def compounds(text: str) -> list[str]:
    """Return the identifiers, paths and versions of `text`, each as one word, and the parts of camelCase."""
    found: list[str] = []
    # every stored message comes through here and most have neither: this check costs a tenth of the search
    if _JOINT.search(text):
        wholes = (whole for whole in _COMPOUND.findall(text) if len(whole) <= _COMPOUND_CHARACTERS)
        found += [WHOLE.join(WORD.findall(whole)) for whole in wholes]
    if _HUMP.search(text):
        for camel in _CAMEL.findall(text):
            found += _CAMEL_PARTS.findall(camel)
    return found


def fold(text: str) -> str:
    """Return `text` in lower case, without the accents of Latin and Greek letters; other scripts keep their marks."""
    lower = text.lower()
    return lower if lower.isascii() else lower.translate(_accents())


@cache
def _accents() -> dict[int, str | None]:
    """Return the letters with accents, each with its plain letter."""
    table: dict[int, str | None] = dict.fromkeys(_COMBINING)
    for codes in _ACCENTED:
        for code in codes:
            plain = "".join(one for one in unicodedata.normalize("NFD", chr(code)) if ord(one) not in _COMBINING)
            if plain != chr(code):
                table[code] = plain
    table[ord("ё")] = "е"  # written either way; й is a letter of its own, which endings need
    return table


def split(text: str) -> tuple[list[str], list[str]]:
    """Return the words of `text` in order, and further words by which it is found as well."""
    further: list[str] = []
    pairs: list[str] = []
    if not text.isascii() and UNSPACED.search(text):
        for run in UNSPACED.findall(text):
            singles, twos = pieces(run)
            further += singles
            pairs += twos
        text = UNSPACED.sub(" ", text)
    further += [fold(word) for word in compounds(text)]
    words: list[str] = WORD.findall(fold(text))
    return words + pairs, further


def cut(row: IndexedText) -> tuple[set[str], int]:
    """Return the distinct words by which a message is found, and its length in words."""
    name, rest = split_speaker(remove_noise(clean(_shorten(row.text))))
    words, further = split(rest)
    if row.tool_text:
        tool_words, tool_further = split(tool_text(row.tool_text))
        words += tool_words
        further += tool_further
    found = {*words, *further}
    if name:
        found.update(SPEAKER + part for part in WORD.findall(fold(name)))
    if max(map(len, found), default=0) > LONGEST_WORD:
        found = {word[:LONGEST_WORD] for word in found}
    return found, len(words)


def _shorten(text: str) -> str:
    """Return the beginning of a very long text as it is, and of the rest every word once.

    So each of its words can be found, while a pasted log of megabytes takes little room in the index. Only phrases
    beyond the beginning are not found as such.
    """
    if len(text) <= TALK_CHARACTERS:
        return text
    # not in the middle of a word
    cut = next((at for at in range(TALK_CHARACTERS, TALK_CHARACTERS - 100, -1) if text[at].isspace()), TALK_CHARACTERS)
    return f"{text[:cut]} {' '.join(dict.fromkeys(text[cut:].split()))}"


def tool_text(text: str) -> str:
    """Return the part of a tool's text that is worth finding: its beginning, without JSON marks and noise."""
    return remove_noise(clean(_JSON_MARKS.sub(" ", text[: 4 * TOOL_CHARACTERS])))[:TOOL_CHARACTERS]


CJK_STOP: Final[tuple[str, ...]] = (
    "什么时候", "什麼時候", "为什么", "為什麼", "什么", "什麼", "怎么样", "怎么", "怎麼",
    "哪里", "哪裡", "哪儿", "哪个",
    "是不是", "有没有", "多少", "我们", "你们", "他们", "的", "了", "吗", "呢", "吧",
    "いつ", "どこ", "なぜ", "どうして", "どんな", "どの", "誰が", "誰", "何を",
    "ですか", "ますか", "でしたか", "ましたか",
    "です", "ます", "でした", "ました", "は", "が", "を", "に", "の", "で", "と", "も", "へ",
    "เมื่อไหร่", "เมื่อไร", "ที่ไหน", "อะไร", "ทำไม", "อย่างไร", "ใคร", "ครับ", "ค่ะ", "คะ",
)  # fmt: skip
"""Question words and particles of scripts without spaces, longest first where one holds another."""

_SCAFFOLDING: Final = (
    "kind kinds type types sort name names named mention mentioned mentions according recently recent "
    "current currently likely consider considered specific specifically different various certain "
    "particular describe described say said says tell told talk talked discuss discussed conversation "
    "share shared thing things way ways go goes going come use used using make makes want wants like "
    "likes new one two first last time times find found give gave given remember previous previously "
    "earlier ago back know"
)
SCAFFOLDING: Final[frozenset[str]] = frozenset(_SCAFFOLDING.split())
"""Words that form a question rather than name its topic; they have less weight."""

_ASKING: Final = (
    "what which who whom whose when where why how did does do is are was were am has have had can could will would "
    "shall should may might tell remind show list find give name describe remember please i we"
)
ASKING: Final[frozenset[str]] = frozenset(_ASKING.split())
"""Words that a question or a request begins with; a query that begins otherwise is a list of keywords."""


ENGLISH: Final = "english"
_FUNCTION_WORDS: Final = """
basque: eta ez da bat dira baina egin naiz dugu zer
catalan: els amb una per pero que aixo molt tambe com
czech: je se na ze to neni jsem jako ale kdyz
danish: og ikke jeg det har med til som hvad efter
dutch: het een niet van ik dat met zijn voor maar
english: the and of to is that was with have this
esperanto: kaj estas ne por kun sed mi vi kiu tio
estonian: ja ei on mis kui aga see oli mina siis
finnish: ja ei on se etta mutta olen kun mita tama
french: les des une pas est dans pour que vous avec
german: und der die das ist nicht ich mit auf ein
hungarian: es nem az egy hogy van meg mert csak volt
indonesian: dan yang tidak ini itu untuk dengan saya dari ada
irish: agus nach bhfuil an ta leis ach mar sin chun
italian: che non per una sono con della anche come ma
lithuanian: ir ne yra kad tai bet kaip buvo mano iki
norwegian: og ikke jeg det har med til som hva etter
polish: nie jest sie na ze jak ale przez tylko jestem
portuguese: nao uma com para que voce mas mais como isso
romanian: nu este sunt pentru din care mai dar sa ca
serbian: nije sam koji ali kako bio iz samo sto kada
sesotho: le ke ha ho ka mme oa tsa hore empa
spanish: los las una con para pero que del esta como
swedish: och inte jag det har med till som vad efter
turkish: ve bir bu icin degil ama cok daha gibi ne
"""
"""Frequent words that tell languages apart which are written in Latin letters, without accents."""
_SCRIPTS: Final = (
    (re.compile("[\u0400-\u04ff]"), ("russian",)),
    (re.compile("[\u0370-\u03ff]"), ("greek",)),
    (re.compile("[\u0530-\u058f]"), ("armenian",)),
    (re.compile("[\u0590-\u05ff]"), ("yiddish",)),
    (re.compile("[\u0600-\u06ff]"), ("arabic", "persian")),
    (re.compile("[\u0900-\u097f]"), ("hindi", "nepali")),
    (re.compile("[\u0b80-\u0bff]"), ("tamil",)),
)
"""Scripts that name the language by themselves."""
_WRITTEN_SHARE: Final = 0.02
"""Share of the messages from which on a language is one that people write."""
_TELLING: Final = 2
"""Frequent words of one language in a message from which on it is in that language."""


@cache
def _languages_by_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in _FUNCTION_WORDS.strip().splitlines():
        language, _, words = line.partition(": ")
        for word in words.split():
            found[word] = (*found.get(word, ()), language)
    return found


def guess_language(words: Iterable[str]) -> str | None:
    """Return the language of a message from its distinct words; None if none or several fit best."""
    table = _languages_by_word()
    counts: dict[str, int] = {}
    for word in table.keys() & words:
        for language in table[word]:
            counts[language] = counts.get(language, 0) + 1
    most = max(counts.values(), default=0)
    best = [language for language, count in counts.items() if count == most]
    return best[0] if most >= _TELLING and len(best) == 1 else None


def choose_languages(counts: Counter[str]) -> list[str]:
    """Return the languages that people write, most frequent first, from the number of messages in each; English too."""
    written = [name for name, count in counts.most_common() if count >= _WRITTEN_SHARE * counts.total()]
    return written if ENGLISH in written else [*written, ENGLISH]


def stem_word(language: str, word: str) -> str:
    """Return the stem of a lower-case word in a language."""
    stemmer, lock = _stemmer(language)
    with lock:
        stem = str(stemmer.stemWord(word))
    return stem if stem.isascii() else fold(stem)


def stem_words(language: str, words: Sequence[str]) -> list[str]:
    """Return the stems of lower-case words in a language; together, because each call costs more than a word."""
    stemmer, lock = _stemmer(language)
    with lock:  # its buffer is not made for several threads
        stems: list[str] = stemmer.stemWords(words)
    return stems if "".join(stems).isascii() else list(map(fold, stems))


@cache
def _stemmer(language: str) -> "tuple[Stemmer, Lock]":
    from threading import Lock

    from Stemmer import Stemmer

    # of the two for English, the older one ranks better on all three sets of questions (docs/search.md)
    return Stemmer("porter" if language == ENGLISH else language, 0), Lock()


def languages_of(word: str, written: Sequence[str]) -> Sequence[str]:
    """Return the languages that `word` may be of: those of its script, or those that people write here."""
    if not has_forms(word):
        return ()
    if not word.isascii():
        for script, languages in _SCRIPTS:
            if script.match(word):
                return languages
    return written


def has_forms(word: str) -> bool:
    """Whether a word consists of letters; in a compound, the last part has the ending."""
    return word.isalpha() or (WHOLE in word and word.replace(WHOLE, "").isalpha())


def base(word: str) -> str:
    """Return the stem of a lower-case word whose script names its language; any other word as it is."""
    languages = languages_of(word, ())
    return stem_word(languages[0], word) if languages else word


_IRREGULAR: Final[str] = (
    "go went gone;buy bought;bring brought;teach taught;think thought;catch caught;fight fought;seek sought;"
    "feel felt;keep kept;leave left;lose lost;make made;mean meant;meet met;pay paid;run ran;say said;see saw seen;"
    "sell sold;send sent;sing sang sung;sit sat;sleep slept;speak spoke spoken;spend spent;stand stood;"
    "steal stole stolen;swim swam swum;take took taken;tell told;throw threw thrown;understand understood;"
    "wake woke woken;wear wore worn;win won;write wrote written;begin began begun;break broke broken;build built;"
    "choose chose chosen;come came;deal dealt;draw drew drawn;drink drank drunk;drive drove driven;eat ate eaten;"
    "fall fell fallen;feed fed;find found;fly flew flown;forget forgot forgotten;forgive forgave forgiven;"
    "give gave given;grow grew grown;hear heard;hide hid hidden;hold held;know knew known;lead led;lend lent;"
    "light lit;ride rode ridden;ring rang rung;rise rose risen;shake shook shaken;shoot shot;show shown;"
    "become became;bite bit bitten;blow blew blown;dig dug;freeze froze frozen;hang hung;shine shone;"
    "shrink shrank shrunk;sink sank sunk;slide slid;stick stuck;strike struck;swear swore sworn;sweep swept;"
    "tear tore torn;weave wove woven;child children;man men;woman women;person people;foot feet;tooth teeth;"
    "mouse mice;goose geese;life lives;wife wives;knife knives;wolf wolves;leaf leaves;half halves;self selves"
)
_SAME: Final[str] = (
    "child kid kids childs;mother mom moms mum mums mommy mummy;father dad dads daddy;family fam;"
    "photo photos photograph photographs photography pic pics picture pictures;grandmother grandma granny;"
    "grandfather grandpa;bicycle bike bikes;television tv;movie film films;favorite favourite fave favs;"
    "color colour;friend buddy buddies pal pals;dog pup pups puppy puppies doggy;cat kitty kitten kittens;"
    "refrigerator fridge;advertisement ad ads advert;laboratory lab labs;examination exam exams;"
    "university college uni;doctor doc docs;vacation holiday;apartment flat apt;automobile auto;"
    "application app apps;repository repo repos;database db;configuration config configs;"
    "documentation docs;directory folder folders;error bug bugs;environment env;administrator admin admins;"
    "information info;education edu;festival fest;birthday bday;business biz;congratulations congrats;"
    "thanks thx;mathematics math maths;gymnasium gym;veterinarian vet;motorcycle motorbike;telephone phone phones;"
    "january jan;february feb;march mar;april apr;august aug;september sept sep;october oct;november nov;december dec;"
    "monday mon;tuesday tue;wednesday wed;thursday thu;friday fri;saturday;sunday;"
    "kubernetes k8s;javascript js;typescript ts;python py;postgresql postgres;internationalization i18n;"
    "traveling travelling;center centre;theater theatre;organize organise;practice practise;gray grey"
)


def _canonical(table: str) -> dict[str, str]:
    groups = (group.split() for group in table.split(";"))
    return {variant: canonical for canonical, *variants in groups for variant in variants}


CANONICAL: Final[dict[str, str]] = _canonical(_IRREGULAR) | _canonical(_SAME)
"""Irregular forms and everyday short forms, each with the word under which it is found as well."""
