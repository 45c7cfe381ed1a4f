// SPDX-License-Identifier: Apache-2.0
//
// libdstrace_cupti.so: asks CUPTI for a record of each allocation and free,
// adds them up, and gives CUPTI back as soon as the program wants it.
//
//   start() --> running --step_aside()--> aside
//                  '------finish()------> ended
//
// No thread of ours and no lock: CUPTI calls back from threads of its own and
// under locks of its own, so nothing here waits for anything while CUPTI is
// being called.

#include <unistd.h>

#include <atomic>

#include "cupti/buffers.h"
#include "cupti/counters.h"
#include "cupti/cupti_abi.h"
#include "cupti/library.h"
#include "preload/capture/cupti_seam.h"

namespace dstrace::cupti {
namespace {

enum class State : uint32_t { kIdle, kRunning, kAside, kEnded };

// Written by Start() before CUPTI or anybody else is told of our functions.
const DstraceCuptiHost* g_host = nullptr;
Functions g_cupti;
uint32_t g_version = 0;
pid_t g_process = 0;

std::atomic<State> g_state{State::kIdle};
std::atomic<BufferCompleted> g_programs_complete{nullptr};
std::atomic<uint64_t> g_completed{0};
Buffers g_buffers;
Counters g_counters;

void WriteTotals(bool stopped) noexcept {
  const capture::CuptiTotals totals = g_counters.Read(g_version, stopped);
  g_host->record_totals(&totals);
}

// After the `completed`-th buffer: often at first, then at each doubling. The
// process's chunk of the trace has room for so many.
bool TotalsAreDue(uint64_t completed) noexcept {
  constexpr uint64_t kAlways = 32;
  return completed <= kAlways || (completed & (completed - 1)) == 0;
}

void OnBufferRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = g_buffers.Take();
  *size = *buffer == nullptr ? 0 : Buffers::kBytes;
  *max_records = 0;  // as many as fit
}

void ReadRecords(uint8_t* buffer, size_t valid) noexcept {
  const RecordSizes sizes = SizesOf(g_version);
  uint8_t* record = nullptr;
  while (g_cupti.cuptiActivityGetNextRecord(buffer, valid, &record) ==
         kSuccess) {
    if (record < buffer || record >= buffer + valid) return;
    g_counters.Add(record, static_cast<size_t>(buffer + valid - record), sizes);
  }
}

void AddDropped(void* context, uint32_t stream) noexcept {
  size_t dropped = 0;
  if (g_cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) ==
      kSuccess) {
    g_counters.AddDropped(dropped);
  }
}

void OnBufferCompleted(void* context, uint32_t stream, uint8_t* buffer, size_t,
                       size_t valid) {
  if (buffer == nullptr) return;
  if (valid <= Buffers::kBytes) ReadRecords(buffer, valid);
  // Asking resets CUPTI's count, which is the program's once we stepped aside.
  // acquire: pairs with the release in Start(), as all loads of g_state.
  const State state = g_state.load(std::memory_order_acquire);
  if (state != State::kAside) AddDropped(context, stream);
  g_buffers.Return(buffer);
  // relaxed: a count.
  if (TotalsAreDue(g_completed.fetch_add(1, std::memory_order_relaxed) + 1)) {
    WriteTotals(state == State::kAside);
  }
}

// Registered in place of the program's function. The program's buffers are its
// own; one of ours that CUPTI had kept is unknown to it.
void OnAnyBufferCompleted(void* context, uint32_t stream, uint8_t* buffer,
                          size_t size, size_t valid) {
  if (g_buffers.Owns(buffer)) {
    OnBufferCompleted(context, stream, buffer, size, valid);
    return;
  }
  // acquire: pairs with the release in CompleteFor().
  const BufferCompleted complete =
      g_programs_complete.load(std::memory_order_acquire);
  if (complete != nullptr) complete(context, stream, buffer, size, valid);
}

// True for the one caller that ends the running state. A child of fork() has
// CUPTI's memory but not its threads: it must not call it.
bool TakeOver(State next) noexcept {
  if (getpid() != g_process) return false;
  State running = State::kRunning;
  // acq_rel: pairs with the release in Start() and the acquires elsewhere.
  return g_state.compare_exchange_strong(
      running, next, std::memory_order_acq_rel, std::memory_order_acquire);
}

void StepAside() noexcept {
  if (!TakeOver(State::kAside)) return;
  g_cupti.cuptiActivityDisable(kKindMemory2);
  g_cupti.cuptiActivityDisable(kKindMemoryPool);
  g_cupti.cuptiActivityFlushAll(kFlushForced);
  AddDropped(nullptr, 0);
  WriteTotals(true);
}

DstraceCuptiComplete CompleteFor(DstraceCuptiComplete complete) noexcept {
  // release: pairs with the acquire in OnAnyBufferCompleted().
  g_programs_complete.store(complete, std::memory_order_release);
  return complete == nullptr ? nullptr : &OnAnyBufferCompleted;
}

void Finish() noexcept {
  if (!TakeOver(State::kEnded)) return;
  g_cupti.cuptiActivityFlushAll(kFlushForced);
  AddDropped(nullptr, 0);
  WriteTotals(false);
}

constexpr DstraceCuptiClient kClient = {kDstraceCuptiSeam,
                                        sizeof(DstraceCuptiClient), &StepAside,
                                        &CompleteFor, &Finish};

// Null, or why not. Pools came with CUDA 11.2: a CUPTI without them is kept.
const char* Enable() noexcept {
  if (g_cupti.cuptiGetVersion(&g_version) != kSuccess) {
    return "CUPTI does not say its version";
  }
  if (g_cupti.cuptiActivityRegisterCallbacks(&OnBufferRequested,
                                             &OnBufferCompleted) != kSuccess ||
      g_cupti.cuptiActivityEnable(kKindMemory2) != kSuccess) {
    return "CUPTI does not start (no driver, or another tool has it)";
  }
  g_cupti.cuptiActivityEnable(kKindMemoryPool);
  return nullptr;
}

bool Matches(const DstraceCuptiHost* host) noexcept {
  return host != nullptr && host->version == kDstraceCuptiSeam &&
         host->size == sizeof(DstraceCuptiHost);
}

const DstraceCuptiClient* Start(const DstraceCuptiHost* host) noexcept {
  if (!Matches(host)) return nullptr;
  g_host = host;
  g_process = getpid();
  const char* why = nullptr;
  if (LoadCupti(*host, &g_cupti, &why)) why = Enable();
  if (why != nullptr) {
    host->say("without CUPTI: ", why);
    host->record_property("cupti", why);
    return nullptr;
  }
  WriteTotals(false);  // all zero: from here on the two are comparable
  // release: pairs with the acquires of g_state.
  g_state.store(State::kRunning, std::memory_order_release);
  host->record_property("cupti", "running");
  return &kClient;
}

}  // namespace
}  // namespace dstrace::cupti

extern "C" __attribute__((visibility("default"))) const DstraceCuptiClient*
dstrace_cupti_start(const DstraceCuptiHost* host) noexcept {
  return dstrace::cupti::Start(host);
}
