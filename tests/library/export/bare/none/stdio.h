/* All that the self-test takes of it. */
#pragma once
int printf(const char *, ...);
