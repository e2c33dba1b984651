# On a fresh Debian machine, `make demo` and `make test` are all that is needed: both install missing packages with apt.
#
#   make demo      builds, runs the bundled model with streamed experts, and shows what was read
#   make test      lints and all tests
#   make test-all  the same, and what takes too long for every change
#   make build     the release binary: target/release/terrace

CARGO ?= cargo

.PHONY: demo test test-all build lint prerequisites

demo: build
	@scripts/demo

# .config/nextest.toml says which tests run in parallel.
test: prerequisites lint
	@scripts/prerequisites nextest
	$(CARGO) nextest run --release --workspace

# Adds what takes too long for every change: all combinations of the exactness tests, many more reloads.
test-all: test
	THOROUGH_TESTS=1 $(CARGO) nextest run --release --package terrace-engine -- exactness reload

lint: prerequisites
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

build: prerequisites
	$(CARGO) build --release --package terrace

prerequisites:
	@scripts/prerequisites
