"""`muse info` of a pack."""

from pathlib import Path

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.features.packed import Pack


def about_pack(folder: Path, *, verify: bool) -> Answer:
    """What was packed and how large it is."""
    pack = Pack.open(folder)
    if verify:
        pack.verify()
    return Answer(record_of(pack, verified=verify), lambda: _tell(pack, verify))


def _row_bytes(pack: Pack) -> int:
    return int(pack.hot_rows.shape[1] * pack.hot_rows.itemsize)


def _tell(pack: Pack, verified: bool) -> None:
    row_bytes = _row_bytes(pack)
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
    if verified:
        show.line("verified", "every byte has the digest in its header")


def record_of(pack: Pack, *, verified: bool) -> dict[str, object]:
    """All that there is to say of a pack."""
    return {
        "digest": pack.stored.header.digest,
        "features": pack.features,
        "samples": pack.samples,
        "num_nodes": pack.num_nodes,
        "row_bytes": _row_bytes(pack),
        "num_hot": len(pack.hot),
        "num_bytes": pack.stored.num_bytes,
        "verified": verified,
        "splits": {
            split: {"num_samples": plan["num_samples"], "num_rows": pack.num_rows(split)}
            for split, plan in pack.splits.items()
        },
    }
