#!/usr/bin/env bash
# Installs what building and testing need on Debian 12 (scripts/packages.txt). Safe to repeat: it asks dpkg first and
# leaves apt alone when nothing is missing.
#
#   scripts/setup.sh              what build.sh, test.sh and quickstart.sh need
#   scripts/setup.sh check        the same and the clang tools of check.sh and the tsan preset
#   scripts/setup.sh fresh        the same and what fresh.sh needs
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' "$root/scripts/setup.sh"
  exit
fi
sections="build test $*"
for section in "$@"; do
  grep -qx "\[$section\]" "$root/scripts/packages.txt" || {
    echo "setup.sh: no section \"$section\" in scripts/packages.txt" >&2
    exit 2
  }
done
if ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this machine has no dpkg: only Debian 12 and its relatives are set up by script." \
    "Install the counterparts of scripts/packages.txt by hand." >&2
  exit 1
fi

mapfile -t wanted < <(awk -v sections="$sections" '
  BEGIN { n = split(sections, list, " "); for (i = 1; i <= n; i++) want[list[i]] = 1 }
  { sub(/#.*/, ""); gsub(/[ \t]/, "") }
  /^\[/ { gsub(/[][]/, ""); on = ($0 in want); next }
  on && NF' "$root/scripts/packages.txt")
missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if sudo -n true 2>/dev/null || { [[ -t 0 ]] && command -v sudo >/dev/null; }; then
    as_root=(sudo)
  else
    echo "setup.sh: these packages are missing and only root can install them. Run as root:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi
echo "setup.sh: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt_get() { "${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null; }
# The package lists of the machine are tried first: refreshing them costs more than most of the installs.
install() { apt_get install -y --no-install-recommends "${missing[@]}"; }
install || { apt_get update && install; }
