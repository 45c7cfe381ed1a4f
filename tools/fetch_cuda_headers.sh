#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets cuda.h, cuda_runtime_api.h and cudaTypedefs.h of CUDA 11.8 and 12 for
# tools/check_headers.py, out of NVIDIA's Python packages. Nothing is installed.
#
# usage: fetch_cuda_headers.sh [DIRECTORY]     (default: build/cuda-headers)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
directory=${1:-build/cuda-headers}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() { # NAME REQUIREMENT
  local into=$directory/$1/include
  [[ -f $into/cuda.h && -f $into/cuda_runtime_api.h ]] && return
  python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$work/$1" "$2"
  mkdir -p "$into"
  python3 - "$work/$1" "$into" <<'PYTHON'
import glob
import os
import sys
import zipfile

WANTED = {"cuda.h", "cuda_runtime_api.h", "cudaTypedefs.h"}
source, into = sys.argv[1:]
for wheel in glob.glob(os.path.join(source, "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if os.path.basename(name) in WANTED:
                with open(os.path.join(into, os.path.basename(name)), "wb") as file:
                    file.write(archive.read(name))
PYTHON
  [[ -f $into/cuda.h && -f $into/cuda_runtime_api.h ]] || {
    echo "fetch_cuda_headers: $2 has no cuda.h" >&2
    exit 1
  }
  echo "$into"
}

fetch 11.8 'nvidia-cuda-runtime-cu11==11.8.*'
fetch 12 'nvidia-cuda-runtime-cu12==12.*'
