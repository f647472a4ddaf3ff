# The two commands of kvtier are `make demo` and `make test`; the rest is for its engineers.
.PHONY: all deps demo test test-long soak fuzz coverage gpu-test mutants bench policies tidy install \
	uninstall deb clean

PREFIX ?= /usr/local
DESTDIR ?=
BUILD = build
# What the last `make install` wrote, for `make uninstall`.
INSTALLED = $(BUILD)/installed.txt

all: deps
	@cmake --preset release >/dev/null
	@cmake --build build

deps:
	@tools/install-packages.sh

demo: all
	@tools/demo.sh

test: deps
	@tests/run-tests.sh

# Minutes of `make test-long`, shared out among its suites, and of `make soak`.
MINUTES ?= 60

test-long: all
	@python3 -B tests/long/long_runs.py --minutes $(MINUTES)

# On which disk `make soak` works: a folder with 20 GiB of room.
SOAK_DIR ?= $(BUILD)

soak: all
	@mkdir -p $(SOAK_DIR)
	@python3 -B tests/soak/soak_run.py --minutes $(MINUTES) --dir $(SOAK_DIR)

# Seconds for each fuzz target.
SECONDS ?= 10

fuzz: deps
	@cmake --preset fuzz >/dev/null
	@cmake --build build/fuzz --target fuzz
	@build/fuzz/tests/fuzz_seeds build/fuzz/tests/fuzz-seeds
	@python3 -B tests/fuzz/run_fuzz.py --programs build/fuzz/tests --seconds $(SECONDS) --csv tests/long.csv

coverage: deps
	@tests/coverage/run-coverage.sh

# Exit code 77, and a reason, where there is no GPU.
gpu-test: all
	@tests/gpu/run-gpu-tests.sh

mutants: deps
	@python3 -B tests/mutants/run_mutants.py

bench: all
	@bench/run-bench.sh

policies: all
	@bench/run-policies.sh

tidy: all
	@ctest --test-dir build -L tidy --output-on-failure

install: all
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$$(realpath -ms -- "$(PREFIX)")"
	@mv $(BUILD)/install_manifest.txt "$(INSTALLED)"

uninstall:
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh "$(INSTALLED)"

deb:
	@packaging/make-deb.sh

clean:
	@rm -rf build
