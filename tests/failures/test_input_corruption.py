"""A damaged input is refused in one line, or read exactly as a plain reader reads it. Never a traceback."""

import faulthandler
import gzip
import os
from functools import partial

import layouts
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from musegnn import Graph, InputError
from musegnn.datasets import catalog, own

NUM_CORRUPTIONS = 500 if "MUSEGNN_PROOF" in os.environ else 50
NUM_NODES = 60
EDGES = np.random.default_rng(7).integers(0, NUM_NODES, (2, 300))


def write_csv(path):
    path.write_text("".join(f"{u},{v}\n" for u, v in EDGES.T))


def write_gzip(path):
    path.write_bytes(gzip.compress("".join(f"{u},{v}\n" for u, v in EDGES.T).encode(), mtime=0))


def write_npy(path):
    np.save(path, EDGES)


def write_npz(path):
    np.savez_compressed(path, edge_index=EDGES)


def write_parquet(path):
    pq.write_table(pa.table({"source": EDGES[0], "target": EDGES[1]}), path)


def plain_text(data):
    """Numbers if the first two tokens are whole, else names in order; blank lines at the end are none."""
    rows = [line.split(",") for line in data.decode().rstrip("\n").splitlines()]
    assert all(len(row) == 2 for row in rows)
    tokens = [token for row in rows for token in row]
    if all(token.isdecimal() for token in tokens[:2]):
        return np.array([int(token) for token in tokens]).reshape(-1, 2).T
    numbers = {name: i for i, name in enumerate(dict.fromkeys(tokens))}
    return np.array([numbers[token] for token in tokens]).reshape(-1, 2).T


def plain_parquet(path):
    table = pq.read_table(path)
    return np.stack([table.column(0).to_numpy(), table.column(1).to_numpy()])


FORMATS = {
    "edges.csv": (write_csv, lambda path: plain_text(path.read_bytes())),
    "edges.csv.gz": (write_gzip, lambda path: plain_text(gzip.decompress(path.read_bytes()))),
    "edges.npy": (write_npy, lambda path: np.load(path)),
    "edges.npz": (write_npz, lambda path: np.load(path)["edge_index"]),
    "edges.parquet": (write_parquet, plain_parquet),
}


def damage(data, rng):
    """Flip a bit, cut off, put noise over a stretch, double a stretch, or add a tail."""
    at, length = int(rng.integers(len(data))), int(rng.integers(1, 40))
    kind = rng.integers(5)
    if kind == 0:
        flipped = data[at] ^ 1 << int(rng.integers(8))
        return data[:at] + bytes([flipped]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + rng.bytes(length) + data[at + length :]
    if kind == 3:
        return data[:at] + data[at : at + length] * 2 + data[at + length :]
    return data + rng.bytes(length)


@pytest.mark.parametrize("seed", range(NUM_CORRUPTIONS))
def test_a_damaged_input_is_refused_or_read_as_it_is(seed, tmp_path):
    faulthandler.dump_traceback_later(60, exit=True)
    rng = np.random.default_rng(seed)
    name = list(FORMATS)[seed % len(FORMATS)]
    write, plain = FORMATS[name]
    path = tmp_path / name
    write(path)
    path.write_bytes(damage(path.read_bytes(), rng))
    message = None
    try:
        graph = Graph.from_source(own.read(path, keep_direction=False), tmp_path / "g", workers=1)
    except InputError as error:
        message = str(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
    if message is not None:
        assert "\n" not in message
        assert [left.name for left in tmp_path.iterdir()] == [name]
    else:
        expected = Graph.from_edges(plain(path), num_nodes=graph.num_nodes)
        assert np.array_equal(graph.indptr, expected.indptr)
        assert np.array_equal(graph.indices, expected.indices)


@pytest.mark.parametrize("name", FORMATS)
def test_an_unharmed_input_is_read(name, tmp_path):
    write, plain = FORMATS[name]
    write(tmp_path / name)
    graph = Graph.from_source(own.read(tmp_path / name, keep_direction=False))
    expected = Graph.from_edges(EDGES)
    assert np.array_equal(plain(tmp_path / name), EDGES)
    assert graph.digest == expected.digest


OFFICIAL = {
    "ogbn-arxiv": partial(layouts.write_ogb_csv, dim=5, num_classes=40, split="time"),
    "ogbn-papers100M": layouts.write_papers100m,
    "MAG240M": layouts.write_mag240m,
    "IGB-tiny": partial(layouts.write_igb, size="tiny"),
    "cora": partial(layouts.write_planetoid_npz, name="cora"),
}
FOLDERS = {"ogbn-arxiv": "ogbn_arxiv", "ogbn-papers100M": "ogbn_papers100M"}


@pytest.mark.parametrize("seed", range(NUM_CORRUPTIONS))
def test_a_damaged_official_file_is_never_answered_by_a_traceback(seed, tmp_path):
    """Damage in the first 200 bytes, where the headers are, as often as anywhere."""
    faulthandler.dump_traceback_later(60, exit=True)
    rng = np.random.default_rng(seed)
    name = list(OFFICIAL)[seed % len(OFFICIAL)]
    OFFICIAL[name](tmp_path / FOLDERS.get(name, "."))
    path = rng.choice(sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size))
    data = path.read_bytes()
    head = data[:200]
    path.write_bytes(damage(head, rng) + data[200:] if rng.integers(2) else damage(data, rng))
    message = ""
    try:
        Graph.from_source(catalog.source(name, tmp_path), workers=1)
    except InputError as error:
        message = str(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert "\n" not in message
