"""Settings that are known to work, by name: `load("debian")`, `load("ogbn-arxiv")`."""

from musegnn.recipes.catalog import find_for_dataset as find_for_dataset
from musegnn.recipes.catalog import load as load
from musegnn.recipes.catalog import names as names
