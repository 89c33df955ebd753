"""Small models made on the spot, in the formats that are read from disk."""

import json
from pathlib import Path

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "lake", "##s", "violin", ",", "北", "dog", "hound"]
WIDTH, INNER = 8, 16


def safetensors(path: Path, arrays) -> None:
    """Write arrays in the safetensors format."""
    header, body = {}, b""
    for name, array in arrays.items():
        data = array.tobytes()
        kind = {"<f4": "F32", "<f2": "F16", "<i8": "I64"}[array.dtype.newbyteorder("<").str]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)


def vocabulary(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")


def bert(folder: Path, seed: int = 1) -> Path:
    """Make a model of the BERT family with one layer."""
    import numpy as np

    vocabulary(folder)
    chance = np.random.default_rng(seed)
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
    safetensors(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 1, "num_attention_heads": 2}))
    return folder


def static(folder: Path) -> Path:
    """Make a static model in which dogs and hounds are the same, and lakes are something else."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    table = np.zeros((len(VOCABULARY), 3), "<f4")
    table[:, 2] = 0.01
    for word, direction in (("dog", 0), ("hound", 0), ("lake", 1)):
        table[VOCABULARY.index(word), direction] = 1.0
    safetensors(folder / "model.safetensors", {"embeddings": table})
    vocab = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    return folder


def onnx(folder: Path) -> Path:
    """Make an ONNX model whose states are the vectors of the tokens; the bytes are written by hand."""
    import numpy as np

    vocabulary(folder)
    table = np.random.default_rng(3).normal(size=(len(VOCABULARY), 4)).astype("<f4")
    weights = (
        _field(1, len(VOCABULARY)) + _field(1, 4) + _field(2, 1) + _field(8, b"table") + _field(9, table.tobytes())
    )
    node = _field(1, b"table") + _field(1, b"input_ids") + _field(2, b"last_hidden_state") + _field(4, b"Gather")
    graph = _field(1, node) + _field(2, b"g") + _field(5, weights)
    graph += _field(11, _value(b"input_ids", 7, 2)) + _field(12, _value(b"last_hidden_state", 1, 3))
    model = _field(1, 8) + _field(8, _field(2, 13)) + _field(7, graph)
    path = folder / "model.onnx"
    path.write_bytes(model)
    return path


def _value(name: bytes, kind: int, rank: int) -> bytes:
    shape = b"".join(_field(1, _field(2, f"d{place}".encode())) for place in range(rank))
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
