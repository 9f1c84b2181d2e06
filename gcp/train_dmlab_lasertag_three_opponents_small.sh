#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/scenario.sh" train_dmlab_lasertag_three_opponents_small "$@"
