"""A program written for the original SEED RL that ends with a user's error."""

from absl import app

from seed_rl.common import common_flags  # noqa: F401 - brings flags.
from seed_rl.common.errors import UserError


def main(_):
    raise UserError("Choose another --logdir.")


if __name__ == "__main__":
    app.run(main)
