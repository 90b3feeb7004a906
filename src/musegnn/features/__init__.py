"""Features: rows by their nodes, from wherever they lie: a GPU, memory, a file, a pack beside the samples."""

from musegnn.features.packing import pack as pack
