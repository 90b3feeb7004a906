"""Runs: trained into a folder, found again, evaluated, asked for predictions."""

from musegnn.runs.run import Run as Run
from musegnn.runs.run import load_run as load_run
from musegnn.runs.start import train as train
