"""Local models: found by path, by package and in caches; static and ONNX ones run."""

import importlib.util
import sys
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


def alike(model, one: str, other: str) -> float:
    left, right = model.embed([one, other])
    return float(np.dot(left, right))


def test_a_static_model_knows_that_a_hound_is_a_dog(tmp_path):
    """A table of word vectors is enough: words that mean the same are alike, others are not, nothing is nothing."""
    model = local_model(str(models.static(tmp_path / "tiny")), {})

    assert alike(model, "the dog", "a hound") > 0.9
    assert alike(model, "dog", "lake") < 0.1
    assert model.embed([""]) == [[0.0, 0.0, 0.0]]


def test_an_onnx_model_gives_the_mean_of_its_states(tmp_path):
    """The file is run by onnxruntime with the vocabulary beside it; padding changes nothing."""
    model = local_model(str(models.onnx(tmp_path / "graph")), {})
    texts = ["the lake", "dog", "the dog, the lakes, the violin"]

    together = np.array(model.embed(texts))

    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert np.allclose(together, [model.embed([text])[0] for text in texts], atol=1e-5)
    assert model.name.startswith("graph:")


def test_an_installed_package_is_found_by_its_name_without_being_imported(tmp_path, monkeypatch):
    """`some-model` is the folder of the package some_model; its code, which may want torch, does not run."""
    package = tmp_path / "some_model"
    models.bert(package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))

    model = local_model("some-model", {})

    assert model.name.startswith("some_model:")
    assert "some_model" not in sys.modules


def test_what_other_programs_downloaded_is_found(tmp_path):
    """A model in the Hugging Face cache needs only its name."""
    snapshot = (
        tmp_path / ".cache/huggingface/hub/models--sentence-transformers--all-MiniLM-L6-v2/snapshots" / ("ab" * 20)
    )
    models.bert(snapshot)

    for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        assert local_model(name, {"HOME": str(tmp_path)}).name.startswith("all-MiniLM-L6-v2:")


@pytest.mark.parametrize("name", ["no-such-model", "../nowhere", "a/b/c", "", "x" * 300])
def test_what_is_not_there_is_refused_with_what_to_do(name, tmp_path):
    """An unknown name is an error that says how to get a model."""
    with pytest.raises(UsageError) as refused:
        local_model(name, {"HOME": str(tmp_path)})

    assert "pip install" in refused.value.remedy


def test_a_folder_without_a_model_says_what_it_holds(tmp_path):
    """The error lists the files in the folder."""
    (tmp_path / "notes.txt").write_text("x")

    with pytest.raises(UsageError, match=r"notes\.txt"):
        local_model(str(tmp_path), {})
