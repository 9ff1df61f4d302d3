// The machine that runs PTX: what instructions give where that is easily got wrong, how threads meet, and
// that it finds what kernels may not do. That all of the kernels' instructions are right is what the checks
// of these say, beside the host's bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "halves.hpp"
#include "machine.hpp"
#include "program.hpp"

namespace heddle::test::ptx {
namespace {

std::string kernel(const std::string& body, const std::string& declarations = {}) {
  return ".version 9.0\n.target sm_75\n.visible .entry k(\n\t.param .align 8 .b8 k_param_0[8]\n)\n.maxntid "
         "256, "
         "1, 1\n{\n" +
         declarations + "\tld.param.u64 %rd1, [k_param_0];\n\tmov.u32 %r1, %tid.x;\n" + body + "\tret;\n}\n";
}

// Runs it on `words`, whose address is its parameter.
void run(const std::string& text, std::vector<std::uint64_t>& words, unsigned blocks = 1,
         unsigned threads = 64, std::uint64_t seed = 1) {
  const Program program(text, "k.ptx");
  const auto at = reinterpret_cast<std::uintptr_t>(words.data());
  const Launch launch = {
      program.find("k"), std::as_bytes(std::span(&at, 1)), {{at, words.size() * 8}}, blocks, threads, 100000};
  std::vector<Block> running;
  Machine(program, launch, running, seed).run();
}

std::string error_of(const std::string& text, unsigned blocks = 1) {
  try {
    // What is wrong is found in whatever order threads run.
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
      std::vector<std::uint64_t> words(64);
      run(text, words, blocks, 64, seed);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The word that an instruction makes of up to three others.
std::uint64_t result(const std::string& instruction, std::uint64_t a, std::uint64_t b = 0,
                     std::uint64_t c = 0) {
  std::vector<std::uint64_t> words = {a, b, c, 0};
  run(kernel(
          "\tld.global.u64 %a, [%rd1];\n\tld.global.u64 %b, [%rd1+8];\n\tld.global.u64 %c, [%rd1+16];\n\t" +
          instruction + "\n\tbar.sync 0;\n\tst.global.u64 [%rd1+24], %d;\n"),
      words);
  return words[3];
}
std::uint64_t word(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
std::uint64_t word(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

TEST(PtxInstructions, ShiftsBeyondTheWidth) {
  EXPECT_EQ(result("shl.b32 %d, %a, %b;", 1, 31), 0x80000000U);
  EXPECT_EQ(result("shl.b32 %d, %a, %b;", 1, 32), 0U);
  EXPECT_EQ(result("shl.b64 %d, %a, %b;", 1, 32), std::uint64_t{1} << 32);
  EXPECT_EQ(result("shr.u64 %d, %a, %b;", ~std::uint64_t{0}, 64), 0U);
  EXPECT_EQ(result("shr.s16 %d, %a, %b;", 0x8000, 40) & 0xFFFFU, 0xFFFFU);
  EXPECT_EQ(result("shr.u16 %d, %a, %b;", 0xFFFF8000, 15), 1U);
}

TEST(PtxInstructions, WhatWidthLeaves) {
  EXPECT_EQ(result("add.s32 %d, %a, %b;", 0xFFFFFFFF, 2) & 0xFFFFFFFFU, 1U);
  EXPECT_EQ(result("mul.lo.s16 %d, %a, %b;", 0x1001, 0x10) & 0xFFFFU, 0x10U);
  EXPECT_EQ(result("mul.wide.u32 %d, %a, %b;", 0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE00000001U);
  EXPECT_EQ(result("mul.wide.u16 %d, %a, %b;", 0xFFFF, 0xFFFF), 0xFFFE0001U);
  EXPECT_EQ(result("mad.lo.s32 %d, %a, %b, %c;", 3, 5, 0xFFFFFFFF) & 0xFFFFFFFFU, 14U);
  EXPECT_EQ(result("cvt.s16.s8 %d, %a;", 0x80) & 0xFFFFU, 0xFF80U);
  EXPECT_EQ(result("cvt.u64.u16 %d, %a;", 0x12345), 0x2345U);
  EXPECT_EQ(result("min.s16 %d, %a, %b;", 0xFFFF, 1) & 0xFFFFU, 0xFFFFU);
  EXPECT_EQ(result("min.u16 %d, %a, %b;", 0xFFFF, 1), 1U);
  EXPECT_EQ(result("setp.lt.s32 %d, %a, %b;", 0xFFFFFFFF, 0), 1U);
  EXPECT_EQ(result("setp.lt.u32 %d, %a, %b;", 0xFFFFFFFF, 0), 0U);
}

TEST(PtxInstructions, BitsAndBytes) {
  EXPECT_EQ(result("bfi.b32 %d, %a, %b, 8, 4;", 0xAB, 0xFFFFFFFF), 0xFFFFFBFFU);
  EXPECT_EQ(result("bfi.b64 %d, %a, %b, 32, 32;", 0x11, 0x22), 0x1100000022U);
  EXPECT_EQ(result("bfi.b64 %d, %a, %b, 64, 8;", 0x11, 0x22), 0x22U);
  EXPECT_EQ(result("bfe.u32 %d, %a, 8, 8;", 0x1234F678), 0xF6U);
  EXPECT_EQ(result("bfe.s32 %d, %a, 8, 8;", 0x1234F678) & 0xFFFFFFFFU, 0xFFFFFFF6U);
  EXPECT_EQ(result("bfe.s32 %d, %a, 24, 32;", 0x80000000) & 0xFFFFFFFFU, 0xFFFFFF80U);
  EXPECT_EQ(result("prmt.b32 %d, %a, %b, 0x5410;", 0x33221100, 0x77665544), 0x55441100U);
  EXPECT_EQ(result("prmt.b32 %d, %a, %b, 0xBA98;", 0x80017F80, 0), 0xFF0000FFU);
  EXPECT_EQ(result("popc.b32 %d, %a;", 0xF0F0), 8U);
  EXPECT_EQ(result("mov.b64 %d, {%a, %b};", 0x1FFFFFFFF, 2), 0x2FFFFFFFFU);
  EXPECT_EQ(result("mov.b32 {%x, %d}, %a;", 0x56781234), 0x5678U);
  EXPECT_EQ(result("{ .reg .b16 tmp; mov.b32 {tmp, %d}, %a; }", 0x56781234), 0x5678U);
  EXPECT_EQ(result("selp.b64 %d, %a, %b, %c;", 5, 6, 0), 6U);
}

TEST(PtxInstructions, NansAndZeros) {
  const std::uint64_t nan = 0x7FC12345;
  EXPECT_EQ(result("add.rn.f32 %d, %a, %b;", nan, word(1.0F)), 0x7FFFFFFFU)
      << "as a GPU, which keeps no payload";
  EXPECT_EQ(result("mul.rn.f64 %d, %a, %b;", word(double{NAN}), word(1.0)), 0xFFF8000000000000U);
  EXPECT_EQ(result("max.f64 %d, %a, %b;", word(double{NAN}), word(-1.0)), word(-1.0));
  EXPECT_EQ(result("max.f64 %d, %a, %b;", word(-0.0), word(0.0)), word(0.0));
  EXPECT_EQ(result("max.f64 %d, %a, %b;", word(0.0), word(-0.0)), word(0.0));
  EXPECT_EQ(result("min.f32 %d, %a, %b;", word(0.0F), word(-0.0F)), word(-0.0F));
  EXPECT_EQ(result("fma.rn.f32 %d, %a, %b, %c;", word(1 + 0x1p-23F), word(1 - 0x1p-23F), word(-1.0F)),
            word(-0x1p-46F))
      << "rounded once";
  EXPECT_EQ(result("rcp.rn.f32 %d, %a;", word(-0.0F)), word(-INFINITY));
  EXPECT_EQ(result("copysign.f32 %d, %a, %b;", word(-1.0F), word(5.0F)), word(-5.0F));
  EXPECT_EQ(result("setp.leu.f32 %d, %a, %b;", nan, word(1.0F)), 1U);
  EXPECT_EQ(result("setp.gtu.f32 %d, %a, %b;", nan, word(1.0F)), 1U);
  EXPECT_EQ(result("setp.gtu.f32 %d, %a, %b;", word(1.0F), word(1.0F)), 0U);
  EXPECT_EQ(result("setp.gt.f32 %d, %a, %b;", nan, word(1.0F)), 0U);
  EXPECT_EQ(result("setp.num.f32 %d, %a, %b;", nan, word(1.0F)), 0U);
  EXPECT_EQ(result("setp.nan.f32 %d, %a, %b;", nan, word(1.0F)), 1U);
}

TEST(PtxInstructions, ConversionsOfFloats) {
  EXPECT_EQ(result("cvt.rzi.u32.f32 %d, %a;", word(3.9F)), 3U);
  EXPECT_EQ(result("cvt.rzi.u32.f32 %d, %a;", word(-3.9F)), 0U);
  EXPECT_EQ(result("cvt.rzi.u32.f32 %d, %a;", word(1e20F)), 0xFFFFFFFFU);
  EXPECT_EQ(result("cvt.rzi.u32.f32 %d, %a;", word(NAN)), 0U);
  EXPECT_EQ(result("cvt.rn.f32.s32 %d, %a;", 0xFFFFFFFF), word(-1.0F));
  EXPECT_EQ(result("cvt.rn.f32.f64 %d, %a;", word(1.0 + std::ldexp(1.0, -24))), word(1.0F)) << "ties to even";
  EXPECT_EQ(result("cvt.f32.f16 %d, %a;", 0xC000), word(-2.0F));
  EXPECT_EQ(result("cvt.f32.f16 %d, %a;", 0x0001), word(std::ldexp(1.0F, -24)));
  EXPECT_EQ(result("cvt.f32.f16 %d, %a;", 0x7C01), 0x7FFFFFFFU);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(65519.0F)), 0x7BFFU);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(65520.0F)), 0x7C00U);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(1.0F + std::ldexp(1.0F, -11))), 0x3C00U);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(1.0F + std::ldexp(3.0F, -11))), 0x3C02U);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(-std::ldexp(1.5F, -25))), 0x8001U);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(std::ldexp(1.0F, -25))), 0U);
  EXPECT_EQ(result("cvt.rn.f16.f32 %d, %a;", word(std::ldexp(2047.5F, -25))), 0x0400U);
}

// Each comes back; NaNs as the one that there is then.
TEST(PtxInstructions, EveryHalf) {
  std::vector<std::uint64_t> words(65536);
  run(kernel(R"(
	mov.u32 %r2, %ctaid.x;
	mad.lo.s32 %r3, %r2, 256, %r1;
	mul.wide.u32 %rd2, %r3, 8;
	add.s64 %rd3, %rd1, %rd2;
	cvt.f32.f16 %f1, %r3;
	cvt.rn.f16.f32 %rs1, %f1;
	st.global.u64 [%rd3], %rs1;
)"),
      words, 256, 256);
  for (std::uint64_t half = 0; half < words.size(); ++half)
    EXPECT_EQ(words[half], (half & 0x7FFFU) > 0x7C00U ? 0x7FFFU : half);
}

TEST(PtxInstructions, HalvesTowardsZero) {
  // Between two neighbours, close to either of them.
  for (std::uint16_t half = 0; half < 0x7C00U; half += 7) {
    const float next = half == 0x7BFFU ? INFINITY : float_of_half(static_cast<std::uint16_t>(half + 1));
    for (const float value :
         {float_of_half(half), std::nextafter(float_of_half(half), INFINITY), std::nextafter(next, 0.0F)}) {
      EXPECT_EQ(result("cvt.rz.f16.f32 %d, %a;", word(value)), half) << value;
      EXPECT_EQ(result("cvt.rz.f16.f32 %d, %a;", word(-value)), half | 0x8000U) << value;
    }
  }
  EXPECT_EQ(result("cvt.rz.f16.f32 %d, %a;", word(65536.0F)), 0x7BFFU) << "too large";
  EXPECT_EQ(result("cvt.rz.f16.f32 %d, %a;", word(-INFINITY)), 0xFC00U);
  EXPECT_EQ(result("cvt.rz.f16.f32 %d, %a;", word(-NAN)), 0x7FFFU);
}

TEST(PtxInstructions, ProductsOfTwoHalves) {
  EXPECT_EQ(result("mul.rn.f16x2 %d, %a, %b;", 0xC2003C00, 0x44004000), 0xCA004000U)
      << "-3 times 4, 1 times 2";
  EXPECT_EQ(result("mul.rn.f16x2 %d, %a, %b;", 0x00010003, 0x5C003800), 0x01000002U)
      << "subnormal numbers, and a tie to even";
  EXPECT_EQ(result("mul.rn.f16x2 %d, %a, %b;", 0x7BFF7C01, 0x40003C00), 0x7C007FFFU) << "infinity, NaN";
  EXPECT_EQ(result("mul.rn.f16x2 %d, %a, %b;", 0x80003C01, 0x5C003C01), 0x80003C02U) << "-0, rounded";
}

// ---- Threads that meet

TEST(PtxMachine, ThreadsOfAllBlocksDoTheirPart) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    std::vector<std::uint64_t> words(64 * 9);
    run(kernel(R"(
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %nctaid.x;
	mad.lo.s32 %r4, %r2, 64, %r1;
	mul.wide.u32 %rd2, %r4, 8;
	add.s64 %rd3, %rd1, %rd2;
	cvt.u64.u32 %rd4, %r4;
	setp.eq.s32 %p1, %r3, 9;
	@%p1 bra $L1;
	bra.uni $L2;
$L1:
	st.global.u64 [%rd3], %rd4;
$L2:
)"),
        words, 9, 64, seed);
    for (std::size_t i = 0; i < words.size(); ++i)
      EXPECT_EQ(words[i], i);
  }
}

TEST(PtxMachine, Shuffles) {
  std::vector<std::uint64_t> words(64);
  const std::string store = R"(
	cvt.u64.u32 %rd2, %r2;
	selp.u64 %rd3, 1000, 0, %p1;
	add.s64 %rd4, %rd2, %rd3;
	mul.wide.u32 %rd5, %r1, 8;
	add.s64 %rd6, %rd1, %rd5;
	st.global.u64 [%rd6], %rd4;
)";
  run(kernel("\tshfl.sync.up.b32 %r2|%p1, %r1, 3, 0, -1;\n" + store), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], t % 32 < 3 ? t : t - 3 + 1000);
  run(kernel("\tshfl.sync.bfly.b32 %r2|%p1, %r1, 16, 31, -1;\n" + store), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], (t ^ 16U) + 1000);
  run(kernel("\tshfl.sync.idx.b32 %r2|%p1, %r1, 30, 31, -1;\n" + store), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], t / 32 * 32 + 30 + 1000);
  // In segments of eight.
  run(kernel("\tshfl.sync.idx.b32 %r2|%p1, %r1, 5, 6175, -1;\n" + store), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], t / 8 * 8 + 5 + 1000);
  run(kernel("\tshfl.sync.up.b32 %r2|%p1, %r1, 1, 6144, -1;\n" + store), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], t % 8 == 0 ? t : t - 1 + 1000);
}

TEST(PtxMachine, Ballots) {
  std::vector<std::uint64_t> words(64);
  run(kernel(R"(
	setp.gt.u32 %p1, %r1, 40;
	vote.sync.ballot.b32 %r2, %p1, -1;
	cvt.u64.u32 %rd2, %r2;
	mul.wide.u32 %rd3, %r1, 8;
	add.s64 %rd4, %rd1, %rd3;
	st.global.u64 [%rd4], %rd2;
)"),
      words);
  EXPECT_EQ(words[0], 0U);
  EXPECT_EQ(words[63], 0xFFFFFE00U);
}

constexpr const char* kShared = "\t.shared .align 8 .b8 k_shared[512];\n";
// Thread t's word becomes t; then it reads that of thread 63 - t.
std::string mirror(const std::string& meeting, const std::string& write = "st.shared.u64 [%r2], %rd2") {
  return kernel(R"(
	shl.b32 %r2, %r1, 3;
	mov.u32 %r3, k_shared;
	add.s32 %r2, %r2, %r3;
	cvt.u64.u32 %rd2, %r1;
	)" + write + ";\n" +
                    meeting + R"(
	sub.s32 %r4, 504, %r2;
	ld.shared.u64 %rd3, [%r4];
	mul.wide.u32 %rd4, %r1, 8;
	add.s64 %rd5, %rd1, %rd4;
	st.global.u64 [%rd5], %rd3;
)",
                kShared);
}

TEST(PtxMachine, ABarrierOrdersSharedMemory) {
  std::vector<std::uint64_t> words(64);
  run(mirror("\tbar.sync 0;\n"), words);
  for (std::uint64_t t = 0; t < 64; ++t)
    EXPECT_EQ(words[t], 63 - t);
}

TEST(PtxMachine, FindsWhatNoBarrierOrders) {
  const std::string what = error_of(mirror(""));
  EXPECT_TRUE(says(what, "with no barrier in between") || says(what, "which nobody has written")) << what;
  EXPECT_PRED2(says, what, ("k: thread "));
  EXPECT_PRED2(says, what, ("k.ptx:"));
  // Within a warp its own barrier does, between warps it does not.
  EXPECT_NE(error_of(mirror("\tbar.warp.sync -1;\n")), "no error");
  const std::string neighbours = R"(
	shl.b32 %r2, %r1, 3;
	xor.b32 %r4, %r2, 8;
	st.shared.u64 [%r2], %rd1;
	MEETING
	ld.shared.u64 %rd3, [%r4];
)";
  const auto with = [&](const std::string& meeting) {
    std::string text = neighbours;
    text.replace(text.find("MEETING"), 7, meeting);
    return error_of(kernel(text, kShared));
  };
  EXPECT_EQ(with("bar.warp.sync -1;"), "no error");
  EXPECT_NE(with("and.b32 %r5, %r4, 8;"), "no error");
}

TEST(PtxMachine, FindsWritesOfSeveralThreads) {
  EXPECT_PRED2(says, error_of(kernel("\tst.shared.u64 [k_shared], %rd1;\n", kShared)),
               ("with no barrier in between"));
  EXPECT_PRED2(
      says,
      error_of(kernel(
          "\tsetp.ne.s32 %p1, %r1, 0;\n\t@%p1 bra $L1;\n\tst.shared.u32 [k_shared], %r1;\n$L1:\n\tbar.sync "
          "0;\n\tatom.shared.add.u32 %r2, [k_shared], %r1;\n",
          kShared)),
      ("no error"));
  EXPECT_PRED2(
      says,
      error_of(kernel(
          "\tsetp.ne.s32 %p1, %r1, 0;\n\t@%p1 bra $L1;\n\tst.shared.u32 [k_shared], %r1;\n$L1:\n\tbar.sync "
          "0;\n\tld.shared.u32 %r2, [k_shared];\n\t@!%p1 bra $L2;\n\tbra.uni $L3;\n$L2:\n\tst.shared.u32 "
          "[k_shared], %r2;\n$L3:\n",
          kShared)),
      ("with no barrier in between"));
}

TEST(PtxSharedMemory, WarpsAreOrderedByBarriersOfTheBlockAlone) {
  SharedMemory memory;
  memory.begin(64, 64);
  const auto order_warps = [&] {
    memory.order_warp(0);
    memory.order_warp(1);
  };
  EXPECT_EQ(memory.use(0, 0, 4, Access::write), "");
  order_warps();
  EXPECT_EQ(memory.use(1, 0, 4, Access::read), "");
  EXPECT_PRED2(says, memory.use(40, 3, 1, Access::read), "byte 3 of shared memory, which thread 0 writes");
  EXPECT_EQ(memory.use(40, 4, 4, Access::write), "") << "other bytes";
  memory.order_all();
  EXPECT_EQ(memory.use(40, 0, 4, Access::read), "");
  EXPECT_PRED2(says, memory.use(3, 0, 4, Access::write), "which thread 40 reads");
  // Once another warp has read it, no barrier of one's own warp helps.
  EXPECT_EQ(memory.use(3, 0, 4, Access::read), "");
  order_warps();
  EXPECT_PRED2(says, memory.use(3, 0, 4, Access::write), "which thread 3 reads");
}

// ---- What is not allowed

TEST(PtxMachine, FindsMemoryThatIsNotTheKernels) {
  EXPECT_PRED2(says, error_of(kernel("\tst.global.u64 [%rd1+512], %rd1;\n")),
               ("which the kernel was not given"));
  EXPECT_PRED2(says, error_of(kernel("\tld.global.u8 %rs1, [%rd1+-1];\n")),
               ("which the kernel was not given"));
  EXPECT_PRED2(says, error_of(kernel("\tld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+504];\n")),
               ("which the kernel was not given"));
  EXPECT_PRED2(says, error_of(kernel("\tld.global.u32 %r2, [%rd1+2];\n")), ("is not aligned"));
  EXPECT_PRED2(says, error_of(kernel("\tst.shared.u64 [k_shared+512], %rd1;\n", kShared)),
               ("shared memory, which has 512"));
  EXPECT_PRED2(says, error_of(kernel("\tld.shared.u64 %rd2, [k_shared+8];\n", kShared)),
               ("which nobody has written"));
  EXPECT_PRED2(says, error_of(kernel("\tld.local.u64 %rd2, [8];\n")), ("its own memory, which has 0"));
  EXPECT_PRED2(says, error_of(kernel("\tld.param.u64 %rd2, [k_param_0+8];\n")),
               ("the parameters, which has 8"));
}

TEST(PtxMachine, FindsThoseWhoWaitForEver) {
  EXPECT_PRED2(says,
               error_of(kernel("\tsetp.eq.s32 %p1, %r1, 5;\n\t@%p1 bra $L1;\n\tbar.warp.sync -1;\n$L1:\n")),
               ("waits for thread 5 of its warp, which does not come"));
  EXPECT_PRED2(says, error_of(kernel("$L1:\n\tbra.uni $L1;\n")), ("does not end"));
  // One that waits for what a later block writes ends only if that runs as well.
  EXPECT_EQ(error_of(kernel(R"(
	mov.u32 %r2, %ctaid.x;
	setp.ne.s32 %p1, %r2, 0;
	@%p1 bra $L2;
$L1:
	nanosleep.u32 20;
	ld.relaxed.gpu.u64 %rd2, [%rd1];
	setp.eq.s64 %p2, %rd2, 0;
	@%p2 bra $L1;
	bra.uni $L3;
$L2:
	st.relaxed.gpu.u64 [%rd1], 1;
$L3:
)"),
                     2),
            "no error");
}

TEST(PtxProgram, SaysWhatItDoesNotKnow) {
  const auto what = [](const std::string& body) {
    try {
      const Program program(kernel(body), "k.ptx");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_PRED2(says, what("\tsin.approx.f32 %f1, %f2;\n"),
               ("k.ptx:10: sin.approx.f32 %f1, %f2;: there is no instruction sin"));
  EXPECT_PRED2(says, what("\tbra $L1;\n"), ("no label $L1"));
  EXPECT_PRED2(says, what("\tadd.s32 %r1, %r2, 12x;\n"), ("'12x' is no number"));
  EXPECT_PRED2(says, what("\tadd.s32 %r1, %r2, 1\n"), ("without its end"));
  const Program program(kernel(""), "k.ptx");
  EXPECT_EQ(program.find("other"), nullptr);
  const std::uint32_t little = 0;
  const Launch launch = {program.find("k"), std::as_bytes(std::span(&little, 1)), {}, 1, 64};
  std::vector<Block> running;
  EXPECT_THROW(Machine(program, launch, running, 1), Error);
}

}  // namespace
}  // namespace heddle::test::ptx
