"""Named graphs and raw files: `load("debian")`, `load("ogbn-arxiv", root=...)`."""

from musegnn.datasets.base import Dataset as Dataset
from musegnn.datasets.catalog import CATALOG as CATALOG
from musegnn.datasets.catalog import load as load
