"""Samplers, and the operator Omega that draws subgraphs with them, online or once and for all."""

from musegnn.sampling.base import FreeSampler as FreeSampler
from musegnn.sampling.base import SeededSampler as SeededSampler
from musegnn.sampling.cluster import Cluster as Cluster
from musegnn.sampling.draws import Draws as Draws
from musegnn.sampling.full import FullKHop as FullKHop
from musegnn.sampling.neighbor import NeighborSampling as NeighborSampling
from musegnn.sampling.offline import sample as sample
from musegnn.sampling.pagerank import PersonalizedPageRank as PersonalizedPageRank
from musegnn.sampling.record import Sample as Sample
from musegnn.sampling.sample_store import SampleStore as SampleStore
from musegnn.sampling.shadow import ShadowKHop as ShadowKHop
from musegnn.sampling.uniform import UniformInduced as UniformInduced
from musegnn.sampling.walk import RandomWalk as RandomWalk
