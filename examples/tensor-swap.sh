#!/usr/bin/env bash
# Tries one donor tensor after the other in a running `terrace perplexity --reload-loop`: what each call costs is the next
# perplexity that is printed.
#
# The model and the donors are split so that each shard holds one tensor (`terrace quantize --split-tensors`), cut alike, so that
# a tensor has the same number in both. Each call puts back what the last call replaced, and replaces the next tensor
# whose name matches. When all were tried, the last one is put back, which makes a measurement of the model as it was; then a call
# changes nothing, and the measurements end.
#
#   export LLAMA_HOTSWAP_ENABLED=1
#   export LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT=examples/tensor-swap.sh
#   SOURCE_DIR=donors/iq2_xs terrace perplexity model/model-00001-of-00091.gguf -f text.txt --chunks 8
#
# TERRACE_MODEL   the model's first shard; terrace sets it
# SOURCE_DIR      the folder of the donors' shards
# TENSORS         names of the tensors to try, an extended regular expression
set -euo pipefail

TARGET_DIR=$(dirname -- "${TERRACE_MODEL:?is set by terrace}")
SOURCE_DIR=${SOURCE_DIR:?is the folder of the donors}
TENSORS=${TENSORS:-'blk\.[0-9]+\.ffn_(down|up|gate)_exps\.weight'}
# The number of the shard that was tried last; beside the model, so that each model has its own.
STATE=$TARGET_DIR/.tensor-swap

say() { printf '[tensor-swap] %s\n' "$*"; }

# The name of the first tensor in a shard that is to be tried; tensors' names are behind the metadata, before the data.
tensor_in() { head -c 65536 -- "$1" | grep -aoE -m1 -- "$TENSORS" | head -n 1 || true; }

# A shard's number: `00012` of `...-00012-of-00091.gguf`.
number_of() { local name=${1%-of-*}; printf '%s' "${name##*-}"; }

last=00000
[[ -e $STATE ]] && last=$(<"$STATE")
changed=no

# Put back. A rename brings the very file back, so that its bytes need not be read again.
for backup in "$TARGET_DIR"/*.gguf.bak; do
    [[ -e $backup ]] || continue
    mv -f -- "$backup" "${backup%.bak}"
    say "restored ${backup##*/}"
    changed=yes
done

# The next one.
for target in "$TARGET_DIR"/*-of-*.gguf; do
    number=$(number_of "$target")
    [[ $number > $last ]] || continue
    tensor=$(tensor_in "$target")
    [[ -n $tensor ]] || continue
    donor=
    for donor in "$SOURCE_DIR"/*-"$number"-of-*.gguf; do break; done
    if [[ ! -e $donor || $(tensor_in "$donor") != "$tensor" ]]; then
        say "no donor of $tensor (shard $number): left out"
        continue
    fi
    # Completely there before it gets the name; what it replaces keeps its own under another.
    cp -- "$donor" "$target.new"
    ln -- "$target" "$target.bak"
    mv -f -- "$target.new" "$target"
    printf '%s' "$number" >"$STATE"
    say "swapped $tensor (shard $number)"
    exit 0
done

[[ $changed == yes ]] || { rm -f -- "$STATE"; say "all were tried"; }
