"""Conversion of BERT weights (config.json, model.safetensors) to an ONNX file.

Packages and caches often hold sentence models as safetensors only. The conversion runs once per model and takes a
few seconds; models of other architectures are exported with `optimum-cli export onnx --model FOLDER FOLDER`.
"""

import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import StorageError, UsageError
from wellkept.core.installation import name_install
from wellkept.sessions.embedding.models import load_tensors, read_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPSET = 20
"""The first version with `Gelu`; onnxruntime knows it since 1.17."""
IR_VERSION = 9
_MASKED = -1e9


def convert(folder: Path, weights: Path, target: Path) -> None:
    """Write the BERT model in `folder` to `target` as ONNX; the file appears whole or not at all."""
    try:
        import onnx
    except ImportError:
        raise UsageError(
            f"{str(folder)!r} holds no ONNX file, and converting {weights.name} needs the package `onnx`",
            f"run: {name_install('vectors')}",
        ) from None
    try:
        model = _Graph(read_json(folder / "config.json"), load_tensors(weights)).build()
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{str(weights)!r} does not hold the weights of a BERT model ({error})",
            f"run: optimum-cli export onnx --model {folder} {folder}",
        ) from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=target.parent, suffix=".part")
        os.close(descriptor)
        try:
            onnx.save(model, part)
            Path(part).replace(target)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{str(target)!r} cannot be written: {error}", "free some space, then try again") from error


class _Graph:
    """An ONNX graph of a BERT encoder under construction; tensors have the names of the weights."""

    def __init__(self, config: dict[str, Any], tensors: "dict[str, NDArray[Any]]") -> None:
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))
        self._tensors = {name.removeprefix("bert."): array for name, array in tensors.items()}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build(self) -> Any:
        """Return the whole model."""
        from onnx import TensorProto, helper

        bias = self._attention_bias()
        states = self._embeddings()
        for number in range(self._layers):
            states = self._layer(f"encoder.layer.{number}", states, bias)
        self._node("Identity", states, output="last_hidden_state")
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
        shape = ["batch", "length", "width"]
        outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self._nodes, "bert", inputs, outputs, self._constants)
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="kept")

    def _node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        output = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, value: "NDArray[Any]") -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def _number(self, *values: float) -> str:
        import numpy as np

        kind = np.int64 if all(isinstance(value, int) for value in values) else np.float32
        return self._constant(f"constant_{len(self._constants)}", np.array(values, kind))

    def _weight(self, name: str, *, transposed: bool = False) -> str:
        import numpy as np

        array = self._tensors[name].astype(np.float32)
        return self._constant(name, np.ascontiguousarray(array.T) if transposed else array)

    def _attention_bias(self) -> str:
        """Return 0 for tokens and a large negative number for padding, shaped for the attention scores."""
        from onnx import TensorProto

        mask = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        padding = self._node("Sub", self._number(1.0), self._node("Unsqueeze", mask, self._number(1, 2)))
        return self._node("Mul", padding, self._number(_MASKED))

    def _embeddings(self) -> str:
        part = "embeddings.{}_embeddings.weight".format
        words = self._node("Gather", self._weight(part("word")), "input_ids")
        kinds = self._node("Gather", self._weight(part("token_type")), "token_type_ids")
        length = self._node("Shape", "input_ids", start=1, end=2)
        places = self._node("Slice", self._weight(part("position")), self._number(0), length, self._number(0))
        return self._norm("embeddings.LayerNorm", self._node("Add", self._node("Add", words, kinds), places))

    def _layer(self, name: str, states: str, bias: str) -> str:
        mixed = self._dense(f"{name}.attention.output.dense", self._attention(f"{name}.attention.self", states, bias))
        states = self._norm(f"{name}.attention.output.LayerNorm", self._node("Add", states, mixed))
        inner = self._node("Gelu", self._dense(f"{name}.intermediate.dense", states))
        outer = self._dense(f"{name}.output.dense", inner)
        return self._norm(f"{name}.output.LayerNorm", self._node("Add", states, outer))

    def _attention(self, name: str, states: str, bias: str) -> str:
        width = self._tensors[f"{name}.query.weight"].shape[0]
        split = self._number(0, 0, self._heads, width // self._heads)

        def heads(part: str, order: list[int]) -> str:
            return self._node(
                "Transpose", self._node("Reshape", self._dense(f"{name}.{part}", states), split), perm=order
            )

        products = self._node("MatMul", heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]))
        scaled = self._node("Mul", products, self._number(1 / math.sqrt(width // self._heads)))
        shares = self._node("Softmax", self._node("Add", scaled, bias), axis=-1)
        mixed = self._node("MatMul", shares, heads("value", [0, 2, 1, 3]))
        return self._node("Reshape", self._node("Transpose", mixed, perm=[0, 2, 1, 3]), self._number(0, 0, width))

    def _dense(self, name: str, states: str) -> str:
        product = self._node("MatMul", states, self._weight(f"{name}.weight", transposed=True))
        return self._node("Add", product, self._weight(f"{name}.bias"))

    def _norm(self, name: str, states: str) -> str:
        weights = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("LayerNormalization", states, *weights, axis=-1, epsilon=self._epsilon)
