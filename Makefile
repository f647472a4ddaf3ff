# The two commands of kvtier are `make demo` and `make test`; the rest is for its engineers.
.PHONY: all deps demo test test-long mutants bench policies tidy install uninstall deb clean

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

test-long: deps
	@tests/run-tests.sh --long

mutants: deps
	@python3 -B tests/mutants/run_mutants.py

bench: all
	@bench/run-bench.sh

policies: all
	@bench/run-policies.sh

tidy: all
	@ctest --test-dir build -L tidy --output-on-failure

install: all
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(abspath $(PREFIX))"
	@mv $(BUILD)/install_manifest.txt "$(INSTALLED)"

uninstall:
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh "$(INSTALLED)"

deb:
	@packaging/make-deb.sh

clean:
	@rm -rf build
