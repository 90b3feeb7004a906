"""The wheel holds the package and nothing else, runs where it is unpacked, and installs where nothing is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

_FIRST_STEPS = """
import sys
from pathlib import Path

import musegnn
from musegnn import ops
from musegnn.cli.main import main

# Kernels are compiled once for each place of installation: half a minute that tells nothing of the wheel.
version = ops.version
ops.version = ops.steps.version = lambda name, compiled: version(name, False)
assert Path(musegnn.__file__).is_relative_to(sys.argv[1]), musegnn.__file__
colors = ["red", "blue"]
Path("edges.csv").write_text("".join(f"{i},{(i + 2) % 60}\\n{i},{(i + 4) % 60}\\n" for i in range(60)))
rows = (f"{i},{colors[i % 2]},{['train', 'valid', 'test'][i % 3]}\\n" for i in range(60))
Path("nodes.csv").write_text("id,label,split\\n" + "".join(rows))
Path("x.csv").write_text("".join(f"{i % 2},{i % 5}\\n" for i in range(60)))
for command in (
    "info debian",
    "recipes debian",
    "import edges.csv --nodes nodes.csv --features x.csv --out mine",
    "train mine --epochs 2 --set hidden=4 --set steps=2 --set batch_size=10 --device cpu",
    "explain runs/mine 7 --draw seven.html",
):
    assert main(command.split()) == 0, command
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from this tree, by the tool that pyproject.toml names, without a network."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [path] = out.glob("*.whl")
    return path


def test_it_holds_every_file_of_the_package_and_nothing_from_outside(wheel):
    files = [path for path in (SOURCE / "musegnn").rglob("*") if path.is_file()]
    wanted = {path.relative_to(SOURCE).as_posix(): path for path in files if path.suffix != ".pyc"}
    assert {Path(name).suffix for name in wanted} == {".py", ".css", ".js", ".html", ".npz", ".toml"}
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert sorted(found) == sorted(wanted)
        for name, path in wanted.items():
            assert archive.read(name) == path.read_bytes(), name
        facts = {Path(name).name for name in archive.namelist() if ".dist-info/" in name}
    assert facts == {"METADATA", "WHEEL", "entry_points.txt", "LICENSE", "RECORD"}


def test_it_runs_from_where_it_is_unpacked(wheel, tmp_path):
    """In an empty folder, on files of one's own, up to a page and a drawing."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    place = tmp_path / "empty"
    place.mkdir()
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "unpacked"),
        "OMP_NUM_THREADS": "1",
        "NUMBA_DISABLE_JIT": "1",
    }
    command = [sys.executable, "-c", _FIRST_STEPS, str(tmp_path / "unpacked")]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "debian  e5001f93411d" in done.stdout
    assert "<svg" in (place / "seven.html").read_text()
    page = (place / "runs/mine/report.html").read_text()
    for asset in ("page.css", "page.js"):
        assert (SOURCE / "musegnn/reports" / asset).read_text().splitlines()[1] in page


@pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="installs torch: in make proof")
def test_it_installs_into_an_empty_environment_and_trains(wheel, tmp_path):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def call(*command):
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call(sys.executable, "-m", "venv", "env")
    call("env/bin/pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel))
    said = call("env/bin/muse", "train", "debian", "--set", "epochs=1", "--device", "cpu")
    for part in ("63,436 nodes", "test          accuracy", "report        runs/debian/report.html"):
        assert part in said
    assert "curl" in call("env/bin/muse", "explain", "runs/debian", "curl")
    assert call("env/bin/python", "-c", "import musegnn; print(musegnn.__file__)").startswith(
        str(tmp_path / "env")
    )
