"""The project's rules, as tests."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import musegnn

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_the_public_names_are_these():
    # A name that is asked for loads its room, which is an attribute from then on.
    for name in dir(musegnn):
        getattr(musegnn, name)
    modules = {name for name in dir(musegnn) if inspect.ismodule(getattr(musegnn, name))}
    names = {name for name in dir(musegnn) if not name.startswith("_")} - modules
    assert names == {
        *("Graph", "InputError", "sample", "Sample", "SampleStore", "Draws", "SeededSampler", "FreeSampler"),
        *("ShadowKHop", "FullKHop", "UniformInduced", "NeighborSampling", "RandomWalk", "Cluster"),
        "PersonalizedPageRank",
        *(
            "AbstractEnergy",
            "AbstractProblem",
            "Energy",
            "Trace",
            "unfold",
            "solve",
            "Alternation",
            "alternate",
        ),
        *("consensus", "Penalty", "NoPenalty", "Nonnegative", "Box", "L1", "GroupNorm"),
        *("Predictive", "Relational", "Robust", "Staged"),
        *("MeanEmbeddings", "MuseGNN", "MuseConv", "MLP", "pack", "train", "load_run", "Run"),
    }
    public = {name for name in dir(musegnn.Graph) if not name.startswith("_")}
    fields = {name for name in musegnn.Graph.__dataclass_fields__}
    assert public | fields == fields | {
        *("num_nodes", "num_edges", "num_relations", "digest", "save", "open", "verify", "verify_topology"),
        *("from_edges", "from_source", "from_pyg", "from_scipy", "from_networkx", "to_pyg"),
    }


def test_importing_the_package_imports_no_framework():
    code = "import sys, musegnn; print([m for m in ('torch', 'numba', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_op_has_a_reference_and_a_test():
    ops = [path.parent for path in (ROOT / "src/musegnn/ops").glob("*/__init__.py")]
    assert ops
    for op in ops:
        assert (op / "reference.py").is_file(), op.name
        assert (ROOT / f"tests/ops/test_{op.name}.py").is_file(), op.name


def test_every_dataset_module_is_in_the_catalog_and_tested():
    from musegnn.datasets.catalog import CATALOG

    helpers = {"__init__", "base", "catalog", "neighbor_means", "block_model"}
    for path in (ROOT / "src/musegnn/datasets").glob("*.py"):
        assert (ROOT / f"tests/datasets/test_{path.stem}.py").is_file() or path.stem in helpers, path.name
        if path.stem not in helpers:
            module = importlib.import_module(f"musegnn.datasets.{path.stem}")
            for dataset in getattr(module, "DATASETS", ()):
                assert CATALOG[dataset.name] is dataset


def test_no_pickle_is_read_or_written():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cloudpickle", "joblib", "shelve", "marshal"}, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {"torch.load", "torch.save"}, path
                for keyword in node.keywords:
                    allowed = keyword.arg != "allow_pickle" or ast.unparse(keyword.value) == "False"
                    assert allowed, path


def test_every_name_in_the_notation_exists():
    table = (ROOT / "docs/notation.md").read_text()
    names = re.findall(r"`(musegnn\.[\w.]+)`", table)
    assert len(names) >= 8
    for name in names:
        _resolve(name)


def _resolve(name: str) -> object:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            fields = getattr(value, "__dataclass_fields__", {})
            value = fields[part] if part in fields else getattr(value, part)
        return value
    raise AssertionError(name)


def test_results_are_rendered_from_their_record():
    code = "import render; print(render.render() == render.TARGET.read_text())"
    folder = ROOT / "benchmarks"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True", "run `make results`"


def test_links_between_documents_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_and_functions_stay_small():
    for path in SOURCES:
        assert len(path.read_text().splitlines()) <= 400, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                docstring = node.body[0] if ast.get_docstring(node) else None
                described = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
                assert node.end_lineno - node.lineno + 1 - described <= 60, f"{path}: {node.name}"
