"""The threat scanner: finds text that would harm the agent that reads it, by rules and by learnt weights of words."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from itertools import accumulate, repeat
from math import log2
from operator import sub

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.text import expression, resource_text
from wellkept.security import secrets, unicode
from wellkept.security.rules import OTHER_SCRIPT, Reading, Rule, Scope, Severity, Table, table

__all__ = ["Finding", "Scope", "Severity", "Verdict", "read", "rule_ids", "scan"]

_FIRST_OTHER = "\u0400"
_DOTTED = expression("([\u4e00-\u9fff])[.*_/|\u00b7\u30fb-](?=[\u4e00-\u9fff])")
"""Signs that are put between Chinese characters to break up words."""
_NOT_ASCII = expression(r"[^\x00-\x7f]+")
_PERSONA = "persona"
_LONG = 700
"""Longer texts need more weak signals, because in them signals meet by chance."""
_PERSONA_SHORT = (3, 6, 1)
_PERSONA_LONG = (4, 8, 2)
"""The weight at which a text is held, the weight at which it is blocked, and the number of signals needed."""
_DISGUISED = "disguised_words"
_ORDER_CHAIN = "order_chain"
_WORDING = "wording"
_ORDER = "assistant_order"
_ABOVE_AN_ORDER = 160
"""Added to the bar for a text with a mere order: "from now on you will always" scores high whatever follows."""
_ORDERS = frozenset(
    {"instruction_override", "role_hijack", "system_prompt_override", "deception", "exfiltration", _WORDING}
)
_COMMANDS = frozenset({"exfil_curl", "exfil_wget", "exfil_other"})
_CHAIN_SHORT, _CHAIN_LONG = 2, 3
"""This many different held orders together are an attack."""
_KEY_WORD = 4
"""Ordinary Russian or Greek words fold to shorter English ones."""
_QUOTED = expression(r"\"[^\"\n]{3,300}\"|(?<![a-z0-9])'[^'\n]{3,300}'(?![a-z0-9])|`[^`\n]{3,300}`")
_QUOTATION = " quotation "
_CODE = expression(r"`[^`\s]{1,120}`|`[/$~.][^`\s]{0,80}(?: [^`\s]{1,60}){0,3}`")
"""Paths, names and short commands in backticks; prose has more spaces and begins with a letter."""
_SENTENCE = expression(r"[^.!?\n]+[.!?]*")
_REPORT = expression(
    r"\b(?:papers?|articles?|blog|posts?|study|studies|talk|chapter|lecture|book|course|thesis|reports?|docs|documentation|"
    r"tests?|testers?|testeurs?|probador|suite|corpus|fixtures?|dataset|benchmark|examples?|scanner|filter|regex|rules?|detector|guard|classifier|"
    r"attacks?|attackers?|injections?|jailbreaks?|phrases?|strings?|payloads?|wording|technique|researchers?|spam|phishing|"
    r"aufsatz|artikel|angriffe?|beispiele?|angreifer|articulo|ataques?|ejemplos?|attaques?|exemples?)\b"
)
_DIRECTIVE = expression(
    r"\b(?:you|your|yours|must|always|never|please|from now|henceforth|follow|obey|execute|run|apply|perform|comply|"
    r"remember|repeat|act|respond|reply|answer|do|treat|set|override|send|print|ensure|make sure|enable|become|"
    r"adopt|believe|proceed|begin|start|continue|instead|assistant|du|dein|deine|befolge|immer|tu|debes|siempre|vous|dois)\b"
)
_TOLD = expression(
    r"^\W{0,3}(?:the|a|an|our|this|these|some|many|most|one|in|der|die|das|ein|eine|el|la|los|un|una|le|les|une)\b"
    r"[^:;\n]{0,60}?\b(?:shows?|explains?|describes?|detects?|blocks?|catch(?:es)?|flags?|covers?|contains?|uses?|"
    r"demonstrates?|embeds?|tells?|told|says?|said|warns?|lists?|tries|attempts?|mentions?|discuss(?:es)?|checks?|"
    r"beschreibt|zeigt|erklart|explica|muestra|describe|montre|explique|decrit)\b"
)
_NO_WORD = expression(r"\S*[/.@_=]\w\S*")
_MACHINE = expression(r"[{}<>$|\\]")
"""Signs of a command or of data rather than prose."""
_LONGEST = 700


class Finding(Struct, frozen=True):
    """One rule that matched."""

    rule: str
    category: str
    severity: Severity
    detail: str | None = None
    """What matched, where naming it is safe (a code point, the signals); never the text."""


class Verdict(Struct, frozen=True):
    """Everything found in one text."""

    findings: tuple[Finding, ...]

    @property
    def blocked(self) -> bool:
        """Whether the text is an attack."""
        return any(finding.severity is Severity.BLOCK for finding in self.findings)

    @property
    def held(self) -> bool:
        """Whether a person must look at the text first; false for a blocked one."""
        return bool(self.findings) and not self.blocked

    @property
    def verdict(self) -> str:
        """Return `clean`, `hold` or `block`."""
        return "block" if self.blocked else "hold" if self.findings else "clean"

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the ids of the rules that matched."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))


def scan(text: str, *, scope: Scope = Scope.MEMORY, allow: Collection[str] = ()) -> Verdict:
    """Return what the rules of `scope` find in `text`, except the rules named in `allow`."""
    rules = table()
    foreign = unicode.foreign(text)
    reading = rules.read(_fold(text, rules, foreign))
    found = [*_unicode(text, rules, foreign), *_judge(reading, rules, scope)]
    disguised = any(finding.rule == _DISGUISED for finding in found)
    for payload in (*unicode.payloads(text), *(unicode.undisguise(text) if disguised else ())):
        found.extend(_hidden(payload, rules, scope))
    for rule, certain in secrets.shapes(text, reading.vocabulary):
        found.append(Finding(rule, "credentials", Severity.BLOCK if certain else Severity.HOLD))
    kept = dict.fromkeys(finding for finding in found if finding.rule not in allow)
    return Verdict(tuple(kept))


def read(text: str) -> Reading:
    """Return `text` in the form that the rules match."""
    rules = table()
    return rules.read(_fold(text, rules, unicode.foreign(text)))


def rule_ids() -> frozenset[str]:
    """Return every id that a finding can carry, so that a person's `--allow` can be checked."""
    built_in = {"invisible_unicode", "mixed_script", "flood", "encoded_payload", _PERSONA, _ORDER_CHAIN, _WORDING}
    return frozenset(
        {*built_in, *(rule.id for rule in table().rules), *(shape.rule for shape in secrets.shape_table().shapes)}
    )


def _unicode(text: str, rules: Table, foreign: frozenset[str]) -> Iterator[Finding]:
    for point, in_word in unicode.invisible(text, foreign):
        severity = Severity.BLOCK if in_word else Severity.HOLD
        yield Finding("invisible_unicode", "invisible_unicode", severity, point)
    for word, mixed in unicode.lookalike_words(text, foreign):
        if len(word) >= _KEY_WORD and word.isascii() and rules.lexicon.is_key(word):
            detail = "mixed scripts" if mixed else "look-alike letters"
            yield Finding("mixed_script", "mixed_script", Severity.BLOCK, detail)


def _judge(reading: Reading, rules: Table, scope: Scope) -> list[Finding]:
    """Return the findings; an attack that is only quoted or described is held, not blocked."""
    found = _find(reading, rules, scope)
    attack = partial(_attacks, rules=rules, scope=scope)
    if any(map(_is_prose, found)) and is_mention(reading.folded, attack):
        found = [replace(each, severity=Severity.HOLD) if _is_prose(each) else each for each in found]
    return found


def _is_prose(finding: Finding) -> bool:
    """Whether `finding` is an order in prose, which can be quoted; a quoted command still works."""
    return finding.severity is Severity.BLOCK and finding.category in _ORDERS and finding.rule not in _COMMANDS


def _attacks(folded: str, rules: Table, scope: Scope) -> bool:
    return any(map(_is_prose, _find(rules.read(folded), rules, scope)))


def _find(reading: Reading, rules: Table, scope: Scope) -> list[Finding]:
    """Return the findings of the rules, and of the wording where no rule blocks."""
    found = list(_by_rules(reading, rules, scope))
    if scope is Scope.MEMORY and not any(finding.severity is Severity.BLOCK for finding in found):
        found += _wording(reading, held_by=frozenset(finding.rule for finding in found))
    return found


def _by_rules(reading: Reading, rules: Table, scope: Scope) -> Iterator[Finding]:
    signals: list[Rule] = []
    for rule, certain in rules.matching(reading, scope):
        if not certain:
            yield Finding("flood", "obfuscation", Severity.HOLD, rule.id)
            continue
        signals.append(rule)
        if rule.severity is not None:
            yield Finding(rule.id, rule.category, rule.severity)
    if len(signals) > 1 or rules.addresses_someone(reading):
        yield from _persona(signals, _PERSONA_LONG if len(reading.folded) > _LONG else _PERSONA_SHORT)
    yield from _chain(signals, _CHAIN_LONG if len(reading.folded) > _LONG else _CHAIN_SHORT)


def _fold(text: str, rules: Table, foreign: frozenset[str]) -> str:
    """Return `text` in ASCII, with the words of scripts without Latin letters in English."""
    if not foreign:
        return text.lower()
    text = unicode.visible(text, foreign)
    if any(char >= _FIRST_OTHER for char in foreign):
        text = rules.in_english(_DOTTED.sub(r"\1", text))
    folded = unicode.fold(text, foreign)
    return folded if folded.isascii() else _NOT_ASCII.sub(OTHER_SCRIPT, folded)


def _persona(matched: list[Rule], bars: tuple[int, int, int]) -> Iterator[Finding]:
    """Yield the jailbreak persona that weak signals add up to."""
    hold, block, least = bars
    signals = [rule.id for rule in matched if rule.weight > 0]
    weight = sum(rule.weight for rule in matched)
    if weight >= hold and len(signals) >= least:
        severity = Severity.BLOCK if weight >= block else Severity.HOLD
        yield Finding(_PERSONA, "role_hijack", severity, ", ".join(signals))


def _chain(matched: list[Rule], least: int) -> Iterator[Finding]:
    """Yield an attack made of several kinds of orders; each alone would only be held."""
    orders = [rule.id for rule in matched if rule.severity is Severity.HOLD and rule.category in _ORDERS]
    if len(orders) >= least:
        yield Finding(_ORDER_CHAIN, "instruction_override", Severity.BLOCK, ", ".join(orders))


def _wording(reading: Reading, *, held_by: frozenset[str]) -> Iterator[Finding]:
    """Yield a finding if the learnt weights of the words reach a bar.

    A text that the rules hold is blocked or left as it is; a mere order must score far above the bar. Paths and
    commands between backticks are no words.
    """
    weights = wording()
    hold, block = weights.bars(len(reading.tokens))
    score = weights.score(reading.tokens, reading.words)
    if score >= hold and (plain := _CODE.sub(" ", reading.folded)) != reading.folded:
        spoken = table().read(plain)
        hold, block = weights.bars(len(spoken.tokens))
        score = weights.score(spoken.tokens, spoken.words)
    if score >= (block + _ABOVE_AN_ORDER if held_by == {_ORDER} else block):
        yield Finding(_WORDING, _WORDING, Severity.BLOCK)
    elif score >= hold and not held_by:
        yield Finding(_WORDING, _WORDING, Severity.HOLD)


def _hidden(payload: str, rules: Table, scope: Scope) -> Iterator[Finding]:
    """Yield the blocking findings of a decoded payload."""
    for finding in _find(read(payload), rules, scope):
        if finding.severity is Severity.BLOCK:
            yield Finding("encoded_payload", "obfuscation", Severity.BLOCK, finding.rule)
            yield finding


def is_mention(folded: str, is_attack: Callable[[str], bool]) -> bool:
    """Whether `folded`, which contains an attack, only quotes or describes it.

    A quotation must be the smaller part of its text; nothing around it may give an order.
    """
    if len(folded) > _LONGEST:
        return False
    around = _QUOTED.sub(_QUOTATION, folded)
    if around != folded and not is_attack(around):
        quoted = len(folded.split()) - len(around.split()) + around.count("quotation")
        return len(around.split()) >= quoted and _describes(around)
    attacking = [sentence for sentence in _SENTENCE.findall(around) if is_attack(sentence)]
    return bool(attacking) and all(map(_is_reported, attacking)) and not _DIRECTIVE.search(_rest(around, attacking))


def _describes(text: str) -> bool:
    words = _NO_WORD.sub(" ", text)
    return _MACHINE.search(text) is None and _REPORT.search(words) is not None and _DIRECTIVE.search(words) is None


def _is_reported(sentence: str) -> bool:
    told = _TOLD.match(sentence.strip())
    return told is not None and _describes(told[0])


def _rest(text: str, sentences: list[str]) -> str:
    for sentence in sentences:
        text = text.replace(sentence, " ")
    return text


WINDOW = 40
"""Tokens that are scored together, so that a long text does not add up more weights than a short one."""
_STEP = WINDOW // 2
SHORT, LONG = 30, 150
"""The bars rise between these numbers of tokens: in a long text the best of many windows scores higher by chance."""
PER_DOUBLING = 50
"""What the bars rise by with every doubling beyond `LONG`, for the same reason; no page holds texts of that length."""
_REACH = 3
"""A pair of kinds spans at most this many kinds."""
_HEAD = 4
_MOST_WINDOWS = 100
"""Only the windows with the highest single-word weights are scored, which bounds the time for any text."""
_LONGEST_MEMO = 20_000
_MOST_WORDS = 30_000
"""A text with more distinct words is not prose; only its words in the table are scored."""
_PAUSE = "."
_NUMBER = "0"


class Wording:
    """Kinds of words in five languages, and weights of features in hundredths."""

    def __init__(self, source: str) -> None:
        """Read the kinds (`name = word stem*`), the bars and the weights (`weight<TAB>feature<TAB>…`) of `source`."""
        kinds, bars, weights = source.split("\n\n")[-3:]
        rows = [[int(number) for number in line.split("\t")[1:]] for line in bars.split("\n")]
        self._holds, self._blocks, (self._base,), (self._warm,) = rows
        self._kinds: dict[str, str] = {}
        self._stems: dict[str, list[tuple[str, str]]] = {}
        for line in kinds.strip().split("\n"):
            name, _, words = line.partition(" = ")
            self._add_kind(f"#{name}", words.split())
        self.weights: dict[str, int] = {}
        for weight, _, features in (row.partition("\t") for row in weights.splitlines()):
            self.weights.update(zip(features.split("\t"), repeat(int(weight)), strict=False))
        self._known: dict[str, tuple[str, str]] = {}
        self._heat: dict[str, int] = {}

    def _add_kind(self, name: str, words: Iterable[str]) -> None:
        for word in words:
            if word[-1] == "*":
                self._stems.setdefault(word[:_HEAD], []).append((word[:-1], name))
            else:
                self._kinds.setdefault(word, name)

    def bars(self, size: int) -> tuple[int, int]:
        """Return the scores at which a text of `size` tokens is held and blocked; short texts have lower bars."""
        share = min(max(size - SHORT, 0), LONG - SHORT) / (LONG - SHORT)
        beyond = PER_DOUBLING * log2(max(1.0, size / LONG))
        hold, block = (round(short + share * (long - short) + beyond) for short, long in (self._holds, self._blocks))
        return hold, block

    def score(self, tokens: Sequence[str], words: AbstractSet[str]) -> int:
        """Return the score of the heaviest window of `tokens`, whose distinct ones are `words`."""
        if len(self._heat) > _LONGEST_MEMO:
            self._known.clear()
            self._heat.clear()
        if self._warmest(words) < self._warm:
            return self._base
        hottest = sorted(self._warm_windows(tokens), reverse=True)[:_MOST_WINDOWS]
        scores = map(self.weigh, [tokens[start : start + WINDOW] for _, start in hottest])
        return max(scores, default=self._base)

    def _warmest(self, words: AbstractSet[str]) -> int:
        """Return the sum of the positive weights of `words`; most words are skipped by their first letters."""
        stems, heat = self._stems, self._heat
        telling = (self.weights.keys() & words) | (self._kinds.keys() & words)
        if len(words) < _MOST_WORDS:
            telling.update([word for word in words if word[:_HEAD] in stems or "'" in word or "@" in word])
        for word in telling.difference(heat):
            plain, kind = self._read(word)
            heat[word] = self.weights.get(plain, 0) + self.weights.get(kind, 0)
        return sum([weight for weight in map(heat.__getitem__, telling) if weight > 0])

    def _warm_windows(self, tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield (warmth, position) of windows whose single words weigh enough to be scored."""
        total = list(accumulate(map(self._heat.get, tokens, repeat(0)), initial=0))
        starts = total[: max(1, len(tokens) - _STEP) : _STEP]
        ends = total[WINDOW::_STEP]
        sums = map(sub, [*ends, *repeat(total[-1], len(starts) - len(ends))], starts)
        return ((warmth, place * _STEP) for place, warmth in enumerate(sums) if warmth >= self._warm)

    def warmth(self, tokens: Sequence[str]) -> int:
        """Return the sum of the weights of the single words of one window."""
        self._warmest(set(tokens))
        return sum([self._heat.get(token, 0) for token in tokens])

    def weigh(self, tokens: Iterable[str]) -> int:
        """Return the score of one window."""
        return self._base + sum(map(self.weights.get, self.features(tokens), repeat(0)))

    def features(self, tokens: Iterable[str]) -> set[str]:
        """Return each word, its kind, each pair of neighbours, and each pair of kinds near each other in a sentence."""
        found: set[str] = set()
        near: list[str] = []
        last = _PAUSE
        for token in (*tokens, _PAUSE):
            word, kind = self._read(token)
            found.add(word)
            found.add(f"{last} {kind or word}")
            last = kind or word
            if kind:
                found.add(kind)
                found.update([f"{before}~{kind}" for before in near[-_REACH:]])
                near.append(kind)
            elif word == _PAUSE:
                near.clear()
        return found

    def _read(self, token: str) -> tuple[str, str]:
        """Return the word that stands for `token`, and its kind or an empty string."""
        known = self._known.get(token)
        if known is None:
            if token[0] in ".!?;\n":
                known = _PAUSE, ""
            elif token[0].isdigit():
                known = _NUMBER, ""
            else:
                known = token, self._kind(token)
            self._known[token] = known
        return known

    def _kind(self, word: str) -> str:
        kind = self._kinds.get(word)
        if kind is None:
            stems = [(len(stem), name) for stem, name in self._stems.get(word[:_HEAD], ()) if word.startswith(stem)]
            kind = max(stems)[1] if stems else ""
        if not kind and "'" in word:
            head, _, rest = word.partition("'")
            kind = "#not" if rest == "t" else self._kinds.get(rest) or self._kinds.get(head) or ""
        return kind or ("#dest" if "@" in word[1:] else "")


@cache
def wording() -> Wording:
    """Return the shipped weights; they are read once per process, with the first text."""
    return Wording(resource_text("wellkept.security", "wording.tsv"))
