"""What ranks tell each other, against NumPy; M in shares, against one M."""

import numpy as np
import pytest
import torch
from together import at_call, results, start, together

from musegnn.errors import InputError
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import MappedShares, ShardedMeans, copy_share
from musegnn.ranks import ALONE, Ranks
from musegnn.ranks.board import Board


def drawn(rank):
    """The same numbers wherever they are drawn."""
    return np.random.default_rng(rank)


def messages(ranks):
    """Of every kind, uneven and empty ones."""
    rank, size = ranks.rank, ranks.size
    facts, arrays = {"rank": rank}, [drawn(rank).normal(size=(rank, 3)), np.arange(rank, dtype=np.uint8)]
    found = {
        "gather": ranks.gather(b"x" * rank),
        "arrays": ranks.gather_arrays(facts, arrays if rank != 1 else []),
        "numbers": ranks.gather_numbers(np.array([rank, 2 * rank])),
        "sum": ranks.add_up(drawn(rank).normal(size=4)),
        "tensor": ranks.add_up_tensor(torch.tensor(1.5 + rank, dtype=torch.float64)),
        "told": ranks.tell({"from": rank}),
        "first": ranks.first(lambda: rank),
    }
    done = []
    ranks.once(lambda: done.append(rank))
    found["once"] = done
    ranks.wait()
    for name, dtype in {"float": torch.float32, "half": torch.bfloat16, "ids": torch.int64}.items():
        # Rank r gives r * s rows to rank s, nothing to rank 0 and of rank 0.
        send, receive = rank * np.arange(size), rank * np.arange(size)
        rows = torch.cat([torch.full((n, 2), 10 * rank + to) for to, n in enumerate(send)]).to(dtype)
        found[name] = ranks.exchange(rows, send, receive).float().numpy()
    return found


def test_messages_arrive_as_they_were_sent_in_the_order_of_the_ranks():
    size = 3
    for rank, found in enumerate(together(size, messages)):
        assert found["gather"] == [b"", b"x", b"xx"]
        assert [facts for facts, _ in found["arrays"]] == [{"rank": other} for other in range(size)]
        assert [len(arrays) for _, arrays in found["arrays"]] == [2, 0, 2]
        np.testing.assert_array_equal(found["arrays"][2][1][0], drawn(2).normal(size=(2, 3)))
        assert found["arrays"][2][1][1].dtype == np.uint8
        assert found["arrays"][0][1][0].shape == (0, 3)
        assert found["numbers"].tolist() == [[0, 0], [1, 2], [2, 4]]
        total = np.stack([drawn(other).normal(size=4) for other in range(size)]).sum(axis=0)
        assert found["sum"].tobytes() == total.tobytes()
        assert found["tensor"].item() == 7.5
        assert found["told"] == {"from": 0}
        assert found["first"] == rank
        assert found["once"] == [0] * (rank == 0)
        expected = np.concatenate(
            [np.full((other * rank, 2), 10 * other + rank, dtype=np.float32) for other in range(size)]
        )
        for name in ("float", "half", "ids"):
            np.testing.assert_array_equal(found[name], expected)


def test_one_process_has_nobody_to_tell():
    assert ALONE.gather(b"x") == [b"x"]
    assert ALONE.gather_arrays(1, []) == [(1, [])]
    assert ALONE.tell(7) == 7
    assert list(ALONE.share(3)) == [0, 1, 2]
    ALONE.wait()


def differ(ranks):
    with pytest.raises(InputError) as error:
        ranks.check_same({"alike": 1, "size": ranks.rank // 2, "last": ranks.rank})
    return str(error.value)


def test_the_first_rank_that_differs_is_named_with_what_differs():
    said = together(3, differ)
    assert len(set(said)) == 1
    assert said[0].startswith("Rank 1 has last 1, rank 0 has 0; all must be alike.")


def refuse():
    raise InputError("no such table")


def refused(ranks):
    """Rank 0 fails and leaves just when rank 1 is between its two questions: is it there, has one failed."""
    if ranks.is_first:

        def work():
            ranks.board.wait_for(["asking"])
            refuse()

        ranks.once(work)

    def asking(board):
        board.put("asking", "")
        board.store.wait(["failed/0"])

    at_call(Board, "_failed", 1, asking)
    ranks.once(refuse)


def test_what_the_first_rank_refuses_is_refused_by_all_even_if_it_has_left():
    found = results(start(2, refused))
    assert [str(error) for _, error in found] == ["no such table"] * 2
    assert [type(error) for _, error in found] == [InputError] * 2


NODES, DIM, STEPS = 23, 3, 6


def visits(rank, step):
    """Nodes and their Y; some nodes of several ranks at once, of one rank none now and then."""
    rng = np.random.default_rng([rank, step])
    count = 0 if rank == step % 4 else 5
    ids = rng.choice(NODES // 2, size=count, replace=False)
    return ids, torch.from_numpy(rng.normal(size=(count, DIM)).astype(np.float32))


def move(ranks):
    """What every rank reads at each step, its own rows in the end, and which rows it was told of."""
    own = MeanEmbeddings(ShardedMeans.num_own(NODES, ranks), DIM, 0.7)
    means, read, noted = ShardedMeans(own, NODES, ranks), [], []
    for step in range(STEPS):
        ids, rows = visits(ranks.rank, step)
        request = means.ask(ids)
        read.append((means.gather(request).numpy(), means.seen(request).numpy()))
        means.update(request, rows, lambda places: noted.append(places.copy()))
    assert means.shape == (NODES, DIM)
    return read, own.M.numpy(), own.count.numpy(), noted


@pytest.mark.parametrize("size", [2, 3])
def test_shares_of_the_means_hold_what_one_process_would_hold(size):
    """Also where ranks update the same node in one step: in the order of the ranks."""
    whole = MeanEmbeddings(NODES, DIM, 0.7)
    found = together(size, move)
    num_shared = 0
    for step in range(STEPS):
        told = [visits(rank, step) for rank in range(size)]
        num_shared += len(np.intersect1d(told[0][0], told[1][0]))
        for rank, (ids, _) in enumerate(told):
            rows, seen = found[rank][0][step]
            np.testing.assert_array_equal(rows, whole.gather(ids).numpy())
            np.testing.assert_array_equal(seen, whole.seen(ids).numpy())
        for ids, rows in told:
            whole.update(ids, rows)
    assert num_shared > 0
    for rank, (_, own, count, noted) in enumerate(found):
        assert len(own) == len(range(rank, NODES, size))
        assert own.tobytes() == whole.M[rank::size].contiguous().numpy().tobytes()
        assert count.tolist() == whole.count[rank::size].tolist()
        # Every row was told of before it changed, as often as it changed.
        np.testing.assert_array_equal(np.bincount(np.concatenate(noted), minlength=len(own)), count)


@pytest.mark.parametrize(("was", "now"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
def test_means_are_shared_out_anew(was, now):
    whole = MeanEmbeddings(NODES, DIM)
    whole.update(np.arange(NODES - 3), torch.randn(NODES - 3, DIM))
    for rank in range(now):
        own = MeanEmbeddings(ShardedMeans.num_own(NODES, Ranks(rank, now)), DIM)
        for other in range(was):
            part = whole.M[other::was], whole.count[other::was]
            copy_share(own, (rank, now), *part, (other, was), block=4)
        torch.testing.assert_close(own.M, whole.M[rank::now], rtol=0, atol=0)
        assert own.count.tolist() == whole.count[rank::now].tolist()


def test_shares_are_read_as_one():
    whole = MeanEmbeddings(NODES, DIM)
    whole.update(np.arange(0, NODES, 2), torch.randn(12, DIM))
    parts = [MeanEmbeddings(ShardedMeans.num_own(NODES, Ranks(rank, 3)), DIM) for rank in range(3)]
    for rank, part in enumerate(parts):
        copy_share(part, (rank, 3), whole.M, whole.count, (0, 1))
    shares, ids = MappedShares(parts), np.random.default_rng(0).permutation(NODES)[:9]
    assert shares.shape == (NODES, DIM)
    torch.testing.assert_close(shares.gather(ids), whole.gather(ids), rtol=0, atol=0)
    assert shares.seen(ids).tolist() == whole.seen(ids).tolist()
