#!/usr/bin/env bash
# Sets up, builds and runs every test, from a bare machine on; safe to repeat. Arguments go to ctest (`-R name`, `-L fast`).
#
# The preset is release: what people run is what is tested (its assertions are on), and quickstart.sh finds it built.
# A second preset would double the time from cold; the sanitizers are run by hand: scripts/test.sh --preset asan.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' scripts/test.sh
  exit
fi
preset=release
if [[ ${1:-} == --preset ]]; then
  preset=${2:?test.sh: --preset needs a name}
  shift 2
fi
started=$SECONDS
if [[ $preset == tsan ]]; then scripts/setup.sh check; else scripts/setup.sh; fi
scripts/build.sh "$preset"
echo "test.sh: set up and built $preset in $((SECONDS - started)) s"
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "${GPULAYER_BUILD_JOBS:-$(nproc)}" "$@" </dev/null
