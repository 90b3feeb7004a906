"""What a graph is, how it is checked, built in bounded memory, and kept on disk."""

from musegnn.graph.graph import Graph as Graph
from musegnn.graph.source import EdgeChunk as EdgeChunk
from musegnn.graph.source import FeatureSource as FeatureSource
from musegnn.graph.source import GraphSource as GraphSource
from musegnn.graph.source import Topology as Topology
