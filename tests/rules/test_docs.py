"""What README and docs show, runs; what cannot run here is understood; the site has no broken link.

A fenced block says what it is, or the test fails:

    nothing             commands, one a line: run, in the order of the page
    python              run, in the order of the page, in one namespace
    toml                read
    csv                 copied to the file of a reader that begins as it does
    text                for people
    ... title="needs X" commands or code for which X is missing here: parsed

Pages run in a folder with files of a reader's own, and on a debian of 4,000 packages.
"""

import csv
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
import yaml
from torch.distributed.run import parse_args

import musegnn
from machine import one_thread as one_thread
from musegnn.cli.main import app, main
from musegnn.cli.settings import parse
from musegnn.datasets import CATALOG, debian
from musegnn.graph import EdgeChunk, FeatureSource
from musegnn.training.config import Config

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
}
TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MUSE = typer.main.get_command(app)
TINY = {
    "train": "--set hidden=8 --epochs 1 --device cpu --overwrite",
    "import papers100m-shaped": "--set scale=0.0003",
    "bench": "--models mlp --seeds 1 --tune 1 --set hidden=8 --set epochs=1",
}
"""What a reader would wait for, in no time."""


class Block(NamedTuple):
    language: str
    needs: str
    text: str


def blocks_of(page):
    """All fenced blocks of a page; one that does not say what it is is an error."""
    found = []
    for info, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE):
        said = re.fullmatch(r"(|python|toml|csv|text|sh|yaml)(?: title=\"needs ([^\"]+)\")?", info)
        assert said, f"{page}: ```{info}"
        language, needs = said[1], said[2] or ""
        assert bool(needs) == (language in ("sh", "yaml")) or language == "python", f"{page}: ```{info}"
        found.append(Block(language, needs, text))
    assert 2 * len(found) == len(re.findall(r"^ *```", PAGES[page], re.MULTILINE)), page
    return found


def lines_of(block):
    """Commands without what is said about them."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    return [
        line for line in (re.split(r"(?:^|  )#", line)[0].strip() for line in joined.splitlines()) if line
    ]


@pytest.fixture(scope="module")
def small_debian():
    """curl, its neighbors and every sixteenth package, with the edges among them."""
    whole = debian.read()
    chunks, curl = whole.edges(), whole.node_names.index("curl")
    ends = np.concatenate([np.stack([chunk.source, chunk.target]) for chunk in chunks], axis=1)
    beside = ends[:, (ends == curl).any(axis=0)].ravel()
    kept = np.union1d(np.arange(0, whole.num_nodes, 16), beside)
    place = np.full(whole.num_nodes, -1)
    place[kept] = np.arange(len(kept))

    def edges():
        for source, target, relation in chunks:
            inside = (place[source] >= 0) & (place[target] >= 0)
            yield EdgeChunk(place[source[inside]], place[target[inside]], relation[inside])

    (rows,) = whole.features.blocks(None)
    parts = {"labels": whole.labels[kept], "split": whole.split[kept]}
    names = [whole.node_names[node] for node in kept]
    features = FeatureSource.of(rows[kept])
    small = replace(whole, edges=edges, num_nodes=len(kept), features=features, node_names=names, **parts)
    return replace(CATALOG["debian"], read=lambda root=None, features=True: small)


@pytest.fixture
def reader(small_debian, tmp_path, monkeypatch):
    """A folder as the pages imagine it."""
    monkeypatch.chdir(tmp_path)
    before = dict(CATALOG)
    CATALOG["debian"] = small_debian
    rng, names = np.random.default_rng(0), ["alien", "heat", "ran", *(f"film {i}" for i in range(57))]
    genres = rng.choice(["horror", "crime", ""], 60)
    links = rng.choice(names, (200, 2))
    films = zip(names, rng.integers(1950, 2020, 60), rng.integers(80, 200, 60), genres, strict=True)
    _write("links.csv", "source,target", links)
    _write("films.csv", "name,year,minutes,genre", films)
    _write("edges.csv", "source,target", [("ann", "bob"), ("bob", "cy")])
    _write("labels.csv", "id,label", [("ann", "x"), ("bob", "y"), ("cy", "x")])
    _write("split.csv", "id,split", [("ann", "train"), ("bob", "valid"), ("cy", "test")])
    np.save("x.npy", np.zeros((3, 4), dtype=np.float32))
    given = {"features": np.eye(60, 4), "labels": np.arange(60) % 2, "split": np.arange(60) % 3}
    musegnn.Graph.from_edges(rng.integers(0, 60, (2, 200)), **given).save("graphs/mine")
    yield tmp_path
    CATALOG.clear()
    CATALOG.update(before)


def _write(name, header, rows):
    with open(name, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(header.split(","))
        table.writerows(rows)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, reader, capsys):
    blocks, namespace = blocks_of(page), {"__name__": "__main__"}
    lines = [line for block in blocks if not block.language for line in lines_of(block)]
    if "muse explain runs/debian curl" in lines and "muse train debian" not in lines:
        run("muse train debian", capsys)
    for number, block in enumerate(blocks):
        if block.needs:
            understand(block)
        elif block.language == "python":
            # In a file, since Numba keeps what it compiles beside one.
            path = reader / f"block-{number}.py"
            path.write_text(block.text)
            exec(compile(block.text, path, "exec"), namespace)
        elif block.language == "toml":
            Config.from_toml(block.text, page)
        elif block.language == "csv":
            # Copied as it is, in the place of a longer file.
            header = block.text.splitlines()[0]
            names = {Path(name).read_text().splitlines()[0]: name for name in ("links.csv", "films.csv")}
            Path(names[header]).write_text(block.text)
        elif not block.language:
            for line in lines_of(block):
                run(line, capsys)


def run(line, capsys):
    """A command does what it says; what is written behind > goes there."""
    command, _, target = line.partition(" > ")
    program, *arguments = shlex.split(command)
    if program == "make":
        assert set(arguments) <= set(TARGETS), line
        return
    assert program == "muse", f"{line}: who runs that?"
    more = "".join(text for start, text in TINY.items() if command.startswith(f"muse {start} "))
    capsys.readouterr()
    code = main([*arguments, *("" if "--resume" in arguments else more).split()])
    said = capsys.readouterr()
    if "raw" in arguments:
        # Data that cannot be shipped: the command is understood, and says which file it misses.
        assert code == 2, line
        assert "raw" in said.err, line
    else:
        assert code == 0, f"{line}: {said.err}"
    if target:
        Path(target).write_text(said.out)


def understand(block):
    """Parse what cannot be run: programs, commands and options must be there."""
    if block.language == "python":
        compile(block.text, "block", "exec")
    elif block.language == "yaml":
        look_at([re.sub(r"\$\(.*?\)", "0", part) for part in yaml.safe_load(block.text)["command"]])
    else:
        for line in lines_of(block):
            look_at(shlex.split(re.sub(r"\$\(.*?\)", "x", line)))


def look_at(words):
    """A command line that is not run: its program, its command, its options and files exist."""
    program, *rest = (word for word in words if word != "...")
    if program == "srun":
        look_at(rest)
    elif program == "torchrun":
        given = parse_args([*rest, *(["script.py"] if "-m" not in rest and words[-1] == "..." else [])])
        if given.module:
            assert given.training_script == "musegnn", words
            look_at(["muse", *given.training_script_args])
    elif program == "muse":
        _look_at_muse(rest)
    elif program == "make":
        assert set(rest) <= set(TARGETS), words
    elif program == "pip":
        for word in rest[1:]:
            if extras := re.fullmatch(r"(?:musegnn|\.)\[(.+)\]", word):
                assert set(extras[1].split(",")) <= set(EXTRAS), words
            else:
                assert word in ("-c", "musegnn") or (ROOT / word).exists(), words
    elif program == "python" or program.startswith("benchmarks/"):
        script, *rest = rest if program == "python" else (program, *rest)
        text = (ROOT / script).read_text()
        assert all(word in text for word in rest if re.fullmatch(r"--[a-z-]+|[a-z]+", word)), words
    else:
        assert " ".join(words) in ("python3 -m venv .venv", ". .venv/bin/activate"), words


def _look_at_muse(words):
    command = MUSE if words[0].startswith("-") else MUSE.commands[words[0]]
    known = {option for part in command.params for option in part.opts} | {"--help"}
    for word in words:
        assert not re.match(r"-[a-z-]", word) or word.split("=")[0] in known, f"{word} of {words}"
    if words[0] == "train":
        settings = [value for option, value in zip(words, words[1:], strict=False) if option == "--set"]
        Config().with_settings(parse(settings, ""))


def spans_of(page):
    """Command lines between the lines."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return [span for span in spans if re.match(r"(muse|make|torchrun|pip|python) |benchmarks/\w+\.py", span)]


@pytest.mark.parametrize("page", PAGES)
def test_what_is_said_in_passing_is_understood(page):
    for span in spans_of(page):
        look_at(shlex.split(span))


@pytest.mark.parametrize("span", sorted({span for span in spans_of("README.md") if span[:5] == "muse "}))
def test_what_the_readme_says_in_passing_runs(span, reader, capsys):
    if "mine" in span.split() and "edges.csv" not in span:
        run("muse import edges.csv --out mine", capsys)
    if span.startswith("muse pack"):
        run("muse sample debian --set fanouts=1 --splits valid --out samples", capsys)
    run(span, capsys)


@pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="in make proof; small above")
def test_the_python_of_the_readme_runs_on_the_whole_graph(tmp_path):
    (block,) = (block.text for block in blocks_of("README.md") if block.language == "python")
    # Threads of torch that wait for each other take most of the time on a busy machine.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "num_nodes=63436" in done.stdout


def test_the_site_builds_without_a_warning(tmp_path):
    """Broken links and anchors, pages that are in no menu and names that are not there are warnings."""
    # Not --quiet: what is not said is not counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    pages = "".join(path.read_text() for path in tmp_path.rglob("*.html"))
    asked = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?:[^\" >]+)", pages)
    assert not asked, "the site asks the network"


def test_every_public_name_is_in_the_reference():
    shown = set(re.findall(r"^::: musegnn\.(\w+)$", "".join(PAGES[page] for page in PAGES), re.MULTILINE))
    modules = {"datasets", "errors", "graph", "sampling"}
    rooms = {name for room in musegnn._ROOMS.values() for name in room}
    assert rooms - {"InputError"} == shown - modules
