"""Graph neural networks whose layers are descent steps on an energy, on graphs up to a terabyte."""

from musegnn import datasets as datasets
from musegnn import errors as errors
from musegnn.errors import InputError as InputError
from musegnn.graph import Graph as Graph
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
from musegnn.version import __version__ as __version__
