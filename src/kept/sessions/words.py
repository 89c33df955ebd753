"""Word tables: what carries no meaning in a question, and which spellings are one word."""

from collections.abc import Sequence
from typing import Final

_STOP_WORDS: Final[dict[str, str]] = {
    # the fragments are what a word splitter leaves of "don't", "I've", "she'll"
    "en": "a an the this that these those i me my mine myself you your yours yourself he him his himself she her "
    "hers herself it its itself we us our ours ourselves they them their theirs themselves am is are was were be "
    "been being do does did doing done have has had having can could will would shall should may might must ought "
    "and or nor but if then else so as than too very just also of in on at by for with about to from into onto "
    "over under up down out off again once there here what which who whom whose when where why how any some all "
    "both each few more most other such no not only own same because while during before after between through "
    "above below until against further ever many much long often get got getting gets s t d ll re ve m don didn "
    "doesn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn im ive id youre dont didnt whats "
    "please tell",
    "de": "der die das den dem des ein eine einen einem einer eines ich du er sie es wir ihr mich mir dich dir uns "
    "euch mein meine dein sein unser und oder aber nicht ist sind war waren bin bist hat habe haben hatte wird "
    "werden wurde wie wo wann warum wer wen wem was welche welcher welches im in am an zum zur zu von vom mit für "
    "auf aus bei nach über unter um auch noch nur als dass wenn man so",
    "fr": "le la les un une des du de d l et ou mais ne pas je j tu il elle on nous vous ils elles mon ma mes ton ta "
    "tes son sa ses notre votre leur ce cet cette ces c est sont était étaient être suis sommes êtes avoir ai as "
    "a avons avez ont qui que qu quoi quand où pourquoi comment quel quelle quels quelles dans sur avec pour par au "
    "aux en à",
    "es": "el la los las un una unos unas y o pero no yo tú él ella nosotros ellos mi mis tu tus su sus es son era "
    "eran fue ser soy eres somos estar estoy está están qué que quién cuándo cuando dónde donde cómo como cuál por "
    "para con sin de del a al lo se en me te",
    "pt": "o a os as um uma uns umas e ou mas não eu tu ele ela nós eles meu minha seu sua é são era foi ser estar "
    "está que quem quando onde como qual por para com sem de do da dos das no na nos nas em se",
    "it": "il lo la i gli le un uno una e o ma non io tu lui lei noi voi loro mio mia suo sua è sono era sei siamo ha "
    "ho hanno che chi cosa quando dove perché come quale di del della dei da in nel nella con per su si",
    "nl": "de het een en of maar niet ik je jij hij zij ze wij we mijn zijn haar is was waren heb heeft had wat wie "
    "waar wanneer waarom hoe welke in op aan met voor van naar bij uit om ook nog dat die dit",
    "ru": "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее её мне было вот "
    "от меня еще ещё нет о об из ему когда где кто кого почему какой какая какие который ли это был была были мы они",
    "ar": "في من على إلى عن أن إن هذا هذه ذلك التي الذي ما ماذا متى أين كيف لماذا هل هو هي كان كانت أنا و",
    "ko": "은 는 이 가 을 를 에 의 와 과 도 무엇 언제 어디 누가 왜 어떻게",
}
_BY_LANGUAGE: Final[dict[str, frozenset[str]]] = {
    language: frozenset(words.split()) for language, words in _STOP_WORDS.items()
}
STOP_WORDS: Final[frozenset[str]] = _BY_LANGUAGE["en"]
"""The English stop words; `stop_words` adds those of the language that a question is written in."""


def stop_words(words: Sequence[str]) -> frozenset[str]:
    """Return the stop words that apply to a question of these words.

    "war", "die" or "sin" are stop words of one language and nouns of another, so another language than
    English counts only where the question holds at least two of its stop words and more than of English.
    """
    english = sum(word in STOP_WORDS for word in words)
    chosen = STOP_WORDS
    for language, table in _BY_LANGUAGE.items():
        hits = sum(word in table for word in words)
        if language != "en" and hits >= 2 and hits > english:
            chosen |= table
    return chosen


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
"""Words that shape a question more than they say what it is about; they count less."""

_ASKING: Final = (
    "what which who whom whose when where why how did does do is are was were am has have had can could will would "
    "shall should may might tell remind show list find give name describe remember please i we"
)
ASKING: Final[frozenset[str]] = frozenset(_ASKING.split())
"""Words that a question or a request begins with; what begins with another is words to look for."""

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


def forms(word: str) -> list[str]:
    """Return the words that are found under `word`, itself first."""
    return [word, *(variant for variant, base in CANONICAL.items() if base == word)]
