// The engine's entry points for one instruction set.
#pragma once

#include "onegate.h"
#include "threads.h"

struct og_stream {
  virtual ~og_stream() = default;
  virtual void step() = 0;
};

struct Engine {
  const char* name;
  bool (*forward32)(const og_forward&, Watch&);
  bool (*forward64)(const og_forward&, Watch&);
  bool (*backward32)(const og_backward&, Watch&);
  bool (*backward64)(const og_backward&, Watch&);
  og_stream* (*stream32)(const og_forward&);
  og_stream* (*stream64)(const og_forward&);
  void (*mask8)(uint8_t*, int64_t, uint32_t, uint32_t, uint32_t, uint8_t);
  void (*mask32)(float*, int64_t, uint32_t, uint32_t, uint32_t, float);
  void (*mask64)(double*, int64_t, uint32_t, uint32_t, uint32_t, double);
};
