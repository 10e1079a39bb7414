// How many float operations a second one core does at most: fused multiply-adds on registers alone.
//
//   g++ -O3 -mavx2 -mfma docs/fma_rate.cpp -o fma_rate && ./fma_rate
//   g++ -O3 -mavx512f docs/fma_rate.cpp -o fma_rate && ./fma_rate
#include <algorithm>
#include <chrono>
#include <cstdio>

#ifdef __AVX512F__
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif
typedef float Vector __attribute__((vector_size(4 * kWidth)));

int main() {
  constexpr int kSums = 12, kRounds = 21, kTurns = 2'000'000;
  constexpr double kOperations = 2.0 * kWidth * kSums * kTurns;
  double rates[kRounds];
  for (double& rate : rates) {
    Vector sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = Vector{} + 0.1f * static_cast<float>(i);
    const Vector factor = Vector{} + 0.999f, summand = Vector{} + 0.001f;
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < kTurns; ++turn)
      for (Vector& sum : sums) {
        sum = sum * factor + summand;    // one instruction: GCC fuses the two
        asm volatile("" : "+v"(sum));  // every one of them is done
      }
    rate = kOperations / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(rates, rates + kRounds);
  std::printf("%.1f GFLOP/s on one core (median of %d)\n", 1e-9 * rates[kRounds / 2], kRounds);
}
