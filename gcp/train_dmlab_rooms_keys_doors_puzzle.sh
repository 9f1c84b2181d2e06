#!/usr/bin/env bash
exec "$(dirname "${BASH_SOURCE[0]}")/scenario.sh" train_dmlab_rooms_keys_doors_puzzle "$@"
