#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/scenario.sh" sweep_atari "$@"
