# Two commands on a fresh Debian machine: `make demo` and `make test`. Both install what is missing, with apt if they may.
#
#   make demo    builds, runs the bundled model through streaming, and shows that it streamed
#   make test    lints and all tests
#   make build   the release binary: target/release/terrace

CARGO ?= cargo

.PHONY: demo test build lint prerequisites

demo: build
	@scripts/demo

# One test at a time: ggml's threads spin, and two models on the same cores slow each other down by orders of magnitude.
test: prerequisites
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUST_TEST_THREADS=1 $(CARGO) test --release --workspace

build: prerequisites
	$(CARGO) build --release --package terrace

prerequisites:
	@scripts/prerequisites
