// SPDX-License-Identifier: Apache-2.0
//
// A program annotated with NVIDIA's own NVTX header, as torch's C++ code is.
//
//   nvtx_program none    NVTX only, no CUDA
//   nvtx_program cuda    NVTX around allocations, also from another thread
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstring>
#include <thread>

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
}

namespace {

bool Allocate() {
  void* memory = nullptr;
  return cudaMalloc(&memory, 1 << 20) == 0 && cudaFree(memory) == 0;
}

void InDomain() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("DeepSpeed");
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "gather");
  nvtxDomainRangePushEx(domain, &event);
  nvtxDomainRangePop(domain);
}

}  // namespace

int main(int argc, char** argv) {
  const bool cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  const int level = nvtxRangePushA("outer");
  if (cuda && !Allocate()) return 1;
  nvtxMarkA("warm");
  InDomain();
  const nvtxRangeId_t id = nvtxRangeStartA("copy");
  std::thread([id] { nvtxRangeEnd(id); }).join();
  nvtxRangePop();
  std::printf("level %d\n", level);
  return 0;
}
