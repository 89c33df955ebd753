"""A sentence model run with numpy, on a small one made here."""

import importlib.util
from pathlib import Path

import pytest

from kept.core.errors import UsageError
from kept.sessions.embedding.bert import BertModel

np = pytest.importorskip("numpy")

_spec = importlib.util.spec_from_file_location("vector_models", Path(__file__).with_name("models.py"))
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return models.bert(tmp_path / "small")


def test_vectors_have_length_one_and_come_in_order(folder: Path) -> None:
    """A batch gives the same vectors as its texts one by one, whatever their lengths and however many."""
    model = BertModel(folder)
    texts = ["the lakes", "violin", "the violin, the lake, the violin"] * 30

    together = np.array(model.embed(texts))
    alone = np.array([model.embed([text])[0] for text in texts])

    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.allclose(together, alone, atol=1e-5)


def test_words_are_cut_into_the_longest_known_pieces(folder: Path) -> None:
    """Endings follow their word, accents fall, what is unknown is unknown."""
    assert BertModel(folder).tokens("The LÁKES, 北!") == [2, 4, 5, 6, 8, 9, 1, 3]


def test_a_long_text_is_cut_at_the_limit(folder: Path) -> None:
    """No text has more tokens than the model has places, nor more than it says it takes."""
    assert len(BertModel(folder).tokens("lake " * 2_000)) == 256
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert len(BertModel(folder).tokens("lake " * 2_000)) == 20


def test_the_first_state_is_taken_where_the_model_says_so(folder: Path) -> None:
    """A model that pools by its first token gives other vectors than the mean."""
    mean = BertModel(folder).embed(["the lake"])
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')

    assert BertModel(folder).embed(["the lake"]) != mean


def test_other_weights_have_another_name(tmp_path: Path) -> None:
    """Vectors of one model are never taken for another's, though the folders have one name."""
    one = BertModel(models.bert(tmp_path / "a" / "small", seed=1)).name
    other = BertModel(models.bert(tmp_path / "b" / "small", seed=2)).name

    assert one.startswith("small:")
    assert one != other


def test_another_kind_of_model_is_refused_by_name(folder: Path) -> None:
    """What cannot be run is named, with what can."""
    (folder / "config.json").write_text('{"model_type": "mpnet", "num_hidden_layers": 1}')

    with pytest.raises(UsageError, match="mpnet"):
        BertModel(folder)


def test_damaged_weights_are_named(folder: Path) -> None:
    """A file that is cut short is an error with its path, not a crash."""
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(UsageError, match=r"model\.safetensors"):
        BertModel(folder).embed(["the lake"])
