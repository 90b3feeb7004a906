"""The ranks of one job: who I am, what we tell each other, and who is missing when nobody answers.

`torchrun` starts the processes and says in the environment which rank each of them is; torch.distributed
carries the messages (Gloo between CPUs, NCCL between GPUs). A process that was started alone is rank 0 of 1
and imports nothing of this.

A rank that fails leaves its sentence where the others find it, before it goes. Whoever waits in vain calls
the roll: who does not answer is named. Nobody waits longer than `board.TIMEOUT` seconds for a message.
"""

from musegnn.ranks.joining import is_launched, job, join
from musegnn.ranks.ranks import ALONE, Ranks, current

__all__ = ["ALONE", "Ranks", "current", "is_launched", "job", "join"]
