// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_SUPPORT_LARGEST_RESIDENT_H_
#define DSTRACE_TESTS_SUPPORT_LARGEST_RESIDENT_H_

#include <cstdio>

namespace dstrace::testing {

// The process's largest resident size in KiB; 0: not told. Not of getrusage():
// that one remembers what the process was before exec.
inline long LargestResidentKib() {
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::sscanf(line, "VmHWM: %ld", &kib) == 1) break;
  }
  std::fclose(status);
  return kib;
}

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_SUPPORT_LARGEST_RESIDENT_H_
