// The engine's entry points for one instruction set.
#pragma once

#include "onegate.h"
#include "threads.h"

struct Engine {
  const char* name;
  bool (*forward32)(const og_forward&, Watch&);
  bool (*forward64)(const og_forward&, Watch&);
  bool (*backward32)(const og_backward&, Watch&);
  bool (*backward64)(const og_backward&, Watch&);
};
