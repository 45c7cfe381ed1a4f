// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "preload/capture/hash.h"
#include "preload/capture/id_table.h"
#include "preload/capture/thread_state.h"
#include "preload/capture/torch_totals.h"
#include "preload/runtime/memory.h"

namespace dstrace::capture {
namespace {

TEST(Hash, DistinguishesStacksThatDifferInOneWordOrInLength) {
  std::vector<uint64_t> words(40);
  for (size_t i = 0; i < words.size(); ++i) words[i] = 0x7f0000001000 + i * 64;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto add = [&seen](const Key& key) {
    return seen.emplace(key.low, key.high).second;
  };
  EXPECT_TRUE(add(HashWords(words, 1)));
  EXPECT_TRUE(add(HashWords(words, 2)));
  for (size_t length = 0; length < words.size(); ++length) {
    EXPECT_TRUE(add(HashWords({words.data(), length}, 1)));
  }
  for (size_t i = 0; i < words.size(); ++i) {
    for (const uint64_t change : {uint64_t{1}, uint64_t{1} << 40}) {
      words[i] ^= change;
      EXPECT_TRUE(add(HashWords(words, 1))) << i;
      words[i] ^= change;
    }
  }
}

TEST(Hash, DistinguishesTextsOfAnyLength) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    const Key key = HashText(text, 1);
    EXPECT_TRUE(seen.emplace(key.low, key.high).second) << i;
    text += static_cast<char>(i % 2 == 0 ? '\0' : 'x');
  }
}

TEST(IdTable, AgreesWithAMapThroughGrowth) {
  IdTable table;
  std::unordered_map<uint64_t, uint32_t> oracle;
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t value = random() % 60000;
    const Key key = HashWords({&value, 1}, 0);
    const uint32_t found = table.Find(key);
    const auto known = oracle.find(value);
    ASSERT_EQ(found, known == oracle.end() ? 0 : known->second);
    if (found == 0) {
      const uint32_t id = table.Add(key);
      ASSERT_EQ(id, oracle.size() + 1);
      oracle[value] = id;
    }
  }
  table.Clear();
  EXPECT_EQ(table.Find({1, 2}), 0u);
}

TEST(IdTable, StopsAtItsLimitAndKeepsWhatItHas) {
  IdTable table;
  table.set_limit(5000);
  const auto key = [](uint64_t value) { return HashWords({&value, 1}, 0); };
  for (uint64_t i = 0; i < 6000; ++i) {
    EXPECT_EQ(table.is_full(), i >= 5000) << i;
    ASSERT_EQ(table.Add(key(i)), i < 5000 ? i + 1 : 0) << i;
  }
  for (uint64_t i = 0; i < 6000; ++i) {
    ASSERT_EQ(table.Find(key(i)), i < 5000 ? i + 1 : 0) << i;
  }
  table.Clear();
  EXPECT_EQ(table.Add(key(1)), 1u);
  table.Clear();
}

TEST(IdTable, NeverHasMoreThanItsMemoryIsMeantFor) {
  IdTable table;
  table.set_limit(UINT32_MAX);
  const uint64_t before = runtime::MappedBytes();
  uint64_t count = 0;
  for (Key key{1, 1}; table.Add(key) != 0; key.low += 7) ++count;
  EXPECT_EQ(count, uint64_t{IdTable::kMaxIds});
  EXPECT_EQ(runtime::MappedBytes() - before, uint64_t{96} << 20);
  table.Clear();
  EXPECT_EQ(runtime::MappedBytes(), before);
}

TEST(StackCache, KeepsTheTwoLatestStacksOfASet) {
  auto cache = std::make_unique<StackCache>();
  const Key a{.low = 5, .high = 1};
  const Key b{.low = 5 + 1024, .high = 2};
  const Key c{.low = 5 + 2048, .high = 3};
  cache->Add(a, 1);
  cache->Add(b, 2);
  EXPECT_EQ(cache->Find(a), 1u);
  cache->Add(c, 3);
  EXPECT_EQ(cache->Find(a), 1u) << "was used after b";
  EXPECT_EQ(cache->Find(b), 0u);
  EXPECT_EQ(cache->Find(c), 3u);
}

TEST(TorchTotals, AreWrittenOnlyWhenTheyDoNotAddUp) {
  TorchTotals::Reset();
  constexpr uint32_t kCuda0 = 1 << 8;
  EXPECT_FALSE(TorchTotals::Agree(kCuda0, 512, 512, 2 << 20, true))
      << "reserved";
  EXPECT_TRUE(TorchTotals::Agree(kCuda0, 512, 1024, 2 << 20, true));
  EXPECT_TRUE(TorchTotals::Agree(kCuda0, -512, 512, 2 << 20, true));
  EXPECT_FALSE(TorchTotals::Agree(kCuda0, -512, 0, 0, true)) << "reserved";
  EXPECT_FALSE(TorchTotals::Agree(kCuda0, 512, 4096, 0, true))
      << "missed events";
  EXPECT_FALSE(TorchTotals::Agree(kCuda0, 512, 4608, 0, false)) << "lost event";
  EXPECT_TRUE(TorchTotals::Agree(1 << 9, 512, 4, 4, true)) << "not CUDA";
  EXPECT_TRUE(TorchTotals::Agree(0xff, 512, 4, 4, true))
      << "the CPU, without index";
  EXPECT_FALSE(TorchTotals::Agree(kCuda0 + 31, 512, 4, 4, true)) << "the last";
  std::vector<uint32_t> devices;
  TorchTotals::ForEach(
      [&](uint32_t device, uint64_t, uint64_t) { devices.push_back(device); });
  EXPECT_EQ(devices, (std::vector<uint32_t>{kCuda0, kCuda0 + 31}));
}

}  // namespace
}  // namespace dstrace::capture
