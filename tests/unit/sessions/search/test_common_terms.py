"""Prefixes and phrases that very many messages hold: answered from the newest of them."""

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.analysis import clean
from wellkept.sessions.search.candidates import Scope, choose_budget, find_candidates, read_lists
from wellkept.sessions.search.conditions import compile_condition, find_matching
from wellkept.sessions.search.postings import Prefix, Word
from wellkept.sessions.search.query import parse
from wellkept.sessions.search.ranking import Ranking, term_weights
from wellkept.sessions.search.terms import PostingList, newest_with_prefix
from wellkept.sessions.sqlite.postings import SqlitePostings

_MESSAGES = 2_400


def text(number: int) -> str:
    """Every third message begins a word with "st", every hundredth one with "zeb"."""
    words = ["Stone" if number % 3 == 0 else "rock", "must be moved", "zebra" if number % 100 == 0 else "mule"]
    return f"{' '.join(words)} of the yard number {number}"


@pytest.fixture
def postings(store):
    store.create(Session(SessionId("a"), "cli", 1.0))
    said = [NewMessage(Message(Role.USER, text(number)), 1.0, Origin.PERSON) for number in range(1, _MESSAGES + 1)]
    echo = NewMessage(Message(Role.TOOL, "stone stone", tool_name="session_search", tool_call_id="1"), 1.0, Origin.TOOL)
    store.append(SessionId("a"), [*said, echo])
    return SqlitePostings(store.database.connection)


def test_a_common_beginning_is_read_from_the_newest_texts(postings):
    """What is read from the texts is what the index says of the same messages; echoes of tools are left out."""
    found = newest_with_prefix(postings, "st")

    assert found == postings.newest_ids(Prefix("st"), _MESSAGES)
    assert len(found) == _MESSAGES // 3


@pytest.mark.parametrize("beginning", ["zeb", "xq"])
def test_a_rare_beginning_is_left_to_the_index(postings, beginning):
    """Where few of the newest messages hold it, nothing more is read."""
    assert newest_with_prefix(postings, beginning) is None


def test_filters_are_not_starved_by_the_newest(postings):
    """With filters beside, the whole list is asked for: the newest may all be taken away."""
    ranking = Ranking(term_weights([("st", 1.0, 800, 0)], _MESSAGES), mean_length=9.0, mean_session=50.0, unknown=0.0)

    def of(**scope):
        held = PostingList("st", Prefix("st"), 1.0, 800, newest=[2_397, 2_400])
        where = Scope(**scope)
        read_lists(postings, [held], budget=choose_budget(10, _MESSAGES), scope=where)
        return {
            number
            for _, number in find_candidates(
                postings, [held], ranking, budget=choose_budget(10, _MESSAGES), scope=where
            )
        }

    assert {2_397, 2_400} <= of() < {2_397, 2_400, *range(2_390, 2_402)}
    assert len(of(is_filtered=True)) > 100
    assert of(messages=frozenset(range(1, 10))) >= {3, 6, 9}


def test_a_turn_of_speech_is_not_looked_for_to_the_end(postings):
    """A phrase that most messages hold is answered from the newest, and says that older ones were not read."""
    asked = compile_condition(postings, parse('"of the"', 1.0).condition)

    found, unread = find_matching(postings, asked, allowed=None, limit=30_000, wanted=10)

    assert min(found) > 1
    assert unread >= _MESSAGES - len(found) - 500
    assert max(found) == _MESSAGES


def test_a_rare_phrase_of_common_words_is_found_however_old(store, postings):
    """The words are everywhere, the phrase only in the oldest message: every candidate is gone through."""
    asked = compile_condition(postings, parse(f'"{clean(text(1))}"', 1.0).condition)
    found, unread = find_matching(postings, asked, allowed=None, limit=30_000, wanted=10)

    assert (found, unread) == ({1}, 0)
    assert [hit.message_id for hit in store.search(SearchRequest('"yard number 7"')).messages] == [7]


def test_neighbours_of_a_short_query_are_looked_up_in_the_full_lists(store):
    """A message next to others with the term is worth more than one that is not, though only it is a candidate."""
    texts = [f"filler number {number}" for number in range(400)]
    long = "the kite was by the lake again and so were all the others who had come along that day"
    texts[50], texts[49], texts[51] = "kite lake", long, long
    texts[250], texts[240], texts[260] = "kite lake", long, long
    store.create(Session(SessionId("a"), "cli", 1.0))
    ids = store.append(SessionId("a"), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON) for text in texts])
    postings = SqlitePostings(store.database.connection)
    ranking = Ranking(term_weights([("kite", 1.0, 6, 0)], 400), mean_length=5.0, mean_session=400.0)
    terms = [PostingList("kite", Word("kite"), 1.0, 6)]

    # the list counts as long, and no block is read, so that only the short messages are candidates
    budget = choose_budget(10, 400)._replace(per_list=1, blocks=0)
    read_lists(postings, terms, budget=budget, scope=Scope())
    found = find_candidates(postings, terms, ranking, budget=budget, scope=Scope())
    scores = {number: score for score, number in found}

    assert scores[ids[50]] > scores[ids[250]] > 0
