"""Where the time of a step goes: a table of its parts, and a trace for chrome://tracing or Perfetto."""

import time
from collections import defaultdict
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

WARM_UP, STEPS = 10, 20
"""Steps before the clock runs, while kernels are compiled and memory is found; steps that are measured."""
PARTS = ("load", "copy", "means", "f", "descent", "g", "backward", "optimizer", "M")
"""In their order; `copy` runs beside the others on a GPU."""


def timer() -> torch.cuda.Event:
    """Notes when a GPU comes to it."""
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


class Profile:
    """Told of each part's end by `mark`, of each step's by `end_step`, until it `is_done`.

    On a GPU a part is the time between two marks on its stream, in which it may also wait for the next call.
    """

    def __init__(self, device: torch.device, trace: Path) -> None:
        self._is_cuda, self._trace = device.type == "cuda", trace
        self._steps = 0
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []
        self._seconds: dict[str, float] = defaultdict(float)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._is_cuda else [])]
        self._profile = profile(activities=activities)
        self._last = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is measured."""
        return self._steps >= WARM_UP + STEPS

    @property
    def is_running(self) -> bool:
        """Whether this step counts."""
        return WARM_UP <= self._steps < WARM_UP + STEPS

    def mark(self, part: str) -> None:
        """The part ends here; "" begins a step."""
        if not self.is_running:
            return
        if self._is_cuda:
            event = timer()
            event.record()
            self._marks.append((part, event))
        else:
            self._marks.append((part, time.perf_counter()))

    def add(self, part: str, seconds: float) -> None:
        """Time that was measured elsewhere."""
        if self.is_running:
            self._seconds[part] += seconds

    def begin_epoch(self) -> None:
        """What came before, such as validation, belongs to no step."""
        self._last = time.perf_counter()

    def end_step(self) -> None:
        """One step more."""
        now = time.perf_counter()
        self.add("step", now - self._last)
        self._last = now
        self._steps += 1
        if self._steps == WARM_UP:
            self._profile.start()

    def end(self) -> dict[str, float]:
        """Milliseconds of a step, part by part, and `step`, from one to the next; empty of too few steps."""
        count = self._steps - WARM_UP
        if count <= 0:
            return {}
        if self._is_cuda:
            torch.cuda.synchronize()
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._trace))
        for (_, before), (part, after) in zip(self._marks, self._marks[1:], strict=False):
            if not part:
                continue
            if isinstance(before, float) and isinstance(after, float):
                self._seconds[part] += after - before
            elif isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
                self._seconds[part] += before.elapsed_time(after) / 1e3
        names = [*(part for part in PARTS if part in self._seconds), "step"]
        return {part: round(1e3 * self._seconds[part] / count, 3) for part in names}
