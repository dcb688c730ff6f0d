"""Profiles for Hypothesis: how long to look, and whether to look elsewhere each time.

This needs Hypothesis, which the extra ``testing`` installs.
"""

from __future__ import annotations

from transcript_store.testing import _with_hypothesis  # isort: skip  # noqa: F401  (first: it says what to install)

from hypothesis import HealthCheck, settings

__all__ = ["register_profiles"]


def register_profiles() -> None:
    """Register the profiles ``dev``, ``ci`` and ``nightly`` with Hypothesis. None of them is loaded.

    ``dev`` tries new examples each time, and keeps the failed ones. ``ci`` tries the same examples each time, so a change that has
    nothing to do with a failure cannot show it. ``nightly`` looks at ten times as many, with longer lives, and prints what
    reproduces a failure elsewhere. None has a deadline: on a shared machine a slow example says nothing.

    Call it in ``conftest.py``; ``pytest --hypothesis-profile=nightly`` then loads one.
    """
    settings.register_profile("dev", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        "nightly",
        deadline=None,
        max_examples=1000,
        stateful_step_count=100,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
