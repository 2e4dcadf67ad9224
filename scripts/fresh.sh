#!/usr/bin/env bash
# The way of a stranger: a new Debian 12 in a folder (debootstrap, chroot), a clone of the last commit in it, and there
# everything that continuous integration does: install, build, test. Needs root and about 4 GB; about as long as .ci/run.
#
#   scripts/fresh.sh             install, build, test
#   scripts/fresh.sh COMMAND…    the same machine, another command in the clone: scripts/fresh.sh scripts/quickstart.sh
#
# Packages come from the mirror that this machine's apt uses. Downloads and the compiler cache of these runs are kept in
# GPULAYER_FRESH_DIR (default ~/.cache/gpulayer-fresh); the machine itself is removed at the end, whatever happened.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' "$root/scripts/fresh.sh"
  exit
fi
if ((EUID != 0)); then
  echo "fresh.sh: only root can make a chroot. Run it as root." >&2
  exit 1
fi

# Second half: inside mount and process namespaces of its own, which take mounts and left processes with them.
if [[ ${GPULAYER_FRESH_INSIDE:-} == yes ]]; then
  machine=$1 cache=$2 mirror=$3
  shift 3
  debootstrap --variant=minbase --cache-dir="$cache/debs" bookworm "$machine" "$mirror" >"$cache/debootstrap.log" 2>&1 || {
    tail -n 20 "$cache/debootstrap.log" >&2
    echo "fresh.sh: debootstrap failed; all it said is in $cache/debootstrap.log" >&2
    exit 1
  }
  # Its root is a mount of its own, as a machine's is: `ip netns` changes how it propagates.
  mount --bind "$machine" "$machine"
  mount -t proc proc "$machine/proc"
  mount -t sysfs -o ro sysfs "$machine/sys"
  mount --rbind /dev "$machine/dev"
  mount -t tmpfs -o size=64m tmpfs "$machine/run"
  mkdir -p "$machine/ccache"
  mount --bind "$cache/ccache" "$machine/ccache"
  mount --bind "$cache/archives" "$machine/var/cache/apt/archives"

  rm -f "$machine/etc/apt/sources.list"
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$3 ~ /^bookworm/' | sort -u >"$machine/etc/apt/sources.list"
  apt-config dump --format '%F "%v";%n' | grep -iE '^Acquire::.*proxy' >"$machine/etc/apt/apt.conf.d/90proxy" || true
  cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
  cp /etc/hosts "$machine/etc/hosts"
  hostname >"$machine/etc/hostname"

  chroot "$machine" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 CCACHE_DIR=/ccache GPULAYER_BUILD_JOBS="${GPULAYER_BUILD_JOBS:-$(nproc)}" \
    bash -c 'apt-get -q update && cd /src/gpulayer && exec "$@"' fresh "$@" </dev/null
  exit
fi

"$root/scripts/setup.sh" fresh
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')
if [[ -z $mirror ]]; then
  echo "fresh.sh: this machine's apt knows no bookworm mirror. Add one to its sources and run apt-get update." >&2
  exit 1
fi
if [[ -n $(git -C "$root" status --porcelain) ]]; then
  echo "fresh.sh: there are uncommitted changes; what is tested is the last commit" >&2
fi

cache=${GPULAYER_FRESH_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/gpulayer-fresh}
mkdir -p "$cache"/{ccache,debs,archives}
machine=$(mktemp -d "$cache/machine.XXXXXX")
chmod 755 "$machine" # other users of the new machine start at its root
trap 'rm -rf --one-file-system "$machine"' EXIT
git clone -q --no-hardlinks "$root" "$machine/src/gpulayer"

started=$SECONDS
(($# > 0)) || set -- .ci/run
status=0
GPULAYER_FRESH_INSIDE=yes unshare --mount --pid --fork --kill-child --propagation private \
  "$root/scripts/fresh.sh" "$machine" "$cache" "$mirror" "$@" || status=$?
echo "fresh.sh: $* ended with $status after $((SECONDS - started)) s"
exit "$status"
