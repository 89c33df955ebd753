"""A sentence model run with numpy, on a small one made here."""

import json
from pathlib import Path

import pytest

from kept.core.errors import UsageError
from kept.sessions.minilm import LocalModel

np = pytest.importorskip("numpy")

WIDTH, INNER = 8, 16
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "lake", "##s", "violin", ",", "北"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = np.random.default_rng(1)
    shapes = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (300, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    names = ["embeddings.LayerNorm"]
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes |= {f"encoder.layer.0.{part}.weight": (WIDTH, WIDTH), f"encoder.layer.0.{part}.bias": (WIDTH,)}
    shapes |= {
        "encoder.layer.0.intermediate.dense.weight": (INNER, WIDTH),
        "encoder.layer.0.intermediate.dense.bias": (INNER,),
    }
    shapes |= {"encoder.layer.0.output.dense.weight": (WIDTH, INNER), "encoder.layer.0.output.dense.bias": (WIDTH,)}
    names += ["encoder.layer.0.attention.output.LayerNorm", "encoder.layer.0.output.LayerNorm"]
    arrays = {name: chance.normal(size=shape).astype("<f4") for name, shape in shapes.items()}
    for name in names:
        arrays |= {f"{name}.weight": np.ones(WIDTH, "<f4"), f"{name}.bias": np.zeros(WIDTH, "<f4")}
    header, body = {}, b""
    for name, array in arrays.items():
        data = array.tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 1, "num_attention_heads": 2}))
    return tmp_path


def test_vectors_have_length_one_and_come_in_order(folder: Path) -> None:
    """A batch gives the same vectors as its texts one by one, whatever their lengths."""
    model = LocalModel(folder)
    texts = ["the lakes", "violin", "the violin, the lake, the violin"]

    together = np.array(model.embed(texts))
    alone = np.array([model.embed([text])[0] for text in texts])

    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.allclose(together, alone, atol=1e-5)


def test_words_are_cut_into_the_longest_known_pieces(folder: Path) -> None:
    """Endings follow their word, accents fall, what is unknown is unknown."""
    model = LocalModel(folder)

    assert model._tokens("The LÁKES, 北!") == [2, 4, 5, 6, 8, 9, 1, 3]


def test_a_long_text_is_cut_at_the_limit(folder: Path) -> None:
    """No text has more tokens than the model has places."""
    assert len(LocalModel(folder)._tokens("lake " * 2_000)) == 256


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    """The error names what is missing and what to do."""
    with pytest.raises(UsageError, match=r"vocab\.txt"):
        LocalModel(tmp_path)
