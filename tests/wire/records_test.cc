// SPDX-License-Identifier: Apache-2.0
//
// What the hand-written encoder writes is what libprotobuf reads, record kind
// by record kind.
#include "proto/wire/records.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "proto/trace.pb.h"
#include "proto/wire/slots.h"

namespace dstrace::wire {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

std::string Encode(const std::function<void(Encoder&)>& put) {
  std::vector<uint8_t> buffer(20000);
  Encoder out(buffer.data(), buffer.data() + buffer.size());
  put(out);
  EXPECT_TRUE(out.ok());
  return {reinterpret_cast<const char*>(buffer.data()), out.size()};
}

proto::Records Parse(const std::function<void(Encoder&)>& put) {
  proto::Records records;
  EXPECT_TRUE(records.ParseFromString(Encode(put)));
  EXPECT_TRUE(records.GetReflection()->GetUnknownFields(records).empty());
  return records;
}

// Reads back the varints of a tuple record.
std::vector<uint64_t> Varints(const std::string& bytes) {
  std::vector<uint64_t> values;
  for (size_t i = 0; i < bytes.size();) {
    uint64_t value = 0;
    int shift = 0;
    uint8_t byte = 0;
    do {
      byte = static_cast<uint8_t>(bytes[i++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
    } while ((byte & 0x80) != 0 && i < bytes.size());
    values.push_back(value);
  }
  return values;
}

void PutTensorAlloc(Encoder& out, uint64_t time, uint32_t stack,
                    const BlockRef& block) {
  out.Direct(kMaxTupleBytes, [&](uint8_t* at) {
    return WriteTensor(at, true, time, stack, block);
  });
}
void PutTensorFree(Encoder& out, uint64_t time, const BlockRef& block) {
  out.Direct(kMaxTupleBytes, [&](uint8_t* at) {
    return WriteTensor(at, false, time, 0, block);
  });
}

TEST(Records, TensorAllocOfAKnownBlockIsThreeVarints) {
  const auto records = Parse([](Encoder& out) {
    PutTensorAlloc(out, 1500, 17, {.slot_plus_one = 300});
  });
  ASSERT_EQ(records.tensor_alloc_size(), 1);
  EXPECT_EQ(Varints(records.tensor_alloc(0)),
            (std::vector<uint64_t>{1500, 17, 300}));
}

TEST(Records, TensorAllocOfANewBlockCarriesItInFull) {
  const auto records = Parse([](Encoder& out) {
    PutTensorAlloc(out, kHuge, 0xffffffff,
                   {.address_delta = std::numeric_limits<int64_t>::min(),
                    .size = kHuge,
                    .device = 0x1ff});
  });
  EXPECT_EQ(Varints(records.tensor_alloc(0)),
            (std::vector<uint64_t>{kHuge, 0xffffffff, 0, kHuge, kHuge, 0x1ff}));
}

TEST(Records, TheLargestTupleFitsItsBound) {
  const std::string bytes = Encode([](Encoder& out) {
    PutTensorAlloc(out, kHuge, 0xffffffff,
                   {.address_delta = std::numeric_limits<int64_t>::min(),
                    .size = kHuge,
                    .device = 0xffffffff});
  });
  EXPECT_LE(bytes.size(), kMaxTupleBytes);
}

// The worked example of proto/FORMAT.md, byte for byte.
TEST(Records, TensorEventsAreTheBytesOfTheFormatPage) {
  const std::string bytes = Encode([](Encoder& out) {
    PutTensorAlloc(
        out, 1500, 17,
        {.address_delta = 0x7F0000000200, .size = 2048, .device = 256});
    PutTensorFree(out, 900, {.slot_plus_one = 1});
    PutTensorAlloc(out, 700, 300, {.slot_plus_one = 1});
    PutTensorAlloc(out, 800, 17,
                   {.address_delta = 0x20000,
                    .size = 1024,
                    .device = 256,
                    .is_short = true});
  });
  const uint8_t expected[] = {
      0x0A, 0x0F, 0xDC, 0x0B, 0x11, 0x00, 0x80, 0x88, 0x80,
      0x80, 0x80, 0xC0, 0x3F, 0x80, 0x10, 0x80, 0x02,  //
      0x12, 0x03, 0x84, 0x07, 0x01,                    //
      0x0A, 0x05, 0xBC, 0x05, 0xAC, 0x02, 0x01,        //
      0x0A, 0x07, 0xA0, 0x06, 0x11, 0x00, 0x80, 0x04, 0x02};
  EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(expected),
                               sizeof expected));
}

TEST(Records, TensorFreeIsTwoVarintsOrTheBlock) {
  const auto records = Parse([](Encoder& out) {
    PutTensorFree(out, 3, {.slot_plus_one = 4096});
    PutTensorFree(out, 0, {.address_delta = -512, .size = 1024, .device = 256});
  });
  ASSERT_EQ(records.tensor_free_size(), 2);
  EXPECT_EQ(Varints(records.tensor_free(0)), (std::vector<uint64_t>{3, 4096}));
  EXPECT_EQ(Varints(records.tensor_free(1)),
            (std::vector<uint64_t>{0, 0, 1023, 1024, 256}));
}

TEST(Records, AShortLiteralCountsInUnitsAndHasNoDevice) {
  const auto records = Parse([](Encoder& out) {
    PutTensorFree(out, 0,
                  {.address_delta = -1024, .size = 1536, .is_short = true});
  });
  EXPECT_EQ(Varints(records.tensor_free(0)),
            (std::vector<uint64_t>{0, 0, 3, 3}));
}

TEST(Records, StreamEventIsFourVarints) {
  const auto records =
      Parse([](Encoder& out) { PutStreamEvent(out, 9, 1, 0x7f00aa, 0x55); });
  EXPECT_EQ(Varints(records.stream_event(0)),
            (std::vector<uint64_t>{9, 1, 0x7f00aa, 0x55}));
}

TEST(Records, DeviceEventKeepsEveryField) {
  const auto records = Parse([](Encoder& out) {
    PutDeviceEvent(out, {.time = 1,
                         .kind = 6,
                         .api = 3,
                         .address = 0x7f0000000000,
                         .size = 2 << 20,
                         .stack = 5,
                         .device = -2,
                         .handle = 77,
                         .stream = 88,
                         .pool = 99,
                         .offset = 111,
                         .flags = kHuge,
                         .result = -7,
                         .label = 4,
                         .free_bytes = 1000,
                         .total_bytes = 2000});
  });
  ASSERT_EQ(records.device_event_size(), 1);
  const auto& event = records.device_event(0);
  EXPECT_EQ(event.time(), 1u);
  EXPECT_EQ(event.kind(), proto::DeviceEvent::PHYSICAL_CREATE);
  EXPECT_EQ(event.api(), 3u);
  EXPECT_EQ(event.address(), 0x7f0000000000u);
  EXPECT_EQ(event.size(), 2u << 20);
  EXPECT_EQ(event.stack(), 5u);
  EXPECT_EQ(event.device(), -2);
  EXPECT_EQ(event.handle(), 77u);
  EXPECT_EQ(event.stream(), 88u);
  EXPECT_EQ(event.pool(), 99u);
  EXPECT_EQ(event.offset(), 111u);
  EXPECT_EQ(event.flags(), kHuge);
  EXPECT_EQ(event.result(), -7);
  EXPECT_EQ(event.label(), 4u);
  EXPECT_EQ(event.free_bytes(), 1000u);
  EXPECT_EQ(event.total_bytes(), 2000u);
}

TEST(Records, DeviceEventOfHugeNumbersFitsItsBound) {
  const std::string bytes = Encode([](Encoder& out) {
    PutDeviceEvent(out, {.time = kHuge,
                         .kind = 30,
                         .api = 0xffffffff,
                         .address = kHuge,
                         .size = kHuge,
                         .stack = 0xffffffff,
                         .device = std::numeric_limits<int64_t>::min(),
                         .handle = kHuge,
                         .stream = kHuge,
                         .pool = kHuge,
                         .offset = kHuge,
                         .flags = kHuge,
                         .result = std::numeric_limits<int64_t>::min(),
                         .label = 0xffffffff,
                         .free_bytes = kHuge,
                         .total_bytes = kHuge});
  });
  EXPECT_LE(bytes.size(), kMaxDeviceEventBytes);
}

TEST(Records, SamplesTotalsAndOutOfMemoryKeepTheirNumbers) {
  const auto records = Parse([](Encoder& out) {
    PutMemorySample(out, 10, -1, 30, 40, 3);
    PutTorchTotals(out, 11, 0x101, 31, 41);
    PutOutOfMemory(out, 12, 0x100, 32, 42, 52, 62);
  });
  EXPECT_EQ(records.memory_sample(0).time(), 10u);
  EXPECT_EQ(records.memory_sample(0).device(), -1);
  EXPECT_EQ(records.memory_sample(0).free_bytes(), 30u);
  EXPECT_EQ(records.memory_sample(0).total_bytes(), 40u);
  EXPECT_EQ(records.memory_sample(0).reason(), proto::MemorySample::OOM);
  EXPECT_EQ(records.torch_totals(0).device(), 0x101u);
  EXPECT_EQ(records.torch_totals(0).allocated(), 31u);
  EXPECT_EQ(records.torch_totals(0).reserved(), 41u);
  EXPECT_EQ(records.out_of_memory(0).size(), 32u);
  EXPECT_EQ(records.out_of_memory(0).allocated(), 42u);
  EXPECT_EQ(records.out_of_memory(0).reserved(), 52u);
  EXPECT_EQ(records.out_of_memory(0).stack(), 62u);
}

TEST(Records, DefinitionsKeepTextAndNumbers) {
  const std::vector<uint32_t> frames = {1, 300, 70000, 0xffffffff};
  const auto records = Parse([&frames](Encoder& out) {
    PutString(out, 1, "naïve/ファイル.py");
    PutModule(out, 2, 1, 0x1000, 0x2000, std::string_view("\x00\x01\xff", 3));
    PutFrame(out, {.id = 3,
                   .python = true,
                   .pc = 9,
                   .module = 2,
                   .name = 4,
                   .name_offset = 5,
                   .file = 6,
                   .line = 7,
                   .first_line = 8});
    PutStack(out, 4, frames, true);
    PutThread(out, 4711, "worker");
    PutGpu(out, 1, "NVIDIA H200", "GPU-1234", 1ull << 37);
    PutProperty(out, "torch.version", "2.11.0");
    PutMark(out, 5, 1, 2, 3);
    PutEnd(out, 6, 3, -9);
  });
  EXPECT_EQ(records.string(0).value(), "naïve/ファイル.py");
  EXPECT_EQ(records.module(0).build_id(), std::string("\x00\x01\xff", 3));
  EXPECT_EQ(records.module(0).size(), 0x2000u);
  EXPECT_EQ(records.frame(0).kind(), proto::Frame::PYTHON);
  EXPECT_EQ(records.frame(0).first_line(), 8u);
  EXPECT_EQ(std::vector<uint32_t>(records.stack(0).frame().begin(),
                                  records.stack(0).frame().end()),
            frames);
  EXPECT_TRUE(records.stack(0).truncated());
  EXPECT_EQ(records.thread(0).tid(), 4711u);
  EXPECT_EQ(records.gpu(0).total_bytes(), 1ull << 37);
  EXPECT_EQ(records.property(0).value(), "2.11.0");
  EXPECT_EQ(records.mark(0).domain(), 3u);
  EXPECT_EQ(records.end(0).status(), -9);
}

TEST(Records, CuptiTotalsKeepTheirNumbers) {
  const CuptiKindFields kinds[] = {{3, 4, kHuge, 6, 7}, {5, 0, 0, 8, 9}};
  const auto records = Parse([&kinds](Encoder& out) {
    PutCuptiTotals(out, {.time = 1,
                         .version = 130001,
                         .kinds = kinds,
                         .pool_operations = 2,
                         .correlated = 3,
                         .dropped = 4,
                         .unknown = 5,
                         .stopped = true});
  });
  const proto::CuptiTotals& totals = records.cupti_totals(0);
  EXPECT_EQ(totals.time(), 1u);
  EXPECT_EQ(totals.version(), 130001u);
  ASSERT_EQ(totals.kind_size(), 2);
  EXPECT_EQ(totals.kind(0).kind(), 3u);
  EXPECT_EQ(totals.kind(0).allocations(), 4u);
  EXPECT_EQ(totals.kind(0).allocated_bytes(), kHuge);
  EXPECT_EQ(totals.kind(0).frees(), 6u);
  EXPECT_EQ(totals.kind(0).freed_bytes(), 7u);
  EXPECT_EQ(totals.kind(1).freed_bytes(), 9u);
  EXPECT_EQ(totals.pool_operations(), 2u);
  EXPECT_EQ(totals.correlated(), 3u);
  EXPECT_EQ(totals.dropped(), 4u);
  EXPECT_EQ(totals.unknown(), 5u);
  EXPECT_TRUE(totals.stopped());
}

TEST(Records, CuptiTotalsAreTheBytesOfTheFormatsPage) {
  const CuptiKindFields kinds[] = {{3, 2, 4196, 1, 4096}};
  EXPECT_EQ(Encode([&kinds](Encoder& out) {
              PutCuptiTotals(out,
                             {.time = 1000, .version = 130001, .kinds = kinds});
            }),
            std::string("\xA2\x01\x96\x00\x08\xE8\x07\x10\xD1\xF7\x07"
                        "\x1A\x8C\x00\x08\x03\x10\x02\x18\xE4\x20\x20"
                        "\x01\x28\x80\x20",
                        26));
}

TEST(Records, WhatWasLiveKeepsItsNumbers) {
  const auto records = Parse([](Encoder& out) {
    PutCheckpoint(out, kHuge, 5);
    PutLiveEvent(out, 7, {.time = kHuge, .kind = 8, .address = 9});
    PutMemorySample(out, kHuge, 1, 2, 3, 2, RecordField::kLiveSample);
    PutTorchTotals(out, kHuge, 0x101, 4, 5, RecordField::kLiveTotals);
  });
  EXPECT_EQ(records.checkpoint(0).time(), kHuge);
  EXPECT_EQ(records.checkpoint(0).tracer_bytes(), 5u);
  EXPECT_EQ(records.live_event(0).thread(), 7u);
  EXPECT_EQ(records.live_event(0).event().time(), kHuge);
  EXPECT_EQ(records.live_event(0).event().kind(), proto::DeviceEvent::MAP);
  EXPECT_EQ(records.live_event(0).event().address(), 9u);
  EXPECT_EQ(records.live_sample(0).time(), kHuge);
  EXPECT_EQ(records.live_sample(0).total_bytes(), 3u);
  EXPECT_EQ(records.live_totals(0).reserved(), 5u);
  EXPECT_EQ(records.memory_sample_size() + records.torch_totals_size(), 0);
}

TEST(Records, ALiveTensorIsTheBytesOfTheFormatsPage) {
  EXPECT_EQ(Encode([](Encoder& out) {
              PutLiveTensor(out, {.age = 300,
                                  .thread = 7,
                                  .stack = 17,
                                  .address = 0x200,
                                  .size = 2048,
                                  .device = 256});
            }),
            std::string("\xB2\x01\x0A\xAC\x02\x07\x11\x80\x04\x80\x10"
                        "\x80\x02",
                        13));
}

TEST(Records, AHistorySlotIsAWordThatCanBeStoredToInPlace) {
  alignas(8) uint8_t buffer[kHistorySlotBytes];
  Encoder out(buffer, buffer + sizeof buffer);
  PutHistorySlot(out, 4 << 20);
  ASSERT_TRUE(out.ok());
  static_assert(kHistorySlotStart % 8 == 0);
  std::memcpy(buffer + kHistorySlotStart, &kHuge, sizeof kHuge);
  proto::Records records;
  ASSERT_TRUE(records.ParseFromArray(buffer, sizeof buffer));
  EXPECT_EQ(records.history(0).start(), kHuge);
  EXPECT_EQ(records.history(0).limit(), 4u << 20);
}

TEST(Records, ALossSlotIsAWordThatCanBeAddedToInPlace) {
  alignas(8) uint8_t buffer[kLossSlotBytes];
  Encoder out(buffer, buffer + sizeof buffer);
  PutLossSlot(out, 7);
  ASSERT_TRUE(out.ok());
  uint64_t count = 123456789012345;
  std::memcpy(buffer + kLossSlotCount, &count, sizeof count);

  proto::Records records;
  ASSERT_TRUE(records.ParseFromArray(buffer, sizeof buffer));

  ASSERT_EQ(records.loss_size(), 1);
  EXPECT_EQ(records.loss(0).cause(), proto::Loss::UNMATCHED_FREE);
  EXPECT_EQ(records.loss(0).count(), count);
}

TEST(Records, PaddingOfAnyLengthIsSkipped) {
  for (size_t bytes = 3; bytes < 20; ++bytes) {
    const std::string encoded = Encode([bytes](Encoder& out) {
      PutPadding(out, bytes);
      PutEnd(out, 1, 1, 0);
    });
    proto::Records records;
    ASSERT_TRUE(records.ParseFromString(encoded));
    EXPECT_EQ(records.padding().size(), bytes - 3);
    EXPECT_EQ(records.end_size(), 1);
  }
}

TEST(Records, WhatDoesNotFitIsRefusedAndNothingIsOverrun) {
  std::vector<uint8_t> buffer(64, 0xEE);
  Encoder out(buffer.data(), buffer.data() + 32);
  PutString(out, 1, std::string(100, 'x'));
  EXPECT_FALSE(out.ok());
  for (size_t i = 32; i < buffer.size(); ++i) EXPECT_EQ(buffer[i], 0xEE);
}

TEST(Records, AMessageLongerThanItsLengthFieldIsRefused) {
  std::vector<uint8_t> buffer(40000);
  Encoder out(buffer.data(), buffer.data() + buffer.size());
  PutString(out, 1, std::string(Encoder::kMaxMessageBytes + 1, 'x'));
  EXPECT_FALSE(out.ok());
}

}  // namespace
}  // namespace dstrace::wire
