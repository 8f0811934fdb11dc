# make demo   SmolLM2 answers a question in this terminal (sets everything up on the first run)
# make test   everything that must hold before a change lands
#
# BUILD=folder, JOBS=n and ORLOP_CACHE=folder may be given; see scripts/lib.sh.
.PHONY: help demo test build bench soak fuzz sanitize format clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile
	@echo "Also: build, bench (LLAMA=folder of llama.cpp's tools), fuzz, sanitize, soak, format, clean"

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

build:
	@scripts/setup.sh
	@scripts/build.sh

# The two parts of `make test` that one wants alone most often.
fuzz:
	@scripts/part.sh fuzz

sanitize:
	@scripts/part.sh sanitize

# Long runs by hand: ten minutes of fuzzing a target, sanitizers over every test, valgrind.
soak:
	@scripts/soak.sh

bench: build
	@scripts/bench.sh

format:
	@scripts/format.sh

clean:
	rm -rf $(or $(BUILD),build) $(or $(BUILD),build)-asan $(or $(BUILD),build)-tsan $(or $(BUILD),build)-fuzz dist
