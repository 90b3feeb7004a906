"""`muse info` of a pack."""

import json
from pathlib import Path

from musegnn.cli import show
from musegnn.features.packed import Pack


def show_pack(folder: Path, *, verify: bool, as_json: bool) -> None:
    """Print what was packed and how large it is."""
    pack = Pack.open(folder)
    if verify:
        pack.verify()
    row_bytes = pack.hot_rows.shape[1] * pack.hot_rows.itemsize
    if as_json:
        print(json.dumps(_record(pack, row_bytes, verify), indent=1))
        return
    print(f"pack of {pack.stored.header.provenance.get('name', 'a graph')}  {pack.stored.header.digest[:12]}")
    show.line("features", pack.features[:12], f"{pack.num_nodes:,} nodes, {row_bytes:,} bytes each")
    show.line("samples", pack.samples[:12])
    show.line("in memory", f"{show.size(pack.hot_rows.nbytes)}, {show.count(len(pack.hot), 'row')}")
    rows: list[tuple[str, ...]] = [("split", "samples", "rows to read", "on disk")]
    for split, plan in pack.splits.items():
        count = pack.num_rows(split)
        rows.append((split, f"{plan['num_samples']:,}", f"{count:,}", show.size(count * row_bytes)))
    show.table(rows)
    show.line("on disk", show.size(pack.stored.num_bytes))
    if verify:
        show.line("verified", "every byte has the digest in its header")


def _record(pack: Pack, row_bytes: int, verified: bool) -> dict[str, object]:
    return {
        "digest": pack.stored.header.digest,
        "features": pack.features,
        "samples": pack.samples,
        "num_nodes": pack.num_nodes,
        "row_bytes": row_bytes,
        "num_hot": len(pack.hot),
        "num_bytes": pack.stored.num_bytes,
        "verified": verified,
        "splits": {
            split: {"num_samples": plan["num_samples"], "num_rows": pack.num_rows(split)}
            for split, plan in pack.splits.items()
        },
    }
