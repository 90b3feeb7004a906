"""Energies, the steps that descend on them, and their exact minimizers."""

from musegnn.unfolding.contract import AbstractEnergy as AbstractEnergy
from musegnn.unfolding.contract import AbstractProblem as AbstractProblem
from musegnn.unfolding.descent import Trace as Trace
from musegnn.unfolding.descent import unfold as unfold
from musegnn.unfolding.energy import Energy as Energy
from musegnn.unfolding.joint import Alternation as Alternation
from musegnn.unfolding.joint import alternate as alternate
from musegnn.unfolding.joint import consensus as consensus
from musegnn.unfolding.minimum import solve as solve
from musegnn.unfolding.penalty import L1 as L1
from musegnn.unfolding.penalty import Box as Box
from musegnn.unfolding.penalty import GroupNorm as GroupNorm
from musegnn.unfolding.penalty import Nonnegative as Nonnegative
from musegnn.unfolding.penalty import NoPenalty as NoPenalty
from musegnn.unfolding.penalty import Penalty as Penalty
from musegnn.unfolding.predictive import Predictive as Predictive
from musegnn.unfolding.relational import Relational as Relational
from musegnn.unfolding.robust import Robust as Robust
from musegnn.unfolding.staged import Staged as Staged
