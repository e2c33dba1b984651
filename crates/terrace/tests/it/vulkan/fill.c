// A Vulkan layer that fills the descriptors that ggml leaves as they are: all its kernels have sets of 12 buffers, of
// which most use fewer. llvmpipe of Mesa 22 counts references to the buffers of all 12, also to those that do not exist
// any more, in freed memory. Other drivers are left alone.

#include "layer.h"
#include <stdio.h>

enum { BUFFERS = 12 };

static int fills;

static void begin(VkPhysicalDevice physical) {
    VkPhysicalDeviceDriverProperties driver = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES };
    VkPhysicalDeviceProperties2 is = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &driver };
    int mesa = 0;
    ((PFN_vkGetPhysicalDeviceProperties2) next_instance(instance, "vkGetPhysicalDeviceProperties2"))(physical, &is);
    fills = driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE && sscanf(driver.driverInfo, "Mesa %d", &mesa) == 1 && mesa < 23;
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
