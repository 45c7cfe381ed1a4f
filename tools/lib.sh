# SPDX-License-Identifier: Apache-2.0
# Sourced by demo.sh and test.sh: one quiet step at a time.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

die() {
  echo "$(basename "$0" .sh): $*" >&2
  exit 1
}

# step NAME LOG COMMAND...: one line when all is well, the log's end when not.
# The name comes first: a build takes minutes, and silence looks like a hang.
step() {
  local name=$1 log=$2 start=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  printf '%-28s ' "$name"
  if "$@" >"$log" 2>&1; then
    printf 'ok  %4d s\n' $((SECONDS - start))
  else
    printf 'FAILED, the end of %s:\n' "$log"
    tail -n "${STEP_TAIL:-60}" "$log"
    exit 1
  fi
}
