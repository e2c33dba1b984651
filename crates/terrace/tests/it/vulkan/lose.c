// A Vulkan layer that loses the device: while the file $LOSE_DEVICE exists, work that is handed to the device, and
// waiting for it, fails with VK_ERROR_DEVICE_LOST.

#include "layer.h"

static int lost(void) {
    const char * file = getenv("LOSE_DEVICE");
    return file && access(file, F_OK) == 0;
}

#define NEXT(name) ((PFN_##name) next_device(device, #name))

static VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo * infos, VkFence fence) {
    return lost() ? VK_ERROR_DEVICE_LOST : NEXT(vkQueueSubmit)(queue, count, infos, fence);
}

static VkResult wait(VkDevice d, uint32_t count, const VkFence * fences, VkBool32 all, uint64_t timeout) {
    return lost() ? VK_ERROR_DEVICE_LOST : NEXT(vkWaitForFences)(d, count, fences, all, timeout);
}

static void begin(VkPhysicalDevice physical) {
    (void) physical;
}

const struct function functions[] = {
    { "vkQueueSubmit", (PFN_vkVoidFunction) submit },
    { "vkWaitForFences", (PFN_vkVoidFunction) wait },
    { NULL, NULL },
};
