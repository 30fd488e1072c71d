"""Config: a dictionary with defaults that keeps what it does not know."""

import warnings

import pytest

from ingot import Config
from ingot.base.config import FLAGS
from ingot.base.environment_variables import EnvironmentVariables
from ingot.base.errors import ConfigError


def test_starts_from_defaults_and_takes_what_a_dictionary_takes():
    assert dict(Config()) == {flag.name: flag.default for flag in FLAGS}
    assert Config(graph_opt_level=1)["graph_opt_level"] == 1
    assert Config({"graph_opt_level": 1}, cache_capacity=5)["cache_capacity"] == 5
    assert Config([("graph_opt_level", 0)])["graph_opt_level"] == 0
    assert Config(Config(graph_opt_level=2)) == Config(graph_opt_level=2)


def test_never_changes_the_callers_object():
    given = {"graph_opt_level": 1}
    config = Config(given)
    config["graph_opt_level"] = 2
    assert given == {"graph_opt_level": 1}
    copy = config.copy()
    copy["graph_opt_level"] = 0
    assert config["graph_opt_level"] == 2


def test_unknown_flags_are_kept_and_near_misses_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Config(something_else=7)["something_else"] == 7
    with pytest.warns(UserWarning, match="did you mean 'graph_opt_level'"):
        Config(graph_opt_levle=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"graph_opt_level": 9},
        {"graph_opt_level": True},
        {"enable_caching": 1},
        {"cache_capacity": 0},
        {"disabled_passes": "layout"},
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ConfigError):
        Config(wrong)


def test_environment_is_typed_and_checked():
    assert EnvironmentVariables.read({}).dump == frozenset()
    assert EnvironmentVariables.read({"INGOT_DUMP": "graph, passes"}).dump == {"graph", "passes"}
    with pytest.raises(ConfigError, match="INGOT_DUMP cannot name nonsense"):
        EnvironmentVariables.read({"INGOT_DUMP": "nonsense"})
    assert EnvironmentVariables.read({"INGOT_CHECK": "bounds"}).check == {"bounds"}
    with pytest.raises(ConfigError, match="INGOT_CHECK cannot name nonsense; it knows bounds"):
        EnvironmentVariables.read({"INGOT_CHECK": "nonsense"})
