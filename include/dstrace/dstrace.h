/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DSTRACE_DSTRACE_H_
#define DSTRACE_DSTRACE_H_

/* Tells dstrace where your program is:
 *
 *   dstrace_push("load");
 *   load_model();
 *   dstrace_pop();
 *   dstrace_mark("first step");
 *
 * and later: dstrace-report run.pb --at "mark:first step".
 *
 * Link with nothing: the functions are in libdstrace.so, which is there when
 * the program runs under it; without it each macro is one test of a null
 * pointer. Names are copied, UTF-8, at most 2 048 bytes. A range belongs to the
 * thread that opened it.
 *
 * Thread-safe. Only marks made in a process that uses CUDA are recorded:
 * points from its first CUDA call on, ranges also when they were open then.
 */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
__attribute__((weak)) void dstrace_mark(const char* name);
__attribute__((weak)) void dstrace_push(const char* name);
__attribute__((weak)) void dstrace_pop(void);
#else
#error "dstrace.h needs weak symbols: GCC or Clang on ELF"
#endif

static inline void dstrace_mark_if_traced(const char* name) {
  if (dstrace_mark) dstrace_mark(name);
}
static inline void dstrace_push_if_traced(const char* name) {
  if (dstrace_push) dstrace_push(name);
}
static inline void dstrace_pop_if_traced(void) {
  if (dstrace_pop) dstrace_pop();
}

#ifdef __cplusplus
}
#endif

/* From here on the plain names do nothing in a program that is not traced. */
#define dstrace_mark(name) dstrace_mark_if_traced(name)
#define dstrace_push(name) dstrace_push_if_traced(name)
#define dstrace_pop() dstrace_pop_if_traced()

#endif /* DSTRACE_DSTRACE_H_ */
