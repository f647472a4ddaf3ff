# The two commands of kvtier are `make demo` and `make test`; the rest is for its engineers.
.PHONY: all deps demo test test-long mutants bench tidy install clean

PREFIX ?= /usr/local

all: deps
	@cmake --preset release >/dev/null
	@cmake --build build

deps:
	@tools/install-packages.sh

demo: all
	@tools/demo.sh

test: deps
	@tests/run-tests.sh

test-long: deps
	@tests/run-tests.sh --long

mutants: deps
	@python3 -B tests/mutants/run_mutants.py

bench: all
	@bench/run-bench.sh

tidy: all
	@ctest --test-dir build -L tidy --output-on-failure

install: all
	@cmake --install build --prefix $(DESTDIR)$(PREFIX)

clean:
	@rm -rf build
