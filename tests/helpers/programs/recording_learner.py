"""Writes the record of its run as learners do, and exits."""

from seed_rl.common.config import options
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.run_files import run_record


def main():
    batch_size = options.from_flags(LearnerConfig).batch_size
    learner = LearnerConfig(unroll_length=7, batch_size=batch_size)
    record = run_record.describe(options.flag_values(options.from_flags(RunConfig), learner))
    run_record.log_options(record)
    run_record.write(record["logdir"], record)


if __name__ == "__main__":
    preset = options.Preset("small", dict(batch_size=2, checkpoints_to_keep=1))
    options.define_flags(RunConfig, LearnerConfig, presets=(preset,))
    options.run_main(main)
