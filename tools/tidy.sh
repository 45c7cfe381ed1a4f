#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy over the product's sources.
#
# usage: tools/tidy.sh BUILD_DIRECTORY [FOLDER...]     (a configured one; all)
#
# JOBS=N in the environment: how many at once, else as many as there are cores.
set -euo pipefail
build=${1:?usage: tools/tidy.sh BUILD_DIRECTORY [FOLDER...]}
cd "$(dirname "$0")/.."
shift
[ $# -gt 0 ] || set -- proto preload cupti analyzer tools
find "$@" -name '*.cc' -print0 |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" clang-tidy-14 --quiet -p "$build"
