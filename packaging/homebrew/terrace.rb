# Formula of Homebrew, on Linux: brew install terrace-llm/tap/terrace. There is no bottle for macOS yet.
class Terrace < Formula
  desc "Runs GGUF models that do not fit in memory"
  homepage "@URL@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_linux do
    on_intel do
      url "@URL@/releases/download/v@VERSION@/terrace-@VERSION@-x86_64-linux.tar.gz"
      sha256 "@SHA256@"
    end
  end

  depends_on :linux
  depends_on arch: :x86_64

  def install
    # The launcher finds the other files from its own place.
    libexec.install Dir["*"]
    bin.install_symlink libexec/"bin/terrace"
    man1.install_symlink libexec/"share/man/man1/terrace.1"
    bash_completion.install_symlink libexec/"share/bash-completion/completions/terrace"
    zsh_completion.install_symlink libexec/"share/zsh/site-functions/_terrace"
    fish_completion.install_symlink libexec/"share/fish/vendor_completions.d/terrace.fish"
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
