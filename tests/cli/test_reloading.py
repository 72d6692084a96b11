"""What ``reach agent --reload`` watches."""

import asyncio
from pathlib import Path

import pytest

from reach_worker.cli.reloading import changed_files, source_folder


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("alone:agent", "."),
        ("alone", "."),
        ("package.agents:mine", "package"),
        ("nowhere:agent", "."),
        ("agents/weather.yaml", "agents"),
        ("weather.yml", "."),
        ("", "."),
    ],
)
def test_the_folder_of_the_module_of_its_package_or_of_the_file(
    folder: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "alone.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('it must not be imported')\n")

    assert source_folder(place, tmp_path) == tmp_path / folder


async def test_sources_and_manifests_in_the_folders_and_the_one_file(tmp_path: Path) -> None:
    for name in ("watched", "watched/.venv", "elsewhere"):
        (tmp_path / name).mkdir()
    manifest = tmp_path / "elsewhere" / "over.yaml"
    written = [
        tmp_path / "watched" / "data.txt",
        tmp_path / "watched" / ".venv" / "a.py",
        tmp_path / "elsewhere" / "b.py",
        manifest,
        tmp_path / "watched" / "c.py",
        tmp_path / "watched" / "d.yaml",
    ]
    seen: set[Path] = set()

    async def collect() -> None:
        async for files in changed_files([tmp_path / "watched"], manifest):
            seen.update(files)
            if {*written[3:]} <= seen:
                return

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        collecting = group.create_task(collect())
        while not collecting.done():  # it begins to look some time after it was started
            for file in written:
                file.write_text("changed")
            await asyncio.wait([collecting], timeout=0.2)
    assert seen == {*written[3:]}
