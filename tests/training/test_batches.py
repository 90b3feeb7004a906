"""What reads ahead ends with the one it reads for."""

import threading

import small_runs

from musegnn.training.batches import Loader


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("musegnn-loader")]


def test_batches_nobody_reads_on_end_without_waiting_for_the_disk(tmp_path, monkeypatch):
    """A generator that an exception left behind is closed by the collector, in whatever thread it runs:
    were the readers waited for there, both would stand still."""
    graph = small_runs.graph()
    loader = Loader(small_runs.store(tmp_path / "s")["train"], graph, graph.labels, threads=2)
    before, is_reading, goes_on, read = readers(), threading.Event(), threading.Event(), loader.features.read

    def read_slowly(split, index, node_ids):
        if index == 3:
            is_reading.set()
            assert goes_on.wait(60)
        return read(split, index, node_ids)

    monkeypatch.setattr(loader.features, "read", read_slowly)
    batches = loader.batches(range(6))
    next(batches)
    assert is_reading.wait(20)
    closing = threading.Thread(target=batches.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    goes_on.set()
    for thread in set(readers()) - set(before):
        thread.join(20)
    assert set(readers()) <= set(before)
