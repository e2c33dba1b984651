// The order in which llama.cpp looks for special tokens in a text. `std::sort` leaves tokens of one length in an order
// of its own, which the same call on the same numbers repeats.

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Sorts ids 0 to n - 1 of `ids` as llama.cpp sorts `cache_special_tokens`: by falling length of their texts, where that
// of the token `ids[i]` is `lengths[ids[i]]`.
extern "C" void terrace_sort_specials(int32_t * ids, size_t n, const size_t * lengths) {
    std::sort(ids, ids + n, [&](const int32_t a, const int32_t b) { return lengths[a] > lengths[b]; });
}
