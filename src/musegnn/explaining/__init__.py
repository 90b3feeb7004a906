"""Why a node got its class: exact shares, tensions of nodes and edges, what would change it."""

from musegnn.explaining.contributions import Split as Split
from musegnn.explaining.contributions import explain as explain
from musegnn.explaining.contributions import split_embedding as split_embedding
from musegnn.explaining.drawing import Drawing as Drawing
from musegnn.explaining.drawing import draw as draw
from musegnn.explaining.explanation import Explanation as Explanation
from musegnn.explaining.explanation import Part as Part
from musegnn.explaining.tension import Disagreement as Disagreement
from musegnn.explaining.tension import Tension as Tension
from musegnn.explaining.tension import tension as tension
from musegnn.explaining.what_if import Change as Change
from musegnn.explaining.what_if import what_if as what_if
from musegnn.explaining.what_if import without_edges as without_edges
