"""Files that are replaced as a whole."""

import os
from pathlib import Path

import pytest

from ottla.runtime.small_files import write_atomically


@pytest.mark.parametrize("is_durable", [False, True])
def test_the_directory_holds_the_new_content_and_nothing_else(
    tmp_path: Path, is_durable: bool
) -> None:
    path = tmp_path / "new" / "file"
    for text in ("one", "zwei ✓"):
        write_atomically(path, text, is_durable=is_durable)
        assert path.read_text(encoding="utf-8") == text
        assert list(path.parent.iterdir()) == [path]


def test_a_failed_replacement_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new", is_durable=True)
    assert path.read_text(encoding="utf-8") == "old"


def _full(_: int) -> None:
    raise OSError("no space")
