#!/usr/bin/env bash
# Configures and builds one preset (dev release asan tsan); without arguments everything of release.
#
#   scripts/build.sh [PRESET] [TARGET…]
#   scripts/build.sh programs      of release what is installed, without the tests
#
# GPULAYER_BUILD_JOBS bounds the compilers that run at once (default: one a processor).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \?//p}' scripts/build.sh
    exit
    ;;
  programs) set -- release programs ;;
  -*)
    echo "build.sh: $1: no option is known but --help; a preset comes first (dev release asan tsan)" >&2
    exit 2
    ;;
esac
preset=${1:-release}
shift || true
jobs=${GPULAYER_BUILD_JOBS:-$(nproc)}
# Clones at different paths share one cache: paths below the clone are hashed as relative.
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ccache}
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1

cmake --preset "$preset"
if (($# > 0)); then
  cmake --build "build/$preset" -j "$jobs" --target "$@"
else
  cmake --build "build/$preset" -j "$jobs"
fi
