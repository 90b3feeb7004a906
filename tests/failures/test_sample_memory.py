"""Drawing takes memory for a few samples at a time, however many there are."""

import subprocess
import sys
from pathlib import Path

TESTS = str(Path(__file__).parent.parent)

CHILD = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from sample_stores import a_graph
from musegnn import Graph, UniformInduced, sample
from musegnn.memory import anonymous_memory
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, anonymous_memory())
a_graph(20_000).save(sys.argv[2] + "/g")
graph = Graph.open(sys.argv[2] + "/g")
options = {"splits": "train", "workers": 2}
sample(graph, UniformInduced(p=0.9, num_samples=4), sys.argv[2] + "/warm", **options)
before = anonymous_memory()
watcher = threading.Thread(target=watch)
watcher.start()
store = sample(graph, UniformInduced(p=0.9, num_samples=int(sys.argv[3])), sys.argv[2] + "/s", **options)
done.set()
watcher.join()
print(store.stored.num_bytes, peak - before)
"""


def peak_of(num_samples, folder):
    folder.mkdir()
    command = [sys.executable, "-c", CHILD, TESTS, str(folder), str(num_samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    num_bytes, peak = map(int, done.stdout.split())
    return num_bytes, peak


def test_memory_does_not_grow_with_the_number_of_samples(tmp_path):
    few_bytes, few = peak_of(20, tmp_path / "few")
    many_bytes, many = peak_of(200, tmp_path / "many")
    assert many_bytes - few_bytes > 64 << 20
    assert many < few + (8 << 20)
    assert many < 32 << 20
