"""Texts are found in every form in which a file may hold them, and lines that hold them are removed."""

import gzip
import io
import json
import os
import unicodedata
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Unreadable
from wellkept.storage import texts as module
from wellkept.storage.texts import Texts

WORD = 'Zürich "Straße"\nÉté'


def tar_like(data):
    return b"\0" * 512 + data + b"\0" * 512


def zipped(data):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", data)
    return stream.getvalue()


FORMS = {
    "plain": WORD.encode(),
    "upper case": WORD.upper().encode(),
    "among binary": b"\xff\xfe\x00" + os.urandom(50) + WORD.encode() + b"\x80",
    "JSON": json.dumps({"a": WORD}, ensure_ascii=False).encode(),
    "JSON with escapes": json.dumps({"a": WORD.upper()}).encode(),
    "JSON in JSON": json.dumps(json.dumps({"a": WORD})).encode(),
    "UTF-16": WORD.encode("utf-16"),
    "UTF-16 in upper case": b"\xff\xfe" + WORD.upper().encode("utf-16-le"),
    "UTF-16 of another machine": b"\xfe\xff" + WORD.upper().encode("utf-16-be"),
    "UTF-16 among binary": os.urandom(50) + b"x" + WORD.casefold().encode("utf-16-be") + b"\x80",
    "gzip": gzip.compress(tar_like(WORD.encode())),
    "zip": zipped(WORD.encode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_found_in_every_form(tmp_path, form):
    """Also across the pieces in which a file is read."""
    path = tmp_path / "file"
    path.write_bytes(FORMS[form])

    assert Texts([WORD]).are_in_file(path)
    assert not Texts(["Bern"]).are_in_file(path)


@pytest.mark.parametrize("before", [0, 1, 7, 20])
def test_a_text_across_two_pieces_is_found(tmp_path, monkeypatch, before):
    """The pieces overlap by the longest form of the text."""
    monkeypatch.setattr(module, "_CHUNK", 20)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (11 + before) + json.dumps(WORD).encode() + b"y" * 30)

    assert Texts([WORD]).are_in_file(path)


def test_what_is_no_regular_file_holds_nothing_and_does_not_wait(tmp_path):
    """A pipe without a writer would block forever."""
    os.mkfifo(tmp_path / "pipe")

    assert not Texts(["x"]).are_in_file(tmp_path / "pipe")
    assert not Texts(["x"]).are_in_file(tmp_path / "missing")


def test_a_damaged_archive_is_not_taken_for_a_searched_one(tmp_path):
    """It may hold the text, so somebody has to be told."""
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(1_000))[:500])

    with pytest.raises(Unreadable):
        Texts(["x" * 20]).are_in_file(tmp_path / "cut.gz")


def test_an_unsearchable_file_may_hold_the_text_and_is_not_known_to(tmp_path):
    """Who removes copies must take it, who reports a find must not."""
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(1_000))[:500])
    (tmp_path / "plain").write_text("walnut")
    (tmp_path / "other").write_text("oak")

    texts = Texts(["walnut"])
    assert [texts.may_be_in_file(tmp_path / name) for name in ("cut.gz", "plain", "other")] == [True, True, False]
    assert [texts.are_found_in_file(tmp_path / name) for name in ("cut.gz", "plain", "other")] == [False, True, False]


def test_the_name_of_a_packed_file_counts(tmp_path):
    """A zip shows the names of its members."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("Walnut.txt", b"nothing")

    assert Texts(["walnut"]).are_in_file(tmp_path / "a.zip")


def test_an_archive_that_unpacks_to_too_much_is_not_searched(tmp_path, monkeypatch):
    """Reading it to the end could take for ever."""
    monkeypatch.setattr(module, "_MOST_UNPACKED", 1_000)
    (tmp_path / "big.gz").write_bytes(gzip.compress(bytes(1_001)))
    (tmp_path / "fits.gz").write_bytes(gzip.compress(bytes(1_000)))

    assert not Texts(["walnut"]).are_in_file(tmp_path / "fits.gz")
    with pytest.raises(Unreadable, match="unpacks to more"):
        Texts(["walnut"]).are_in_file(tmp_path / "big.gz")


def test_letters_that_fold_to_plain_ones_are_found():
    """The Kelvin sign and the ligatures are other bytes than the letters that they stand for."""
    assert Texts(["kelvin"]).are_in_bytes("\u212aelvin".encode())
    assert Texts(["office"]).are_in_bytes("o\ufb03ce".encode())
    assert not Texts(["office"]).are_in_bytes(b"ofce")


def test_no_texts_are_in_nothing(tmp_path):
    """Empty words would match every file."""
    (tmp_path / "file").write_text("a")

    assert not Texts(["", "  "])
    assert not Texts([" "]).are_in_file(tmp_path / "file")
    assert not Texts([]).are_in("a")


def test_lines_with_the_text_are_removed_and_others_keep_their_bytes():
    """A text over two lines takes both with it."""
    text = "one\r\ntwo KEY here\nthree\nfour first\nsecond five\nsix"

    assert Texts(["key", "first\nsecond"]).without_lines(text) == ("one\r\nthree\nsix", 3)
    assert Texts(["none"]).without_lines(text) == (text, 0)
    assert Texts(["a\nb"]).without_lines("a\na\nb\nb\nc") == ("c", 4)


def test_words_alone_are_replaced_where_the_rest_must_stay():
    """Unless a form of them cannot be replaced; then nothing stays."""
    assert Texts(["key"]).without_words('{"title": "My KEY"}') == '{"title": "My [forgotten]"}'
    assert Texts(["strasse"]).without_words("Straße 9") == "[forgotten] 9"
    assert Texts(["straße"]).without_words('"Stra\\u00dfe"') == ""


@given(st.text(max_size=60), st.text(min_size=1, max_size=8).filter(str.strip), st.text(max_size=60))
def test_no_line_with_the_text_survives(before, word, after):
    """Whatever stands around it."""
    rest, _ = Texts([word]).without_lines(before + word + after)

    assert not Texts([word]).lines_in(rest)


def test_lines_that_hold_the_text_escaped_are_found():
    """A line of an export is JSON; a line break inside a text is not a new line there."""
    text = 'one\n{"a": "Z\\u00fcrich \\"Stra\\u00dfe\\"\\n\\u00c9t\\u00e9"}\n\\ two\nthree'

    assert Texts([WORD]).lines_in(text) == (1,)
    assert Texts(["two"]).lines_in(text) == (2,)
    assert Texts(["e", "absent"]).lines_in("e\nx\r\nE\ny") == (0, 2)
    assert Texts(["a\nb\nc"]).lines_in("xa\r\nb\r\ncx\nd") == (0, 1, 2)
    assert Texts(["aa"]).lines_in("aaa\naa") == (0, 1)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_text_is_found_inside_texts_that_hold_texts(depth):
    """Arguments of a tool call, in the stored line of an export."""
    text = WORD
    for _ in range(depth):
        text = json.dumps([text])

    assert Texts([WORD]).are_in(text)
    assert Texts([WORD]).are_in_bytes(text.encode())
    assert not Texts(["elsewhere"]).are_in(text)


def test_only_the_texts_that_need_it_are_looked_for_in_slow_forms():
    """A plain word is not escaped by anybody; one with a slash or a quote may be."""
    assert not Texts(["walnut"]).are_in_bytes(b"wal\\u006eut")
    assert Texts(["wal/nut"]).are_in_bytes(b"wal\\/nut")
    assert Texts(["wal\tnut"]).are_in_bytes(b"wal\\tnut")
    assert Texts(["wälnut"]).are_in_bytes(b"w\\u00e4lnut")


def test_the_same_text_in_two_cases_is_one():
    """And one without letters is none."""
    assert Texts(["Key", "KEY", " \n", "other"]).folded == ("key", "other")


def test_a_zip_that_cannot_be_opened_is_not_searched(tmp_path):
    """Cut off, or damaged in its directory; a file that only begins like one too."""
    data = zipped(b"words " * 50)
    for name, content in (("cut", data[:-20]), ("begin", b"PK\x03\x04" + bytes(50))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Unreadable, match="cannot search"):
            Texts(["walnut"]).are_in_file(tmp_path / name)
    (tmp_path / "short").write_bytes(b"PK\x03")
    assert not Texts(["walnut"]).are_in_file(tmp_path / "short")


def test_words_are_replaced_wherever_they_are_found():
    """Also where a letter folds to two, and a text that is found nowhere else stays as it is."""
    texts = Texts(["grosse strasse", "维兰特"])

    assert texts.without_words("An der Große Straße 9, GROSSE STRASSE, 维兰特计划") == (
        "An der [forgotten] 9, [forgotten], [forgotten]计划"
    )
    assert texts.without_words("grosse Stadt") == "grosse Stadt"


@pytest.mark.parametrize(("stored", "asked"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_accents_are_found_composed_and_decomposed(stored, asked):
    """A name from a file of macOS has its accents as characters of their own."""
    text = unicodedata.normalize(stored, "Der Code von Zörvax-Müller steht hier.")
    texts = Texts([unicodedata.normalize(asked, "Zörvax-Müller")])

    assert texts.are_in(text)
    assert texts.are_in_bytes(text.encode())
    assert texts.without_words(text) == "Der Code von [forgotten] steht hier."
