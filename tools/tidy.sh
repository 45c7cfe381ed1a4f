#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy over the product's sources.
#
# usage: tools/tidy.sh BUILD_DIRECTORY     (a configured one)
set -euo pipefail
build=${1:?usage: tools/tidy.sh BUILD_DIRECTORY}
cd "$(dirname "$0")/.."
find proto preload cupti analyzer -name '*.cc' -print0 2>/dev/null |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p "$build"
