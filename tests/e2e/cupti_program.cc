// SPDX-License-Identifier: Apache-2.0
//
// A CUDA program with a fake CUPTI that sees each of its allocations.
//
//   cupti_program plain      uses CUDA only
//   cupti_program missed     CUPTI sees one allocation that no hook sees
//   cupti_program profiler   later profiles itself, as torch.profiler does
//   cupti_program first      takes CUPTI before it uses CUDA
//   cupti_program quick      leaves by _exit()
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tests/fakes/fake_cupti.h"

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
}

namespace {

constexpr uint32_t kMemory2 = 49;
constexpr uint32_t kDevice = 3;

// What a profiler that gets a buffer it never gave away complains of.
uint8_t g_buffer[65536];
int g_records = 0;
int g_unknown_buffers = 0;

void OnRequested(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = g_buffer;
  *size = sizeof g_buffer;
  *records = 0;
}

void OnCompleted(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (buffer != g_buffer) {
    ++g_unknown_buffers;
    return;
  }
  uint8_t* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0) ++g_records;
}

// Makes the context. A real CUPTI would note it inside the call, before it can
// have been enabled.
bool AllocateFirst() {
  void* memory = nullptr;
  return cudaMalloc(&memory, 4096) == 0 && cudaFree(memory) == 0;
}

bool Allocate(size_t size) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, size) != 0) return false;
  FakeCuptiMemory(1, kDevice, reinterpret_cast<uint64_t>(memory), size);
  if (cudaFree(memory) != 0) return false;
  FakeCuptiMemory(2, kDevice, reinterpret_cast<uint64_t>(memory), size);
  return true;
}

bool TakeCupti() {
  void* subscriber = nullptr;
  return cuptiSubscribe(&subscriber, nullptr, nullptr) == 0 &&
         cuptiActivityRegisterCallbacks(&OnRequested, &OnCompleted) == 0 &&
         cuptiActivityEnable(kMemory2) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "plain";
  const auto is = [mode](const char* name) {
    return std::strcmp(mode, name) == 0;
  };
  if (is("first") && !TakeCupti()) return 1;
  if (!AllocateFirst() || !Allocate(1 << 20) || !Allocate(2 << 20)) return 1;
  if (is("missed")) FakeCuptiMemory(1, kDevice, 0x77, 4096);
  if (is("profiler")) {
    if (!TakeCupti() || !Allocate(3 << 20)) return 1;
  }
  if (is("profiler") || is("first")) cuptiActivityFlushAll(0);
  std::printf("%d records, %d unknown buffers\n", g_records, g_unknown_buffers);
  std::fflush(stdout);
  if (is("quick")) _exit(3);
  return 0;
}
