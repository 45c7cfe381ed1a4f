# SPDX-License-Identifier: Apache-2.0
# Sourced by demo.sh and test.sh: one quiet step at a time.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

die() {
  echo "$(basename "$0" .sh): $*" >&2
  exit 1
}

# step NAME LOG COMMAND...: one line when all is well, the log's end when not.
step() {
  local name=$1 log=$2 start=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  if "$@" >"$log" 2>&1; then
    printf '%-28s ok  %4d s\n' "$name" $((SECONDS - start))
  else
    printf '%-28s FAILED, the end of %s:\n' "$name" "$log"
    tail -n "${STEP_TAIL:-60}" "$log"
    exit 1
  fi
}
