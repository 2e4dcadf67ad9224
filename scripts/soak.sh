#!/usr/bin/env bash
# What is too long for every change (tests/soak), with the release build; some ten minutes on two processors.
#
#   scripts/soak.sh                      all of it
#   scripts/soak.sh Soak.test_NAME       one of it
#
# GPULAYER_SOAK_SCALE=0.1 does a tenth of the numbers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' scripts/soak.sh
  exit
fi
scripts/build.sh programs
exec python3 tests/soak/soak.py build/release/bin "$@"
