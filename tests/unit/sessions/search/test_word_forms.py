"""Words are found in their other forms, in languages other than English."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Found, SearchRequest
from wellkept.languages.language import stop_words_by_language
from wellkept.languages.stems import STEMMERS
from wellkept.sessions.search.query import parse
from wellkept.sessions.search.terms import WordForms, find_written, list_forms, look_up_terms, unknown_weight
from wellkept.sessions.sqlite.fts5 import Fts5Analyzer
from wellkept.sessions.sqlite.postings import SqlitePostings, find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.versions import build_reference
from wellkept.testing.memory_postings import MemoryMessage, MemoryPostings

NOW = 1_700_000_000.0


def say(store: SqliteSessionStore, texts: Sequence[str]) -> None:
    """Store a session for each text."""
    for text in texts:
        name = SessionId(f"s{time.monotonic_ns()}")
        store.create(Session(name, "cli", NOW - 86_400.0))
        store.append(name, [NewMessage(Message(Role.USER, text), NOW - 86_400.0, Origin.PERSON)])
    store.file.catch_up()


def search(store: SqliteSessionStore, query: str) -> Found:
    return find(store.database.connection, SearchRequest(query, limit=5), now=NOW)


def find_texts(store: SqliteSessionStore, query: str) -> list[str]:
    found = search(store, query)
    messages = [store.message(hit.message_id) for hit in found.messages] if not found.abstained else []
    return [message.message.text for message in messages if message is not None]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("Das Haus am See ist verkauft, und wir sind froh.", "Häuser|Hauses|Wo sind die Häuser?|Seen Häuser"),
        ("Die Straße ist gesperrt, aber wir haben ein Rad.", "Straßen|Räder"),
        ("Le cheval est dans le pré avec nous.", "chevaux|Où sont les chevaux ?"),
        ("La canción es bonita y la luz está en el pasillo.", "canciones|¿Dónde están las canciones?|luces"),
        ("A ação foi vendida e o pão está na mesa.", "ações|pães"),
        ("La città è bella e gli amici sono qui.", "citta|amico"),
        ("Moja książka jest już w domu, ale nie wiem gdzie.", "książki|książkę"),
        ("Moje kniha je na stole a nebo jsem doma.", "knihy|knihu"),
        ("Talossa on paljon ihmisiä, mutta minä en ole siellä.", "talo|taloon"),
        ("Egy kutya volt itt, de már nincs.", "kutyák|kutyának"),
        ("Kitapları bir yerde ama çok güzel.", "kitap|kitaplar"),
        ("Bilarna är gamla och husen är också gamla.", "bil|hus"),
        ("Bilerne er gamle, og husene er ikke nye.", "bil|hus"),
        ("De huizen zijn oud, maar de boeken niet.", "huis|boek"),
        ("Cărțile nu sunt aici și nu sunt acasă.", "carte"),
        ("Els llibres no són aquí però la porta és oberta.", "llibre|portes"),
        ("Τα σπίτια είναι στο χωριό και δεν τα βρήκα.", "σπίτι"),
        ("البيت في المدينة على الجبل", "بيت"),
        ("Saya membeli buku itu dengan dia.", "bukunya"),
        ("ये कहानियाँ अच्छी हैं लेकिन वह नहीं है और यह सच है", "कहानी"),
        ("மேசையில் ஒரு வீடுகள் மற்றும் இந்த மரம் என்று நான் இல்லை", "வீடு"),
        ("मेरो घरमा किताबहरू छन् र यो लागि पनि हो", "किताब"),
        ("Nije važno gde su knjige, samo što ih imamo.", "knjiga"),
        ("Ma ostsin eile kaks raamatut ja need on head.", "raamatud"),
        ("Vakar nusipirkau dvi knygas ir jos yra geros.", "knyga"),
        ("Mi aĉetis du librojn hieraŭ kaj ili estas bonaj.", "libro"),
    ],
)
def test_a_word_is_found_in_another_form(store: SqliteSessionStore, text: str, queries: str) -> None:
    """With and without accents, as keywords and in a question; "not a word of it" is found by none of them."""
    say(store, [text, "Not a word of it."])

    assert [(query, find_texts(store, query)) for query in queries.split("|")] == [
        (query, [text]) for query in queries.split("|")
    ]


@pytest.mark.parametrize("query", ["Häuser AND Seen", "Häuser AND verkauft", "Häuser OR Boote", "Hauses NOT Dorf"])
def test_a_condition_holds_for_every_form(store: SqliteSessionStore, query: str) -> None:
    """Also where a form is excluded: the other house is in a village."""
    say(store, ["Das Haus am See ist verkauft.", "Die Häuser der Dörfer sind nicht neu."])

    assert find_texts(store, query)[:1] == ["Das Haus am See ist verkauft."]
    assert find_texts(store, "Hauses NOT Dorf") == ["Das Haus am See ist verkauft."]


def test_phrases_and_prefixes_are_literal(store: SqliteSessionStore) -> None:
    """Whoever quotes means these words."""
    say(store, ["Das Haus am See ist verkauft, und es war nicht teuer."])

    assert find_texts(store, '"Häuser am See"') == []
    assert find_texts(store, '"Haus am See"') != []
    assert WordForms.choose(SqlitePostings(store.database.connection), parse("haus*"), "haus*").languages == ()


def test_short_stems_join_no_unrelated_words(store: SqliteSessionStore) -> None:
    """ "Rat" is advice and "rate" English; "casa" is a house and "caso" a case; but "Tag" has the plural "Tage"."""
    say(store, ["Der Tag war lang, und wir sind nicht müde.", "The rate is high.", "El caso es que no está aquí."])
    say(store, ["Ein Rat ist nicht teuer, aber selten."])

    assert find_texts(store, "Tage") == ["Der Tag war lang, und wir sind nicht müde."]
    assert find_texts(store, "Rat") == ["Ein Rat ist nicht teuer, aber selten."]
    assert find_texts(store, "casa") == []


def test_two_english_words_are_no_forms_of_one(store: SqliteSessionStore) -> None:
    """The German stemmer would cut "corner" to "corn"; in a store without English, both are German."""
    say(store, ["The corn is ripe.", "We met at the corner.", "Das Korn ist reif, und die Kinder sind nicht hier."])
    postings = SqlitePostings(store.database.connection)

    assert find_texts(store, "corner") == ["We met at the corner."]
    assert find_texts(store, "Kind") == ["Das Korn ist reif, und die Kinder sind nicht hier."]
    assert list_forms(postings, "corner", ["de"]).keys() == {"corner", "corn"}
    assert list_forms(postings, "corner", ["de"], may_be_english=True) == {}


def test_an_english_question_asks_for_its_words(store: SqliteSessionStore) -> None:
    """Its words have English forms alone; only one that no message has may be of a language of the store."""
    say(store, ["Der Garten ist nicht groß, und das Haus ist alt.", "We looked at the gardens of the house."])

    postings = SqlitePostings(store.database.connection)
    languages = [
        WordForms.choose(postings, parse(query), query).languages
        for query in ("what is in the garden?", "Gärten", "Gärten in Häusern", "Gärten AND Häuser")
    ]

    assert [list(one) for one in languages] == [[], ["de"], ["de"], ["de"]]
    assert find_texts(store, "what did we say about the Gartens?")[:1] != []


def test_a_store_in_english_has_no_other_language(store: SqliteSessionStore) -> None:
    """So nothing is looked up, and the stemmers are not loaded."""
    say(store, ["We met Ben and Kim at the station.", "Die hard is a film, and war is no game."])

    assert SqlitePostings(store.database.connection).languages == ()


def test_the_languages_of_a_large_store_are_recognised_by_marker_words(store: SqliteSessionStore) -> None:
    """One message in a hundred is enough, one in a thousand is not."""
    lines = [f"message number {number}" for number in range(300)]
    lines[::40] = ["Das habe ich nicht gesagt."] * len(lines[::40])
    lines[7] = "Cuando fue eso"
    store.create(Session(SessionId("a"), "cli", NOW))
    store.append(
        SessionId("a"),
        [NewMessage(Message(Role.USER, line), NOW + place, Origin.PERSON) for place, line in enumerate(lines)],
    )
    store.file.catch_up()

    assert SqlitePostings(store.database.connection).languages == ("de",)


def test_forms_of_one_word_are_one_term(store: SqliteSessionStore) -> None:
    """Whether the question or a message has several of them; a message with two counts once."""
    say(store, ["Das Haus und die Häuser sind nicht neu.", "Ein Haus ist nicht teuer.", "Wir sind nicht im Dorf."])
    postings, query = SqlitePostings(store.database.connection), parse("Häuser Haus Dörfer")
    forms = WordForms.choose(postings, query, "Häuser Haus Dörfer")

    terms = look_up_terms(postings, query, forms, is_asked=False)

    assert [term.frequency for term in terms] == [2, 1]
    assert unknown_weight(forms, query, terms) == 0.0


def test_the_forms_that_were_found_are_shown_as_they_are_written(store: SqliteSessionStore) -> None:
    """So a snippet is cut around them; forms of other messages are not told."""
    say(store, ["Die Häuser sind nicht neu.", "Wir haben im Dorf kein Schloss gesehen.", "Ein Häuschen und Hauses."])

    assert search(store, "Haus neu").terms == ("haus", "neu", "hauses", "häuser")
    assert search(store, "Schlösser").terms == ("schlösser", "schloss")


def test_an_explanation_names_the_word_that_was_asked_for(store: SqliteSessionStore) -> None:
    """A message with another form of it contains it."""
    say(store, ["Die Häuser sind nicht neu."])
    (hit,) = search(store, "Haus").messages

    found = find(store.database.connection, SearchRequest("Haus", explain=hit.message_id), now=NOW)

    assert found.explained is not None
    assert [(term.text, term.is_held) for term in found.explained.terms] == [("haus", True)]


ANALYZER = Fts5Analyzer(build_reference((), 0))


@given(
    st.sampled_from(sorted(STEMMERS)),
    st.text(st.characters(categories=["L"]), min_size=1, max_size=14),
    st.lists(st.text(st.characters(categories=["L", "Mn"]), min_size=1, max_size=14), max_size=6),
)
def test_forms_are_words_of_the_store_and_always_more_than_one_token(language: str, word: str, said: list[str]) -> None:
    """Every form finds messages, as many as it says, and there are none unless one differs from the word."""
    text = " ".join(said)
    postings = MemoryPostings([MemoryMessage(1, "s", "user", text, NOW)], 1, analyzer=ANALYZER)

    forms = list_forms(postings, word.lower(), [language])

    assert all(postings.frequency(form) == count for form, count in forms.items())
    assert not forms or {ANALYZER.stem(form) for form in forms} != {ANALYZER.stem(word)}


@given(st.lists(st.text(max_size=12), max_size=4), st.lists(st.text(max_size=40), max_size=3))
def test_written_forms_are_words_of_the_texts(forms: list[str], texts: list[str]) -> None:
    """Nothing else can be shown."""
    written = find_written(ANALYZER, forms, texts)

    assert all(any(word in text.lower() or not text.isascii() for text in texts) for word in written)


def test_every_stemmer_has_stop_words() -> None:
    """A language without them could not be recognised."""
    assert stop_words_by_language().keys() >= STEMMERS.keys()
