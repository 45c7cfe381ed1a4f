// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "tests/fakes/fake_driver.h"

namespace dstrace::fakes {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t standard) {
  const char* text = std::getenv(name);
  return text == nullptr ? standard : std::strtoull(text, nullptr, 10);
}

}  // namespace

State::State()
    : device_count(static_cast<int>(FromEnvironment("FAKE_CUDA_DEVICES", 2))),
      total_bytes(FromEnvironment("FAKE_CUDA_TOTAL_MIB", 8192) << 20),
      context_bytes(FromEnvironment("FAKE_CUDA_CONTEXT_MIB", 304) << 20) {
  if (device_count > kMaxDevices) device_count = kMaxDevices;
  for (int i = 0; i < kMaxDevices; ++i) {
    devices[i].next_address =
        0x300000000000ULL + (static_cast<uint64_t>(i) << 40);
  }
}

State& State::Get() {
  // Never destroyed: hosts call CUDA from their own exit handlers.
  static State& state = *new State;
  return state;
}

bool State::Take(int device, uint64_t bytes) {
  if (device < 0) return true;
  if (total_bytes - devices[device].used < bytes) return false;
  devices[device].used += bytes;
  return true;
}

void State::Give(int device, uint64_t bytes) {
  if (device >= 0) devices[device].used -= bytes;
}

uint64_t State::NewAddress(int device, uint64_t bytes) {
  Device& owner = devices[device < 0 ? 0 : device];
  std::vector<uint64_t>& freed = owner.freed[bytes];
  if (!freed.empty()) {
    const uint64_t address = freed.back();
    freed.pop_back();
    return address;
  }
  const uint64_t address = owner.next_address;
  // Large blocks start on their own 2 MiB, as the driver's do.
  const uint64_t align = bytes >= (1 << 20) ? 2 << 20 : kGranularity;
  owner.next_address = (address + bytes + align - 1) / align * align;
  return address;
}

void State::OldAddress(int device, uint64_t address, uint64_t bytes) {
  devices[device < 0 ? 0 : device].freed[bytes].push_back(address);
}

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kGranularity - 1) / kGranularity * kGranularity;
}

std::vector<CUcontext>& ContextStack() {
  static thread_local std::vector<CUcontext> stack;
  return stack;
}

CUresult CurrentDevice(State& state, int* device) {
  if (!state.initialized) return kNotInitialized;
  const std::vector<CUcontext>& stack = ContextStack();
  if (stack.empty() || stack.back() == nullptr) return kInvalidContext;
  const auto found = state.contexts.find(stack.back());
  if (found == state.contexts.end()) return kInvalidContext;
  *device = found->second.device;
  return kOk;
}

CUresult Allocate(uint64_t bytes, Use use, uint64_t pool, uint64_t* address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (address == nullptr || bytes == 0) return kInvalidValue;
  const uint64_t rounded = RoundUp(bytes);
  if (rounded < bytes || !state.Take(device, rounded)) return kOutOfMemory;
  if (use == Use::kPool) state.devices[device].pool_reserved += rounded;
  *address = state.NewAddress(device, rounded);
  state.ranges[*address] = {rounded, device, use, pool};
  return kOk;
}

CUresult Release(uint64_t address, bool from_pool) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  if (address == 0) return kOk;
  const auto found = state.ranges.find(address);
  if (found == state.ranges.end()) return kInvalidValue;
  const Range range = found->second;
  const bool is_pool = range.use == Use::kPool;
  if (range.use > Use::kPool || (from_pool && !is_pool)) return kInvalidValue;
  state.Give(range.device, range.size);
  if (is_pool) state.devices[range.device].pool_reserved -= range.size;
  state.OldAddress(range.device, address, range.size);
  state.ranges.erase(found);
  return kOk;
}

CUresult CreateObject(uint64_t bytes, uint64_t* handle) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (handle == nullptr) return kInvalidValue;
  const uint64_t rounded = RoundUp(bytes);
  if (!state.Take(device, rounded)) return kOutOfMemory;
  *handle = state.NewHandle();
  state.objects[*handle] = {rounded, device};
  return kOk;
}

CUresult DestroyObject(uint64_t handle) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  const auto found = state.objects.find(handle);
  if (found == state.objects.end()) return kInvalidHandle;
  state.Give(found->second.device, found->second.size);
  state.objects.erase(found);
  return kOk;
}

}  // namespace dstrace::fakes
