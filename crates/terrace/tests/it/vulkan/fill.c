// A Vulkan layer that fills the descriptors that ggml leaves as they are: all its kernels have sets of 12 buffers, of
// which most use fewer. llvmpipe of Mesa 22 counts references to the buffers of all 12, also to those that do not exist
// any more, in freed memory. Other drivers are left alone.

#include "layer.h"

enum { BUFFERS = 12 };

static int fills;

static void begin(VkPhysicalDevice physical) {
    VkPhysicalDeviceProperties is;
    ((PFN_vkGetPhysicalDeviceProperties) next_instance(instance, "vkGetPhysicalDeviceProperties"))(physical, &is);
    fills = strstr(is.deviceName, "llvmpipe") && VK_API_VERSION_MAJOR(is.driverVersion) < 23;
}

static void update(VkDevice d, uint32_t writes, const VkWriteDescriptorSet * write, uint32_t copies,
        const VkCopyDescriptorSet * copy) {
    VkDescriptorBufferInfo all[BUFFERS];
    VkWriteDescriptorSet filled;
    if (fills && writes == 1 && write->dstBinding == 0 && write->descriptorCount && write->descriptorCount < BUFFERS) {
        for (uint32_t i = 0; i < BUFFERS; i++) {
            all[i] = write->pBufferInfo[i < write->descriptorCount ? i : 0];
        }
        filled = *write;
        filled.descriptorCount = BUFFERS;
        filled.pBufferInfo = all;
        write = &filled;
    }
    NEXT(vkUpdateDescriptorSets)(d, writes, write, copies, copy);
}

const struct function functions[] = {
    { "vkUpdateDescriptorSets", (PFN_vkVoidFunction) update },
    { NULL, NULL },
};
