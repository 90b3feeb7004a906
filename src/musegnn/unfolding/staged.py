"""Several energies, one behind the other: the first steps on the first, the last on the last."""

from collections.abc import Sequence

from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Alpha, Seen, Stage
from musegnn.unfolding.energy import number
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import Matrix
from musegnn.unfolding.snapshot import as_it_is


class Staged(AbstractEnergy):
    """Each energy has its share of the steps, and starts where the one before it has ended.

        Y^0 = Z,   steps k of stage s:  Y^k = prox(Y^{k-1} - a (H_s Y^{k-1} - b_s))

    Every step descends on the energy of its stage. Value, error bound and minimum are those of the last one:
    where it was started from does not matter to its certificate.

    Args:
        energies: Of one kind of samples: all with the same relations, the same width and the same gamma.
    """

    def __init__(self, energies: Sequence[AbstractEnergy]) -> None:
        super().__init__()
        # Stages of a stage are stages.
        energies = [part for energy in energies for part in _parts(energy)]
        gammas = [number(getattr(energy, "gamma", 0.0)) for energy in energies]
        shared = [(one.num_relations, one.dim, gamma) for one, gamma in zip(energies, gammas, strict=True)]
        if len(set(shared)) != 1:
            raise InputError(
                "Staged needs energies that have the same relations, width and gamma, one or more; got "
                f"{len(energies)} with the relations {[energy.num_relations for energy in energies]}, the "
                f"widths {[energy.dim for energy in energies]} and gamma {gammas}."
            )
        self.energies = nn.ModuleList(energies)
        last = energies[-1]
        self.penalty, self.num_relations, self.acceleration = (
            last.penalty,
            last.num_relations,
            last.acceleration,
        )
        self.gamma, self.dim = getattr(last, "gamma", 0.0), last.dim

    def extra_repr(self) -> str:
        """Each of them."""
        return ", ".join(map(repr, self.energies))

    @property
    def last(self) -> AbstractEnergy:
        """The one that is certified."""
        return self.energies[-1]  # type: ignore[return-value]

    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> AbstractProblem:
        """The last energy on a sample."""
        return self.last.on(sample, mu, seen, like=like, alpha=alpha)

    def stages(self, steps: int) -> list[Stage]:
        """Shares that differ by a step at most; who has none is left out, but for the last."""
        ends = [steps * i // len(self.energies) for i in range(len(self.energies) + 1)]
        counts = [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
        pairs: list[tuple[AbstractEnergy, int]] = list(zip(self.energies, counts, strict=True))  # type: ignore[arg-type]
        kept = [pair for pair in pairs[:-1] if pair[1]] + pairs[-1:]
        energies, kind = [energy for energy, _ in kept], type(kept[0][0])
        alike = all(type(energy) is kind for energy in energies)
        made = kind.learned_together(energies) if alike else [energy.learned() for energy in energies]
        return [Stage(*pair, learned) for pair, learned in zip(kept, made, strict=True)]

    def matrices(self, sample: Sample) -> list[Matrix]:
        """As each of them: none knows other relations."""
        return list(dict.fromkeys(part for energy in self.energies for part in energy.matrices(sample)))  # type: ignore[operator]

    def confine(self) -> None:
        """Each of them."""
        for energy in self.energies:
            energy.confine()  # type: ignore[operator]

    def linearized(self) -> "Staged":
        """Each of them is."""
        made = as_it_is(self, learns=False)
        made.energies = nn.ModuleList(energy.linearized() for energy in self.energies)  # type: ignore[operator]
        return made


def _parts(energy: AbstractEnergy) -> list[AbstractEnergy]:
    return list(energy.energies) if isinstance(energy, Staged) else [energy]  # type: ignore[arg-type]
