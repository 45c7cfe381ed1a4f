/* SPDX-License-Identifier: Apache-2.0
 *
 * A C program that uses dstrace/dstrace.h and links nothing of dstrace.
 *
 *   marks_program none     marks only, no CUDA
 *   marks_program cuda     marks around two allocations
 */
#include <stdio.h>
#include <string.h>

#include "dstrace/dstrace.h"

int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);

int main(int argc, char** argv) {
  void* first = NULL;
  void* second = NULL;
  dstrace_mark("too early");
  dstrace_push("load");
  if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
    if (cudaMalloc(&first, 1 << 20) != 0) return 1;
    dstrace_mark("half");
    if (cudaMalloc(&second, 2 << 20) != 0) return 1;
    cudaFree(first);
    cudaFree(second);
  }
  dstrace_pop();
  puts("done");
  return 0;
}
