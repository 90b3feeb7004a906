"""Odd counts, second meetings, refusals before anything is written, and errors that are another's."""

import pytest
import small_runs
from together import RankFailedError, results, start, together

import musegnn
from musegnn.errors import InputError, RankError, StoreError
from musegnn.means.embeddings import MeanEmbeddings
from musegnn.training import checkpoint
from musegnn.training.loop import Trainer

GRAPH = small_runs.graph(unlabeled=20)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three validation samples for two ranks."""
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s", GRAPH)


def train(store, folder, **options):
    return musegnn.train(GRAPH, store, small_runs.model(), folder, **{"epochs": 1, **options})


def test_means_on_disk_are_evaluated_and_a_second_meeting_is_another(store, tmp_path):
    """Each rank joins by itself, twice, and has an odd number of samples left."""
    alone = train(store, tmp_path / "one", means_home="disk", samples_per_step=2)
    wanted = alone.evaluate("test")["test"].metrics

    def work(_):
        train(store, tmp_path / "many", means_home="disk")
        with musegnn.ranks.join():
            run = musegnn.load_run(tmp_path / "many", graph=GRAPH, samples=store, model=small_runs.model())
            found = run.evaluate("test")["test"].metrics
            with pytest.raises(InputError, match="Run.predict is for one process, got 2 ranks"):
                run.predict([0])
        return found

    found = results(start(2, work, joins=False))
    assert [result for result, _ in found] == [wanted] * 2


@pytest.mark.parametrize(
    ("settings", "said"), [({"warmup": 4}, "warmup is 4, but the run has 3 steps"),
                           ({"update_means": True}, "update_means=true needs one process, got 2 ranks")],
)  # fmt: skip
def test_what_ranks_cannot_do_is_refused_before_a_folder_is_made(store, tmp_path, settings, said):
    with pytest.raises(RankFailedError, match=said):
        together(2, lambda ranks: train(store, tmp_path / "run", **settings))
    assert not (tmp_path / "run").exists()


def test_a_refusal_of_the_first_is_that_of_all(store, tmp_path):
    """And the ranks stay in step, if somebody goes on."""
    train(store, tmp_path / "run")

    def work(ranks):
        with pytest.raises(InputError, match="holds a finished run"):
            train(store, tmp_path / "run")
        return ranks.tell(ranks.rank + 5)

    assert together(2, work, timeout=10) == [5, 5]


def test_the_memory_of_another_rank_is_not_ours(store, tmp_path):
    def work(ranks):
        def forward(*given):
            raise MemoryError

        if ranks.rank == 1:
            Trainer._forward = forward
        train(store, tmp_path / "run")

    (_, first), (_, second) = results(start(2, work, timeout=10))
    assert isinstance(second, InputError)
    assert "out of memory with hidden=8" in str(second)
    assert isinstance(first, RankError)
    assert str(first).startswith("Rank 1 has stopped: Epoch 1, training sample")


def test_what_a_killed_sharing_out_has_left_is_in_nobodys_way(store, tmp_path):
    """Of another number of ranks, a file without its bytes."""
    train(store, tmp_path / "run", means_home="disk", samples_per_step=2)
    (tmp_path / "run/result.json").unlink()
    for rank in range(2):
        share = tmp_path / "run" / f"means-{rank}-of-2"
        MeanEmbeddings(60, small_runs.HIDDEN, home=share)
        (share / "M.bin").write_bytes(b"")
    together(2, lambda ranks: train(store, tmp_path / "run", means_home="disk", resume=True) and None)
    assert not (tmp_path / "run/means").exists()


@pytest.mark.parametrize("size", ["x", None, 2.5, 0, -1, True])
def test_a_checkpoint_of_no_number_of_ranks(size):
    with pytest.raises(StoreError, match="which cannot be. Train again."):
        checkpoint.ranks_of({"ranks": size})
    assert checkpoint.ranks_of({}) == 1


def test_the_parts_of_a_rank_that_is_gone_are_removed(tmp_path):
    (tmp_path / "state.2.safetensors.partial").write_bytes(b"half")
    checkpoint.save(tmp_path, "state", {}, {})
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
