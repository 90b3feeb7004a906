"""Hypothesis draws the same examples every time in CI and is free on a developer's machine."""

import os

from hypothesis import settings

settings.register_profile("free", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "free")
