#include "tokenizers.h"
#include "text/stream.h"

using namespace orlop;
using namespace orlop::test;
TEST(nothing) { CHECK(true); }
int main(int argc, char** argv) { return text_main(argc, argv); }
