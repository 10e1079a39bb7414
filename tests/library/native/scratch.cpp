// Fills the calling thread's scratch, for one instruction set (OG_ISA, as in csrc/isa.cpp); with 0xff,
// whoever reads scratch before writing it computes NaN.
#include <cstring>

#include "plan.h"

namespace OG_ISA {

void fill_scratch(int byte, size_t bytes) {
  std::memset(thread_scratch().reserve(bytes), byte, bytes);
}

}  // namespace OG_ISA
