"""`muse info` of a sample store."""

from pathlib import Path

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.sampling import SampleStore
from musegnn.sampling.base import spell
from musegnn.sampling.sample_store import StoredSamples


def about_samples(folder: Path, *, verify: bool) -> Answer:
    """How the samples were drawn and how large they are."""
    store = SampleStore.open(folder)
    if verify:
        store.verify()
    return Answer(record_of(store, verified=verify), lambda: _tell(store, verify))


def _tell(store: SampleStore, verified: bool) -> None:
    print(f"samples of {store.stored.header.provenance.get('name', 'a graph')}  {store.digest[:12]}")
    show.line("graph", store.graph_digest[:12], f"{store.num_graph_nodes:,} nodes")
    show.line("sampler", spell(store.sampler))
    show.line("seed", str(store.seed))
    if not store.is_free:
        show.line("batch size", f"{store.batch_size:,}")
    head = ("split", "samples", "seeds", "mean n_s", "mean entries", "theta, normalized", "combinatorial")
    show.table([head, *(_row(split, samples) for split, samples in store.items())])
    if store.is_free:
        show.line("covered", ", ".join(_coverage(split, samples) for split, samples in store.items()))
    show.line("on disk", show.size(store.stored.num_bytes))
    if verified:
        show.line("verified", "every byte has the digest in its header; every sample is a symmetric subgraph")


def _row(split: str, samples: StoredSamples) -> tuple[str, ...]:
    bounds = samples.bounds
    return (
        split,
        f"{len(samples):,}",
        f"{samples.num_seeds.sum():,}",
        f"{samples.num_nodes.mean():,.0f}",
        f"{samples.num_entries.mean():,.0f}",
        f"{bounds[:, 0].min():.2f} - {bounds[:, 0].max():.2f}",
        f"{bounds[:, 2].min():,.0f} - {bounds[:, 2].max():,.0f}",
    )


def _coverage(split: str, samples: StoredSamples) -> str:
    total = samples.num_split_nodes
    return f"{split} {total - samples.num_uncovered():,} of {total:,}"


def record_of(store: SampleStore, *, verified: bool) -> dict[str, object]:
    """All that there is to say of a sample store."""
    return {
        "digest": store.digest,
        "graph": store.graph_digest,
        "sampler": store.sampler,
        "seed": store.seed,
        "batch_size": store.batch_size,
        "num_bytes": store.stored.num_bytes,
        "verified": verified,
        "splits": {
            split: {
                "num_samples": len(samples),
                "num_seeds": int(samples.num_seeds.sum()),
                "num_uncovered": samples.num_uncovered() if store.is_free else 0,
                "mean_nodes": float(samples.num_nodes.mean()),
                "mean_entries": float(samples.num_entries.mean()),
                "theta_normalized": float(samples.bounds[:, 0].max()),
                "bound_normalized": float(samples.bounds[:, 1].max()),
                "theta_combinatorial": float(samples.bounds[:, 2].max()),
                "bound_combinatorial": float(samples.bounds[:, 3].max()),
            }
            for split, samples in store.items()
        },
    }
