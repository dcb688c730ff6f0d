"""Tests of a framework run where it is installed: in its own environment. ``test_frameworks.py`` runs them there."""

from importlib.util import find_spec

from tests.integrations.environments import FRAMEWORKS

collect_ignore = ["plugins", *(each.folder for each in FRAMEWORKS if find_spec(each.module) is None)]
