#!/usr/bin/env bash
# Makes a clip smaller: 640 pixels wide, H.264 and AAC. Knows nothing of GPUlayer but the folder that its result goes to.
# Usage: transcode.sh [CLIP]
set -euo pipefail

clip=${1:-input/clip.mp4}
out=${GPULAYER_OUTPUT_DIR:-.}/small.mp4
if ! command -v ffmpeg >/dev/null; then
  echo "transcode.sh: this machine has no ffmpeg. Install the package ffmpeg on the worker." >&2
  exit 1
fi
length=$(ffprobe -v error -show_entries format=duration -of csv=p=0 "$clip")
echo "transcoding $clip (${length%.*} s) on ${GPULAYER_WORKER:-this machine}"

ffmpeg -hide_banner -loglevel error -nostdin -nostats -y -progress pipe:1 -i "$clip" \
  -vf scale=640:-2 -c:v libx264 -preset veryfast -crf 26 -c:a aac -b:a 96k -movflags +faststart "$out" |
  while IFS='=' read -r key value; do
    # ffmpeg reports twice a second, its clock as "00:00:12.340000".
    if [[ $key == out_time && $value == [0-9]* && ${value%.*} != "${last:-}" ]]; then
      last=${value%.*}
      echo "done to $last"
    fi
  done
echo "$(stat -c %s "$clip") bytes became $(stat -c %s "$out") bytes"
