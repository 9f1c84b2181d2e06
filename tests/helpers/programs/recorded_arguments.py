"""Prints the arguments that a run of this program records: recorded_arguments.py [flags]"""

import json
import sys

from absl import flags

from seed_rl.common.run_files import run_record

flags.DEFINE_multi_string("lines", [], "")
flags.DEFINE_multi_integer("numbers", None, "")
flags.DEFINE_boolean("yes", False, "")
flags.DEFINE_boolean("no", True, "")
flags.DEFINE(flags.ArgumentParser(), "raw", None, "")
flags.FLAGS(sys.argv)
print(json.dumps(run_record.describe({})["arguments"]))
