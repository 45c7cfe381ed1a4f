// SPDX-License-Identifier: Apache-2.0
//
// A library that is loaded, called and unloaded again and again. Built twice
// with different stack frames but functions at the same places.

extern "C" __attribute__((visibility("default"))) int reloaded_call(
    int (*callback)(void*), void* argument) {
  volatile char frame[DSTRACE_RELOADED_FRAME_SIZE];
  frame[0] = 1;
  frame[sizeof(frame) - 1] = 2;
  const int result = callback(argument);
  return result + frame[0];
}
