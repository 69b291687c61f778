"""`make dist`: list what the archives in dist/ contain, by folder."""

from __future__ import annotations

import tarfile
import zipfile
from collections import Counter
from pathlib import Path

DIST = Path(__file__).parents[2] / "dist"


def contents(path: Path) -> dict[str, int]:
    """The files of an archive, with their sizes in bytes."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {each.filename: each.file_size for each in wheel.infolist()}
    with tarfile.open(path) as sdist:
        return {each.name.partition("/")[2]: each.size for each in sdist if each.isfile()}


def main() -> None:
    """Print a table for each archive: files and kB of each folder."""
    for path in sorted(DIST.iterdir()):
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for name, size in contents(path).items():
            folder = "/".join(name.split("/")[:-1][:2]) or "."
            files[folder] += 1
            sizes[folder] += size
        print(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB, {files.total()} files")
        for folder in sorted(files):
            print(f"  {folder:42} {files[folder]:5} files {sizes[folder] / 1000:9,.0f} kB")


if __name__ == "__main__":
    main()
