"""The options of a run in TensorBoard."""

from tensorboard.compat.proto.summary_pb2 import Summary

from seed_rl.common.monitoring import run_summary

RECORD = {
    "program": "seed_rl.gym.r2d2_main",
    "arguments": ["--batch_size=16"],
    "origins": {"batch_size": "r2d2 preset", "logdir": "command line"},
    "batch_size": 16,
    "logdir": "/elsewhere",
    "mlp_sizes": (64, 32),
    "seed": None,
    "torso": "a|b",
}


def test_the_table_says_what_set_an_option():
    (value,) = Summary.FromString(run_summary.summaries(RECORD)[0]).value
    assert (value.tag, value.metadata.plugin_data.plugin_name) == ("options", "text")
    text = value.tensor.string_val[0].decode()
    lines = text.splitlines()
    assert lines[0] == "    seed_rl.gym.r2d2_main"
    assert "| option | value | set by |" in lines
    assert "| batch_size | 16 | r2d2 preset |" in lines
    assert "| mlp_sizes | 64,32 |  |" in lines
    assert r"| torso | a\|b |  |" in lines
    assert "logdir" not in text and "/elsewhere" not in text


def test_hyperparameters_are_options_alone():
    """Guards comparisons of runs from columns that differ with every start."""
    expected = {"batch_size": 16, "mlp_sizes": "64,32", "seed": "", "torso": "a|b"}
    assert run_summary.hyperparameters(RECORD) == expected
