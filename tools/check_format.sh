#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that every C and C++ file is as clang-format 14 leaves it; prints the
# names of those that are not. Exits 77 (skipped) where there is no clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."

format=$(command -v clang-format-14 || command -v clang-format) || {
  echo "SKIP: no clang-format-14 (apt-get install clang-format-14)"
  exit 77
}
# Another major version formats differently.
"$format" --version | grep -q 'version 14\.' || {
  echo "SKIP: $("$format" --version), the tree is formatted with 14"
  exit 77
}

bad=0
while IFS= read -r -d '' file; do
  "$format" --style=file "$file" | cmp -s - "$file" || {
    echo "$file: run $(basename "$format") -i on it"
    bad=1
  }
done < <(find proto preload cupti analyzer tools tests examples -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.inc' \) -print0 2>/dev/null)
exit $bad
