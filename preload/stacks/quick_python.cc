// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/quick_python.h"

#include <pthread.h>

namespace dstrace::stacks {

constinit QuickPython g_quick_python{};

namespace {

using internal::ThreadWord;

// glibc keeps the values of the first 32 keys in the thread's descriptor,
// {sequence, value} each. Where is not part of its interface, so it is found
// by setting one.
constexpr pthread_key_t kKeysInDescriptor = 32;
constexpr uintptr_t kBytesOfKey = 2 * sizeof(uintptr_t);
// All of it lies in the descriptor, which is 2 304 bytes since glibc 2.26.
constexpr uintptr_t kFirstOffset = 0x100;
constexpr uintptr_t kLastOffset = 0x700;

// The only place that holds `value`; 0 where there is none or more than one.
uintptr_t PlaceOf(const void* value) noexcept {
  uintptr_t found = 0;
  for (uintptr_t at = kFirstOffset; at < kLastOffset; at += sizeof(uintptr_t)) {
    if (ThreadWord(at) != reinterpret_cast<uintptr_t>(value)) continue;
    if (found != 0) return 0;
    found = at;
  }
  return found;
}

uintptr_t PlaceOfKey(pthread_key_t key) noexcept {
  static const char kMarks[2] = {};
  uintptr_t places[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (pthread_setspecific(key, &kMarks[i]) != 0) return 0;
    places[i] = PlaceOf(&kMarks[i]);
  }
  pthread_setspecific(key, nullptr);
  return places[0] == places[1] ? places[0] : 0;
}

// Where the value of key 0 is; 0: not known.
uintptr_t PlaceOfFirstKey() noexcept {
  pthread_key_t key;
  if (pthread_key_create(&key, nullptr) != 0) return 0;
  const uintptr_t place = key < kKeysInDescriptor ? PlaceOfKey(key) : 0;
  pthread_key_delete(key);
  return place == 0 ? 0 : place - key * kBytesOfKey;
}

}  // namespace

void LearnQuickPython(const PythonRuntime& python) noexcept {
  const PyLayout& layout = python.layout;
  QuickPython& quick = g_quick_python;
  quick.finalizing = python.runtime + layout.runtime_finalizing;
  quick.key_at = python.runtime + layout.runtime_thread_key;
  quick.key = Load<uint64_t>(quick.key_at);
  const auto is_initialized = static_cast<uint32_t>(quick.key);
  const auto key = static_cast<uint32_t>(quick.key >> 32);
  const uintptr_t first = PlaceOfFirstKey();
  if (is_initialized != 1 || key >= kKeysInDescriptor || first == 0) return;
  quick.slot = first + key * kBytesOfKey;
  const auto thread_state = reinterpret_cast<uintptr_t>(python.this_thread());
  if (thread_state == 0 || ThreadWord(quick.slot) != thread_state) return;
  quick.has_cframe = layout.has_cframe;
  quick.thread_frame = layout.thread_frame;
  quick.cframe_frame = layout.cframe_frame;
  quick.layout = &layout;
  // release: pairs with the acquire in QuickTopFrame().
  quick.usable.store(true, std::memory_order_release);
}

}  // namespace dstrace::stacks
