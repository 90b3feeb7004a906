"""The mean embeddings M that tie the samples together."""

from musegnn.means.embeddings import MeanEmbeddings as MeanEmbeddings
