"""Graph neural networks whose layers are descent steps on an energy, on graphs larger than memory."""

import importlib
import typing

from musegnn.version import __version__ as __version__

if typing.TYPE_CHECKING:
    from musegnn import datasets as datasets
    from musegnn import errors as errors
    from musegnn.errors import InputError as InputError
    from musegnn.features import pack as pack
    from musegnn.graph import Graph as Graph
    from musegnn.means import MeanEmbeddings as MeanEmbeddings
    from musegnn.models import MLP as MLP
    from musegnn.models import MuseConv as MuseConv
    from musegnn.models import MuseGNN as MuseGNN
    from musegnn.runs import Run as Run
    from musegnn.runs import load_run as load_run
    from musegnn.runs import train as train
    from musegnn.sampling import Cluster as Cluster
    from musegnn.sampling import Draws as Draws
    from musegnn.sampling import FreeSampler as FreeSampler
    from musegnn.sampling import FullKHop as FullKHop
    from musegnn.sampling import NeighborSampling as NeighborSampling
    from musegnn.sampling import PersonalizedPageRank as PersonalizedPageRank
    from musegnn.sampling import RandomWalk as RandomWalk
    from musegnn.sampling import Sample as Sample
    from musegnn.sampling import SampleStore as SampleStore
    from musegnn.sampling import SeededSampler as SeededSampler
    from musegnn.sampling import ShadowKHop as ShadowKHop
    from musegnn.sampling import UniformInduced as UniformInduced
    from musegnn.sampling import sample as sample
    from musegnn.unfolding import L1 as L1
    from musegnn.unfolding import AbstractEnergy as AbstractEnergy
    from musegnn.unfolding import AbstractProblem as AbstractProblem
    from musegnn.unfolding import Alternation as Alternation
    from musegnn.unfolding import Box as Box
    from musegnn.unfolding import Energy as Energy
    from musegnn.unfolding import GroupNorm as GroupNorm
    from musegnn.unfolding import Nonnegative as Nonnegative
    from musegnn.unfolding import NoPenalty as NoPenalty
    from musegnn.unfolding import Penalty as Penalty
    from musegnn.unfolding import Predictive as Predictive
    from musegnn.unfolding import Relational as Relational
    from musegnn.unfolding import Robust as Robust
    from musegnn.unfolding import Staged as Staged
    from musegnn.unfolding import Trace as Trace
    from musegnn.unfolding import alternate as alternate
    from musegnn.unfolding import consensus as consensus
    from musegnn.unfolding import solve as solve
    from musegnn.unfolding import unfold as unfold

# A room is imported when it is asked for: a command that only looks at files does not wait for torch, and one
# that is interrupted while it begins can say so.
_ROOMS = {
    "musegnn.errors": ("InputError",),
    "musegnn.graph": ("Graph",),
    "musegnn.sampling": (
        *("Cluster", "Draws", "FreeSampler", "FullKHop", "NeighborSampling", "PersonalizedPageRank"),
        *("RandomWalk", "Sample", "SampleStore", "SeededSampler", "ShadowKHop", "UniformInduced", "sample"),
    ),
    "musegnn.unfolding": (
        *(
            "AbstractEnergy",
            "AbstractProblem",
            "Alternation",
            "Box",
            "Energy",
            "GroupNorm",
            "L1",
            "NoPenalty",
        ),
        *(
            "Nonnegative",
            "Penalty",
            "Predictive",
            "Robust",
            "Relational",
            "Staged",
            "Trace",
            "alternate",
            "consensus",
            "solve",
            "unfold",
        ),
    ),
    "musegnn.features": ("pack",),
    "musegnn.means": ("MeanEmbeddings",),
    "musegnn.models": ("MLP", "MuseConv", "MuseGNN"),
    "musegnn.runs": ("Run", "load_run", "train"),
}
_MODULES = ("datasets", "errors", "graph", "sampling")
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"musegnn.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'musegnn' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOM_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF, *_MODULES})
