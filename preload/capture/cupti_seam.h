// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_CUPTI_SEAM_H_
#define DSTRACE_PRELOAD_CAPTURE_CUPTI_SEAM_H_

// All that libdstrace.so and libdstrace_cupti.so know of each other: two
// structs of function pointers, exchanged once when the second is loaded.
//
//   libdstrace.so                          libdstrace_cupti.so
//   first context: dlopen ---------------> dstrace_cupti_start(&host)
//                  <---------------------- &client, or null: not running
//   the program takes CUPTI -------------> client.step_aside()
//   exit() ------------------------------> client.finish()
//
// Both are built from one tree; a version or size that differs means two
// installations were mixed, and nothing starts. Plain C types only: the two
// libraries share no C++ runtime.
//
// Thread-safety: every function is thread-safe. noexcept throughout.

#include <cstddef>
#include <cstdint>

#include "preload/capture/recorder.h"

extern "C" {

inline constexpr uint32_t kDstraceCuptiSeam = 1;

// What libdstrace.so offers.
struct DstraceCuptiHost {
  uint32_t version;  // kDstraceCuptiSeam
  uint32_t size;     // sizeof(DstraceCuptiHost)
  void (*record_totals)(const dstrace::capture::CuptiTotals* totals) noexcept;
  void (*record_property)(const char* name, const char* value) noexcept;
  // One line on stderr.
  void (*say)(const char* text, const char* detail) noexcept;
  // libc's own: the program's dlsym is hooked, for CUPTI's names too.
  void* (*dlsym)(void* handle, const char* name) noexcept;
};

// A CUpti_BuffersCallbackCompleteFunc, in plain types.
using DstraceCuptiComplete = void (*)(void* context, uint32_t stream,
                                      uint8_t* buffer, size_t size,
                                      size_t valid);

// What libdstrace_cupti.so answers with.
struct DstraceCuptiClient {
  uint32_t version;
  uint32_t size;
  // Before the program's first own CUPTI call goes on: hands back our buffers
  // and disables what we enabled. Only the first call does anything.
  void (*step_aside)() noexcept;
  // The function to register with CUPTI in place of the program's `complete`:
  // a buffer of ours that CUPTI still had never reaches the program.
  DstraceCuptiComplete (*complete_for)(DstraceCuptiComplete complete) noexcept;
  // At exit(), before the driver goes: the last totals.
  void (*finish)() noexcept;
};

// Exported by libdstrace_cupti.so.
using DstraceCuptiStart =
    const DstraceCuptiClient*(const DstraceCuptiHost* host) noexcept;

}  // extern "C"

#endif  // DSTRACE_PRELOAD_CAPTURE_CUPTI_SEAM_H_
