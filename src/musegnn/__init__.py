"""Graph neural networks whose layers are descent steps on an energy, on graphs up to a terabyte."""

from musegnn import datasets as datasets
from musegnn import errors as errors
from musegnn.errors import InputError as InputError
from musegnn.graph import Graph as Graph
from musegnn.version import __version__ as __version__
