#!/usr/bin/env bash
# From nothing to a real job's result: packages, build, `gpulayer up`, a video transcoded by a worker, the file checked.
# Safe to repeat. Arguments go to `gpulayer up` (say `--listen 127.0.0.1:7471`); GPULAYER_DATA_DIR keeps the server's
# state elsewhere than in the default folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' scripts/quickstart.sh
  exit
fi
scripts/setup.sh
scripts/build.sh programs
started=$SECONDS
export PATH=$PWD/build/release/bin:$PATH

say() { printf '\n$ %s\n' "$*"; }
examples/video/make_clip.sh

say gpulayer up "$@"
gpulayer up "$@" </dev/null

before=$(mktemp)
trap 'rm -f "$before"' EXIT
say gpulayer submit --source examples/video -- ./transcode.sh
gpulayer submit --source examples/video -- ./transcode.sh </dev/null

result=$(find gpulayer_runs -mindepth 2 -maxdepth 2 -name small.mp4 -newer "$before" -print -quit)
if [[ -z $result ]]; then
  echo "quickstart.sh: the job ended well but its small.mp4 is not below gpulayer_runs/. See gpulayer job list." >&2
  exit 1
fi
probe() { ffprobe -v error -select_streams v:0 -show_entries "$1" -of csv=p=0 "$2"; }
say ffprobe "$result"
probe stream=codec_name,width,height "$result"
[[ $(probe stream=codec_name,width "$result") == h264,640 ]] || {
  echo "quickstart.sh: $result is not the H.264 file of 640 pixels that was asked for" >&2
  exit 1
}
seconds() { probe format=duration "$1" | cut -d. -f1; }
long=$(seconds examples/video/input/clip.mp4) short=$(seconds "$result")
((short >= long - 1 && short <= long + 1)) || {
  echo "quickstart.sh: $result lasts $short s, the clip lasts $long s" >&2
  exit 1
}
cat <<END

The job's output came home: $result. That took $((SECONDS - started)) s.
Server and worker go on running. Put gpulayer into your PATH and look around:

  export PATH=$PWD/build/release/bin:\$PATH${GPULAYER_DATA_DIR:+
  export GPULAYER_DATA_DIR=$GPULAYER_DATA_DIR}
  gpulayer job list
  gpulayer worker list
  gpulayer submit -- sh -c 'echo hello from \$GPULAYER_WORKER'
  gpulayer down                # stops what \`up\` started; docs/start.md adds more machines
END
