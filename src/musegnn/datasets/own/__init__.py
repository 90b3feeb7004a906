"""A user's own files -> a `GraphSource`."""

from musegnn.datasets.own.reading import read as read
