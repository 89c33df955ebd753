"""Small models made on the spot, in the formats that are read from disk."""

import json
from pathlib import Path

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "lake", "##s", "violin", ",", "北", "dog", "hound"]
WIDTH, INNER = 8, 16


def safetensors(path: Path, arrays) -> None:
    """Write arrays in the safetensors format."""
    from safetensors.numpy import save_file

    save_file(arrays, path)


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


def reference(folder: Path, tokens) -> list[float]:
    """Return the mean-pooled unit vector of one text, by the formulas of the BERT paper."""
    import math

    import numpy as np
    from safetensors.numpy import load_file

    weights = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    heads = config["num_attention_heads"]

    def dense(name, states):
        return states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, states):
        centred = states - states.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(states.var(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    table = "embeddings.{}_embeddings.weight".format
    states = (
        weights[table("word")][tokens] + weights[table("position")][: len(tokens)] + weights[table("token_type")][0]
    )
    states = norm("embeddings.LayerNorm", states)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            dense(f"{layer}.attention.self.{part}", states).reshape(len(tokens), heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1]))
        mixed = (scores / scores.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(states.shape)
        states = norm(f"{layer}.attention.output.LayerNorm", states + dense(f"{layer}.attention.output.dense", mixed))
        inner = dense(f"{layer}.intermediate.dense", states)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        states = norm(f"{layer}.output.LayerNorm", states + dense(f"{layer}.output.dense", inner))
    mean = states.mean(0)
    return (mean / np.linalg.norm(mean)).tolist()


def static(folder: Path) -> Path:
    """Make a static model in which dogs and hounds are the same, and lakes are something else."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    table = np.zeros((len(VOCABULARY), 3), "<f4")
    table[:, 2] = 0.01
    for word, direction in (("dog", 0), ("hound", 0), ("lake", 1)):
        table[VOCABULARY.index(word), direction] = 1.0
    safetensors(folder / "model.safetensors", {"embeddings": table})
    from tokenizers import BertWordPieceTokenizer

    vocab = {word: number for number, word in enumerate(VOCABULARY)}
    BertWordPieceTokenizer(vocab).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    return folder


def onnx(folder: Path) -> Path:
    """Make an ONNX model whose states are the vectors of the tokens."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    vocabulary(folder)
    table = np.random.default_rng(3).normal(size=(len(VOCABULARY), 4)).astype("<f4")
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    states = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", 4])
    graph = helper.make_graph([node], "small", [ids], [states], [numpy_helper.from_array(table, "table")])
    path = folder / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
