"""What a user runs: the library without the shape checks of the tests."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked(monkeypatch):
    """Arguments of a wrong type get as far as they do for a user."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
