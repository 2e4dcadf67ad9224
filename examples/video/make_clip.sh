#!/usr/bin/env bash
# Makes input/clip.mp4, a moving test picture with a tone, since a repository is no place for videos.
# Usage: make_clip.sh [SECONDS]; leaves a clip that is there alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds=${1:-20}
[[ -s input/clip.mp4 ]] && exit 0
mkdir -p input
ffmpeg -hide_banner -loglevel error -nostdin -y \
  -f lavfi -i "testsrc=duration=$seconds:size=1280x720:rate=25" \
  -f lavfi -i "sine=frequency=440:duration=$seconds" \
  -c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac -f mp4 input/clip.part
mv input/clip.part input/clip.mp4
