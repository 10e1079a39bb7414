// Runs a package of AOTInductor in a program without Python:
//
//     host model.pt2 T B d
//
// reads T x B x d numbers (float32, as they lie in memory) and writes those of the first output.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: host model.pt2 T B d < input > output\n");
    return 2;
  }
  try {
    torch::inductor::AOTIModelPackageLoader model(words[1]);
    const torch::Tensor x =
        torch::empty({std::stoll(words[2]), std::stoll(words[3]), std::stoll(words[4])});
    const auto expected = static_cast<size_t>(x.numel());
    if (std::fread(x.mutable_data_ptr(), sizeof(float), expected, stdin) != expected) {
      std::fprintf(stderr, "the input ended before %zu numbers\n", expected);
      return 1;
    }
    const torch::Tensor out = model.run({x}).at(0).contiguous();
    std::fwrite(out.const_data_ptr(), sizeof(float), static_cast<size_t>(out.numel()), stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
