# On a fresh Debian machine, `make demo` and `make test` are all that is needed: both install missing packages with apt.
#
#   make demo      builds, runs the bundled model with streamed experts, and shows what was read
#   make test      lints and all tests
#   make test-all  the same, and what takes too long for every change
#   make test-vulkan  devices, on a Vulkan device
#   make test-hosts  the plug-in, in packages of llama.cpp from PyPI and npm
#   make test-trees  older and newer sources of llama.cpp: exactness of all architectures with each
#   make test-origins  scripts of the programs that Terrace unites, unchanged
#   make test-clients  the server, by libraries and programs of its clients from PyPI and npm: part of test-all
#   make fuzz      every fuzz target for a minute: part of test-all
#   make build     the release binary: target/release/terrace; with a backend for devices: GPU=vulkan|cuda|rocm|metal
#                  with the sources of another llama.cpp than the pinned one: LLAMA=DIR
#   make backend GPU=vulkan|cuda|rocm  the same as a library, which a Terrace without it loads: target/release
#   make plugin    target/release/libggml-terrace.so, which a llama.cpp that was built elsewhere loads
#   make cross     the program and the plug-in for 64-bit ARM: target/cross; TARGET=x86_64-pc-windows-gnu for Windows,
#                  TARGET=aarch64-apple-darwin or x86_64-apple-darwin for macOS
#   make dist-arm  the same, as dist/terrace-VERSION-aarch64-linux.tar.gz
#   make dist-windows  dist/terrace-VERSION-x86_64-windows.zip
#   make dist-macos  dist/terrace-VERSION-aarch64-macos.tar.gz, and x86_64
#   make test-arm  runs them, and tests, on emulated ARM processors (qemu-user): part of test-all
#   make dist      target/dist/terrace-VERSION-x86_64-linux.tar.gz, for other machines
#   make dist-check  the same, and runs it on emulated processors (qemu-user)
#   make release   dist/: what is published for this machine (archive, wheel, npm, deb, image root, SBOM, checksums)
#   make release-check  the same, and installs each on a bare Debian
#   make library   target/release/libterrace.so, the library for C
#   make lint      format, clippy, documentation, licences of dependencies

CARGO ?= cargo

.PHONY: demo test test-vulkan test-hosts test-clients test-origins test-all fuzz build backend plugin cross dist-arm dist-windows dist-macos test-arm dist dist-check lint deny prerequisites release release-check library test-trees

demo: build
	@scripts/demo

# .config/nextest.toml says which tests run in parallel. Clients' libraries are downloaded once, where PyPI can be
# reached. Property tests try the same cases each time: a change is judged by what it does, not by a rare case that was
# wrong before; `test-all` looks for those.
test: export PROPTEST_RNG_SEED ?= 1
test: prerequisites lint
	@scripts/prerequisites nextest
	$(CARGO) nextest run --release --workspace
	@TERRACE=$(CURDIR)/target/release/terrace scripts/test-clients --core

# On a Vulkan device, which is Mesa's llvmpipe where there is no GPU. The first run builds the backend, four minutes of
# CPU, and has llvmpipe compile its shaders, a minute or two for each architecture.
test-vulkan: prerequisites
	@scripts/prerequisites nextest
	@scripts/prerequisites vulkan-device
	@scripts/backend vulkan target/backends/lib
	VULKAN_BACKEND=$(CURDIR)/target/backends/lib \
	    $(CARGO) nextest run --release --workspace --run-ignored only -E 'package(=terrace) & test(/^vulkan::/)'

# Downloads the packages, once.
test-hosts: prerequisites
	@scripts/test-hosts

# Downloads the sources, once, and builds each with llama.cpp: as long as make build, each.
test-trees: prerequisites
	@scripts/prerequisites nextest
	@scripts/test-trees

# Fetches the scripts, once. Without a network, one line says so.
test-origins: build
	@TERRACE=$(CURDIR)/target/release/terrace scripts/test-origins

# Downloads the libraries (300 MB) and the programs (1.9 GB), once.
test-clients: build
	@TERRACE=$(CURDIR)/target/release/terrace scripts/test-clients

# Tests with a larger form. They are chosen from the whole workspace: a package alone has other features, for which
# llama.cpp is built again.
THOROUGH = package(/terrace-(engine|serving)/) & test(/exactness|fast|kv_types|reload|drafts/) | \
    package(=terrace) & test(/crash|http_|soak::|templates|plan::/)

# Adds what takes too long for every change: the tests that .config/nextest.toml leaves to it, new and more cases of
# property tests, all combinations of the exactness tests, many more reloads, large storms of clients, five minutes of
# everything at once, the store on plain std, interleavings of threads, Miri where it is installed, 200 kills of
# everything that is written, workers in networks of their own, attacks on the program, and clients' libraries and programs.
test-all: test deny fuzz test-clients
	@scripts/test-portable
	@scripts/model-check
	@scripts/miri
	@scripts/test-arm
	$(CARGO) nextest run --release --workspace --ignore-default-filter -E 'not default()'
	PROPTEST_CASES=2000 $(CARGO) nextest run --release --workspace -E 'package(terrace-plan)'
	THOROUGH_TESTS=1 $(CARGO) nextest run --release --workspace --ignore-default-filter -E '$(THOROUGH)'
	@scripts/test-workers
	@scripts/attack
# Where wine is installed: the first build takes as long as all of the rest for this machine.
	@if [ -x /usr/lib/wine/wine64 ]; then scripts/test-windows; else echo "wine is not installed: nothing for Windows"; fi

# A build of its own, with llama.cpp.
fuzz: prerequisites
	@scripts/fuzz --check
	@scripts/fuzz all 60

lint: prerequisites
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps --workspace --quiet
	$(CARGO) xtask deny
	@for own in fuzz model-check; do (cd $$own && $(CARGO) fmt --check && $(CARGO) update --workspace --locked --quiet) || \
	    { echo "$$own: cargo fmt, or cargo update --workspace, is to be run there"; exit 1; }; done

# The same rules and advisories, by the program that they are written for, where it is installed: building it takes
# longer than Terrace. Advisories need the network.
deny:
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then \
	    echo "cargo-deny is not installed: no advisories (cargo install cargo-deny --locked)"; \
	elif $(CARGO) deny fetch db; then $(CARGO) deny check; \
	else echo "the advisory database cannot be fetched: no advisories"; $(CARGO) deny check licenses bans sources; fi

# GPU=vulkan|cuda|rocm|metal adds ggml's backend for these devices; each takes as long as all of the rest, or longer.
GPU ?=
# LLAMA=DIR builds over the sources of llama.cpp in DIR. What has moved there is named first; a build that the
# structures of its ggml do not fit stops with a line.
LLAMA ?=
WITH_LLAMA = $(CARGO) $(if $(LLAMA),xtask llama "$(LLAMA)")
build: prerequisites
ifneq ($(LLAMA),)
	-$(CARGO) xtask pin "$(LLAMA)"
endif
ifeq ($(GPU),)
	$(WITH_LLAMA) build --release --package terrace
else
	@scripts/with-gpu $(GPU) $(WITH_LLAMA) build --release --package terrace --features $(GPU)
endif

backend: prerequisites
	@scripts/backend "$(GPU)"

# Copied whole, or not at all: a program that runs may have the old one.
plugin: prerequisites
	$(WITH_LLAMA) build --release --package terrace-plugin
	cp target/release/libterrace_plugin.so target/release/libggml-terrace.so.new
	mv target/release/libggml-terrace.so.new target/release/libggml-terrace.so

# Takes as long as make build, and needs a compiler for TARGET, which is installed.
TARGET ?= aarch64-unknown-linux-gnu
cross: prerequisites
	@scripts/cross "$(TARGET)"

dist-arm: prerequisites
	@scripts/dist-arm

dist-windows: prerequisites
	@scripts/dist-windows

dist-macos: prerequisites
	@scripts/dist-macos

test-arm: prerequisites
	@scripts/test-arm

# Three builds, of which each takes as long as make build.
dist: prerequisites
	@scripts/dist

dist-check: dist
	@scripts/dist-check

# All of it is of one version, that of Cargo.toml.
release: prerequisites
	@scripts/prerequisites package
	@scripts/dist
	@scripts/package

release-check: release
	@scripts/release-check

# Its header is crates/terrace-c/include/terrace.h.
library: prerequisites
	$(CARGO) build --release --package terrace-c
	cp target/release/libterrace_c.so target/release/libterrace.so.0.new
	mv target/release/libterrace.so.0.new target/release/libterrace.so.0
	ln -sf libterrace.so.0 target/release/libterrace.so

prerequisites:
	@scripts/prerequisites
