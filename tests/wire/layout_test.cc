// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/trace.pb.h"
#include "proto/wire/records.h"

namespace dstrace::wire {
namespace {

std::vector<uint8_t> MakeChunk(uint32_t committed) {
  std::vector<uint8_t> chunk(kChunkBytes);
  for (size_t at = 0; at < chunk.size(); at += kPageBytes) {
    PutReservedPage(chunk.data() + at);
  }
  PutChunkHeader(chunk.data(), 4711, 3, 123456789);
  const uint64_t word = ChunkOpeningWord();
  std::memcpy(chunk.data(), &word, sizeof word);
  std::memcpy(chunk.data() + kCommittedOffset, &committed, sizeof committed);
  return chunk;
}

proto::TraceFile Parse(const std::vector<uint8_t>& bytes) {
  proto::TraceFile file;
  EXPECT_TRUE(
      file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return file;
}

TEST(Layout, AReservedPageIsAFieldThatFillsThePage) {
  std::vector<uint8_t> page(kPageBytes);
  PutReservedPage(page.data());
  const proto::TraceFile file = Parse(page);
  EXPECT_EQ(file.chunk_size(), 0);
  EXPECT_EQ(file.reserved().size(), kPageBytes - 6);
}

TEST(Layout, OneWordTurnsReservedPagesIntoAChunk) {
  std::vector<uint8_t> bytes(kChunkBytes + kPageBytes);
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    PutReservedPage(bytes.data() + at);
  }
  PutChunkHeader(bytes.data(), 1, 2, 3);
  EXPECT_EQ(Parse(bytes).chunk_size(), 0) << "not a chunk before the word";

  const uint64_t word = ChunkOpeningWord();
  std::memcpy(bytes.data(), &word, sizeof word);

  const proto::TraceFile file = Parse(bytes);
  ASSERT_EQ(file.chunk_size(), 1);
  EXPECT_EQ(file.reserved().size(), kPageBytes - 6);
}

TEST(Layout, LibprotobufReadsEveryHeaderField) {
  const proto::TraceFile file = Parse(MakeChunk(99));
  ASSERT_EQ(file.chunk_size(), 1);
  EXPECT_EQ(file.chunk(0).committed(), 99u);
  EXPECT_EQ(file.chunk(0).thread(), 4711u);
  EXPECT_EQ(file.chunk(0).sequence(), 3u);
  EXPECT_EQ(file.chunk(0).first_time(), 123456789u);
  EXPECT_EQ(file.chunk(0).last_time(), 0u);
  EXPECT_EQ(file.chunk(0).payload().size(), kPayloadBytes);
  EXPECT_EQ(file.chunk(0).recent().size(), kRecentBytes);
  EXPECT_EQ(file.ByteSizeLong(), Parse(MakeChunk(99)).ByteSizeLong());
}

TEST(Layout, FieldNumbersAreThoseOfTheProto) {
  const auto* records = proto::Records::descriptor();
  const auto number = [records](const char* name) {
    return static_cast<RecordField>(records->FindFieldByName(name)->number());
  };
  EXPECT_EQ(number("tensor_alloc"), RecordField::kTensorAlloc);
  EXPECT_EQ(number("tensor_free"), RecordField::kTensorFree);
  EXPECT_EQ(number("device_event"), RecordField::kDeviceEvent);
  EXPECT_EQ(number("memory_sample"), RecordField::kMemorySample);
  EXPECT_EQ(number("stack"), RecordField::kStack);
  EXPECT_EQ(number("frame"), RecordField::kFrame);
  EXPECT_EQ(number("module"), RecordField::kModule);
  EXPECT_EQ(number("thread"), RecordField::kThread);
  EXPECT_EQ(number("torch_totals"), RecordField::kTorchTotals);
  EXPECT_EQ(number("out_of_memory"), RecordField::kOutOfMemory);
  EXPECT_EQ(number("loss"), RecordField::kLoss);
  EXPECT_EQ(number("header"), RecordField::kHeader);
  EXPECT_EQ(number("string"), RecordField::kString);
  EXPECT_EQ(number("gpu"), RecordField::kGpu);
  EXPECT_EQ(number("stream_event"), RecordField::kStreamEvent);
  EXPECT_EQ(number("property"), RecordField::kProperty);
  EXPECT_EQ(number("mark"), RecordField::kMark);
  EXPECT_EQ(number("end"), RecordField::kEnd);
  EXPECT_EQ(number("padding"), RecordField::kPadding);
  EXPECT_EQ(number("cupti_totals"), RecordField::kCuptiTotals);
  EXPECT_EQ(number("checkpoint"), RecordField::kCheckpoint);
  EXPECT_EQ(number("live_tensor"), RecordField::kLiveTensor);
  EXPECT_EQ(number("live_event"), RecordField::kLiveEvent);
  EXPECT_EQ(number("live_sample"), RecordField::kLiveSample);
  EXPECT_EQ(number("live_totals"), RecordField::kLiveTotals);
  EXPECT_EQ(number("history"), RecordField::kHistory);
}

}  // namespace
}  // namespace dstrace::wire
