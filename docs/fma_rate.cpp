// How many float operations a second one core does at most: fused multiply-adds on registers alone.
//
//   g++ -O3 -mavx2 -mfma docs/fma_rate.cpp -o fma_rate && ./fma_rate
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

int main() {
  constexpr int kSums = 12, kRounds = 21, kTurns = 2'000'000;
  constexpr double kOperations = 2.0 * 8 * kSums * kTurns;
  double rates[kRounds];
  for (double& rate : rates) {
    __m256 sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(0.1f * static_cast<float>(i));
    const __m256 factor = _mm256_set1_ps(0.999f), summand = _mm256_set1_ps(0.001f);
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < kTurns; ++turn)
      for (__m256& sum : sums) {
        sum = _mm256_fmadd_ps(sum, factor, summand);
        asm volatile("" : "+x"(sum));  // every one of them is done
      }
    rate = kOperations / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(rates, rates + kRounds);
  std::printf("%.1f GFLOP/s on one core (median of %d)\n", 1e-9 * rates[kRounds / 2], kRounds);
}
