"""Named graphs and raw files: `load("debian")`, `load("ogbn-arxiv", root=...)`."""

from musegnn.datasets.base import Dataset as Dataset
