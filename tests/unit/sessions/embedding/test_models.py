"""Sentence models: BERT weights converted to ONNX, tokenized and pooled as the model says."""

import importlib.util
from pathlib import Path

import pytest

from wellkept.core.errors import UsageError
from wellkept.sessions.embedding.local import local_model

np = pytest.importorskip("numpy")
for package in ("onnx", "onnxruntime", "safetensors", "tokenizers"):
    pytest.importorskip(package)

_spec = importlib.util.spec_from_file_location("vector_models", Path(__file__).with_name("models.py"))
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return models.bert(tmp_path / "small")


@pytest.fixture
def load(tmp_path: Path):
    return lambda folder: local_model(str(folder), {"HOME": str(tmp_path / "home")})


def test_vectors_have_length_one_and_come_in_order(folder: Path, load) -> None:
    """A batch gives the same vectors as its texts one by one, whatever their lengths and however many."""
    model = load(folder)
    texts = ["the lakes", "violin", "the violin, the lake, the violin"] * 30

    together = np.array(model.embed(texts))
    alone = np.array([model.embed([text])[0] for text in texts])

    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.allclose(together, alone, atol=1e-5)


def test_words_are_cut_into_the_longest_known_pieces(folder: Path, load) -> None:
    """Endings follow their word, accents fall, what is unknown is unknown."""
    assert load(folder).tokens("The LÁKES, 北!") == [2, 4, 5, 6, 8, 9, 1, 3]


def test_a_long_text_is_cut_at_the_limit(folder: Path, load) -> None:
    """No text has more tokens than the model has places, nor more than it says it takes."""
    assert len(load(folder).tokens("lake " * 2_000)) == 256
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert len(load(folder).tokens("lake " * 2_000)) == 20


def test_the_first_state_is_taken_where_the_model_says_so(folder: Path, load) -> None:
    """A model that pools by its first token gives other vectors than the mean."""
    mean = load(folder).embed(["the lake"])
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')

    assert load(folder).embed(["the lake"]) != mean


def test_other_weights_have_another_name(tmp_path: Path, load) -> None:
    """Vectors of one model are never taken for another's, though the folders have one name."""
    one = load(models.bert(tmp_path / "a" / "small", seed=1)).name
    other = load(models.bert(tmp_path / "b" / "small", seed=2)).name

    assert one.startswith("small:")
    assert one != other


def test_another_kind_of_model_is_refused_with_the_command_that_exports_it(folder: Path, load) -> None:
    """Weights of another architecture are not converted here; the message names the tool that does it."""
    (folder / "config.json").write_text('{"model_type": "mpnet", "num_hidden_layers": 1}')

    with pytest.raises(UsageError, match="mpnet") as refused:
        load(folder)

    assert "optimum-cli export onnx" in refused.value.remedy


def test_damaged_weights_are_named(folder: Path, load) -> None:
    """A file that is cut short is an error with its path, not a crash."""
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(UsageError, match=r"model\.safetensors"):
        load(folder).embed(["the lake"])


def test_weights_of_another_layout_are_named(folder: Path, load) -> None:
    """A BERT folder whose file lacks a tensor is an error with its path."""
    models.safetensors(folder / "model.safetensors", {"other": np.zeros(3, "<f4")})

    with pytest.raises(UsageError, match=r"model\.safetensors"):
        load(folder).embed(["the lake"])


def test_a_model_is_converted_once(folder: Path, load, tmp_path: Path) -> None:
    """The ONNX file stays in the cache; later processes use it and leave no parts behind."""
    first = load(folder).embed(["the lake"])
    (made,) = (tmp_path / "home").rglob("*.onnx")
    stamp = made.stat().st_mtime_ns

    assert load(folder).embed(["the lake"]) == first
    assert made.stat().st_mtime_ns == stamp
    assert [path.name for path in made.parent.iterdir()] == ["model.onnx"]


def test_a_damaged_onnx_file_is_named(folder: Path, load) -> None:
    """A file that onnxruntime refuses is an error with its path, not a crash."""
    (folder / "model.onnx").write_bytes(b"not a model")

    with pytest.raises(UsageError, match=r"model\.onnx"):
        load(folder).embed(["the lake"])


def test_the_name_does_not_depend_on_the_format(folder: Path, load) -> None:
    """Vectors made before an ONNX file was added stay usable: the name is that of the weights."""
    before = load(folder).name
    models.onnx(folder)

    assert load(folder).name == before


def test_the_graph_computes_what_bert_does(folder: Path, load) -> None:
    """The converted model agrees with the formulas of the paper, written here in a few lines of numpy."""
    tokens = load(folder).tokens("the violin")

    expected = models.reference(folder, tokens)

    assert np.allclose(load(folder).embed(["the violin"])[0], expected, atol=1e-5)
