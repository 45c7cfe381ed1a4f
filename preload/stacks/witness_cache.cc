// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/witness_cache.h"

namespace dstrace::stacks {
namespace {

// The high half of a product depends on every bit of both factors.
uint64_t Mix(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

WitnessCache::Key WitnessCache::Next(const Key& key, uint32_t mismatch,
                                     uint64_t found) noexcept {
  const uint64_t place = (uint64_t{mismatch} << 32 | 1) * 0x9E3779B97F4A7C15u;
  return {Mix(key.low ^ place, found ^ 0xD6E8FEB86659FD93u),
          Mix(key.high ^ found, place ^ 0xA0761D6478BD642Fu)};
}

void WitnessCache::Add(const Key& key, const StackWitness& witness,
                       uint32_t id) noexcept {
  const auto count = static_cast<uint32_t>(witness.count);
  const uint32_t needed = count + (count + 1) / 2;
  // In one piece: the rest at the end of the storage stays unused.
  const auto rest = static_cast<uint32_t>(kStorage - used_ % kStorage);
  if (rest < needed) used_ += rest;
  uint64_t* const words = storage_ + used_ % kStorage;
  memcpy(words, witness.words, count * sizeof(uint64_t));
  memcpy(words + count, witness.offsets, count * sizeof(uint32_t));
  // The same key again (its words were overwritten), else the older one goes.
  Entry* const set = entries_[key.low % kSets];
  const bool second =
      set[0].key != key && (set[1].key == key || set[1].start < set[0].start);
  set[second ? 1 : 0] = {key, used_, count, id};
  used_ += needed;
}

}  // namespace dstrace::stacks
