"""Models: f, K descent steps, g."""

from musegnn.models.conv import MuseConv as MuseConv
from musegnn.models.mlp import MLP as MLP
from musegnn.models.musegnn import MuseGNN as MuseGNN
