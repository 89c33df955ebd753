"""The word pieces of a BERT-family model: texts in, numbers of its vocabulary out."""

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kept.core.errors import UsageError

_PIECES = re.compile(r"[^\W_]+|[^\w\s]|_")
_WIDE = re.compile(r"([\u3400-\u9fff\uf900-\ufaff])")
_LONGEST_WORD = 100
_CHARACTERS_PER_TOKEN = 12


class WordPieces:
    """Cuts texts into the longest pieces that the vocabulary knows."""

    def __init__(self, vocabulary: Mapping[str, int], *, lowercase: bool = True, unknown: str = "[UNK]") -> None:
        self.vocabulary = vocabulary
        self._lowercase = lowercase
        self._unknown = vocabulary.get(unknown)

    def cut(self, text: str, most: int) -> list[int]:
        """Return the numbers of at most `most` pieces, without marks of beginning and end."""
        shortened = text[: most * _CHARACTERS_PER_TOKEN]
        if self._lowercase:
            folded = unicodedata.normalize("NFD", shortened.lower())
            shortened = "".join(character for character in folded if unicodedata.category(character) != "Mn")
        numbers: list[int] = []
        for word in _PIECES.findall(_WIDE.sub(r" \1 ", shortened)):
            numbers += self._pieces(word)
            if len(numbers) >= most:
                break
        return numbers[:most]

    def _pieces(self, word: str) -> list[int]:
        whole = self.vocabulary.get(word)
        if whole is not None:
            return [whole]
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST_WORD:
            for end in range(len(word), start, -1):
                piece = self.vocabulary.get(("##" if start else "") + word[start:end])
                if piece is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                found = []
                break
        if found:
            return found
        return [] if self._unknown is None else [self._unknown]


def has_word_pieces(folder: Path) -> bool:
    """Whether the folder holds a vocabulary that this module can use."""
    if (folder / "vocab.txt").is_file():
        return True
    return _tokenizer(folder).get("type") == "WordPiece" if (folder / "tokenizer.json").is_file() else False


def word_pieces(folder: Path) -> WordPieces:
    """Return the pieces of the model in `folder`: from `vocab.txt`, else from `tokenizer.json`."""
    lowercase = _is_lowercase(folder)
    if (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return WordPieces({word: number for number, word in enumerate(lines)}, lowercase=lowercase)
    model = _tokenizer(folder)
    if model.get("type") != "WordPiece":
        raise UsageError(
            f"{str(folder)!r} cuts words by {model.get('type')!r}, which is not known here",
            "name a model with WordPiece, or `pip install tokenizers`",
        )
    vocabulary: dict[str, int] = model["vocab"]
    return WordPieces(vocabulary, lowercase=lowercase, unknown=str(model.get("unk_token") or "[UNK]"))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a model; {} where there is none."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as JSON", "get the model's files again") from error
    return found if isinstance(found, dict) else {}


def _tokenizer(folder: Path) -> dict[str, Any]:
    model: Any = read_json(folder / "tokenizer.json").get("model")
    return model if isinstance(model, dict) else {}


def _is_lowercase(folder: Path) -> bool:
    said = read_json(folder / "tokenizer_config.json").get("do_lower_case")
    if isinstance(said, bool):
        return said
    normal: Any = read_json(folder / "tokenizer.json").get("normalizer")
    return bool(normal.get("lowercase", True)) if isinstance(normal, dict) else True
