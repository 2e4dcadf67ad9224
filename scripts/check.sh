#!/usr/bin/env bash
# What a change has to pass before it is committed.
#
#   scripts/check.sh           format, layers, test list, clang-tidy on what differs from main, fast tests (dev preset)
#   scripts/check.sh --all     the same with clang-tidy on every file
#   scripts/check.sh --cheap   only what needs no build: what continuous integration runs before the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:-changed}
case $mode in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \?//p}' scripts/check.sh
    exit
    ;;
  changed | --all | --cheap) ;;
  *)
    echo "usage: scripts/check.sh [--all | --cheap]" >&2
    exit 2
    ;;
esac
failed=0
report() {
  echo "check.sh: $*" >&2
  failed=1
}

mapfile -t sources < <(git ls-files -co --exclude-standard -- '*.h' '*.cc' | while read -r f; do [[ -f $f ]] && echo "$f"; done)

clang-format-19 --dry-run --Werror "${sources[@]}" || report "format differs: run clang-format-19 -i on the files above"
python3 scripts/layers.py || report "an include crosses the layers (docs/design/overview.md)"
python3 scripts/test_list.py || report "a test is not in the build"
bad_shell=0
for script in $(git ls-files -co --exclude-standard -- 'scripts/*.sh' '.ci/run' 'examples/**.sh'); do
  bash -n "$script" || bad_shell=1
done
((bad_shell == 0)) || report "a shell script does not parse"
if [[ $mode == --cheap ]]; then
  ((failed == 0)) && echo "check.sh: format, layers and test list are in order"
  exit "$failed"
fi

scripts/setup.sh check
scripts/build.sh dev
if [[ $mode == --all ]]; then
  tidy=("${sources[@]}")
else
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  mapfile -t tidy < <({ git diff --name-only --diff-filter=d "$base"; git ls-files -o --exclude-standard; } | sort -u)
fi
translation_units=()
for file in "${tidy[@]}"; do
  [[ $file == *.cc ]] && grep -q "\"file\": \".*/$file\"" build/dev/compile_commands.json && translation_units+=("$file")
done
if ((${#translation_units[@]} > 0)); then
  printf '%s\0' "${translation_units[@]}" |
    xargs -0 -n 1 -P "${GPULAYER_BUILD_JOBS:-$(nproc)}" clang-tidy-19 --quiet -p build/dev || report "clang-tidy"
fi
ctest --test-dir build/dev -L fast --output-on-failure -j "${GPULAYER_BUILD_JOBS:-$(nproc)}" </dev/null || report "fast tests"
((failed == 0)) && echo "check.sh: all in order"
exit "$failed"
