#!/bin/bash
# A second machine (a network namespace of its own) joins with the line that `up` printed, runs a job, and the
# job's output comes home. Usage: join_namespace.sh BIN_DIR. Exit 77: skipped, with the reason.
set -u
bin=$1
[ "$(id -u)" = 0 ] || { echo "skipped: needs root for a network namespace"; exit 77; }
command -v ip >/dev/null || { echo "skipped: needs iproute2"; exit 77; }
tag=gl$$
ip netns add "$tag" 2>/dev/null || { echo "skipped: this kernel makes no network namespace"; exit 77; }

dir=$(mktemp -d)
export XDG_CONFIG_HOME=$dir/config GPULAYER_DATA_DIR=$dir/one
unset GPULAYER_TARGET GPULAYER_TOKEN
gpulayer=$bin/gpulayer
finish() {
  ip netns exec "$tag" env GPULAYER_DATA_DIR="$dir/two" "$gpulayer" down >/dev/null 2>&1
  "$gpulayer" down >/dev/null 2>&1
  ip link del "$tag-a" 2>/dev/null
  ip netns del "$tag"
  rm -rf "$dir"
}
trap finish EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$dir"/*/log/*.log 2>/dev/null; exit 1; }

# Documentation addresses (RFC 5737), so that nothing real is ever meant.
ip link add "$tag-a" type veth peer name "$tag-b" netns "$tag" || fail "veth"
ip addr add 198.51.100.1/24 dev "$tag-a" && ip link set "$tag-a" up || fail "address"
ip -n "$tag" addr add 198.51.100.2/24 dev "$tag-b" && ip -n "$tag" link set "$tag-b" up &&
  ip -n "$tag" link set lo up || fail "address in the namespace"

"$gpulayer" up --listen 0.0.0.0:0 --slots 1 >"$dir/up.out" 2>&1 || fail "up: $(cat "$dir/up.out")"
line=$(grep -o 'gpulayer join 198\.51\.100\.1:.*' "$dir/up.out" | head -n 1)
[ -n "$line" ] || fail "up printed no join line for the address: $(cat "$dir/up.out")"

ip netns exec "$tag" env GPULAYER_DATA_DIR="$dir/two" PATH="$bin:$PATH" bash -c "$line --name second --slots 1" \
  >"$dir/join.out" 2>&1 || fail "join: $(cat "$dir/join.out")"

mkdir "$dir/home" && cd "$dir/home" || exit 1
out=$(timeout 60 "$gpulayer" submit --worker second -- \
  sh -c 'echo "on $GPULAYER_WORKER"; ip -o addr show | grep -c 198.51.100.2; echo made >"$GPULAYER_OUTPUT_DIR/result.txt"')
code=$?
[ $code = 0 ] || fail "submit: exit $code: $out"
[ "$out" = $'on second\n1' ] || fail "the job did not run in the namespace: $out"
result=$(cat gpulayer_runs/*/result.txt) || fail "no output came home"
[ "$result" = made ] || fail "output differs: $result"
echo "a second machine joined, ran the job, and its output came home"
