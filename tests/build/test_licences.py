"""The package brings the licences of the libraries that it links in."""
import importlib.metadata
import pathlib

import pytest

from conftest import ROOT

LINKED = [w.stem for w in sorted((ROOT / "subprojects").glob("*.wrap"))] + ["nanobind", "robin_map", "libstdc++"]


@pytest.mark.parametrize("name", LINKED)
def test_licence_is_there(name):
    text = (ROOT / f"python/licenses/{name}.txt").read_text()
    assert "opyright" in text or "COPYRIGHT" in text
    assert len(text) > 500


def test_nothing_else_is_claimed():
    assert sorted(p.stem for p in (ROOT / "python/licenses").iterdir()) == sorted(LINKED)


def test_installed_package_has_them():
    try:
        files = importlib.metadata.files("orlop")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("orlop is not installed as a package here")
    inside = {pathlib.PurePosixPath(str(f)).name for f in files if ".dist-info/licenses/" in str(f)}
    assert inside == {"LICENSE", *(f"{name}.txt" for name in LINKED)}
