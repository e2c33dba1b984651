# Formula of Homebrew: brew install terrace-llm/tap/terrace.
class Terrace < Formula
  desc "Runs GGUF models that do not fit in memory"
  homepage "@URL@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_linux do
    # archive of
    on_intel do
      url "@URL@/releases/download/v@VERSION@/terrace-@VERSION@-x86_64-linux.tar.gz"
      sha256 "@SHA256@"
    end
    # archive of
    on_arm do
      url "@URL@/releases/download/v@VERSION@/terrace-@VERSION@-aarch64-linux.tar.gz"
      sha256 "@ARM_SHA256@"
    end
  end

  on_macos do
    # archive of
    on_intel do
      url "@URL@/releases/download/v@VERSION@/terrace-@VERSION@-x86_64-macos.tar.gz"
      sha256 "@MAC_SHA256@"
    end
    # archive of
    on_arm do
      url "@URL@/releases/download/v@VERSION@/terrace-@VERSION@-aarch64-macos.tar.gz"
      sha256 "@MAC_ARM_SHA256@"
    end
  end

  def install
    # The program finds the other files from its own place.
    libexec.install Dir["*"]
    bin.install_symlink libexec/"bin/terrace"
    # What the program says of itself: archives that are built elsewhere do not have it.
    generate_completions_from_executable(bin/"terrace", "completions")
    (buildpath/"terrace.1").write Utils.safe_popen_read(bin/"terrace", "man")
    man1.install buildpath/"terrace.1"
  end

  service do
    run [opt_bin/"terrace", "serve"]
    keep_alive crashed: true
  end

  test do
    output = shell_output("#{bin}/terrace run -p 'In the beginning' -n 4 --temp 0 --json")
    assert_match "\"tokens\"", output
  end
end
